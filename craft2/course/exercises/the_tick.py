"""Exercise 10.1: who is out, and because of what?"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

NOW = 100_000  # ms


class _Group:
    """A group of members whose last signs of life we choose, and what a tick does to it."""

    def __init__(self, module: ModuleType, **silent_ms: int) -> None:
        self._happened, self.states = module.Happened, module.State
        members = {
            f"id-{name}": module.GroupMember(
                member_id=f"id-{name}",
                client_id=name,
                client_host="",
                session_timeout_ms=12_500 if name == "late" else 6_000,
                rebalance_timeout_ms=60_000,
                protocols=(("range", b""),),
                synced=True,
            )
            for name in silent_ms
        }
        for name, silence_ms in silent_ms.items():
            member = members[f"id-{name}"]
            member.deadline_ms = NOW - silence_ms + member.session_timeout_ms
        self.group = module.Group(
            group_id="g",
            state=module.State.STABLE,
            generation=3,
            protocol_type="consumer",
            protocol="range",
            leader=next(iter(members)),
            members=members,
        )
        self._machine: Any = module.Rebalancing(self.group)
        self._machine._now = NOW

    def member(self, name: str) -> Any:
        return self.group.members[f"id-{name}"]

    def tick(self, what: str) -> None:
        doing(f"_evict() {what}")
        self.removals, remove = 0, self._machine._remove

        def counted(gone: Any) -> None:
            self.removals += 1
            remove(gone)

        self._machine._remove = counted
        self._machine._tick()
        self.effects = self._machine._effects

    def left(self) -> list[str]:
        return sorted(member.client_id for member in self.group.members.values())

    def because(self, kind: str) -> list[str]:
        found = [e for e in self.effects if isinstance(e, self._happened) and e.kind == kind]
        return [event.because for event in found]


def check(module: ModuleType) -> str:
    """Deadlines to the millisecond, members that wait, several at once, and the sentences."""
    _to_the_millisecond(module)
    _who_waits(module)
    _several_at_once(module)
    _everybody(module)
    return (
        "out at the deadline and not before, who waits for an answer stays, one rebalance for all "
        "who are out, and a because that names each and its timeout"
    )


def _to_the_millisecond(module: ModuleType) -> None:
    group = _Group(module, early=5_999, there=0)
    group.tick("1 ms before the deadline of `early`")
    equal("who is left before the deadline", group.left(), ["early", "there"])
    equal("the group's state", group.group.state.value, "Stable", "nothing has happened")
    group = _Group(module, there=0, silent=6_000)
    group.tick("at the deadline of `silent`")
    equal("who is left at the deadline", group.left(), ["there"])
    equal("the group's state", group.group.state.value, "PreparingRebalance")
    [because] = group.because("rebalance-begins")
    _sentence(because, "silent", "6.0 s")
    group = _Group(module, there=0, late=13_000)
    group.tick("for a member with a session timeout of 12.5 s, silent for 13")
    _sentence("".join(group.because("rebalance-begins")), "late", "12.5 s")


def _sentence(because: str, name: str, seconds: str) -> None:
    for what, word in (("the member's name", name), ("its session timeout", seconds)):
        that(
            f"the sentence for the record that self._remove was given for the member {name!r}",
            word in because,
            expected=f"a sentence that has {what} in it, {word!r}",
            got=repr(because),
        )


def _who_waits(module: ModuleType) -> None:
    for waiting in ("joining", "syncing"):
        group = _Group(module, waits=7_000, silent=7_000, there=0)
        setattr(group.member("waits"), waiting, "a token")
        group.group.state = group.states.PREPARING_REBALANCE
        if waiting == "syncing":
            group.group.state = group.states.COMPLETING_REBALANCE
        else:
            group.group.rebalance_deadline_ms = NOW + 1_000
        group.tick(f"while `waits` has {waiting} set, and `silent` has not")
        why = f"`waits` waits for our answer ({waiting}): it cannot send anything"
        equal("who is left", group.left(), ["there", "waits"], why)


def _several_at_once(module: ModuleType) -> None:
    group = _Group(module, there=0, ann=6_500, bob=9_000)
    group.tick("with two silent members, `ann` and `bob`")
    equal("who is left of `there`, `ann` and `bob`", group.left(), ["there"])
    once = "one call with both of them: each call says why there is a rebalance"
    equal("calls of self._remove for `ann` and `bob`", group.removals, 1, once)
    begun = group.because("rebalance-begins")
    equal("rebalances that were begun", len(begun), 1)
    for name in ("ann", "bob"):
        _sentence(begun[0], name, "6.0 s")


def _everybody(module: ModuleType) -> None:
    group = _Group(module, ann=6_500, bob=9_000)
    group.tick("when everybody is silent")
    equal("who is left of `ann` and `bob`", group.left(), [])
    equal("the group's state", group.group.state.value, "Empty")


_OUT = "member.deadline_ms <= self._now"
_WAITS = " and not (member.joining or member.syncing)"
_SECONDS = "{member.session_timeout_ms / 1000:.1f} s"
_REMOVE = "\nself._remove(gone)\n"
_RIGHT = f"""gone = []
for member in self.group.members.values():
    if {_OUT}{_WAITS}:
        gone.append((member, f"{{member.name}} sent no heartbeat for {_SECONDS}"))
{_REMOVE}"""

EXERCISE = Exercise(
    id="10.1",
    title="the tick",
    file="phase2_groups/group_rebalance.py",
    hints=(
        "Go through the members once and note who is out and why; take them out afterwards, all "
        "together. What happens to a dictionary that changes while you go through it?",
        "Out is who has deadline_ms <= self._now, unless member.joining or member.syncing is set. "
        "Collect pairs (member, sentence) and give the list to self._remove.",
        "gone = []; for member in self.group.members.values(): if member.deadline_ms <= self._now "
        "and not (member.joining or member.syncing): gone.append((member, f'{member.name} sent no "
        "heartbeat for {member.session_timeout_ms / 1000:.1f} s')). Then self._remove(gone).",
    ),
    check=check,
    explanation=(
        "Silence is the only thing that a coordinator ever learns of a death, so the timeout is "
        "the price of every crash. A member whose join or sync has not been answered owes us "
        "nothing: it is we who are late, and without the exception a slow rebalance would evict "
        "those who wait for it. All who are out go in one step, since each rebalance stops the "
        "others' work."
    ),
    wrong={
        "one too late": edited(_RIGHT, ("<=", "<")),
        "those who wait, too": edited(_RIGHT, (_WAITS, "")),
        "who waits for a sync, too": edited(_RIGHT, (_WAITS, " and not member.joining")),
        "who waits for a join, too": edited(_RIGHT, (_WAITS, " and not member.syncing")),
        "the other way round": edited(_RIGHT, (_OUT, "member.deadline_ms > self._now")),
        "everybody, once one is out": """
            if any(member.deadline_ms <= self._now for member in self.group.members.values()):
                self._remove([(m, f"{m.name} sent no heartbeat for 6.0 s")
                              for m in self.group.members.values()])
        """,
        "only the first": edited(_RIGHT, (_REMOVE, "\nself._remove(gone[:1])\n")),
        "while going through them": edited(
            _RIGHT, ("gone.append((", "self._remove([("), ('s"))', 's")])'), (_REMOVE, "\n")
        ),
        "no rebalance": edited(
            _RIGHT,
            (_REMOVE, "\nfor member, _ in gone:\n    del self.group.members[member.member_id]\n"),
        ),
        "no name": edited(_RIGHT, ("{member.name}", "somebody")),
        "milliseconds": edited(_RIGHT, (_SECONDS, "{member.session_timeout_ms} ms")),
        "six seconds for everybody": edited(_RIGHT, (_SECONDS, "6.0 s")),
    },
)

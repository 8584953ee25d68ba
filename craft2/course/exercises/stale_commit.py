"""Exercise 13.3: who may still speak for the group's present generation?"""

from __future__ import annotations

import importlib
import random
from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

GENERATION, NOW = 1_000, 50_000
REQUESTS = 500


class _Case(NamedTuple):
    words: str
    member_id: str
    generation: int
    expected: str  # the name of the error code
    instance: str | None = None
    state: str = "STABLE"


# In the group: anna; and the static member bob, who came back and is called bob-2 since.
CASES = (
    _Case("anna, of this generation", "anna", GENERATION, "NONE"),
    _Case("anna, who slept through a rebalance", "anna", GENERATION - 1, "ILLEGAL_GENERATION"),
    _Case("anna, who slept for long", "anna", 3, "ILLEGAL_GENERATION"),
    _Case("anna, of no generation", "anna", -1, "ILLEGAL_GENERATION"),
    _Case("anna, of a generation to come", "anna", GENERATION + 1, "ILLEGAL_GENERATION"),
    _Case("one who was put out", "carl", GENERATION, "UNKNOWN_MEMBER_ID"),
    _Case("one who was put out long ago", "carl", 7, "UNKNOWN_MEMBER_ID"),
    _Case("one without a name", "", GENERATION, "UNKNOWN_MEMBER_ID"),
    _Case("bob, under his new id", "bob-2", GENERATION, "NONE", "bob"),
    _Case("bob, under his new id, late", "bob-2", GENERATION - 1, "ILLEGAL_GENERATION", "bob"),
    _Case("the old bob, whose place is taken", "bob-1", GENERATION, "FENCED_INSTANCE_ID", "bob"),
    _Case("the old bob, late too", "bob-1", GENERATION - 1, "FENCED_INSTANCE_ID", "bob"),
    _Case("anna, in the name of bob", "anna", GENERATION, "FENCED_INSTANCE_ID", "bob"),
    _Case("anna, while others join", "anna", GENERATION, "NONE", None, "PREPARING_REBALANCE"),
    _Case("anna, late, while others join", "anna", GENERATION - 1, "ILLEGAL_GENERATION", None,
          "PREPARING_REBALANCE"),
    _Case("anna, late, while the leader decides", "anna", GENERATION - 1, "ILLEGAL_GENERATION",
          None, "COMPLETING_REBALANCE"),
    _Case("anna, of a group that is gone", "anna", GENERATION, "COORDINATOR_NOT_AVAILABLE", None,
          "DEAD"),
)  # fmt: skip


def _machine(module: ModuleType, state: str) -> Any:
    """A machine whose group has anna and bob in it."""
    group_state: Any = importlib.import_module(f"{module.__package__}.group_state")
    members = {
        member_id: module.GroupMember(
            member_id=member_id,
            client_id=member_id,
            client_host="",
            session_timeout_ms=6_000,
            rebalance_timeout_ms=60_000,
            protocols=(("range", b""),),
            group_instance_id=instance,
            deadline_ms=NOW + 1_000,
            synced=True,
        )
        for member_id, instance in (("anna", None), ("bob-2", "bob"))
    }
    group = group_state.Group(
        group_id="g",
        state=module.State[state],
        generation=GENERATION,
        protocol_type="consumer",
        protocol="range",
        leader="anna",
        members=members,
    )
    machine = module.GroupMachine(group)
    machine._now, machine._effects = NOW, []
    return machine


def check(module: ModuleType) -> str:
    """Who asks, who gets which answer, and what becomes of their commits."""
    for case in CASES:
        _ask(module, case)
    commits = [case for case in CASES if case.state == "STABLE"]
    for case in commits:
        _commit(module, case)
    stored = sum(_anybody(module, seed) for seed in range(REQUESTS))
    return (
        f"{len(CASES)} kinds of senders get the right answer; of {len(commits) + REQUESTS} commits "
        f"only those of members of this generation were stored ({stored} of the random ones)"
    )


def _ask(module: ModuleType, case: _Case) -> None:
    machine = _machine(module, case.state)
    generation = int(str(case.generation))  # a number that came in over the network
    request = module.Heartbeat(
        token="h", member_id=case.member_id, generation=generation, group_instance_id=case.instance
    )
    call = f"_fence(): {case.words} (member_id={case.member_id!r}, generation={generation}"
    call += f", group_instance_id={case.instance!r})" if case.instance else ")"
    doing(call)
    before = repr(machine.group)
    got = machine._fence(request)
    that(
        f"what {call} returns, in generation {GENERATION}",
        isinstance(got, module.ErrorCode) and got.name == case.expected,
        expected=f"ErrorCode.{case.expected}",
        got=f"ErrorCode.{got.name}" if isinstance(got, module.ErrorCode) else repr(got),
        difference=_why(case) if isinstance(got, module.ErrorCode) else _NO_CODE,
    )
    that(
        f"the group after {call}",
        repr(machine.group) == before and not machine._effects,
        expected="unchanged",
        got="something else: this only looks",
    )


_NO_CODE = "every way through it has to return an ErrorCode: ErrorCode.NONE if nothing is wrong"


def _why(case: _Case) -> str:
    return {
        "NONE": "refused, a member that is in its right cannot go on",
        "ILLEGAL_GENERATION": "its partitions may be another's by now: it has to join again",
        "UNKNOWN_MEMBER_ID": "nobody of that name is in the group: it has to join as a new one",
        "FENCED_INSTANCE_ID": "two of one name: the one that came first has to stop for good",
        "COORDINATOR_NOT_AVAILABLE": "it has to look for its coordinator again",
    }[case.expected]


def _commit(module: ModuleType, case: _Case) -> bool:
    """Whether a commit by this sender is stored; it must be if all is well, and only then."""
    machine = _machine(module, case.state)
    messages: Any = importlib.import_module(f"{module.__package__}.group_messages")
    request = module.Commit(
        token="c",
        member_id=case.member_id,
        generation=case.generation,
        group_instance_id=case.instance,
        offsets=(("flights", 3, messages.OffsetToCommit(offset=120)),),
    )
    words = f"a commit by {case.words}: ({case.member_id!r}, generation {case.generation}"
    words += f", as {case.instance!r})" if case.instance else ")"
    doing(words)
    effects = machine.handle(request, NOW)
    stored = any(isinstance(effect, messages.Store) for effect in effects)
    wanted = "stored" if case.expected == "NONE" else "refused"
    that(
        f"what becomes of {words}, in generation {GENERATION}",
        stored is (wanted == "stored"),
        expected=wanted,
        got="stored" if stored else "refused",
        difference=_why(case),
    )
    if not stored:
        errors = [reply.error.name for reply in module.replies(effects)]
        equal(f"the answer to {words}", errors, [case.expected])
    return stored


def _anybody(module: ModuleType, seed: int) -> bool:
    rng = random.Random(seed)
    member_id = rng.choice(("anna", "bob-1", "bob-2", "carl"))
    instance = rng.choice((None, "bob")) if member_id.startswith("bob") else None
    generation = GENERATION + rng.choice((-200, -2, -1, 0, 0, 0, 1, 2))
    if instance and member_id == "bob-1":
        expected = "FENCED_INSTANCE_ID"
    elif member_id not in ("anna", "bob-2"):
        expected = "UNKNOWN_MEMBER_ID"
    else:
        expected = "NONE" if generation == GENERATION else "ILLEGAL_GENERATION"
    return _commit(module, _Case(f"sender {seed}", member_id, generation, expected, instance))


_UNKNOWN = "self._unknown(request.member_id, request.group_instance_id)"
_OTHER = "request.generation != self.group.generation"
_RIGHT = f"""
error = {_UNKNOWN}
if error:
    return error
if {_OTHER}:
    return ErrorCode.ILLEGAL_GENERATION
return ErrorCode.NONE
"""
_FIRST = f"error = {_UNKNOWN}\nif error:\n    return error\n"

EXERCISE = Exercise(
    id="13.3",
    title="a stale commit",
    file="phase2_groups/group_machine.py",
    hints=(
        "Two questions in their order: is the sender anybody, and does it speak for the present? "
        "An error code is true in a condition, and ErrorCode.NONE is false.",
        "Ask self._unknown with the request's member_id and group_instance_id, and return what it "
        "says if it is an error. Only then compare request.generation with self.group.generation: "
        "is a generation that is too high any better than one that is too low?",
        f"error = {_UNKNOWN}; if error: return error; if the generations differ: return "
        "ErrorCode.ILLEGAL_GENERATION; else return ErrorCode.NONE.",
    ),
    check=check,
    explanation=(
        "A consumer that paused (garbage collection, a laptop that slept) does not know that it "
        "was given up. Its commit would move the offset of a partition that another one reads by "
        "now: backwards, and records are handled twice; forwards, and they are lost. The "
        "generation is a fencing token: whoever was not there when the group last shared out is "
        "refused. The order matters to the client: ILLEGAL_GENERATION means join again under the "
        "same id, UNKNOWN_MEMBER_ID forget the id, FENCED_INSTANCE_ID stop."
    ),
    wrong={
        "generations not looked at": f"return {_UNKNOWN}",
        "only the generation": f"""
            if {_OTHER}:
                return ErrorCode.ILLEGAL_GENERATION
            return ErrorCode.NONE
        """,
        "the generation first": f"""
            if {_OTHER}:
                return ErrorCode.ILLEGAL_GENERATION
            return {_UNKNOWN}
        """,
        "only older ones refused": edited(_RIGHT, ("!=", "<")),
        "the last generation tolerated": edited(
            _RIGHT, (_OTHER, "abs(request.generation - self.group.generation) > 1")
        ),
        "no generation tolerated": edited(
            _RIGHT, (_OTHER, f"request.generation >= 0 and {_OTHER}")
        ),
        "compared by identity": edited(_RIGHT, ("!=", "is not")),
        "instances not looked at": edited(_RIGHT, ("request.group_instance_id", "None")),
        "member ids looked up by hand": edited(
            _RIGHT,
            (
                _FIRST,
                "if request.member_id not in self.group.members:\n"
                "    return ErrorCode.UNKNOWN_MEMBER_ID\n",
            ),
        ),
        "static members fenced by generation alone": edited(
            _RIGHT, ("if error:", "if error and request.group_instance_id is None:")
        ),
        "stale means unknown": edited(_RIGHT, ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID")),
        "only in a stable group": edited(
            _RIGHT, (_OTHER, f"self.group.state is State.STABLE and {_OTHER}")
        ),
        "not during a rebalance": edited(
            _RIGHT,
            (
                _FIRST,
                _FIRST + "if self.group.state is not State.STABLE:\n"
                "    return ErrorCode.REBALANCE_IN_PROGRESS\n",
            ),
        ),
        "nothing returned when all is well": edited(_RIGHT, ("return ErrorCode.NONE\n", "\n")),
        "true or false": f"return not {_UNKNOWN} and request.generation == self.group.generation",
        "the error raised": edited(
            _RIGHT,
            ("return ErrorCode.ILLEGAL_GENERATION", "raise ValueError('ILLEGAL_GENERATION')"),
        ),
        "a sign of life from whoever asks": edited(
            _RIGHT,
            (_FIRST, f"{_FIRST}self._heard_from(self.group.members[request.member_id])\n"),
        ),
    },
)

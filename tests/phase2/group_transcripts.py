"""Transcripts of a group: commands and, indented, what the machine did. Read by people and tests.

    0.0 join consumer-1            the time in seconds, what is asked, by whom
      -> consumer-1: ...           a reply, to whoever waited for it
      store 1: assignment          an effect
      event stable: ...            what goes on record, with its because
      == Stable, generation 1      the state, when it has changed

Commands: join NAME [static=ID] [knows=A,B] [topics=T] [because=WORDS_WITH_UNDERSCORES] [new]
[named], sync NAME, heartbeat NAME, leave NAME, commit NAME T-P=OFFSET, stored N [ERROR], tick.
`generation=N`
and `id=ID` speak with another generation or id than the member's own. Run this file to write the
transcripts anew after a deliberate change; then read the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_machine import GroupMachine
from phase2_groups.group_messages import (
    Commit,
    Happened,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    OffsetToCommit,
    Reply,
    Store,
    Stored,
    Sync,
    Tick,
)
from phase2_groups.group_state import Group, GroupLimits

FOLDER = Path(__file__).parents[1] / "data" / "groups"


class Play:
    """Carries out commands for members that remember what they were told."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.machine = GroupMachine(Group(group_id="billing"), limits)
        self.ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.asked: dict[str, str] = {}  # token -> name
        self.count = 0

    def run(self, line: str) -> list[str]:
        """The lines to show for one command."""
        at, verb, *rest = line.split()
        words = [word for word in rest if "=" not in word]
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        before = self.machine.group.state, self.machine.group.generation
        event = self.event(verb, words, options)
        lines = []
        for effect in self.machine.handle(event, round(float(at) * 1000)):
            lines.append("  " + self.show(effect))
        group = self.machine.group
        if (group.state, group.generation) != before:
            lines.append(f"  == {group.state.value}, generation {group.generation}")
        return lines

    def event(self, verb, words, options):
        if verb == "tick":
            return Tick()
        if verb == "stored":
            return Stored(number=int(words[0]), error=ErrorCode[(words[1:] or ["NONE"])[0]])
        name = words[0]
        self.count += 1
        token = f"{verb} {self.count}"
        self.asked[token] = name
        own_id = options.get("id", "" if "new" in words else self.ids.get(name, ""))
        if verb == "join":
            topics = options.get("topics", "flights").encode()
            knows = options.get("knows", "range").split(",")
            return Join(
                token=token,
                member_id=own_id,
                new_member_id=f"{name}-{self.count}",
                group_instance_id=options.get("static"),
                client_id=name,
                session_timeout_ms=int(options.get("session", 6000)),
                rebalance_timeout_ms=10_000,
                protocols=tuple((each, topics) for each in knows),
                require_known_member_id="named" not in words,
                reason=options.get("because", "").replace("_", " "),
            )
        if verb == "leave":
            reason = options.get("because", "").replace("_", " ")
            leaver = Leaver(
                member_id=own_id, group_instance_id=options.get("static"), reason=reason
            )
            return Leave(token=token, members=(leaver,))
        member = {
            "token": token,
            "member_id": own_id,
            "generation": int(options.pop("generation", self.generations.get(name, -1))),
            "group_instance_id": options.pop("static", None),
        }
        if verb == "heartbeat":
            return Heartbeat(**member)
        if verb == "sync":
            group = self.machine.group
            shares = [(one, f"share-of-{one}".encode()) for one in group.members]
            return Sync(**member, assignments=tuple(shares if own_id == group.leader else ()))
        assert verb == "commit", verb
        offsets = []
        options.pop("id", None)
        for partition, offset in options.items():
            topic, _, number = partition.rpartition("-")
            offsets.append((topic, int(number), OffsetToCommit(offset=int(offset))))
        return Commit(**member, offsets=tuple(offsets))

    def show(self, effect) -> str:
        match effect:
            case Store():
                what = ", ".join(f"{t}-{p} at {o.offset}" for t, p, o in effect.offsets)
                return f"store {effect.number}: {what or effect.what}"
            case Happened():
                return f"event {effect.kind}: {effect.because}"
            case Reply():
                return self.show_reply(effect)

    def show_reply(self, reply: Reply) -> str:
        verb, name = reply.token.split()[0], self.asked[reply.token]
        said = [] if reply.error is ErrorCode.NONE else [reply.error.name]
        if reply.member_id:
            self.ids[name] = reply.member_id
            said.append(f"you are {reply.member_id}")
        if reply.generation >= 0:
            self.generations[name] = reply.generation
            said.append(f"generation {reply.generation}, {reply.protocol}, {reply.leader} leads")
        if reply.members:
            said.append("members " + " ".join(member_id for member_id, *_ in reply.members))
        if reply.skip_assignment:
            said.append("no new assignment")
        if reply.assignment:
            said.append(reply.assignment.decode())
        said += [error.name for *_, error in (*reply.left, *reply.partitions) if error]
        return f"-> {name} ({verb}): {'; '.join(dict.fromkeys(said)) or 'ok'}"


def replay(text: str) -> str:
    """The transcript again, with what the machine does now below each command."""
    play, lines = Play(), []
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            lines.append(line)
        elif not line.startswith(" "):
            lines += [line, *play.run(line)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.txt")):
        path.write_text(replay(path.read_text()))
        sys.stdout.write(f"wrote {path}\n")

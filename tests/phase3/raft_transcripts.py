"""Transcripts of Raft: what is done to servers and, indented, what follows. For people and tests.

    pass 20                                let 20 ms pass
      11 1 > 2  would you vote for me ...  a message that arrives, and what it says
      22 1 > 3  ... (cut off)              one that does not
      == 1: leader, term 1                 a server's role or term, when it has changed
      == 2: 1: no-op | 1: x=3              its log; a bar stands behind what is committed

Commands: servers N [voters=A,B] [committed=I] [entries=I a message] comes first, then `log N TERMS`
for each that has one. Then: ring N..., pass MS, lead (until somebody new does), propose N WORD,
stop N, start N, cut N..., heal, lose N (all that is on its way to N), read N, compact N, voters N
A B..., transfer N TO. Run this file to write the transcripts anew after a deliberate change; then
read the difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

from craft2.apps.simulate.stage import Stage
from phase3_raft.raft.messages import RaftError

FOLDER = Path(__file__).parents[1] / "data" / "raft"


class Play:
    """Carries out commands, and says what came of each."""

    def __init__(self):
        self.made, self.logs, self.stage = None, {}, None
        self.shown = {}  # server -> what was last said of it
        self.said = set()  # the numbers of the messages that were shown
        self.answers = 0

    def run(self, line):
        """The lines to show for one command."""
        verb, *rest = line.split()
        if verb == "servers":
            options = dict(word.split("=") for word in rest[1:])
            voters = options.get("voters")
            self.made = {
                "servers": int(rest[0]),
                "voters": [int(n) for n in voters.split(",")] if voters else None,
                "committed": int(options.get("committed", 0)),
                "max_append_entries": int(options.get("entries", 1_000)),
            }
            return []
        if verb == "log":
            self.logs[int(rest[0])] = tuple(map(int, rest[1:]))
            return []
        if self.stage is None:
            self.stage = Stage(logs=self.logs, **self.made)
            self.news()
        try:
            self.do(verb, rest)
        except RaftError as error:
            return [f"  refused: {error.problem}", *self.news()]
        return self.news()

    def do(self, verb, rest):
        stage = self.stage
        if verb == "propose":
            stage.propose(int(rest[0]), " ".join(rest[1:]))
            return
        numbers = [int(word) for word in rest]
        match verb:
            case "pass":
                stage.run(numbers[0])
            case "lead":
                stage.run_until_led(besides=stage.leader)
            case "ring":
                stage.time_out(*numbers)
            case "lose":
                flying = [one.number for one in stage.on_the_way() if one.message.to in numbers]
                stage.drop(*flying)
            case "voters":
                stage.change_voters(*numbers)
            case "stop" | "start" | "cut" | "heal" | "read" | "compact" | "transfer":
                getattr(stage, verb)(*numbers)
            case _:
                raise AssertionError(verb)

    def news(self):
        """What has happened since the last time, in the order of time."""
        stage = self.stage
        found = []
        for letter in stage.letters:
            if letter.arrives_ms <= stage.now_ms and letter.number not in self.said:
                self.said.add(letter.number)
                message = letter.message
                fate = "" if letter.fate == "arrives" else f"  ({letter.fate})"
                words = f"{letter.arrives_ms} {message.sender} > {message.to}  {letter.words}{fate}"
                found.append((letter.arrives_ms, 0, letter.number, f"  {words}"))
        for number in stage.numbers:
            look = stage.looks[number][-1]
            state = f"{look.role}, term {look.term}", stage.log(number)
            for words, before in zip(state, self.shown.get(number, ("", "")), strict=True):
                if words != before:
                    found.append((stage.now_ms, 1, number, f"  == {number}: {words}"))
            self.shown[number] = state
        for answer in stage.answers[self.answers :]:
            words = "does not know" if answer.log is None else answer.log
            line = f"  {answer.ms} {answer.server} answers the read of {answer.asked_ms}: {words}"
            found.append((answer.ms, 2, 0, line))
        self.answers = len(stage.answers)
        return [line for *_, line in sorted(found, key=lambda one: one[:3])]


def replay(text):
    """The transcript again, with what the servers do now below each command."""
    play, lines = Play(), []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += play.run(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.txt")) if len(sys.argv) < 2 else map(Path, sys.argv[1:]):
        path.write_text(replay(path.read_text()))

"""The trace of a run: what happened, one action a line; kept in a file, played again, drawn.

A trace has no timers and no chance in it. It says which server's election timer rang, which message
arrived, what a client asked and who crashed, in order; a message that no action delivers is lost.
So any part of a trace is a run of its own, and whatever it leads to has really come from the
servers' code: that is what lets `shrink` take actions away.

The file is JSON: `format`, `nodes`, `bug` (a planted one, or null), `seed`, `rule` and `what` (was
broken), and `actions`, each with

    ms, clock_ms    the true moment, and what the server's clock said
    server, what    who, and which method of `raft_nodes.Nodes`
    arguments       its further ones
    message         with "deliver": as servers send it (`phase3_raft.raft.messages`), as an array

What a file says is checked when it is read (`trace_check`).

>>> trace = Trace(nodes=1, actions=[Action(0, 1, "start", 0), Action(300, 1, "ring", 300)])
>>> for line in replay(trace).lines:
...     print(line)
  1.     0 ms  server 1 starts
  2.   300 ms  the election timer of server 1 rings: leader, term 1, votes for 1, adds 1 (no-op), \
1 committed

Source: Scott and others, "Minimizing Faulty Executions of Distributed Systems" (NSDI 2016).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import msgspec

from craft2.apps.simulate.film import lanes_of
from craft2.apps.simulate.looks import DOWN, Letter, Look, look_at, text_of
from craft2.apps.simulate.raft_bugs import Bug, bug_named
from craft2.apps.simulate.raft_nodes import Action, Nodes
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.stage_words import words_of
from craft2.apps.simulate.trace_check import why_not
from craft2.viz.lanes import Lanes
from phase3_raft.raft.messages import AnyMessage, Entry, EntryKind, RaftError

FORMAT = 1
_WATCHED = 500  # actions; to look at every server's log after each takes its time
_LOST_MS = 12  # how far the arrow of a lost message reaches


class Trace(msgspec.Struct, kw_only=True):
    """See the module."""

    nodes: int
    actions: list[Action]
    bug: str | None = None
    seed: int | None = None
    rule: str | None = None
    what: str = ""
    format: int = FORMAT

    def save(self, path: str | PathLike[str]) -> None:
        """Into a file."""
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Trace:
        """From a file. Raises RaftError, with the field, if it is none that can be played."""
        fix = "give a file that craft2 raft simulate has written, as it was"
        try:
            trace = msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RaftError(f"{str(path)!r} is no trace: {error}", fix) from error
        except OSError as error:
            raise RaftError(f"{str(path)!r} cannot be read: {error.strerror}", fix) from error
        if trace.format != FORMAT:
            raise RaftError(f"{str(path)!r} is a trace of format {trace.format}", fix)
        try:
            bug_named(trace.bug)
        except RaftError as error:
            raise RaftError(f"{str(path)!r}: bug: {error.problem}", error.fix) from error
        wrong = why_not(trace.nodes, trace.actions)
        if wrong:
            raise RaftError(f"{str(path)!r} is no trace that can be played: {wrong}", fix)
        return trace


class Replay(Nodes):
    """Servers to whom the actions of a trace happen. bug: whose classes are used.

    in_order: a message that was not sent is replaced by the oldest that waits; else by the latest.
    actions: what could be done, in place of what was to be done.
    """

    def __init__(self, nodes: int, bug: Bug, in_order: bool = False) -> None:
        super().__init__(nodes, bug.server, bug.disk)
        self.actions: list[Action] = []
        self.broken: Broken | None = None
        self._in_order = in_order
        # By kind; dictionaries of which only the keys count, and their order.
        self._sent: dict[object, dict[AnyMessage, None]] = defaultdict(dict)
        self._waiting: dict[object, dict[AnyMessage, None]] = defaultdict(dict)

    def run(self, actions: Sequence[Action], judged: bool = True) -> None:
        """Do them; then `broken` says what broke, if anything. judged: by the history as well."""
        try:
            for action in actions:
                self.do(action)
            if judged:
                self.judge_history()
        except Broken as broken:
            self.broken = broken
        except (RaftError, LookupError) as error:
            self.broken = Broken("no error of its own", f"{type(error).__name__}: {error}")

    def do(self, action: Action) -> bool:
        """Do one action, if it can be done."""
        self.now_ms = action.ms
        if action.message is None:
            act = getattr(self, action.what)
            return bool(act(action.server, action.clock_ms, *action.arguments))
        message = self._pick(action.message)
        return message is not None and self.deliver(action.server, action.clock_ms, message)

    def carry(self, message: AnyMessage) -> None:
        kind = _kind(message)
        self._sent[kind][message] = self._waiting[kind][message] = None

    def _pick(self, wanted: AnyMessage) -> AnyMessage | None:
        """That message, if it was sent, or else one of its kind: with other actions gone, it may
        say something else."""
        kind = _kind(wanted)
        sent, waiting = self._sent[kind], self._waiting[kind]
        if wanted in sent:
            message = wanted
        elif self._in_order and waiting:
            message = next(iter(waiting))
        elif sent:
            message = next(reversed(sent))
        else:
            return None
        waiting.pop(message, None)
        return message


def _kind(message: AnyMessage) -> tuple[object, ...]:
    return type(message), message.sender, message.to, getattr(message, "pre", False)


class Story(Replay):
    """A replay that is watched; of a long one the last part.

    looks: server -> what it was like, from when on. letters: all messages. done: (ms, words) of
    what was done to servers. lines: everything, to be read.
    """

    def __init__(self, trace: Trace, bug: Bug) -> None:
        super().__init__(trace.nodes, bug)
        self.looks: dict[int, list[Look]] = {i: [] for i in self.members.voters}
        self.letters: list[Letter] = []
        self.done: list[tuple[int, str]] = []
        self.lines: list[str] = []
        self._changed: list[bool] = []  # of each line
        self._flying: dict[AnyMessage, Letter] = {}
        self._unseen = 0  # so many actions are not watched

    def run(self, actions: Sequence[Action], judged: bool = True) -> None:
        self._unseen = max(0, len(actions) - _WATCHED)
        super().run(actions, judged)

    def do(self, action: Action) -> bool:
        before = len(self.actions)
        if before < self._unseen:
            return super().do(action)
        if before == self._unseen:
            for number in self.servers:
                self._look(number)
        try:
            return super().do(action)
        finally:  # what breaks a rule is seen, too
            if len(self.actions) > before:
                self._tell(self.actions[-1], self._look(action.server))

    def carry(self, message: AnyMessage) -> None:
        super().carry(message)
        self._flying[message] = self._letter(message, self.now_ms)

    def _letter(self, message: AnyMessage, sent_ms: int) -> Letter:
        number, until_ms = len(self.letters), self.now_ms + _LOST_MS
        letter = Letter(number, message, sent_ms, until_ms, words_of(message), "lost")
        self.letters.append(letter)
        return letter

    def _look(self, who: int) -> str:
        """Note what a server is like now; returns what has changed, in words."""
        server, looks = self.servers.get(who), self.looks[who]
        before = looks[-1] if looks else None
        if server is not None:
            look = look_at(server, self.now_ms, _text)
        elif before is not None:
            look = before._replace(ms=self.now_ms, role=DOWN, next={}, match={})
        else:
            return ""  # it has been down all the time
        looks.append(look)
        return "" if before is None else _changes(before, look)

    def _tell(self, action: Action, changes: str) -> None:
        words = _words(action)
        if action.message is None:
            self.done.append((action.ms, words))
        else:
            letter = self._flying[action.message]
            if letter.fate == "arrives":  # it was doubled
                letter = self._letter(action.message, letter.sent_ms)
            letter.fate, letter.arrives_ms = "arrives", action.ms
        line = f"{len(self.actions):3}. {action.ms:5} ms  {words}"
        self.lines.append(f"{line}: {changes}" if changes else line)
        self._changed.append(bool(changes))

    def telling(self, most: int = 60) -> list[str]:
        """The lines, and what they come to; of a long run the last ones in which much changed."""
        lines, end = self.lines, str(self.broken or "no rule breaks")
        if len(lines) > most:
            lines = [line for line, changed in zip(lines, self._changed, strict=True) if changed]
            lines = [
                f"{len(self.actions):,} actions; the last that changed something:",
                *lines[-25:],
            ]
        return [*lines, end]

    def lanes(self) -> Lanes:
        """What the player draws."""
        begin_ms = min((seen[0].ms for seen in self.looks.values() if seen), default=self.now_ms)
        done = list(self.done)
        if self.broken is not None:
            done.append((self.now_ms, str(self.broken)))
        looks = {number: seen for number, seen in self.looks.items() if seen}
        letters = [one for one in self.letters if one.message.to in looks]
        return lanes_of(looks, letters, done, begin_ms, self.now_ms + 2 * _LOST_MS)


def replay(trace: Trace, bug: Bug | None = None) -> Story:
    """Play a trace again. bug: the classes to use, in place of those that the trace names."""
    story = Story(trace, bug or bug_named(trace.bug))
    story.run(trace.actions)
    if trace.rule == "liveness" and story.broken is None:
        story.broken = Broken(trace.rule, trace.what)  # what did not happen is not in the actions
    return story


def _text(entry: Entry) -> str:
    """An entry in a word or two."""
    if entry.kind != EntryKind.COMMAND:
        return text_of(entry)
    kind, value = msgspec.msgpack.decode(entry.data)
    return kind if kind == "nothing" else f"{kind} {value}"


def _words(action: Action) -> str:
    """What happened, in words."""
    who, of = f"server {action.server}", action.arguments
    message = action.message
    if message is not None:
        return f"{who} gets from {message.sender}: {words_of(message)}"
    match action.what:
        case "ask":
            wish = f"{of[1]} {of[2]}" if of[2] is not None else f"read ({of[1]})"
            more = f", with {of[4]} entries that mean nothing" if of[4] else ""
            return f"client {of[0]} asks {who} to {wish}{more}"
        case "crash_soon":
            when = ("before", "within", "after", "after it has told others of")[of[0]]
            return f"{who} is going to crash {when} its next write"
        case "change":
            return f"{who} is told to make {list(of[0])} the voters, {list(of[1])} learners"
        case "transfer":
            return f"{who} is told to hand over to {of[0]}"
        case "slow_disk":
            return f"the disk of {who} is {'slow' if of[0] else 'fast again'}"
        case "spare":
            return f"{who} will not crash after all"
        case "ring":
            return f"the election timer of {who} rings"
        case "written":
            return f"the disk of {who} has written"
        case "beat":
            return f"{who} says that it leads"
        case "compact":
            return f"{who} makes a snapshot"
        case what:
            return f"{who} {what}{'es' if what == 'crash' else 's'}"


def _changes(before: Look, now: Look) -> str:
    """What is different, in words."""
    words = []
    if before.role != now.role:
        words.append(now.role)
    if now.role == DOWN:
        return DOWN
    if before.term != now.term:
        words.append(f"term {now.term}")
    if now.voted_for is not None and (before.term, before.voted_for) != (now.term, now.voted_for):
        words.append(f"votes for {now.voted_for}")
    if before.snapshot != now.snapshot:
        words.append(f"a snapshot up to {now.snapshot}")
    had, has = ({cell.index: cell for cell in look.cells} for look in (before, now))
    gone = [i for i in had if i > now.snapshot and (i not in has or has[i].term != had[i].term)]
    new = [i for i in has if i > before.snapshot and (i not in had or has[i].term != had[i].term)]
    if gone:
        words.append(f"gives up {_range(gone)}")
    if new:
        what = [cell.text for i, cell in has.items() if i in new and cell.text != "nothing"]
        words.append(f"adds {_range(new)} ({', '.join(what[:3]) or 'nothing'})")
    known = [
        max([look.snapshot, *(c.index for c in look.cells if c.committed)])
        for look in (before, now)
    ]
    if known[0] != known[1]:
        words.append(f"{known[1]} committed")
    return ", ".join(words)


def _range(numbers: Sequence[int]) -> str:
    first, last = min(numbers), max(numbers)
    return f"{first}" if first == last else f"{first} to {last}"

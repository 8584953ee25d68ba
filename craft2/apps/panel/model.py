"""What the panel's buttons do: a state machine without processes, threads, widgets or time.

One producer writes to a queue that two groups consume, one process each. What a press does depends
on the phase; a pair that is not in the table does nothing.

    phase      Start              Stop                  Kill a consumer   Restart consumers
    idle       spawn all: running
    running                       end the producer:     end one           spawn those that
                                  stopping              that is alive     are not alive
    stopping   spawn what is not  end all: idle         end one           spawn those that
               alive: running                           that is alive     are not alive

*stopping* lasts until every consumer that is alive has caught up; then they end too. Inputs
(`press`, `died`, `acknowledged`, `tick`) return effects: the processes to spawn and to end, which
the caller must carry out at once and in their order.

>>> model = PanelModel()
>>> model.press(Button.START, now_s=0.0)
[Spawn(name='producer'), Spawn(name='archive'), Spawn(name='billing')]
>>> model.press(Button.START, now_s=0.1)
[]
>>> model.press(Button.KILL, now_s=0.2)
[End(name='billing')]
>>> model.acknowledged("producer", [(0, 0), (0, 1)]), model.acknowledged("archive", [(0, 0)])
(None, None)
>>> model.lag("billing"), model.lag("archive")
(2, 1)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

PRODUCER = "producer"
GROUPS = ("archive", "billing")
LIMIT_S = 300.0  # a run that nobody stops stops itself
_WINDOW_S = 1.0  # a rate is that of the last second, or since the sample before if that is longer


class Button(StrEnum):
    """The buttons, by the words on them."""

    START = "Start"
    STOP = "Stop"
    KILL = "Kill a consumer"
    RESTART = "Restart consumers"


class Phase(StrEnum):
    """What the panel is doing."""

    IDLE = "idle"
    RUNNING = "running"
    STOPPING = "stopping"
    CLOSED = "closed"  # for good: another panel has taken its place


@dataclass(frozen=True)
class Spawn:
    """Start this process."""

    name: str


@dataclass(frozen=True)
class End:
    """`kill -9` this process and wait until it is gone."""

    name: str


Effect = Spawn | End
Acks = Iterable[tuple[int, ...]]  # partition, offset, and perhaps more


@dataclass
class PanelModel:
    """The state. Invariant: `alive` is what is running once the effects are carried out."""

    phase: Phase = Phase.IDLE
    alive: set[str] = field(default_factory=set)
    # What was acknowledged, as (partition, offset). Invariant: each group's is a part of `known`.
    known: set[tuple[int, int]] = field(default_factory=set)
    handled: dict[str, set[tuple[int, int]]] = field(
        default_factory=lambda: {group: set() for group in GROUPS}
    )
    twice: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0))
    # One sample a tick, for the charts; they begin at the first start.
    seconds: list[float] = field(default_factory=list)
    lags: dict[str, list[int]] = field(default_factory=lambda: {group: [] for group in GROUPS})
    counts: dict[str, list[int]] = field(
        default_factory=lambda: {name: [] for name in (*GROUPS, PRODUCER)}
    )
    marks: list[tuple[float, str]] = field(default_factory=list)
    trouble: str = ""  # why a process ended by itself
    _began_s: float | None = None  # of the first start
    _stops_at_s: float = 0.0

    def enabled(self, button: Button) -> bool:
        """Whether pressing it would do something."""
        if button is Button.START:
            return self.phase in (Phase.IDLE, Phase.STOPPING)
        if self.phase not in (Phase.RUNNING, Phase.STOPPING):
            return False
        if button is Button.STOP:
            return True
        return bool(self._consumers()) if button is Button.KILL else bool(self._missing(GROUPS))

    def press(self, button: Button, now_s: float) -> list[Effect]:
        """A button was pressed; `now_s` is monotonic time."""
        if not self.enabled(button):
            return []
        if self.phase is not Phase.IDLE:
            self._sample(now_s)  # what was true when it was pressed
        if button is Button.START:
            return self._start(now_s)
        if button is Button.STOP:
            return self._stop(now_s)
        if button is Button.KILL:
            victim = self._consumers()[-1]
            self._mark(now_s, f"{victim} killed")
            return self._end([victim])
        self._mark(now_s, "restarted")
        return self._spawn(GROUPS)

    def died(self, name: str, why: str) -> None:
        """A process ended that nobody had ended."""
        self.alive.discard(name)
        self.trouble = f"the {name} process ended by itself: {why}"

    def closed(self) -> None:
        """All processes are gone, and no button does anything from now on."""
        self.alive.clear()
        self.phase = Phase.CLOSED

    def acknowledged(self, name: str, acks: Acks) -> None:
        """The producer has stored these messages, or a consumer has handled them."""
        for ack in acks:
            message = (ack[0], ack[1])
            self.known.add(message)
            if name in self.handled:
                self.twice[name] += message in self.handled[name]
                self.handled[name].add(message)

    def tick(self, now_s: float) -> list[Effect]:
        """Time has passed: take a sample; end what is to end."""
        if self.phase not in (Phase.RUNNING, Phase.STOPPING):
            return []
        self._sample(now_s)
        if self.phase is Phase.RUNNING and (now_s >= self._stops_at_s or not self.alive):
            return self._stop(now_s)
        if self.phase is Phase.STOPPING and not any(map(self.lag, self._consumers())):
            return self._finish()
        return []

    def lag(self, group: str) -> int:
        """Messages that are there and that `group` has not handled."""
        return len(self.known) - len(self.handled[group])

    def rates(self) -> dict[str, tuple[list[float], list[float]]]:
        """name -> (seconds, messages a second), each rate that of the last second or so."""
        rates: dict[str, tuple[list[float], list[float]]] = {}
        for name, counts in self.counts.items():
            first, values = 0, []
            for now, second in enumerate(self.seconds):
                while first + 1 < now and second - self.seconds[first + 1] >= _WINDOW_S:
                    first += 1
                passed = second - self.seconds[first]
                values.append((counts[now] - counts[first]) / passed if passed else 0.0)
            rates[name] = (self.seconds, values)
        return rates

    def status(self) -> str:
        """The counts, in one line of plain text."""
        parts = [self.phase.value, f"stored {len(self.known):,}"]
        for group in GROUPS:
            again = f", {self.twice[group]} of them twice"
            down = self.phase in (Phase.RUNNING, Phase.STOPPING) and group not in self.alive
            gone = " (not running)" if down else ""
            waiting = f"{self.lag(group):,} waiting"
            parts.append(f"{group}{gone} handled {len(self.handled[group]):,}{again}, {waiting}")
        return "; ".join(parts + [self.trouble] * bool(self.trouble))

    def _start(self, now_s: float) -> list[Effect]:
        if self._began_s is None:
            self._began_s = now_s
        else:
            self._mark(now_s, "started")
        self.trouble = ""
        self.phase = Phase.RUNNING
        self._stops_at_s = now_s + LIMIT_S
        self._sample(now_s)
        return self._spawn((PRODUCER, *GROUPS))

    def _stop(self, now_s: float) -> list[Effect]:
        if self.phase is Phase.STOPPING or not self._consumers():
            return self._finish()
        self.phase = Phase.STOPPING
        self._mark(now_s, "stopped")
        return self._end([PRODUCER])

    def _finish(self) -> list[Effect]:
        self.phase = Phase.IDLE
        return self._end(sorted(self.alive))

    def _spawn(self, names: Iterable[str]) -> list[Effect]:
        missing = self._missing(names)
        self.alive.update(missing)
        return [Spawn(name) for name in missing]

    def _end(self, names: Iterable[str]) -> list[Effect]:
        ending = [name for name in names if name in self.alive]
        self.alive.difference_update(ending)
        return [End(name) for name in ending]

    def _missing(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self.alive]

    def _consumers(self) -> list[str]:
        return [group for group in GROUPS if group in self.alive]

    def _mark(self, now_s: float, words: str) -> None:
        self.marks.append((now_s - (self._began_s or 0.0), words))

    def _sample(self, now_s: float) -> None:
        self.seconds.append(now_s - (self._began_s or 0.0))
        for group in GROUPS:
            self.lags[group].append(self.lag(group))
            self.counts[group].append(len(self.handled[group]) + self.twice[group])
        self.counts[PRODUCER].append(len(self.known))

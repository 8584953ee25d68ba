"""A live panel for a consumer group: add members, let them leave, pause and kill them, and watch.

    panel = group_panel("file:queue", ["flights"], handle_slowly)
    panel                      # the last line of a cell: shows it
    panel.story()              # in the next cell: the run as a figure that stays in the notebook

The members are the processes of a `WorkerPool`; what is drawn is what they and the group report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import ipywidgets

from craft2.clock import SystemClock
from craft2.events import Event
from craft2.viz.lanes import lanes_of_group
from craft2.viz.style import Chart
from craft2.viz.timeline import lane_timeline
from phase2_groups.file_transport import FileTransport
from phase2_groups.worker_pool import Handler, WorkerError, WorkerPool

LIMIT_S = 300.0  # a panel that nobody closes closes itself
MOST_MEMBERS = 10  # as many as there are colours
_DRAW_EVERY_S = 1.0  # or three times as long as drawing takes, if a busy machine needs that
_shown: list[GroupPanel] = []


class Do(StrEnum):
    """The buttons, by the words on them."""

    ADD = "Add a consumer"
    LEAVE = "Let it leave"
    KILL = "Kill it"
    PAUSE = "Pause it"
    RESUME = "Wake it"


def group_panel(
    address: str, topics: Sequence[str], handler: Handler, members: int = 2, **settings: Any
) -> GroupPanel:
    """A new panel with a new group of so many members; the panel made before, if any, ends.

    settings: of the members, as for `WorkerPool`.
    """
    while _shown:
        _shown.pop().close()
    _shown.append(GroupPanel(address, topics, handler, members, **settings))
    return _shown[0]


class GroupPanel:
    """Five buttons, a choice of members, a line of counts, and the lanes of all partitions."""

    def __init__(
        self,
        address: str,
        topics: Sequence[str],
        handler: Handler,
        members: int,
        **settings: Any,
    ) -> None:
        self._clock = SystemClock()
        self._pool = WorkerPool(
            address, topics, "panel", workers=members, handler=handler, **settings
        )
        self._root, self._topics = address.removeprefix("file:"), topics
        self._paused: set[str] = set()
        self._pressed = False
        self._lock = threading.RLock()  # the pool is used by clicks and by the thread that draws
        self._closed = threading.Event()
        self._buttons = {do: ipywidgets.Button(description=do.value) for do in Do}
        for do, button in self._buttons.items():
            button.on_click(self._presser(do))
        self._choice = ipywidgets.Dropdown(description="it:")
        self._choice.observe(lambda _: self._show_buttons(), "value")
        self._status = ipywidgets.Label()
        self._picture = ipywidgets.Image(
            format="png", layout=ipywidgets.Layout(width="100%", max_width="760px")
        )
        row = ipywidgets.HBox(
            [self._choice, *self._buttons.values()],
            layout=ipywidgets.Layout(flex_flow="row wrap"),
        )
        self._box = ipywidgets.VBox([row, self._status, self._picture])
        self._until_s = self._clock.monotonic() + LIMIT_S
        self._refresh()
        self._thread = threading.Thread(target=self._watch, name="group-panel", daemon=True)
        self._thread.start()

    # What one does.

    def press(self, button: str, name: str | None = None) -> None:
        """The same as a click: press("Kill it", "consumer-2"); the member chosen, if none is named.

        A button that makes no sense now does nothing. Raises WorkerError if a member that is to
        leave does not.
        """
        do = Do(button)
        with self._lock:
            who = name or self._choice.value
            if not self._enabled(do, who):
                return
            self._pressed = True
            if do is Do.ADD:
                self._pool.add()
            elif do is Do.PAUSE:
                self._pool.pause(who)
                self._paused.add(who)
            elif do is Do.RESUME:
                self._pool.resume(who)
                self._paused.discard(who)
            elif do is Do.KILL:
                self._pool.kill(who)
            self._refresh()
        if do is Do.LEAVE:  # which takes as long as its handler does: others must not wait for it
            self._pool.stop(who)
            with self._lock:
                self._refresh()

    def _enabled(self, do: Do, who: str | None) -> bool:
        running = [] if self._closed.is_set() else self._pool.running()
        if do is Do.ADD:
            return not self._closed.is_set() and len(running) < MOST_MEMBERS
        if who not in running:
            return False
        if do in (Do.PAUSE, Do.LEAVE):  # who stands still cannot say goodbye
            return who not in self._paused
        return do is Do.KILL or who in self._paused

    # What one sees.

    def status(self) -> str:
        """The counts, in one line of plain text."""
        owners = self._pool.owners()
        parts = []
        for name in self._pool.running():
            count = sum(owner == name for owner in owners.values())
            asleep = ", paused" if name in self._paused else ""
            parts.append(f"{name}: {count} partitions{asleep}")
        end = "closed; " if self._closed.is_set() else ""
        return end + ("; ".join(parts) or "nobody is running")

    def events(self) -> list[Event]:
        """What happened so far."""
        return self._pool.events()

    def story(self) -> Chart:
        """Close; return the run as a figure, with a line for each rebalance printed.

        If no button was pressed, this presses some: add one, pause one, wake it, kill it.
        """
        if not self._pressed and not self._closed.is_set():
            self._play()
        self.close()
        events = self.events()
        for event in events:
            if event.kind == "rebalance-begins":
                print(event.because)
        return lane_timeline(lanes_of_group(events))

    def _play(self) -> None:
        self._settled(self._pool.running())
        self.press(Do.ADD)
        self._settled(self._pool.running())
        victim = self._pool.running()[0]
        self.press(Do.PAUSE, victim)
        self._settled([name for name in self._pool.running() if name != victim])
        self.press(Do.RESUME, victim)
        self._settled(self._pool.running())
        self.press(Do.KILL, victim)
        self._settled(self._pool.running())

    def _settled(self, members: Sequence[str]) -> None:
        """Wait until these and no others have partitions, and every partition has an owner."""
        with FileTransport(self._root) as files:
            counts = files.metadata()
        partitions = sum(counts.get(topic, 0) for topic in self._topics)

        def reached() -> bool:
            owners = self._pool.owners()
            return set(owners.values()) == set(members) and len(owners) == partitions

        self._pool.wait_until(reached)

    # How it is drawn.

    def close(self) -> None:
        """End all members; the buttons do nothing from now on."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._pool.close()
            self._refresh()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _presser(self, do: Do) -> Callable[[object], None]:
        def pressed(_: object) -> None:
            try:
                self.press(do)
            except WorkerError as error:
                self._status.value = str(error)

        return pressed

    def _watch(self) -> None:
        pause_s = _DRAW_EVERY_S
        while not self._clock.wait(self._closed, pause_s):
            began = self._clock.monotonic()
            if began > self._until_s:
                self.close()
                return
            with self._lock:
                self._refresh()
            pause_s = max(_DRAW_EVERY_S, 3 * (self._clock.monotonic() - began))

    def _refresh(self) -> None:
        """Draw what is true now; the lock is held."""
        running = [] if self._closed.is_set() else self._pool.running()
        if list(self._choice.options) != running:
            chosen = self._choice.value
            self._choice.options = running
            self._choice.value = chosen if chosen in running else next(iter(running), None)
        self._show_buttons()
        self._status.value = self.status()
        lanes = lanes_of_group(self.events())
        if lanes.lanes:
            self._picture.value = lane_timeline(lanes)._repr_png_()

    def _show_buttons(self) -> None:
        for do, button in self._buttons.items():
            button.disabled = not self._enabled(do, self._choice.value)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """The widgets, and for a notebook that is read without a kernel the same line always."""
        bundle = dict(self._box._repr_mimebundle_() or {})
        return bundle | {"text/plain": "(a live panel: run this cell to see it)"}

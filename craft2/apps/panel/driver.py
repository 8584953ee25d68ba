"""Runs the panel's processes: carries out what the model says, and tells it what they did.

A thread looks at the processes four times a second as long as the panel is not idle. All calls may
come from any thread. The processes end with this one, even if it is killed (see `processes`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from craft2.apps.lessons.processes import Worker, WorkerError, consume, produce_steadily
from craft2.apps.panel.model import LIMIT_S, PRODUCER, Button, Effect, PanelModel, Phase, Spawn
from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error
from phase1_file_queue.partitioned_queue import PartitionedQueue

PER_SECOND = 100  # messages: slow enough that a slow disk's consumers catch up
EVERY_S = 0.25
_FOR_EVER = 10**12  # messages


class PanelError(Craft2Error):
    """The processes did not do what a story waits for."""


def start_worker(root: Path, name: str, stored: int) -> Worker:
    """The process `name` on the queue at `root`; the producer goes on after `stored` messages."""
    limit_s = LIMIT_S + 60.0
    if name == PRODUCER:
        worker = Worker(produce_steadily, root, stored, PER_SECOND, limit_s=limit_s)
    else:
        worker = Worker(consume, root, name, _FOR_EVER, limit_s=limit_s)
    worker.follow()
    return worker


class Driver:
    """The panel's processes on a new queue in the folder `root`.

    lock: whoever reads the model holds it.
    changed: called, with the lock held, after each look at the processes and after each press.
    """

    def __init__(
        self,
        root: Path,
        changed: Callable[[], None] = lambda: None,
        *,
        start: Callable[[Path, str, int], Worker] = start_worker,
        clock: Clock | None = None,
    ) -> None:
        self.model = PanelModel()
        self.changed = changed
        self._root = root
        self._start = start
        self._clock = clock or SystemClock()
        self.lock = threading.RLock()
        self._workers: dict[str, tuple[Worker, int]] = {}  # and how many acks the model knows
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        PartitionedQueue(root).close()  # consumers want it to be there

    def press(self, button: Button) -> None:
        """A button was pressed; returns when its processes are started or gone."""
        with self.lock:
            if self._closed.is_set():
                return
            self._look()
            self._carry_out(self.model.press(button, self._clock.monotonic()))
            if self.model.phase is not Phase.IDLE and not self._watched():
                self._thread = threading.Thread(target=self._watch, name="panel", daemon=True)
                self._thread.start()
            self.changed()

    def look(self) -> None:
        """Look at the processes now; the thread calls this."""
        with self.lock:
            self._look()
            self._carry_out(self.model.tick(self._clock.monotonic()))
            self.changed()

    def wait_until(self, what: str, reached: Callable[[PanelModel], bool], limit_s: float) -> None:
        """Return when the model has `reached` it; PanelError if it takes longer than `limit_s`."""
        deadline, never = self._clock.monotonic() + limit_s, threading.Event()
        while True:
            with self.lock:
                self._look()
                if reached(self.model):
                    return
                status = self.model.status()
                stuck = self.model.trouble or self._clock.monotonic() > deadline
            if stuck:
                raise PanelError(
                    f"the panel waited for {what}: {status}",
                    "mend what the line says, then run the cell that makes the panel again",
                )
            self._clock.wait(never, 0.05)

    def close(self) -> None:
        """End all processes and the thread; buttons do nothing from now on."""
        with self.lock:
            self._closed.set()
            for name in list(self._workers):
                self._end(name)
            self.model.closed()
            self.changed()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _watched(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _watch(self) -> None:
        while not self._clock.wait(self._closed, EVERY_S):
            self.look()
            with self.lock:
                if self.model.phase is Phase.IDLE:
                    self._thread = None  # under the lock: the next press starts another
                    return

    def _look(self) -> None:
        """Tell the model of new acknowledgements, and of processes that ended by themselves."""
        for name, (worker, _) in list(self._workers.items()):
            running = worker.running
            self._pass_on(name)
            if not running:
                self.model.died(name, self._end(name))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Spawn):
                try:
                    worker = self._start(self._root, effect.name, len(self.model.known))
                except OSError as error:  # no memory, too many processes or files
                    self.model.died(effect.name, str(error))
                else:
                    self._workers[effect.name] = (worker, 0)
            else:
                self._end(effect.name)

    def _end(self, name: str) -> str:
        """Kill the process if it runs; why it had ended, if it had."""
        if name not in self._workers:  # an interrupt came between the model and the process
            return "it was never started"
        worker, _ = self._workers[name]
        why = "it had done its work"
        try:
            if worker.running:
                worker.kill()
            else:
                worker.finish()
        except WorkerError as error:
            why = error.problem
        self._pass_on(name)
        del self._workers[name]
        return why

    def _pass_on(self, name: str) -> None:
        worker, known = self._workers[name]
        new = worker.acks[known:]
        self._workers[name] = (worker, known + len(new))
        self.model.acknowledged(name, new)

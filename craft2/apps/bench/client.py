"""Clients as processes of their own, for loads that threads under one lock cannot make.

A client process is started fresh (nothing is inherited from a notebook's kernel but the module
path), in a session of its own (an interrupt of the kernel is not for it), with its output in a
log file.  It talks with its parent in pickles over two pipes:

    parent                                   client
      job: operation, number, plan    ->
                                      <-     None once warm, or the error that prevented it
      the common start time           ->
                                      <-     its Samples

When the parent dies, however it dies, the pipe closes and the client ends too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from craft2.apps.bench.harness import (
    BenchError,
    MakeOperation,
    Plan,
    Samples,
    prepare,
    repeat,
)
from craft2.clock import Clock

# From "go" to the common start: time for the slowest client to read its pipe.
LEAD_S = 0.05


def run_processes(
    make_operation: MakeOperation, plan: Plan, clock: Clock
) -> tuple[float, list[Samples]]:
    """Run the plan with one process a client; returns the start time and each client's samples.

    Raises `BenchError` when a client cannot start, fails in its warm-up, or dies.
    """
    with contextlib.ExitStack() as stack:
        logs = stack.enter_context(tempfile.TemporaryDirectory(prefix="craft2-clients-"))
        clients = [_Client(number, Path(logs), stack) for number in range(plan.clients)]
        for client in clients:
            client.send((make_operation, client.number, plan, clock))
        for client in clients:
            error = client.receive()
            if error is not None:
                raise error
        start_s = clock.monotonic() + LEAD_S
        for client in clients:
            client.send(start_s)
        return start_s, [client.receive() for client in clients]


class _Client:
    """The parent's end of one client process."""

    def __init__(self, number: int, logs: Path, stack: contextlib.ExitStack) -> None:
        self.number = number
        self._log = logs / f"client-{number}.log"
        # -P keeps the current folder off the module path; what is on ours is what counts.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONPATH": path},
                process_group=0,
            )
        stack.callback(self._end)

    def send(self, message: object) -> None:
        assert self._process.stdin
        try:
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise BenchError(
                f"a client process cannot be given {message!r}: {error}",
                fix="define the operation in a module, at its top level, or use threads",
            ) from error
        except BrokenPipeError as error:
            raise self._died() from error

    def receive(self) -> Any:
        assert self._process.stdout
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._died() from error

    def _died(self) -> BenchError:
        status = self._end()
        said = self._log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        return BenchError(
            f"client process {self.number} ended with status {status}; it said: {said[-1]}",
            fix="make one call of the operation by itself and see",
        )

    def _end(self) -> int:
        """Close its lifeline, which ends it at once whatever it is doing; its exit status."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        return self._process.wait()


def main() -> None:
    """The client process."""
    # What the operation prints goes to the log; the pipe of the pickles is out of its reach.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    reader = threading.Thread(target=_read_requests, args=(requests,), daemon=True)
    reader.start()
    _work(requests, answers)
    reader.join()  # until the parent closes its end


def _work(requests: queue.SimpleQueue[Any], answers: IO[bytes]) -> None:
    job = requests.get()
    if isinstance(job, BenchError):
        return _answer(answers, job)
    make_operation, number, plan, clock = job
    try:
        operation = prepare(make_operation, number, plan)
    except BenchError as error:
        return _answer(answers, error)
    _answer(answers, None)
    start_s = requests.get()
    clock.wait(threading.Event(), start_s - clock.monotonic())
    samples = Samples()
    repeat(operation, number, plan, start_s, clock, samples)
    return _answer(answers, samples)


def _answer(answers: IO[bytes], message: object) -> None:
    pickle.dump(message, answers)
    answers.flush()


def _read_requests(requests: queue.SimpleQueue[Any]) -> None:
    """Hand on what the parent sends; end the process when it is gone, or done with us."""
    while True:
        try:
            requests.put(pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)
        except (AttributeError, ImportError) as error:
            problem = f"the operation cannot be imported in a client process: {error}"
            fix = "define it in a module, at its top level, or use threads"
            requests.put(BenchError(problem, fix=fix))

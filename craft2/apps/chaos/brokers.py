"""The brokers of a run: processes of `craft2 broker`, on their links and disks.

They are started without waiting: one that cannot become ready, because others are cut off, must not
hold up what heals them. Whether all is well is seen from outside (`watcher`).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from craft2.apps.chaos.disks import Disks
from craft2.apps.chaos.links import Links
from craft2.errors import Craft2Error
from craft2.local_process import LocalProcess, complaints

SESSION_MS = 2_000  # a broker that is silent for so long is fenced
MAX_LAG_MS = 3_000  # a replica that is behind for so long is not in sync


class NotWell(Craft2Error):
    """The cluster has not recovered, or did what it should not."""


class Brokers:
    """See the module. Brokers are numbered from 1; all of them run when this is made."""

    def __init__(
        self, numbers: Sequence[int], root: Path, links: Links, disks: Disks, options: Sequence[str]
    ) -> None:
        self.numbers = list(numbers)
        self._links, self._disks, self._options = links, disks, list(options)
        self._errors: dict[int, IO[str]] = {
            number: (root / f"broker-{number}.errors").open("a+") for number in numbers
        }
        self._processes: dict[int, LocalProcess] = {}
        self.start(*numbers)

    @property
    def bootstrap_servers(self) -> str:
        """Where all of them are, for clients."""
        return ",".join(map(str, self._links.advertised.values()))

    def start(self, *numbers: int) -> None:
        """Start those that do not run."""
        for number in numbers:
            if number not in self._processes:
                self._processes[number] = LocalProcess(
                    *("broker", "--data-dir", str(self._disks.folder(number))),
                    *("--broker-id", str(number), "--session-ms", str(SESSION_MS)),
                    *("--max-lag-ms", str(MAX_LAG_MS), *self._links.options(number)),
                    *self._options,
                    errors=self._errors[number],
                    within=self._links.within(number),
                    wait=False,
                )

    def kill(self, *numbers: int) -> None:
        """`kill -9`, to all of them before it is waited for any."""
        for number in numbers:
            self._processes[number].send_signal(signal.SIGKILL)
        for number in numbers:
            self._processes.pop(number).wait()

    def stop(self, number: int) -> int:
        """`kill -TERM`; returns the exit status."""
        return self._processes.pop(number).stop()

    def pause(self, number: int) -> None:
        """It stands still."""
        self._processes[number].send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        """After `pause`."""
        self._processes[number].send_signal(signal.SIGCONT)

    def ended(self) -> dict[int, int]:
        """Those that ended without having been told to, and their exit status; each is told once.

        `start` starts them again.
        """
        gone = [number for number, one in self._processes.items() if not one.runs]
        return {number: self._processes.pop(number).wait() for number in gone}

    def complaints(self) -> dict[int, list[str]]:
        """What each has said on standard error so far, by lines."""
        return {number: complaints(file).splitlines() for number, file in self._errors.items()}

    def close(self) -> None:
        """End all of them."""
        self.kill(*self._processes)
        for file in self._errors.values():
            file.close()

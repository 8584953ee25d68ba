"""A server of ours as a process of its own, from a cell or a test: it ends when its starter does.

It is a verb of the command line that prints `ready HOST:PORT` when it serves, and that ends when
its standard input does (`--with-stdin`): not even a `kill -9` of its starter leaves it behind.
"""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

from craft2.errors import Craft2Error

READY_S = 40.0  # a cell that waits for it ends before its own limit
_TIME = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", re.MULTILINE)


class NotStarted(Craft2Error):
    """The process has ended before it was ready, or is not ready after `READY_S`."""


class LocalProcess:
    """See the module. address: what it said, `host:port`.

    errors: a file for what it complains about, which may be shared by several in turn. Not a pipe:
        nobody reads it, and a full one would stop the process.
    """

    def __init__(
        self, *arguments: str, errors: IO[str], wait: bool = True, within: Sequence[str] = ()
    ) -> None:
        """The verb and its options. wait: until it is ready; else call `ready`. within: a command
        that becomes the one it is given, in a place of its own, such as `ip netns exec NAME`.

        Raises NotStarted.
        """
        self._words, self._errors = arguments, errors
        self._begins = errors.seek(0, os.SEEK_END)
        self._last_words = ""
        self._process = subprocess.Popen(
            [*within, sys.executable, "-P", "-m", "craft2.apps.cli", *arguments, "--with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # So that Ctrl-C is its starter's alone. Not a session of its own: Linux shares the
            # processors by session first (autogroup, see sched(7)), and a client would wait for
            # its broker twice as long (`make bench ARGS=cluster-latency`).
            process_group=0,
        )
        self.address = ""
        if wait:
            self.ready()

    def ready(self) -> None:
        """Wait until it is. Raises NotStarted; it has ended then."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], READY_S)[0]:
            self.kill()
            raise self._not_started(f"is not ready after {READY_S:g} s")
        line = self._process.stdout.readline()
        if len(line.split()) != 2:
            self.wait()
            self._last_words = line.strip() or self._last_words
            raise self._not_started("has not started")
        self.address = line.split()[1]

    def _not_started(self, problem: str) -> NotStarted:
        """What it has said is the reason, and mostly has the fix in it."""
        said = self.said().removeprefix("craft2: ")
        words = f"craft2 {self._words[0]} {problem}: {said or 'it has said nothing'}"
        by_hand = f"start it by itself, and see: craft2 {shlex.join(self._words)}"
        return NotStarted(words, "" if " Fix: " in said else by_hand)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def send_signal(self, number: int) -> None:
        """Nothing happens if it has ended."""
        self._process.send_signal(number)

    def said(self) -> str:
        """What it has complained about so far, and its last words if there was no room for them."""
        both = (complaints(self._errors, self._begins), self._last_words)
        return "\n".join(filter(None, both))

    def wait(self) -> int:
        """Until it ends; returns its exit status, or minus the signal that ended it."""
        status = self._process.wait()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is not None:
            stdin.close()
        if stdout is not None and not stdout.closed:
            self._last_words = stdout.read().strip()
            stdout.close()
        return status

    def kill(self) -> None:
        """`kill -9`."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """`kill -TERM`, after which it ends in good order; returns the exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait()


def complaints(errors: IO[str], begin: int = 0) -> str:
    """What is in the file so far, without the times of the lines. begin: where it had ended
    before."""
    errors.seek(begin)
    return _TIME.sub("", errors.read()).strip()

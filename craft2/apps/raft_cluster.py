"""A Raft cluster of real processes on this machine, to be killed, stopped and cut apart.

    with RaftCluster(folder) as cluster:
        leader = cluster.append(7)             # who leads, and has done it
        cluster.kill(leader)                   # kill -9
        leader = cluster.wait_for_leader()     # another one
        cluster.ask(leader, "list")            # [7]

Each runs `craft2 raft serve` and ends when this process does. Between each two of them, and in each
direction, there is a relay (`craft2.relay`), which can be cut.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error
from craft2.events import Event, read_events
from craft2.net import Address, parse_address
from craft2.relay import Relays

_NOWHERE = Address("127.0.0.1", 1)  # nobody listens there
TIMEOUT_S = 2.0


class ClusterError(Craft2Error):
    """A process that does not start, or something that does not come to pass."""


class Refused(Craft2Error):
    """A server's answer is an error; `kind` is its name, `leader` whom it takes for the leader."""

    def __init__(self, kind: str, because: str, leader: int | None) -> None:
        super().__init__(f"{kind}: {because}")
        self.kind, self.leader = kind, leader


class Connection:
    """One client of one server: lines of JSON, one question at a time. Raises OSError, Refused."""

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._lines = self._socket.makefile("rb")

    def ask(self, op: str, **fields: object) -> Any:
        """Ask, and wait for the answer."""
        self._socket.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise ConnectionResetError("the server has hung up")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer["because"], answer.get("leader"))
        return answer.get("result")

    def close(self) -> None:
        """Hang up."""
        self._lines.close()
        self._socket.close()


class RaftCluster:
    """See the module. options: more for `craft2 raft serve`."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        nodes: int = 3,
        *,
        options: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ids = tuple(range(1, nodes + 1))
        self.clients: dict[int, Address] = {}  # where each answers clients
        self._options = options
        self._clock = clock or SystemClock()
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._relays = Relays()
        self._peers = {
            a: {b: self._relays.add(f"{a}-{b}", _NOWHERE) for b in self.ids} for a in self.ids
        }
        try:
            for server_id in self.ids:
                self.start(server_id)
        except BaseException:
            self.close()
            raise

    # What one does to them.

    def start(self, server_id: int, *options: str) -> None:
        """Start a server, again if it was there before; returns when it is ready. options: more."""
        peers = ",".join(f"{to}={at}" for to, at in self._peers[server_id].items())
        with open(self.folder / f"server-{server_id}.err", "ab") as err:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "craft2.apps.cli", "raft", "serve"),
                    *("--id", str(server_id), "--peers", peers, "--listen", "127.0.0.1:0"),
                    *("--dir", str(self.folder / f"server-{server_id}"), "--with-stdin"),
                    *("--events", str(self._events_file(server_id)), *self._options),
                    *options,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                process_group=0,
            )
        self._processes[server_id] = process
        assert process.stdout is not None
        words = process.stdout.readline().replace(",", "").split()
        if len(words) != 8:
            self._end(self._processes.pop(server_id))
            raise ClusterError(f"server {server_id} has not started: {self._last_words(server_id)}")
        for other in self.ids:
            self._relays.aim(f"{other}-{server_id}", parse_address(words[4]))
        self.clients[server_id] = parse_address(words[7])

    def kill(self, server_id: int) -> None:
        """`kill -9`."""
        self._end(self._processes.pop(server_id))

    def stop(self, server_id: int) -> int:
        """`kill -TERM`; returns the exit status."""
        process = self._processes.pop(server_id)
        process.terminate()
        status = process.wait()
        self._end(process)
        return status

    def pause(self, server_id: int) -> None:
        """`kill -STOP`: its connections stay, and it says nothing."""
        os.kill(self._processes[server_id].pid, signal.SIGSTOP)

    def resume(self, server_id: int) -> None:
        """`kill -CONT`: it does not know that time has passed."""
        os.kill(self._processes[server_id].pid, signal.SIGCONT)

    def cut(self, some: Iterable[int]) -> None:
        """Nothing gets from these to the others, or back."""
        some = set(some)
        self._relays.cut(
            f"{a}-{b}" for a in self.ids for b in self.ids if (a in some) != (b in some)
        )

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self._relays.heal()

    # What one sees of them.

    def running(self) -> list[int]:
        """Who has not ended."""
        return [i for i, process in sorted(self._processes.items()) if process.poll() is None]

    def ask(self, server_id: int, op: str, **fields: object) -> Any:
        """Ask one server one thing. Raises OSError if it does not answer, Refused."""
        connection = Connection(self.clients[server_id])
        try:
            return connection.ask(op, **fields)
        finally:
            connection.close()

    def status(self, server_id: int) -> dict[str, Any]:
        """How one server sees things; empty if it does not say."""
        try:
            status: dict[str, Any] = self.ask(server_id, "status")
        except (OSError, Refused):
            return {}
        return status

    def leader(self, among: Iterable[int] | None = None) -> int | None:
        """Who leads the latest term that any of them knows of."""
        seen = [self.status(i) for i in (self.running() if among is None else among)]
        term = max((status["term"] for status in seen if status), default=0)
        for status in seen:
            if status and status["role"] == "leader" and status["term"] == term:
                return int(status["id"])
        return None

    def wait_for_leader(self, among: Iterable[int] | None = None) -> int:
        """Who leads, once somebody does."""
        some = None if among is None else list(among)
        leader: int | None = None

        def found() -> bool:
            nonlocal leader
            leader = self.leader(some)
            return leader is not None

        self.wait_until(found)
        assert leader is not None
        return leader

    def ask_leader(self, op: str, **fields: object) -> Any:
        """Ask whoever leads, again if it leads no more or not for long enough yet: only for what
        may be asked twice, as reads and changes of members.

        Raises ClusterError if nobody answers for long, Refused for any other reason.
        """

        def may_ask_again(error: OSError | Refused) -> bool:
            moved = ("NotLeader", "OutcomeUnknown")
            return (
                not isinstance(error, Refused) or error.kind in moved or "try again" in str(error)
            )

        return self._ask_leader(op, fields, may_ask_again)[1]

    def append(self, value: object) -> int:
        """Append to the list, at whoever leads, which is returned.

        Another one is asked only when nothing has happened (NotLeader). Raises ClusterError if
        nobody leads for long, OSError or Refused for any other reason.
        """

        def may_ask_again(error: OSError | Refused) -> bool:
            return isinstance(error, Refused) and error.kind == "NotLeader"

        return self._ask_leader("append", {"value": value}, may_ask_again)[0]

    def _ask_leader(
        self,
        op: str,
        fields: dict[str, object],
        may_ask_again: Callable[[OSError | Refused], bool],
    ) -> tuple[int, Any]:
        """Who led, and what it answered."""
        answer: list[tuple[int, Any]] = []

        def answered() -> bool:
            leader = self.leader()
            if leader is not None:
                try:
                    answer.append((leader, self.ask(leader, op, **fields)))
                except (OSError, Refused) as error:
                    if not may_ask_again(error):
                        raise
            return bool(answer)

        self.wait_until(answered)
        return answer[0]

    def wait_until(self, reached: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Return when `reached()` is true. Raises ClusterError if that takes longer, or if a server
        ends by itself."""
        until, never = self._clock.monotonic() + timeout_s, threading.Event()
        while not reached():
            ended = [i for i, process in self._processes.items() if process.poll() is not None]
            if ended:
                words = self._last_words(ended[0])
                raise ClusterError(f"server {ended[0]} has ended: {words}")
            if self._clock.monotonic() > until:
                seen = {i: self.status(i) for i in self.running()}
                raise ClusterError(f"waited {timeout_s:.0f} s in vain; they say: {seen}")
            self._clock.wait(never, 0.005)

    def events(self, server_id: int) -> list[Event]:
        """What a server has reported so far."""
        return read_events(self._events_file(server_id)).events

    def _events_file(self, server_id: int) -> Path:
        return self.folder / f"server-{server_id}.events"

    def _last_words(self, server_id: int) -> str:
        said = (self.folder / f"server-{server_id}.err").read_text().strip().splitlines()
        return said[-1] if said else "without a word"

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def close(self) -> None:
        """Kill all of them."""
        for process in self._processes.values():
            self._end(process)
        self._processes.clear()
        self._relays.close()

    def __enter__(self) -> RaftCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

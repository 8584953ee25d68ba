"""Leadership by locks on several machines: what notebook 22 opens with, and why it is not enough.

Each site is a machine: a folder with a copy of a topic, and a lock file beside it. Who holds the
locks of enough sites leads; it appends to its own copy and to all that it reaches. That is phase
2's way, a kernel lock that decides, taken to more than one machine.

>>> import tempfile
>>> sites = Sites(tempfile.mkdtemp(), ["ann", "bob"], enough=1)
>>> sites.lead("ann"), sites.lead("bob")
(True, False)
>>> sites.send("ann", "a")
True
>>> sites.read("bob")
['a']
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from craft2.checker import Report, check
from craft2.disk import Lock, RealDisk
from craft2.history import Message, Operation
from craft2.record_batch import decode_all, encode_values
from phase2_groups.file_transport import FileTransport, create_topic

_TOPIC = "orders"


class Sites:
    """See the module.

    enough: how many locks make a leader, and how many copies an acknowledgement.
    """

    def __init__(self, folder: str | os.PathLike[str], names: Sequence[str], enough: int) -> None:
        self.names = list(names)
        self.enough = enough
        self.history: list[Operation] = []
        self._folder = os.fspath(folder)
        self._away: set[str] = set()  # the sites on the other side of the cut
        self._held: dict[str, dict[str, Lock]] = {name: {} for name in names}  # leader -> its locks
        self._leads: set[str] = set()  # who believes that it leads
        for name in names:
            create_topic(self._root(name), _TOPIC, 1)

    def _root(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _reached(self, name: str) -> list[str]:
        return [other for other in self.names if (other in self._away) == (name in self._away)]

    # Leading.

    def lead(self, name: str) -> bool:
        """Try to become the leader: take the lock of every site that can be reached."""
        held = self._held[name]
        for site in self._reached(name):
            lock = RealDisk().lock(os.path.join(self._root(site), "leader.lock"))
            if site not in held and lock.acquire(wait=False):
                held[site] = lock
        if len(held) >= self.enough:
            self._leads.add(name)
        else:
            self._let_go(name, list(held))
        return name in self._leads

    def leaders(self) -> list[str]:
        """All who believe that they lead."""
        return sorted(self._leads)

    def stop(self, name: str) -> None:
        """The leader's process ends; its machine, and what is on its disk, remain."""
        self._let_go(name, list(self._held[name]))
        self._leads.discard(name)

    def _let_go(self, name: str, sites: Sequence[str]) -> None:
        for site in sites:
            self._held[name].pop(site).close()

    # The network.

    def cut(self, *names: str) -> None:
        """Cut these sites off. A lock at a site that its holder does not reach any more goes: its
        lease runs out there. The holder does not hear of it."""
        self._away = set(names)
        for name in self.names:
            reached = self._reached(name)
            self._let_go(name, [site for site in self._held[name] if site not in reached])

    def heal(self) -> None:
        """Join all again. The longest copy replaces the others, and its site leads on."""
        self._away = set()
        best = max(self.names, key=lambda name: (len(self.read(name)), name in self._leads))
        for name in self.names:
            if name != best:
                self.stop(name)
                shutil.rmtree(self._root(name))
                shutil.copytree(self._root(best), self._root(name))

    # Records.

    def send(self, name: str, value: str) -> bool:
        """Store an order through `name`; whether it is acknowledged."""
        if name not in self._leads:
            return False
        stored, offset = 0, len(self.read(name))
        for site in self._reached(name):
            with FileTransport(self._root(site)) as files:
                batch = encode_values([value.encode()], timestamps=0)
                files.produce({(_TOPIC, 0): batch}, acks=-1, timeout_ms=1_000)
            stored += 1
        acknowledged = stored >= self.enough
        sent = Message(_TOPIC, 0, offset, value)
        now, outcome = len(self.history), "ok" if acknowledged else "info"
        self.history.append(Operation(f"client of {name}", "send", now, now, outcome, (sent,)))  # type: ignore[arg-type]
        return acknowledged

    def read(self, name: str) -> list[str]:
        """What a site's copy holds."""
        with FileTransport(self._root(name)) as files:
            [found] = files.fetch({(_TOPIC, 0): 0}, max_wait_ms=0).values()
        return [(record.value or b"").decode() for record in decode_all(found.data)]

    def judge(self, name: str) -> Report:
        """The checker's report on all that was sent, and on what a reader finds at `name` now."""
        polled = [Message(_TOPIC, 0, i, v) for i, v in enumerate(self.read(name))]
        now = len(self.history)
        reader = Operation("reader", "poll", now, now, "ok", polled=polled)
        return check([*self.history, reader])

"""The network between brokers, and how it is cut: for real where this is allowed.

As root on Linux each broker gets a network namespace of its own, on a bridge: an address, a cable,
a kernel's own table of neighbours. `cut(1, 2)` gives broker 1 a false hardware address for broker
2: what it sends goes out and arrives nowhere, without an error, while what 2 sends still arrives.
It needs nothing but `ip` (no firewall, no traffic control). `unplug` takes the bridge's end of the
cable down. Clients are outside, at the bridge.

Anywhere else a TCP relay stands before each broker (`craft2.relay`). It can do less, and says what.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from typing import Protocol

from craft2.errors import Craft2Error
from craft2.net import Address, free_ports
from craft2.relay import Relays

_PORT, _RAFT_PORT = 9092, 9093
_NOBODY = "02:00:00:00:00:00"  # a hardware address that nothing here has
_NETWORK = "198.18"  # RFC 2544: for tests of networks, so nobody else is there


class LinksError(Craft2Error):
    """The network of the brokers cannot be made."""


class Links(Protocol):
    """See the module. about: what it is, in words. lacks: fault -> why it cannot be done."""

    about: str
    lacks: dict[str, str]
    advertised: dict[int, Address]

    def options(self, broker: int) -> list[str]:
        """Of `craft2 broker`: where it listens, what it is called, who votes."""

    def within(self, broker: int) -> list[str]:
        """The command that starts another one where this broker lives."""

    def cut(self, source: int, target: int) -> None:
        """What one broker sends does not reach another, and nobody is told."""

    def unplug(self, broker: int) -> None:
        """Cut it off from all, clients too."""

    def heal(self) -> None:
        """Everybody reaches everybody."""

    def close(self) -> None: ...


def make_links(brokers: Sequence[int], *, root: bool) -> Links:
    """Namespaces if this is allowed, else relays, with the reason in `about`. root: False: do not
    even try. Raises NetError."""
    why = "not asked for" if not root else why_no_namespaces()
    if why:
        return RelayLinks(brokers, why)
    return NamespaceLinks(brokers)


def why_no_namespaces() -> str:
    """Why there can be no network namespaces here; empty if there can."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "only root makes network namespaces"
    if shutil.which("ip") is None:
        return "there is no `ip` here; the package iproute2 has it"
    name = f"c2-{os.getpid()}-try"
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"c2{os.getpid()}t", "type", "bridge")
    except LinksError as error:
        return error.problem
    finally:
        _try("netns", "del", name)
        _try("link", "del", f"c2{os.getpid()}t")
    return ""


class NamespaceLinks:
    """One network namespace a broker. See the module."""

    def __init__(self, brokers: Sequence[int]) -> None:
        """Raises LinksError."""
        sweep_namespaces()
        self.about = "a network namespace for each broker"
        self.lacks: dict[str, str] = {}
        self._brokers = list(brokers)
        self._bridge = f"c2{os.getpid()}b"
        self._cut: set[tuple[int, int]] = set()
        net = _free_network()
        self.advertised = {n: Address(f"{net}.{n}", _PORT) for n in brokers}
        voters = (f"{n}={net}.{n}:{_RAFT_PORT}" for n in brokers)
        self._voters = ",".join(voters)
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{net}.254/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for number in brokers:
                self._make(number)
        except BaseException:
            self.close()
            raise

    def _make(self, broker: int) -> None:
        name, cable = self._name(broker), self._cable(broker)
        address = self.advertised[broker].host
        _ip("netns", "add", name)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "link", "set", "eth0", "up")

    def _name(self, broker: int) -> str:
        return f"c2-{os.getpid()}-{broker}"

    def _cable(self, broker: int) -> str:
        return f"c2{os.getpid()}v{broker}"

    def options(self, broker: int) -> list[str]:
        """As Links."""
        return [
            *("--host", "0.0.0.0", "--port", str(_PORT)),
            *("--advertised", str(self.advertised[broker])),
            *("--voters", self._voters, "--raft-listen", f"0.0.0.0:{_RAFT_PORT}"),
        ]

    def within(self, broker: int) -> list[str]:
        """As Links."""
        return ["ip", "netns", "exec", self._name(broker)]

    def cut(self, source: int, target: int) -> None:
        """As Links."""
        at = self.advertised[target].host
        where = ("-n", self._name(source), "neigh", "replace", at)
        _ip(*where, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
        self._cut.add((source, target))

    def unplug(self, broker: int) -> None:
        """As Links."""
        _ip("link", "set", self._cable(broker), "down")

    def heal(self) -> None:
        """As Links."""
        for source, target in sorted(self._cut):
            at = self.advertised[target].host
            _ip("-n", self._name(source), "neigh", "del", at, "dev", "eth0")
        self._cut.clear()
        for number in self._brokers:
            _ip("link", "set", self._cable(number), "up")

    def close(self) -> None:
        """As Links."""
        for number in self._brokers:
            _try("netns", "del", self._name(number))
            _try("link", "del", self._cable(number))
        _try("link", "del", self._bridge)


class RelayLinks:
    """A relay before each broker, and one for each pair of Raft servers. See the module."""

    def __init__(self, brokers: Sequence[int], why: str) -> None:
        """Raises NetError."""
        self.about = f"TCP relays, no network namespaces: {why}"
        told = "a relay does not know who comes: clients and brokers go through the same one"
        self.lacks = {"cut-from-brokers": told}
        self._brokers = list(brokers)
        self._relays = Relays()
        ports = free_ports(2 * len(brokers))
        self._ports = dict(zip(brokers, ports, strict=False))
        raft = dict(zip(brokers, ports[len(brokers) :], strict=True))
        local = "127.0.0.1"
        self.advertised = {
            n: self._relays.add(str(n), Address(local, self._ports[n])) for n in brokers
        }
        reached = {
            (a, b): self._relays.add(f"{a}-{b}", Address(local, raft[b]))
            for a, b in itertools.permutations(brokers, 2)
        }
        self._voters = {
            a: ",".join(f"{b}={reached.get((a, b), Address(local, raft[b]))}" for b in brokers)
            for a in brokers
        }

    def options(self, broker: int) -> list[str]:
        """As Links."""
        return [
            *("--port", str(self._ports[broker])),
            *("--advertised", str(self.advertised[broker])),
            *("--voters", self._voters[broker]),
        ]

    def within(self, broker: int) -> list[str]:
        """As Links."""
        return []

    def cut(self, source: int, target: int) -> None:
        """As Links, but of what Raft says only."""
        self._relays.cut([f"{source}-{target}"])

    def unplug(self, broker: int) -> None:
        """As Links; but what it asks others for still arrives."""
        others = [n for n in self._brokers if n != broker]
        pairs = [f"{a}-{b}" for n in others for a, b in ((broker, n), (n, broker))]
        self._relays.cut([str(broker), *pairs])

    def heal(self) -> None:
        """As Links."""
        self._relays.heal()

    def close(self) -> None:
        """As Links."""
        self._relays.heal()
        self._relays.close()


def sweep_namespaces() -> None:
    """Remove what a run left that was killed: its process is no more, its namespaces are."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
    for kind, pattern, found in (
        ("netns", r"c2-(\d+)-\w+", namespaces()),
        ("link", r"c2(\d+)[bvt]\d*", re.findall(r"^\d+: (\w+)", links, re.M)),
    ):
        for name in found:
            ours = re.fullmatch(pattern, name)
            if ours is not None and not os.path.exists(f"/proc/{ours[1]}"):
                _try(kind, "del", name)


def namespaces() -> list[str]:
    """The names of this machine's network namespaces."""
    told = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return [line.split()[0] for line in told.splitlines() if line]


def _free_network() -> str:
    """The first three numbers of addresses that nobody on this machine has. Raises LinksError."""
    taken = subprocess.run(["ip", "-4", "addr"], capture_output=True, text=True).stdout
    first = os.getpid() % 256
    for number in itertools.chain(range(first, 256), range(first)):
        if f" {_NETWORK}.{number}." not in taken:
            return f"{_NETWORK}.{number}"
    raise LinksError(f"all of {_NETWORK}.0.0/16 is taken", "remove bridges that nobody needs")


def _ip(*words: str) -> None:
    """Raises LinksError."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise LinksError(f"`ip {' '.join(words)}`: {done.stderr.strip()}", "see `man ip`")


def _try(*words: str) -> None:
    with contextlib.suppress(LinksError):
        _ip(*words)

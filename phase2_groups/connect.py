"""From `bootstrap_servers` to a transport."""

from __future__ import annotations

from collections.abc import Callable

from craft2.errors import Craft2Error
from phase2_groups.file_transport import FileTransport
from phase2_groups.transport import Transport


class UnknownAddress(Craft2Error):
    """An address that leads nowhere."""


over_network: Callable[[str], Transport] | None = None  # set by `phase3_raft.client`


def connect(bootstrap_servers: str) -> Transport:
    """The transport for an address: `file:FOLDER` for topics in files, `host:port` for brokers.

    >>> connect("localhost")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    phase2_groups.connect.UnknownAddress: ... Fix: give host:port, or file:FOLDER
    """
    kind, _, folder = bootstrap_servers.partition(":")
    if kind == "file" and folder:
        return FileTransport(folder)
    if kind != "file" and folder:
        if over_network is not None:
            return over_network(bootstrap_servers)
        raise UnknownAddress(
            f"bootstrap_servers is {bootstrap_servers!r}, and the network is phase 3's",
            "import phase3_raft.client first",
        )
    raise UnknownAddress(
        f"bootstrap_servers is {bootstrap_servers!r}", "give host:port, or file:FOLDER"
    )

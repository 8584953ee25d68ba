"""From `bootstrap_servers` to a transport."""

from __future__ import annotations

from craft2.errors import Craft2Error
from phase2_groups.file_transport import FileTransport
from phase2_groups.transport import Transport


class UnknownAddress(Craft2Error):
    """An address that leads nowhere."""


def connect(bootstrap_servers: str) -> Transport:
    """The transport for an address: `file:FOLDER` for topics in files.

    >>> connect("localhost")
    Traceback (most recent call last):
    ...
    phase2_groups.connect.UnknownAddress: bootstrap_servers is 'localhost'. Fix: give file:FOLDER
    """
    kind, _, folder = bootstrap_servers.partition(":")
    if kind == "file" and folder:
        return FileTransport(folder)
    raise UnknownAddress(f"bootstrap_servers is {bootstrap_servers!r}", "give file:FOLDER")

"""A client of the service, for loads and tests: one connection that stays open, one request at a
time.

Two hundred clients of a general library would measure the library. This one does what the load
needs and no more: it posts bytes, and reads a status and a body.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from craft2.errors import Craft2Error
from craft2.net import Address


class BadReply(Craft2Error):
    """Something that is no reply of HTTP, or none at all."""


class Reply(NamedTuple):
    """What the service answered."""

    status: int
    body: bytes


class HttpClient:
    """See the module. Connects when it is first used, and again after an error."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: bytes) -> Reply:
        """Raises OSError if nobody is there, BadReply if the connection ends before the reply."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            if self._ends is None:
                self._ends = await asyncio.open_connection(*self._address)
            reader, writer = self._ends
            writer.write(head.encode() + body)
            return await self._reply(reader)
        except BaseException:
            self.close()
            raise

    async def _reply(self, reader: asyncio.StreamReader) -> Reply:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            fields = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
            body = await reader.readexactly(int(fields["content-length"]))
        except (asyncio.IncompleteReadError, KeyError, ValueError) as error:
            raise BadReply(
                f"{self._address} hung up before it had answered: {error!r}", "try again"
            ) from error
        if fields.get("connection") == "close":
            self.close()
        return Reply(int(lines[0].split()[1]), body)

    def close(self) -> None:
        """Hang up."""
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None

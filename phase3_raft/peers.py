"""Connections to the other brokers of a cluster, which are asked as clients ask them.

    reply = await peers.ask(2, "alter_partition", 3, fields)
    reply = await peers.pass_on(2, frame, host)  # a client's request, to the controller

All brokers are of one version, so nobody asks for versions first. A connection is opened when it
is needed, and again when the last one broke; each lane to a broker has one of its own, so what
takes long in one does not hold up another.

Nobody is waited for without end. Where a line is cut one way, the system of whoever cannot get a
reply across gives the connection up, and its farewell is lost as well: the other one would wait for
that reply for ever, on a connection that is no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from craft2.net import Address, Net
from phase3_raft.client.broker_connection import BrokerConnection
from phase3_raft.metadata.records import BrokerId
from phase3_raft.schemas import Fields

ANSWER_S = 5.0  # then a broker is hung up on
CALL_S = 0.3  # then it is not known whether somebody is there
_PASSED_ON = "passed on"  # a lane
PASSED_ON_S = 30.0  # the same for requests of clients, which may ask for more than brokers do


class Peers:
    """See the module. address_of: where a broker is, or None."""

    def __init__(
        self, net: Net, name: str, address_of: Callable[[BrokerId], Address | None]
    ) -> None:
        self._net, self._name, self._address_of = net, name, address_of
        self._open: dict[tuple[BrokerId, str], tuple[Address, BrokerConnection]] = {}

    async def ask(
        self, broker: BrokerId, name: str, version: int, fields: Fields, lane: str = ""
    ) -> Any:
        """The reply of another broker. Raises OSError, BadMessage."""
        async with self._limited(broker, lane):
            connection = await self._reach(broker, lane)
            return await connection.ask(name, version, fields)

    async def exchange(
        self, broker: BrokerId, name: str, version: int, body: bytes, lane: str
    ) -> tuple[bytes, int]:
        """The reply to a request that is bytes already, and where its body begins. Raises OSError,
        BadMessage."""
        connection = self._standing(broker, lane, self._address_of(broker))
        if connection is None:
            async with self._limited(broker, lane):
                connection = await self._reach(broker, lane)
        return await connection.exchange(name, version, body, limit_s=ANSWER_S)

    async def ask_first(
        self, addresses: Sequence[Address], name: str, version: int, fields: Fields
    ) -> Any:
        """The reply of the first broker that answers there. Raises OSError, BadMessage."""
        error: OSError = ConnectionRefusedError("there is no controller at the moment")
        for address in addresses:
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await self._ask_at(address, name, version, fields)
            except OSError as why:
                error = why
        raise error

    async def _ask_at(self, address: Address, name: str, version: int, fields: Fields) -> Any:
        connection = await BrokerConnection.open(self._net, address, self._name)
        try:
            return await connection.ask(name, version, fields)
        finally:
            connection.close()

    async def pass_on(self, broker: BrokerId, frame: bytes, host: str) -> bytes | None:
        """The controller's reply to a client's request, both without their lengths; None: it is not
        the controller. Raises OSError: ConnectionRefusedError if nothing was sent."""
        fields = {
            "request_data": frame,
            "request_principal": None,
            "client_host_address": host.encode(),
        }
        async with self._limited(broker, _PASSED_ON, PASSED_ON_S):
            connection = await self._reach(broker, _PASSED_ON)
            reply = await connection.ask("envelope", 0, fields)
        data: bytes | None = reply.response_data
        return data

    @asynccontextmanager
    async def _limited(
        self, broker: BrokerId, lane: str, seconds: float = ANSWER_S
    ) -> AsyncIterator[None]:
        """Hang up on who does not answer. Raises TimeoutError, which is an OSError."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            self.hang_up(broker, lane)
            raise

    async def _reach(self, broker: BrokerId, lane: str) -> BrokerConnection:
        address = self._address_of(broker)
        if address is None:
            raise ConnectionRefusedError(f"nobody knows where broker {broker} is")
        standing = self._standing(broker, lane, address)
        if standing is not None:
            return standing
        self.hang_up(broker, lane)
        made = await BrokerConnection.open(self._net, address, self._name)
        standing = self._standing(broker, lane, address)
        if standing is not None:
            made.close()  # somebody else wanted one too, and was faster
            return standing
        self._open[broker, lane] = address, made
        return made

    def _standing(
        self, broker: BrokerId, lane: str, address: Address | None
    ) -> BrokerConnection | None:
        """The connection to where the broker is, if there is one."""
        there = self._open.get((broker, lane))
        return there[1] if there is not None and there[0] == address and there[1].is_open else None

    def hang_up(self, broker: BrokerId, lane: str) -> None:
        """End a connection: who waits for a reply on it gets an OSError."""
        there = self._open.pop((broker, lane), None)
        if there is not None:
            there[1].close()

    def hang_up_on_others(self, but: BrokerId | None, lane: str) -> None:
        """The same with all that were asked in a lane, but this one."""
        for broker, its_lane in list(self._open):
            if its_lane == lane and broker != but:
                self.hang_up(broker, lane)

    async def accepts(self, address: Address) -> bool:
        """Whether somebody accepts connections there; False only if it is certain that not.

        Of a machine that is off or cut off nothing is heard: who calls it must not wait for long.
        """
        try:
            async with asyncio.timeout(CALL_S):
                _, writer = await self._net.connect(address)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        writer.close()
        return True

    def close(self) -> None:
        """Hang up on everybody."""
        for broker, lane in list(self._open):
            self.hang_up(broker, lane)

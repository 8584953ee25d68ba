"""One Raft server as a process: what `craft2 raft serve` runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from craft2.disk import RealDisk, UnsyncedDisk
from craft2.events import Emitter, EventLog
from craft2.net import Address, NetError, RealNet, parse_address, raise_file_limit
from phase3_raft.raft.application import NodeConfig
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.list_machine import ListMachine
from phase3_raft.raft.messages import Members, RaftError, ServerId
from phase3_raft.raft.service import MAX_CLIENTS, Service
from phase3_raft.raft.storage import RaftStorage


def serve(
    config: NodeConfig,
    directory: str,
    founders: Members,
    client: Address,
    *,
    events: str,
    fsync: bool,
    with_stdin: bool,
) -> None:
    """Run until SIGTERM, or until something is wrong; then raises what.

    with_stdin: also end when standard input does, which is when the process that holds the other
        end of a pipe is no more.
    """
    disk = RealDisk() if fsync else UnsyncedDisk()
    with EventLog(events, f"server-{config.server_id}") as log:
        storage = RaftStorage(directory, config.cluster, config.server_id, founders, disk=disk)
        node = RaftNode(config, ListMachine(), storage, events=log)
        asyncio.run(_run(node, client, with_stdin, log))
    if node.failure is not None:
        raise node.failure


async def _run(node: RaftNode, client: Address, with_stdin: bool, events: Emitter) -> None:
    assert isinstance(node.machine, ListMachine)
    # Clients may have half of the files: they never take those of the other servers, and the log.
    most = min(MAX_CLIENTS, raise_file_limit() // 2)
    service = Service(node, node.machine, RealNet(), max_clients=most, events=events)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    if with_stdin:
        loop.add_reader(sys.stdin, _end_with_stdin, node)
    try:
        listening = await node.start()
        answering = await service.open(client)
        print(
            f"server {node.config.server_id}: peers at {listening}, clients at {answering}",
            flush=True,
        )
        await node.stopped.wait()
    finally:
        service.close()
        node.stop()


def _end_with_stdin(node: RaftNode) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        node.stop()


# Arguments.


def parse_peers(text: str, option: str = "--peers") -> dict[ServerId, Address]:
    """`1=host:port,2=host:port` as addresses. option: where it was given. Raises NetError."""
    found: dict[ServerId, Address] = {}
    for one in text.split(","):
        number, _, address = one.strip().partition("=")
        if not number.isdecimal() or int(number) < 1 or int(number) in found:
            fix = "give 1=host:port,2=host:port, each number once, from 1 on"
            raise NetError(f"{option} {text!r}", fix)
        try:
            place = parse_address(address)
        except NetError as error:
            raise NetError(f"{option} {text!r}: {error.problem}", error.fix) from None
        if place.port and place in found.values():
            raise NetError(
                f"{option} {text!r} has {address} twice", "give each server an address of its own"
            )
        found[int(number)] = place
    return found


def parse_numbers(text: str) -> tuple[ServerId, ...]:
    """`1,2,3`. Raises RaftError."""
    if not all(one.strip().isdecimal() for one in text.split(",")):
        raise RaftError(f"--voters {text!r}", "give numbers, such as 1,2,3")
    return tuple(int(one) for one in text.split(","))


def parse_range(text: str) -> tuple[int, int]:
    """`300-600`. Raises RaftError."""
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal()):
        raise RaftError(f"--election-ms {text!r}", "give two times, such as 300-600")
    return int(first), int(last)

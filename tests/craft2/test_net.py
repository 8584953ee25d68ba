"""A listener holds so many connections and no more, also in a burst, and says so once a while."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys

import pytest

from craft2.net import (
    UNACKNOWLEDGED_MS,
    Address,
    NetError,
    RealNet,
    free_ports,
    parse_address,
    raise_file_limit,
)

NOWHERE = Address("127.0.0.1", 0)


def test_one_connection_too_many_is_hung_up_on_and_told_once_and_there_is_room_again():
    async def main():
        served, told = [], []
        listener = await RealNet().listen(
            NOWHERE, lambda *ends: served.append(ends), max_connections=2, full=told.append
        )
        first, second = [await RealNet().connect(listener.address) for _ in range(2)]
        for _ in range(3):
            reader, writer = await RealNet().connect(listener.address)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(1) == b""
            writer.close()
        assert (len(served), told) == (2, [1])
        first[1].close()
        served[0][1].close()
        while len(served) < 3:
            _, writer = await RealNet().connect(listener.address)
            await asyncio.sleep(0.002)
            writer.close()
        served[1][1].write(b"still here")
        assert await second[0].read(100) == b"still here"
        second[1].close()
        for _, writer in served:
            writer.close()
        listener.close()

    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_who_writes_to_a_connection_that_has_just_broken_is_told_by_drain(loop):
    async def main():
        served = []
        listener = await RealNet().listen(NOWHERE, lambda *ends: served.append(ends))
        reader, writer = await RealNet().connect(listener.address)
        writer.close()  # as the system does with one whose other end does not answer
        assert await reader.read(1) == b""
        writer.write(b"lost")
        with pytest.raises(ConnectionResetError):
            await writer.drain()
        for _, other in served:
            other.close()
        listener.close()

    factory = pytest.importorskip(loop).Loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main(), 20))


SERVER = """if True:
    import asyncio, resource, sys
    from craft2.net import Address, RealNet
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    served = []
    def serve(reader, writer):
        served.append(writer)
        writer.write(b"welcome")
    async def main():
        at = Address("127.0.0.1", 0)
        full = await RealNet().listen(at, serve, max_connections=20)
        other = await RealNet().listen(at, serve, max_connections=20)
        print(full.address.port, other.address.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    asyncio.run(main())
"""


def test_a_burst_leaves_files_for_the_other_listener_and_standard_error_empty():
    """asyncio alone accepts 4,096 at once, and 100 tracebacks say that it has no files left."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with contextlib.ExitStack() as stack:
        ports = [int(port) for port in process.stdout.readline().split()]
        burst = []
        for _ in range(400):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", ports[0]))
            burst.append(one)
        with socket.create_connection(("127.0.0.1", ports[1]), 10) as other:
            assert other.recv(100) == b"welcome"
        said = []
        for one in burst:
            one.settimeout(10)
            with contextlib.suppress(ConnectionError):
                said.append(one.recv(100))
        _, errors = process.communicate("")
    assert said.count(b"welcome") == 20
    assert errors == ""


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        assert raise_file_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_connects_may_be_slow_to_read_and_who_is_connected_to_may_not():
    """The system takes a window that stays closed for a line that is cut."""

    def given_up_after_ms(writer):
        connection = writer.get_extra_info("socket")
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    async def main():
        served = []
        listener = await RealNet().listen(NOWHERE, lambda *ends: served.append(ends))
        _, writer = await RealNet().connect(listener.address)
        while not served:
            await asyncio.sleep(0)
        assert given_up_after_ms(served[0][1]) == 0
        assert given_up_after_ms(writer) == UNACKNOWLEDGED_MS
        for one in (writer, served[0][1], listener):
            one.close()

    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("only Linux can be told when to give a connection up")
    asyncio.run(asyncio.wait_for(main(), 20))


class Heard:
    """A receiver that writes down what it is told."""

    def __init__(self):
        self.data, self.said = bytearray(), []

    def received(self, data):
        assert not self.said
        self.data += data

    def finished(self):
        self.said.append("finished")

    def lost(self):
        self.said.append("lost")


async def until(reached):
    while not reached():
        await asyncio.sleep(0.001)


def on_both_loops(main):
    for factory in (None, pytest.importorskip("uvloop").new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main(), 20))


def test_a_receiver_is_given_all_and_told_how_it_ends():
    async def main():
        heard = [Heard(), Heard()]
        listener = await RealNet().listen(
            NOWHERE, lambda reader, writer: (reader.deliver(heard[0]), served.append(writer))
        )
        served = []
        reader, writer = await RealNet().connect(listener.address)
        writer.write(b"one ")
        await until(lambda: heard[0].data == b"one ")
        served[0].write(b"before anybody asks")
        await asyncio.sleep(0.01)
        assert await reader.read(7) == b"before "
        reader.deliver(heard[1])  # what was not read is delivered
        assert heard[1].data == b"anybody asks"
        served[0].close()
        await until(lambda: heard[1].said == ["finished"])
        writer.write(b"two")  # their direction is closed, and ours is not
        writer.close()
        await until(lambda: heard[1].said == ["finished", "lost"])
        await until(lambda: heard[0].said[-1:] == ["lost"])
        late = Heard()
        reader.deliver(late)
        assert late.said == ["lost"]
        listener.close()

    on_both_loops(main)


def test_who_pauses_is_given_nothing_until_they_go_on_and_the_sender_is_full():
    async def main():
        heard, ends = Heard(), []

        def serve(reader, writer):
            reader.deliver(heard)
            ends.append((reader, writer))

        listener = await RealNet().listen(NOWHERE, serve)
        _, writer = await RealNet().connect(listener.address)
        await until(lambda: ends)
        ends[0][0].pause()
        size = 0
        while not writer.is_full:
            writer.write(bytes(1_000_000))
            size += 1_000_000
        assert len(heard.data) < size
        draining = asyncio.ensure_future(writer.drain())
        before = len(heard.data)
        await asyncio.sleep(0.02)
        assert not draining.done()
        assert len(heard.data) == before
        ends[0][0].resume()
        await draining
        await until(lambda: len(heard.data) == size)
        for one in (writer, ends[0][1], listener):
            one.close()
        ends[0][0].pause()  # no matter, afterwards
        ends[0][0].resume()

    on_both_loops(main)


def test_why_nobody_can_listen_there_and_what_to_do():
    async def listen(address, fix):
        with pytest.raises(NetError, match=rf"cannot listen at .*\. Fix: {fix}"):
            await RealNet().listen(address, lambda *ends: None)

    async def run():
        listener = await RealNet().listen(Address("127.0.0.1", 0), lambda *ends: None)
        await listen(listener.address, "choose a free port")
        await listen(Address("192.0.2.1", 1), "give an address of this machine")
        await listen(Address("nobody.invalid", 1), "give an address of this machine")
        listener.close()

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="which ports are given is Linux's choice")
def test_free_ports_are_given_to_nobody_who_asks_for_any_and_to_who_names_them():
    ours = free_ports(300)
    assert len(set(ours)) == 300
    with contextlib.ExitStack() as stack:
        for _ in range(1_000):  # 20 of them would have one of ours
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            assert server.getsockname()[1] not in ours
    for port in ours:
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("text", ["a..b:9", ":9", "h:", "h:65536", "h:" + "9" * 5_000, "h\0:9"])
def test_what_can_be_nobodys_address_is_refused(text):
    with pytest.raises(NetError, match=r"the address .* Fix: give host:port"):
        parse_address(text)


@pytest.mark.parametrize("address", [("a..b", 9), ("h\0", 9), ("127.0.0.1", 70_000)])
def test_nobody_is_where_nobody_can_be(address):
    with pytest.raises(OSError, match="is no address"):
        asyncio.run(RealNet().connect(Address(*address)))

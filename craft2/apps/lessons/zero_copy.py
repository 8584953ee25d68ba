"""A piece of a file to a socket, by two ways: through Python's memory, or past it.

    pread + send   page cache -> memory of the process -> socket's buffer
    sendfile       page cache -> socket's buffer

Both are what a broker could do with the records of a Fetch. Which is quicker is for you to measure.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from craft2.disk import FileSlice, RealDisk

PIECE = 1024 * 1024  # bytes that are read at a time
Send = Callable[[socket.socket, FileSlice], None]


class Sent(NamedTuple):
    """What sending took."""

    bytes_per_s: float
    cpu_s_per_gb: float  # of the sender's thread; the reader's are not counted


def send_copied(connection: socket.socket, piece: FileSlice) -> None:
    """Read a part, send it, read the next."""
    for start in range(0, piece.size, PIECE):
        size = min(PIECE, piece.size - start)
        connection.sendall(piece.file.read_at(piece.position + start, size))


def send_by_kernel(connection: socket.socket, piece: FileSlice) -> None:
    """Name the file and the socket to the kernel."""
    at, end = piece.position, piece.position + piece.size
    while at < end:
        at += os.sendfile(connection.fileno(), piece.file.fileno(), at, end - at)


def measure(send: Send, piece: FileSlice, times: int = 8) -> Sent:
    """Send it so often over TCP on this machine, to a thread that throws it away."""
    with _connected() as connection:
        began, cpu_began = time.perf_counter(), time.thread_time()
        for _ in range(times):
            send(connection, piece)
        cpu_s, seconds = time.thread_time() - cpu_began, time.perf_counter() - began
    size = piece.size * times
    return Sent(size / seconds, cpu_s / (size / 1e9))


@contextmanager
def _connected() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = threading.Thread(target=_throw_away, args=(listener,))
        reader.start()
        with socket.create_connection(listener.getsockname()) as connection:
            yield connection
        reader.join()


def _throw_away(listener: socket.socket) -> None:
    room = bytearray(PIECE)
    with listener.accept()[0] as connection:
        while connection.recv_into(room):
            pass


@contextmanager
def a_file(folder: Path, size: int) -> Iterator[FileSlice]:
    """A file with so many bytes of noise, in the page cache, as one slice."""
    file = RealDisk().open(str(folder / "noise"), "create")
    noise = os.urandom(PIECE)
    for start in range(0, size, PIECE):
        file.write_at(start, noise[: size - start])
    try:
        yield FileSlice(file, 0, size)
    finally:
        file.close()
        os.unlink(folder / "noise")

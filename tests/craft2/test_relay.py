"""A relay passes bytes on, holds them while it is cut, and hides ends as well."""

from __future__ import annotations

import socket

import pytest

from craft2.net import Address
from craft2.relay import Relays


@pytest.fixture
def relays():
    with Relays() as relays:
        yield relays


@pytest.fixture
def ends(relays):
    """Both ends of a connection through the relay "r"."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = relays.add("r", Address(*server.getsockname()))
        near = socket.create_connection(address, 5)
        far, _ = server.accept()
        far.settimeout(5)
        with near, far:
            yield near, far


def nothing_comes(end):
    """Whether nothing is there to be read, although it was given a moment."""
    end.settimeout(0.05)
    with pytest.raises(TimeoutError):
        end.recv(100)
    end.settimeout(5)


def test_bytes_go_both_ways(ends):
    near, far = ends
    near.sendall(b"ping")
    assert far.recv(100) == b"ping"
    far.sendall(b"pong")
    assert near.recv(100) == b"pong"


def test_what_is_said_while_it_is_cut_arrives_when_it_is_mended(relays, ends):
    near, far = ends
    relays.cut(["r"])
    near.sendall(b"ping")
    nothing_comes(far)
    relays.heal()
    assert far.recv(100) == b"ping"


def test_nobody_sees_the_end_of_a_connection_while_it_is_cut(relays, ends):
    near, far = ends
    relays.cut(["r"])
    near.close()
    nothing_comes(far)
    relays.heal()
    assert far.recv(100) == b""


def test_who_connects_while_it_is_cut_gets_through_afterwards(relays):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = relays.add("r", Address("127.0.0.1", 1))
        relays.cut(["r"])
        with socket.create_connection(address, 5) as near:
            near.sendall(b"ping")
            relays.aim("r", Address(*server.getsockname()))
            relays.heal()
            far, _ = server.accept()
            with far:
                assert far.recv(100) == b"ping"

"""Messages of Kafka's protocol: taken apart, every byte with the name of its field, and asked."""

from __future__ import annotations

import dataclasses
import socket
import struct
import time
from typing import Any

from craft2.apps.lessons.batch_bytes import Piece
from craft2.record_batch import encode_values
from phase3_raft import codec, schemas
from phase3_raft.connection import read_header
from phase3_raft.handlers import APIS
from phase3_raft.schemas import Kind

_SIZE, _HEAD = (
    4,
    (("api key", 2), ("api version", 2), ("correlation id", 4), ("client id length", 2)),
)


def request_pieces(request: bytes) -> list[Piece]:
    """The fields of a request, its size and head included. Raises BadMessage."""
    header = read_header(request[_SIZE:])
    found = [_number(request, 0, "size", _SIZE)]
    for name, size in _HEAD:
        found.append(_number(request, found[-1].position + len(found[-1].raw), name, size))
    at, end = found[-1].position + len(found[-1].raw), _SIZE + header.end
    found.append(Piece(at, request[at:end], "client id", header.client_id))
    api = next(api for api in APIS if api.key == header.api_key)
    if schemas.is_flexible(api.name, header.version):
        at, end = end, codec.skip_tagged_fields(request, end)
        found.append(Piece(at, request[at:end], "tagged fields", "none"))
    return found + _message(api.name, header.version, "request", request, end)


def reply_pieces(name: str, version: int, reply: bytes) -> list[Piece]:
    """The fields of a reply, without its size, to the API that `kio` calls `name`."""
    found = [_number(reply, 0, "correlation id", 4)]
    end = 4
    if schemas.is_flexible(name, version) and name != "api_versions":
        end = codec.skip_tagged_fields(reply, end)
        found.append(Piece(4, reply[4:end], "tagged fields", "none"))
    return found + _message(name, version, "response", reply, end)


def places(found: list[Piece]) -> list[tuple[int, str]]:
    """Where each field begins, and its name: what `craft2.hexdump.compare_bytes` wants."""
    return [(piece.position, piece.name) for piece in found]


def _number(data: bytes, at: int, name: str, size: int) -> Piece:
    raw = data[at : at + size]
    return Piece(at, raw, name, int.from_bytes(raw, signed=True))


def _message(name: str, version: int, kind: Kind, data: bytes, at: int) -> list[Piece]:
    found: list[Piece] = []
    _structure(schemas._entity(name, version, kind), data, at, found)
    return found


def _structure(entity: Any, data: bytes, at: int, found: list[Piece]) -> int:
    """Add the fields of `entity`; returns where they end."""
    flexible = entity.__flexible__
    for field in dataclasses.fields(entity):
        inner, many = schemas._parts(field.type)
        name, count = field.name.replace("_", " "), 1
        if "tag" in field.metadata and field.metadata["tag"] is not None:
            continue
        if many:
            read_length = codec.read_compact_length if flexible else codec.read_int32
            count, end = read_length(data, at)
            found.append(Piece(at, data[at:end], name, "none" if count < 0 else f"{count} of them"))
            at = end
        for _ in range(count):
            if dataclasses.is_dataclass(inner):
                at = _structure(inner, data, at, found)
            else:
                kind = field.metadata["kafka_type"]
                value, end = schemas._primitive(kind, flexible)[0](data, at)
                if kind == "records":
                    value = f"{len(value or b'')} bytes"
                found.append(Piece(at, data[at:end], name, value))
                at = end
    if flexible:
        end = codec.skip_tagged_fields(data, at)
        found.append(Piece(at, data[at:end], "tagged fields", "none"))
        at = end
    return at


# Requests as a client sends them, and somebody who asks.


def request(name: str, version: int, fields: schemas.Fields, correlation_id: int = 7) -> bytes:
    """A request with its size; `name` is what `kio` calls the API; of a version that is not
    flexible."""
    api = next(api for api in APIS if api.name == name)
    head = struct.pack(">hhih", api.key, version, correlation_id, 2) + b"me"
    body = schemas.encode(name, version, fields, "request")
    return struct.pack(">i", len(head) + len(body)) + head + body


def metadata_request(topic: str) -> bytes:
    """Metadata, version 1, of one topic, which is made if it is not there."""
    return request("metadata", 1, {"topics": [{"name": topic}]})


def produce_request(topic: str, partition: int, batch: bytes) -> bytes:
    """Produce, version 3, of one batch, with acks=all."""
    data = [{"index": partition, "records": batch}]
    topics = [{"name": topic, "partition_data": data}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 1_000, "topic_data": topics}
    return request("produce", 3, fields)


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int,
    max_bytes: int = 50 * 1024**2,
    correlation_id: int = 7,
) -> bytes:
    """Fetch, version 4, from one partition: a reply as soon as there is a byte."""
    one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes}
    fields = {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "topics": [{"topic": topic, "partitions": [one]}],
    }
    return request("fetch", 4, fields, correlation_id)


class Wire:
    """A connection to a broker, and nothing but frames. bootstrap: "host:port"."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self._replies = self.socket.makefile("rb")

    def ask(self, request: bytes) -> bytes:
        """The reply, without its size; empty if the broker hangs up."""
        self.socket.sendall(request)
        size = self._replies.read(4)
        return self._replies.read(int.from_bytes(size)) if size else b""

    def ask_for(self, seconds: float, request: bytes) -> int:
        """Ask the same again and again, for so long; how often."""
        count, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            self.ask(request)
            count += 1
        return count

    def close(self) -> None:
        """Hang up."""
        self._replies.close()
        self.socket.close()


def fill(bootstrap: str, topic: str, megabytes: int) -> bytes:
    """Make a topic, and store so much in its partition 0; returns a request for all of it."""
    wire = Wire(bootstrap)
    wire.ask(metadata_request(topic))
    for _ in range(megabytes):
        wire.ask(produce_request(topic, 0, encode_values([b"x" * 1_000_000], timestamps=0)))
    wire.close()
    return fetch_request(topic, 0, 0, wait_ms=0)

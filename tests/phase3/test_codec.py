"""Messages as bytes: equal to what kio makes of them, and no bytes do harm."""

from __future__ import annotations

import dataclasses
import datetime
import io
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from phase3_raft import schemas
from phase3_raft.codec import MOST_VALUES, BadMessage
from phase3_raft.dispatch import Api
from phase3_raft.handlers import APIS

each_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
some = settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
st.register_type_strategy(Records, st.binary().map(Records))


@cache
def _schema(key: int, version: int, kind: str) -> Any:
    load: Any = load_request_schema if kind == "request" else load_response_schema
    return load(key, version)


@st.composite
def _messages(draw: st.DrawFn, api: Api, kind: str) -> tuple[int, Any, bytes]:
    """A version, a message of that version, and its bytes as kio writes them."""
    version = draw(st.integers(api.first, api.last))
    entity = draw(st.from_type(_schema(api.key, version, kind)))
    file = io.BytesIO()
    entity_writer(type(entity))(file, entity)
    return version, entity, file.getvalue()


@each_api
@pytest.mark.parametrize("kind", ["request", "response"])
@some
@given(data=st.data())
def test_what_kio_writes_is_read_and_written_again(
    api: Api, kind: Any, data: st.DataObject
) -> None:
    version, entity, written = data.draw(_messages(api, kind))
    message = schemas.decode(api.name, version, b"--" + written, 2, latest=api.last, kind=kind)
    assert _same(message, entity)
    assert schemas.encode(api.name, version, _dict(message), kind) == written


@each_api
@some
@given(data=st.data())
def test_a_damaged_request_is_read_or_refused_and_nothing_else(
    api: Api, data: st.DataObject
) -> None:
    version, _, written = data.draw(_messages(api, "request"))
    damaged = bytearray(written)
    for _ in range(data.draw(st.integers(1, 3))):
        if damaged:
            place = data.draw(st.integers(0, len(damaged) - 1))
            damaged[place : place + 1] = data.draw(st.binary(max_size=4))
    with suppress(BadMessage):
        schemas.decode(api.name, version, bytes(damaged), latest=api.last)


@each_api
def test_garbage_is_read_or_refused(api: Api) -> None:
    for version in range(api.first, api.last + 1):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            for size in (0, 1, 3, 40, 4000):
                with suppress(BadMessage):
                    schemas.decode(api.name, version, bytes([byte]) * size, latest=api.last)


def test_a_list_of_a_length_that_lies_takes_no_memory() -> None:
    with pytest.raises(BadMessage, match="2147483647 bytes at byte 4"):
        schemas.decode("metadata", 1, b"\x7f\xff\xff\xff", latest=11)
    with pytest.raises(BadMessage, match="topics is null"):
        schemas.decode("create_topics", 2, b"\xff\xff\xff\xff", latest=7)


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("metadata", b"\0\0\0\1\0\1\xff", "no UTF-8"),
        ("delete_topics", b"\xff\xff\xff\xff\xff", "does not end"),
        ("delete_topics", b"\2\0", "null in a list"),
    ],
)
def test_what_is_no_message_is_refused_with_a_fix(name: str, data: bytes, problem: str) -> None:
    with pytest.raises(BadMessage, match=rf"{problem}.*Fix: see whether the sender speaks"):
        schemas.decode(name, 4, data, latest=6)


def test_a_field_that_the_reply_needs_is_missed() -> None:
    with pytest.raises(KeyError, match="error_code"):
        schemas.encode("heartbeat", 1, {"throttle_time": 0})


def test_an_old_version_is_read_with_the_defaults_of_the_latest() -> None:
    old = schemas.decode("offset_commit", 2, _commit(2), latest=8)
    new = schemas.decode("offset_commit", 8, _commit(8), latest=8)
    assert _names(old) >= _names(new)
    assert old.topics[0].partitions[0].committed_leader_epoch == -1
    assert old.group_instance_id is None


def _commit(version: int) -> bytes:
    offset = {
        "partition_index": 0,
        "committed_offset": 7,
        "commit_timestamp": -1,
        "committed_metadata": None,
    }
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": -1,
        "topics": [{"name": "t", "partitions": [offset]}],
    }
    return schemas.encode("offset_commit", version, fields, "request")


def _names(message: Any) -> set[str]:
    return set(vars(message))


def _dict(value: Any) -> Any:
    if isinstance(value, SimpleNamespace):
        return {name: _dict(one) for name, one in vars(value).items()}
    if isinstance(value, list | tuple):
        return tuple(_dict(one) for one in value)
    return value


def _same(ours: Any, kios: Any) -> bool:
    """Whether a message says what kio's entity says."""
    if dataclasses.is_dataclass(kios):
        return all(
            _same(getattr(ours, one.name), getattr(kios, one.name))
            for one in dataclasses.fields(kios)
        )
    if isinstance(kios, tuple):
        return len(ours) == len(kios) and all(map(_same, ours, kios))
    if isinstance(kios, datetime.timedelta):
        return bool(ours == kios // datetime.timedelta(milliseconds=1))
    if isinstance(kios, datetime.datetime):
        return abs(ours / 1000 - kios.timestamp()) < 0.001
    if kios is None:
        return ours in (None, -1)
    return bool(ours == kios or (ours != ours and kios != kios))


def test_kios_own_reader_agrees() -> None:
    schema = _schema(12, 0, "request")
    entity, _ = entity_reader(schema)(b"\x00\x01g\x00\x00\x00\x07\x00\x01m", 0)
    assert entity.generation_id == 7


def test_a_list_that_would_hold_up_all_others_is_refused() -> None:
    """20 s and 3 GB, for ten million members of a group."""
    fields = {"group_id": "g", "generation_id": 1, "member_id": "m", "assignments": ()}
    before = schemas.encode("sync_group", 0, fields, "request")[:-4]

    def members(count: int) -> int:
        data = before + count.to_bytes(4, "big") + bytes(6) * count
        return len(schemas.decode("sync_group", 0, data, latest=5).assignments)

    assert members(MOST_VALUES) == MOST_VALUES
    with pytest.raises(BadMessage, match="200001 values in a list"):
        members(MOST_VALUES + 1)

"""Kafka's messages as Python values, by the descriptions that `kio` has of them.

Kafka describes every message in a file, with the versions in which a field came or went; `kio` has
a class for each message in each version, made from these files, and from the fields of a class we
make a reader and a writer. A handler need not care for versions. What it is given has all fields of
the latest version, those that an older one does not know with their defaults:

>>> request = decode("heartbeat", 0, b"\\x00\\x01g\\x00\\x00\\x00\\x07\\x00\\x01m", latest=4)
>>> request.generation_id, request.group_instance_id
(7, None)

And it answers with a dict that has all fields of the latest version (those for which Kafka names a
default may be missing); `encode` leaves out what an older one does not know:

>>> reply = {"error_code": 27, "throttle_time": 0}
>>> encode("heartbeat", 0, reply), encode("heartbeat", 4, reply)
(b'\\x00\\x1b', b'\\x00\\x00\\x00\\x00\\x00\\x1b\\x00')

Durations and times are numbers of milliseconds, errors are numbers. (kio's own reader is quicker,
but it is native code that ends the whole process when a length in the message lies.)

Source: kafka.apache.org/protocol; KIP-482 (flexible versions).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import groupby
from types import SimpleNamespace, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

from phase3_raft import codec
from phase3_raft.codec import Read, Write

Fields: TypeAlias = Mapping[str, Any]
Message: TypeAlias = Any  # a SimpleNamespace
Kind: TypeAlias = Literal["request", "response"]

_CODES: Final = {  # of `struct`
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_NUMBERS: Final = {kind: codec.number(code) for kind, code in _CODES.items()}
_EMPTY: Final = {"bool": False, "float64": 0.0, "uuid": None, "string": "", "bytes": b""}
_TIME_DEFAULT = -1


class _Field(NamedTuple):
    """One field of a message; `tag` is None if it is always there, `code` if it is no number."""

    name: str
    code: str | None
    tag: int | None
    read: Read
    write: Write
    default: Any  # for a reader of a version that lacks it
    required: bool  # by a writer
    nullable: bool


def decode(
    name: str, version: int, data: bytes, at: int = 0, *, latest: int, kind: Kind = "request"
) -> Message:
    """The message that is at `at`, with the fields of version `latest`. Raises BadMessage.

    What is left behind it is ignored, as Kafka does: librdkafka sends three bytes too many with
    Metadata 11.
    """
    return _reader(name, version, max(version, latest), kind)(data, at)[0]


def encode(name: str, version: int, fields: Fields, kind: Kind = "response") -> bytes:
    """The message of these fields. Raises KeyError for one that is missing."""
    out = bytearray()
    _writer(name, version, kind)(out, fields)
    return bytes(out)


@cache
def is_flexible(name: str, version: int) -> bool:
    """Whether the message has tagged fields, and so has its header."""
    return bool(_entity(name, version, "request").__flexible__)


def _entity(name: str, version: int, kind: Kind) -> Any:
    module = import_module(f"kio.schema.{name}.v{version}.{kind}")
    words = "".join(word.capitalize() for word in name.split("_"))
    return getattr(module, f"{words}{kind.capitalize()}")


@cache
def _reader(name: str, version: int, latest: int, kind: Kind) -> Read:
    return _struct_reader(_entity(name, version, kind), _entity(name, latest, kind))


@cache
def _writer(name: str, version: int, kind: Kind) -> Write:
    return _struct_writer(_entity(name, version, kind))


def _struct_reader(entity: Any, latest: Any) -> Read:
    """A reader of `entity` that adds the fields that only `latest` has."""
    own = _fields(entity, latest)
    plain = list(_runs([one for one in own if one.tag is None]))
    tagged = {one.tag: (one.name, one.read) for one in own if one.tag is not None}
    names = {one.name for one in own if one.tag is None}
    defaults = {
        one.name: one.default for one in (*own, *_fields(latest, latest)) if one.name not in names
    }
    flexible = entity.__flexible__

    def read(data: bytes, at: int) -> tuple[Message, int]:
        values = defaults.copy()
        for name, read_one, nullable in plain:
            value, at = read_one(data, at)
            if isinstance(name, tuple):
                values.update(zip(name, value, strict=True))
                continue
            if value is None and not nullable:
                raise codec.BadMessage(f"{name} is null, which it may not be", "give it a value")
            values[name] = value
        if flexible:
            if data[at : at + 1] == b"\0":  # none, as nearly always
                at += 1
            else:
                more, at = codec.read_tagged_fields(data, at, tagged)
                values |= more
        return SimpleNamespace(**values), at

    return read


def _runs(fields: list[_Field]) -> Iterator[tuple[str | tuple[str, ...], Read, bool]]:
    """(name, read, nullable) of each field; numbers that follow one another are read at once."""
    for are_numbers, run in groupby(fields, lambda one: one.code is not None):
        some = list(run)
        if are_numbers and len(some) > 1:
            codes = "".join(one.code or "" for one in some)
            yield tuple(one.name for one in some), codec.numbers(codes), False
        else:
            yield from ((one.name, one.read, one.nullable) for one in some)


def _struct_writer(entity: Any) -> Write:
    own = _fields(entity, entity)
    plain = [(one.name, one.write, one.required, one.default) for one in own if one.tag is None]
    tagged = sorted((one for one in own if one.tag is not None), key=lambda one: one.tag or 0)
    flexible = entity.__flexible__

    def write(out: bytearray, fields: Fields) -> None:
        for name, write_one, required, default in plain:
            write_one(out, fields[name] if required else fields.get(name, default))
        if not flexible:
            return
        given = [one for one in tagged if fields.get(one.name, one.default) != one.default]
        codec.write_varint(out, len(given))
        for one in given:
            value = bytearray()
            one.write(value, fields[one.name])
            codec.write_varint(out, one.tag or 0)
            codec.write_varint(out, len(value))
            out += value

    return write


def _fields(entity: Any, latest: Any) -> list[_Field]:
    """The fields of `entity`; structures in them are read with what only `latest` has."""
    newer = {one.name: _parts(one.type)[0] for one in dataclasses.fields(latest)}
    return [
        _field(one, newer.get(one.name), entity.__flexible__) for one in dataclasses.fields(entity)
    ]


def _field(field: dataclasses.Field[Any], newer: Any, flexible: bool) -> _Field:
    inner, many = _parts(field.type)
    if dataclasses.is_dataclass(inner):
        kind = "struct"
        read = _struct_reader(inner, newer if dataclasses.is_dataclass(newer) else inner)
        write = _struct_writer(inner)
    else:
        kind = field.metadata["kafka_type"]
        read, write = _primitive(kind, flexible)
    if many:
        read, write = codec.array(read, write, compact=flexible)
    required = field.default is dataclasses.MISSING
    default = _default(field, kind, many)
    nullable = kind == "uuid" or type(None) in get_args(field.type)
    tag = field.metadata.get("tag")
    code = None if many else _CODES.get(kind)
    return _Field(field.name, code, tag, read, write, default, required, nullable)


def _primitive(kind: str, flexible: bool) -> tuple[Read, Write]:
    if kind == "string":
        return (
            (codec.read_compact_string, codec.write_compact_string)
            if flexible
            else (codec.read_string, codec.write_string)
        )
    if kind in ("bytes", "records"):
        return (
            (codec.read_compact_bytes, codec.write_compact_bytes)
            if flexible
            else (codec.read_bytes, codec.write_bytes)
        )
    if kind == "uuid":
        return codec.read_uuid, codec.write_uuid
    return _NUMBERS[kind]


def _default(field: dataclasses.Field[Any], kind: str, many: bool) -> Any:
    """What the field has if nobody says otherwise: as described, else zero or empty."""
    if kind == "datetime_i64":
        return _TIME_DEFAULT
    if field.default is not dataclasses.MISSING:
        default: Any = field.default
        if kind.startswith("timedelta") and default is not None:
            return round(default.total_seconds() * 1000)
        return int(default) if kind == "error_code" else default
    if many:
        return ()
    return _EMPTY.get(kind, 0)


def _parts(kind: Any) -> tuple[Any, bool]:
    """The type of a field, or of each of its values, and whether it has many."""
    kind = _without_none(kind)
    if get_origin(kind) is tuple:
        return _without_none(get_args(kind)[0]), True
    return kind, False


def _without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return next(one for one in get_args(kind) if one is not type(None))
    return kind

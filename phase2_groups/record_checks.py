"""What an application may send, made into what a batch can hold; or why it cannot be.

>>> as_bytes("key", "UA"), checked_headers([("source", "gate 7")])
(b'UA', (('source', b'gate 7'),))
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from craft2.records import Headers
from phase2_groups.kafka_fields import is_text
from phase2_groups.producer_config import BadRecord

_TIMESTAMP_LIMIT = 2**62  # the difference of two must have 64 bits


def check_name(topic: object) -> None:
    """Raise BadRecord unless a topic may have this name."""
    if not isinstance(topic, str):
        raise BadRecord(f"topic is {topic!r}", 'give its name: "flights"')


def check_callback(on_delivery: object) -> None:
    """Raise BadRecord unless it can be called."""
    if not callable(on_delivery):
        raise BadRecord(f"on_delivery is {on_delivery!r}", "give a function, or leave it out")


def as_bytes(name: str, value: object) -> bytes:
    """A key or value as a batch holds it. Raises BadRecord."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadRecord(
                f"the {name} {value[:40]!r} is no text: {error.reason}", "give bytes"
            ) from None
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise BadRecord(
        f"the {name} is {value!r}, a {type(value).__name__}",
        "give bytes, str or None (json.dumps turns a dict into a str)",
    )


def checked_headers(headers: Iterable[tuple[str, bytes | str | None]]) -> Headers:
    """Headers as a batch holds them: (str, bytes or None) each. Raises BadRecord."""
    try:
        pairs = tuple((name, value) for name, value in headers)
    except (TypeError, ValueError):
        raise BadRecord(f"headers are {headers!r}", "give (name, value) pairs") from None
    checked: list[tuple[str, bytes | None]] = []
    for name, value in pairs:
        if not is_text(name):  # such as a file name of os.fsdecode
            raise BadRecord(f"a header's name is {name!r}", "give a str that UTF-8 can hold")
        checked.append((name, None if value is None else as_bytes(f"header {name!r}", value)))
    return tuple(checked)


def check_timestamps(timestamps: Collection[object]) -> None:
    """Raise BadRecord unless all are whole numbers that a batch can hold beside each other."""
    for kind in set(map(type, timestamps)) - {int}:
        raise BadRecord(f"a timestamp is of type {kind.__name__}", "give whole ms since 1970")
    for one in (min, max):
        found = one(timestamps, default=0)  # type: ignore[type-var]
        if not 0 <= found < _TIMESTAMP_LIMIT:  # type: ignore[operator]
            raise BadRecord(f"a timestamp is {found}", "give ms since 1970, from 0 to below 2**62")

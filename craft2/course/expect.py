"""What an exercise's check is written with: `equal`, `same_bytes`, `that`, `doing`.

A check never says just False: it says which field, what was expected, what came, and how the
two differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from craft2.hexdump import compare_bytes, first_difference

_SHOWN = 8  # bytes from the first wrong one on


class MismatchError(AssertionError):
    """The code under test gave another answer than expected; all fields are text for a person."""

    def __init__(self, field: str, expected: str, got: str, difference: str = "") -> None:
        super().__init__(field, expected, got, difference)
        self.field, self.expected, self.got, self.difference = field, expected, got, difference


_now_doing = "the check started"


def doing(step: str) -> None:
    """Note what the check is about to do, so that a crash or a hang can say where it happened."""
    global _now_doing
    _now_doing = step


def now_doing() -> str:
    """The last step noted by `doing`."""
    return _now_doing


def equal(field: str, got: object, expected: object, difference: str = "") -> None:
    """Raise MismatchError unless `got` equals `expected` and has its type (True is not 1)."""
    if got != expected or type(got) is not type(expected):
        raise MismatchError(
            field, repr(expected), repr(got), difference or describe_difference(got, expected)
        )


def same_bytes(
    field: str, got: bytes | bytearray, expected: bytes, fields: Sequence[tuple[int, str]] = ()
) -> None:
    """`equal` for bytes: shows them with a caret under the first one that is wrong.

    fields: where each field of the message begins, and its name.
    """
    at = first_difference(bytes(got), expected)
    if at is not None:
        there, here = (data[at : at + _SHOWN].hex(" ") or "nothing" for data in (expected, got))
        dump = compare_bytes(bytes(got), expected, fields, rows=1)
        raise MismatchError(field, f"{there}, from byte {at} on", f"{here}, from there on", dump)


def that(field: str, holds: bool, *, expected: str, got: str, difference: str = "") -> None:
    """Raise MismatchError unless `holds`."""
    if not holds:
        raise MismatchError(field, expected, got, difference)


def describe_difference(got: object, expected: object) -> str:
    """How two values differ, in a few words; empty if their reprs say it all."""
    if type(got) is not type(expected):
        return f"a {type(got).__name__} instead of a {type(expected).__name__}"
    if type(got) is int and isinstance(expected, int):
        return f"got - expected: {got - expected:+d}"
    if isinstance(got, (str, bytes, list, tuple)) and isinstance(expected, Sequence):
        pairs = zip(got, expected, strict=False)
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if first is None:
            return f"{len(got)} items instead of {len(expected)}"
        return f"first at index {first}: {got[first]!r} instead of {expected[first]!r}"
    return ""

"""Bytes for people: every line has its place, and the caret stands under the byte that is wrong."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from craft2 import hexdump as module
from craft2.hexdump import compare_bytes, first_difference, hexdump


def test_the_example_is_true():
    assert doctest.testmod(module).failed == 0


def test_lines_of_sixteen_with_letters():
    text = hexdump(b"A" * 16 + b"\0z")
    assert text.splitlines() == [
        "0000  41 41 41 41 41 41 41 41  41 41 41 41 41 41 41 41  AAAAAAAAAAAAAAAA",
        "0010  00 7a                                             .z",
    ]
    assert hexdump(b"") == "0000"


@given(st.binary(min_size=1, max_size=100), st.floats(0, 1, exclude_max=True))
@example(b"\0^^", 0.0)  # carets among the letters
def test_the_caret_stands_under_the_wrong_byte(data, place):
    at = int(place * len(data))
    wrong = bytearray(data)
    wrong[at] ^= 0xFF
    assert first_difference(bytes(wrong), data) == at
    lines = compare_bytes(bytes(wrong), data).splitlines()
    caret = next(number for number, line in enumerate(lines) if line.strip().startswith("^^"))
    column = lines[caret].index("^^")
    assert lines[caret - 1][column : column + 2] == f"{wrong[at]:02x}"
    assert f"expected {data[at]:02x}, got {wrong[at]:02x}" in lines[caret]


@pytest.mark.parametrize(
    ("got", "expected", "note"),
    [
        (b"ab", b"abc", "byte 2, end: it ends, and 63 is expected"),
        (b"abcd", b"ab", "byte 2, end: nothing more is expected, and 2 bytes come"),
        (b"b", b"a", "byte 0, begin: expected 61, got 62"),
        (b"", b"a", "byte 0, begin: it ends, and 61 is expected"),
        (b"a" * 16, b"a" * 17, "byte 16, end: it ends, and 61 is expected"),
    ],
)
def test_what_is_wrong_is_said_with_its_field(got, expected, note):
    text = compare_bytes(got, expected, [(0, "begin"), (2, "end")])
    assert text.splitlines()[-1].strip() == f"^^ {note}"


def test_only_the_lines_around_it_if_there_are_many():
    wrong = b"\0" * 100 + b"\1" + b"\0" * 100
    lines = compare_bytes(wrong, bytes(201), rows=1).splitlines()
    assert [line[:4] for line in lines if "^^" not in line] == ["0050", "0060", "0070"]

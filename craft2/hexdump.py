"""Bytes as people read them, with a mark under the first one that is wrong.

>>> right, ours = b"\\0\\0\\0\\x0b\\0\\x12\\0\\0who asks", b"\\0\\0\\0\\x0b\\x12\\0\\0\\0who asks"
>>> print(compare_bytes(ours, right, [(0, "size"), (4, "api key"), (6, "api version")]))
0000  00 00 00 0b 12 00 00 00  77 68 6f 20 61 73 6b 73  ........who asks
                  ^^ byte 4, api key: expected 00, got 12
>>> compare_bytes(right, right)
''
"""

from __future__ import annotations

from collections.abc import Sequence

ROW = 16  # bytes a line
_HALF = ROW // 2


def hexdump(data: bytes, mark: int | None = None, note: str = "", rows: int | None = None) -> str:
    """Lines of 16 bytes: position, the bytes in hexadecimal, those that are letters.

    mark: the position of a byte that gets a caret and the `note` below it; it may be just behind
    the last one. rows: only so many lines before and after it; None: all.
    """
    lines = []
    at_row = None if mark is None else mark // ROW
    for row in range(max(1, -(-len(data) // ROW), 0 if at_row is None else at_row + 1)):
        if rows is not None and at_row is not None and abs(row - at_row) > rows:
            continue
        part = data[row * ROW : row * ROW + ROW]
        left, right = part[:_HALF].hex(" "), part[_HALF:].hex(" ")
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{row * ROW:04x}  {left:<23}  {right:<23}  {text}".rstrip())
        if mark is not None and row == at_row:
            column = mark % ROW
            indent = 6 + 3 * column + (column >= _HALF)
            lines.append(f"{'':{indent}}^^ {note}".rstrip())
    return "\n".join(lines)


def compare_bytes(
    got: bytes,
    expected: bytes,
    fields: Sequence[tuple[int, str]] = (),
    rows: int | None = None,
) -> str:
    """`got` with a caret under the first byte that is not as expected; empty if all are.

    fields: (where it begins, its name) of each field, in order, to say which of them it is.
    """
    at = first_difference(got, expected)
    if at is None:
        return ""
    names = [name for begins, name in fields if begins <= at]
    where = f"byte {at}, {names[-1]}" if names else f"byte {at}"
    if at >= len(expected):
        note = f"{where}: nothing more is expected, and {len(got) - at} bytes come"
    elif at >= len(got):
        note = f"{where}: it ends, and {expected[at]:02x} is expected"
    else:
        note = f"{where}: expected {expected[at]:02x}, got {got[at]:02x}"
    return hexdump(got, at, note, rows)


def first_difference(got: bytes, expected: bytes) -> int | None:
    """The position of the first byte in which the two differ, None if they are equal."""
    if got == expected:
        return None
    pairs = enumerate(zip(got, expected, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(got), len(expected)))

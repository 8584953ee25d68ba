"""Fields as Kafka's schemas write them: numbers, strings and bytes, one after the other.

Numbers are big-endian. A string is an int16 length and UTF-8, bytes have an int32 length; a length
of -1 means null.

>>> fields = Fields(string("UA") + opaque(None) + struct.pack(">i", 1545), ValueError)
>>> fields.string(), fields.opaque(), fields.number("i")
('UA', None, 1545)

Source: kafka.apache.org/protocol, "Protocol Primitive Types".
"""

from __future__ import annotations

import struct
from collections.abc import Callable


def is_text(value: object) -> bool:
    r"""Whether it can be sent as UTF-8; a lone surrogate cannot, as in a file name with odd bytes.

    >>> is_text("Köln"), is_text("\udcff"), is_text(5)
    (True, False, False)
    """
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def string(text: str | None) -> bytes:
    """A nullable string."""
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def opaque(data: bytes | None) -> bytes:
    """Nullable bytes."""
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


class Fields:
    """Reads one field after the other, from `at` on.

    error: makes the exception for bytes that are no such field from a problem in words.
    """

    def __init__(self, data: bytes, error: Callable[[str], Exception]) -> None:
        self._data = data
        self._error = error
        self.at = 0

    def number(self, form: str) -> int:
        """An integer: "h" of two bytes, "i" of four, "q" of eight."""
        return int(struct.unpack(">" + form, self._take(struct.calcsize(">" + form)))[0])

    def string(self) -> str | None:
        length = self.number("h")
        try:
            return None if length < 0 else self._take(length).decode()
        except UnicodeDecodeError:
            raise self._wrong("text that is not UTF-8") from None

    def opaque(self) -> bytes | None:
        length = self.number("i")
        return None if length < 0 else self._take(length)

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise self._wrong(f"{length} more bytes were to come")
        taken, self.at = self._data[self.at : end], end
        return taken

    def _wrong(self, problem: str) -> Exception:
        return self._error(f"{problem} at byte {self.at} of {len(self._data)}")

"""Numbers of one to ten bytes: the zigzag varints inside a record batch.

A record is mostly small numbers (lengths, and differences to the batch's first offset and
timestamp), so they are written in as few bytes as they need. Seven bits go into each byte, the
lowest first; the top bit says that more follow:

    300 = 0b10_0101100  ->  1|0101100  0|0000010  ->  ac 02

Written like that, -1 would be 64 ones: ten bytes. So the sign is first moved to the lowest bit
("zigzag": 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4), and numbers near zero are short on both sides:

>>> [encode(n).hex() for n in (0, -1, 1, 63, 64, 300)]
['00', '01', '02', '7e', '8001', 'd804']
>>> decode(bytes.fromhex("d804"), 0)
(300, 2)

Source: Protocol Buffers encoding guide (sint32, sint64), which Kafka's varint and varlong follow.
"""

from __future__ import annotations

from craft2.errors import Craft2Error


class VarintError(Craft2Error):
    """A varint that the data ends inside of, or that holds more bits than it may."""


def encode(number: int) -> bytes:
    """`number`, of at most 64 bits with its sign, as one to ten bytes."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def decode(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """(number, position after it) of the varint of at most `bits` (32 or 64) at `position`.

    Raises VarintError if the data ends inside it or the number needs more bits.
    """
    rest = shift = 0
    longest = (bits + 6) // 7
    for index in range(position, min(position + longest, len(data))):
        byte = data[index]
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            if rest >> bits:
                break
            return (rest >> 1) ^ -(rest & 1), index + 1
        shift += 7
    raise VarintError(
        f"no {bits}-bit varint at byte {position}: "
        f"got {data[position : position + longest].hex(' ') or 'nothing'}",
        "check that the reader is at the start of a field",
    )


class VarintTable(dict[int, bytes]):
    """number -> its bytes, for use with `map`: the small numbers are kept, others are computed.

    Nothing is ever added, so the memory stays what it was (about 0.4 MB for 4,000 numbers).
    """

    def __missing__(self, number: int) -> bytes:
        return encode(number)


SMALL = VarintTable((number, encode(number)) for number in range(-64, 4096))

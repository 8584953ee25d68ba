"""What the log fills in when it takes a producer's batch: its place, its leader, perhaps its time.

A producer cannot know which offsets its records will get, so it leaves that to whoever appends.
The layout of a batch is drawn in `craft2.batch_header`; what is written here is a few bytes of its
head, whatever the number of records.
"""

from __future__ import annotations

from struct import Struct

from crc32c import crc32c

_INT32, _INT64, _UINT32 = Struct(">i"), Struct(">q"), Struct(">I")
_APPEND_TIME = 0b1000  # in the attributes: one time holds for all records, the max timestamp


# EXERCISE 20.2 stamp a batch
def stamp(
    data: bytearray, at: int, size: int, offset: int, epoch: int, append_time_ms: int
) -> None:
    """Write into the batch that is at `data[at : at + size]`, in place, what the log knows of it.

    offset: goes into the base offset. epoch: goes into the leader epoch. What else is in
    `data` belongs to other batches.

    append_time_ms: -1, and the producer's times hold; nothing else is touched. Else it goes into
    the max timestamp, and bit 3 of the attributes, `_APPEND_TIME`, is set: of their two bytes it is
    in the second one. The other bits say how the records are compressed, and stay. Both lie under
    the CRC32C, a number without a sign, of all bytes from the attributes to the end of the batch.

    Notebook 20 prints where each field begins and which bytes it has. All numbers are big-endian:
    `_INT64.pack_into(data, position, number)`, and likewise `_INT32` and `_UINT32`.
    `crc32c(some_bytes)` is the checksum.
    """
    # BEGIN SOLUTION
    _INT64.pack_into(data, at, offset)
    _INT32.pack_into(data, at + 12, epoch)
    if append_time_ms >= 0:
        _INT64.pack_into(data, at + 35, append_time_ms)
        data[at + 22] |= _APPEND_TIME
        _UINT32.pack_into(data, at + 17, crc32c(data[at + 21 : at + size]))
    # END SOLUTION

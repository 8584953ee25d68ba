"""Exercise 20.2: stamp a batch with what only the broker knows."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, same_bytes
from craft2.record_batch import HEADER_SIZE, encode_values, stamp_append_time, stamp_into

SENT_MS = 1_700_000_000_000
NOW_MS = 1_700_000_000_999
FIELDS = (
    (0, "base offset"),
    (8, "length"),
    (12, "leader epoch"),
    (16, "magic"),
    (17, "crc"),
    (21, "attributes"),
    (23, "last offset delta"),
    (27, "base timestamp"),
    (35, "max timestamp"),
    (43, "producer id"),
    (51, "producer epoch"),
    (53, "base sequence"),
    (57, "count"),
    (HEADER_SIZE, "records"),
)


class _Case(NamedTuple):
    words: str
    offset: int
    epoch: int
    append_time_ms: int = -1
    codec: str = "none"
    place: int = 1  # of three batches, one behind the other
    producer: bool = False


CASES = (
    _Case("the log's first batch", 0, 0, place=0),
    _Case("an offset and an epoch of one byte", 7, 3, place=0),
    _Case("an offset of five bytes, and a batch that lies in the middle", 5_000_000_000, 258),
    _Case("the last of three batches", 1_000, 1, place=2),
    _Case("an idempotent producer's", 12, 2, producer=True),
    _Case("compressed", 12, 2, codec="gzip"),
    _Case("the broker's time", 40, 1, NOW_MS, place=0),
    _Case("the broker's time, in the middle", 40, 1, NOW_MS),
    _Case("the broker's time, compressed records", 40, 1, NOW_MS, "zstd"),
    _Case("the broker's time, an idempotent producer", 40, 1, NOW_MS, producer=True, place=2),
    _Case("the broker's time is earlier than the producer's", 40, 1, SENT_MS - 5_000),
    _Case("the broker's time is 0: its clock stands at 1970", 40, 1, 0),
)


def check(module: ModuleType) -> str:
    """Each case, all bytes compared; the records' number does not matter."""
    for case in CASES:
        _stamp(module, case)
    return f"{len(CASES)} batches, byte by byte, and what lies beside them"


def _batch(number: int, case: _Case) -> bytes:
    mine = {"producer_id": 77, "producer_epoch": 2, "base_sequence": 9} if case.producer else {}
    values = [b"flight %d" % n for n in range(3 + number)]
    return encode_values(values, timestamps=SENT_MS, codec=case.codec, **mine)  # type: ignore[arg-type]


def _stamp(module: ModuleType, case: _Case) -> None:
    batches = [_batch(number, case) for number in range(3)]
    at = sum(map(len, batches[: case.place]))
    size = len(batches[case.place])
    data, expected = bytearray().join(batches), bytearray().join(batches)
    stamp_into(expected, at, case.offset, case.epoch)
    if case.append_time_ms >= 0:
        stamp_append_time(expected, at, case.append_time_ms)
    call = (
        f"stamp(data, {at}, {size}, offset={case.offset}, epoch={case.epoch}, "
        f"append_time_ms={case.append_time_ms}) ({case.words})"
    )
    doing(call)
    got = module.stamp(data, at, size, case.offset, case.epoch, case.append_time_ms)
    equal(f"what {call} returns", got, None, "it changes `data` in place")
    equal(f"the size of data after {call}", len(data), len(expected))
    end = at + size
    same_bytes(f"the batches before this one, after {call}", data[:at], bytes(expected[:at]))
    batch, right = data[at:end], bytes(expected[at:end])
    theirs = batch[17:21]
    batch[17:21] = right[17:21]  # what is under a wrong checksum says more than the checksum
    same_bytes(f"the batch after {call}", batch, right, FIELDS)
    batch[17:21] = theirs
    same_bytes(f"the batch after {call}", batch, right, FIELDS)
    same_bytes(f"the batches behind this one, after {call}", data[end:], bytes(expected[end:]))


_OFFSET = "_INT64.pack_into(data, at, offset)\n"
_EPOCH = "_INT32.pack_into(data, at + 12, epoch)\n"
_IF = "if append_time_ms >= 0:\n"
_TIME = "    _INT64.pack_into(data, at + 35, append_time_ms)\n"
_BIT = "    data[at + 22] |= _APPEND_TIME\n"
_SUM = "crc32c(data[at + 21 : at + size])"
_CRC = f"    _UINT32.pack_into(data, at + 17, {_SUM})\n"
_RIGHT = _OFFSET + _EPOCH + _IF + _TIME + _BIT + _CRC

EXERCISE = Exercise(
    id="20.2",
    title="stamp a batch",
    file="phase1_file_queue/stamp.py",
    hints=(
        "Two fields always, three more only if append_time_ms says so. Every position counts from "
        "`at`. Of the attributes only one bit may change: they also hold the codec.",
        "In a batch the base offset is at 0, the leader epoch at 12, the CRC at 17, the attributes "
        "at 21 and 22, the max timestamp at 35. The bit is in the second byte of the attributes. "
        "The checksum covers some of what you write: what has to be there before it is taken?",
        "_INT64.pack_into(data, at, offset) is the first line, and the one for the epoch is like "
        "it. With a time of 0 or more three lines follow: the time; the bit, with |=; and crc32c("
        "data[at + 21 : at + size]), packed to at + 17. In which order?",
    ),
    check=check,
    explanation=(
        "Twelve bytes place a batch of any size, and the producer's checksum still holds, since it "
        "begins behind them: what guards the records from the producer's memory to the consumer's "
        "is computed once. The broker's own time lies under it, so such a topic costs a pass over "
        "all bytes. There is a catch: a new checksum makes any damage look whole. So the log "
        "compares the producer's before it stamps."
    ),
    wrong={
        "nothing": "pass",
        "no epoch": edited(_RIGHT, (_EPOCH, "")),
        "no offset": edited(_RIGHT, (_OFFSET, "")),
        "always the first batch": edited(_RIGHT, ("data, at, offset", "data, 0, offset")),
        "the epoch over the length": edited(_RIGHT, ("at + 12", "at + 8")),
        "four bytes of offset": edited(
            _RIGHT, (_OFFSET, "_INT32.pack_into(data, at + 4, offset & 0x7FFFFFFF)\n")
        ),
        "the wrong end first": edited(
            _RIGHT, (_OFFSET, "data[at : at + 8] = offset.to_bytes(8, 'little')\n")
        ),
        "the time is always written": edited(_RIGHT, ("append_time_ms >= 0", "True")),
        "a time of 0 is none": edited(_RIGHT, ("append_time_ms >= 0", "append_time_ms > 0")),
        "the time is never written": _OFFSET + _EPOCH,
        "the time of the first record": edited(_RIGHT, ("at + 35", "at + 27")),
        "no bit": edited(_RIGHT, (_BIT, "")),
        "the codec is lost": edited(_RIGHT, ("|= _APPEND_TIME", "= _APPEND_TIME")),
        "the bit in the other byte": edited(_RIGHT, ("data[at + 22]", "data[at + 21]")),
        "the old checksum": edited(_RIGHT, (_CRC, "")),
        "the checksum before the fields": edited(
            _RIGHT, (_TIME + _BIT + _CRC, _CRC + _TIME + _BIT)
        ),
        "the checksum of the records alone": edited(_RIGHT, ("data[at + 21 :", "data[at + 61 :")),
        "the checksum of the whole batch": edited(_RIGHT, ("data[at + 21 :", "data[at :")),
        "the checksum to the end of all": edited(_RIGHT, ("at + 21 : at + size", "at + 21 :")),
        "another checksum": "import zlib\n" + edited(_RIGHT, ("crc32c(", "zlib.crc32(")),
        "a copy": "data = bytearray(data)\n" + _RIGHT,
        "the later of two times": edited(
            _RIGHT,
            (_IF, _IF + "    theirs_ms = int.from_bytes(data[at + 35 : at + 43])\n"
                        "    append_time_ms = max(append_time_ms, theirs_ms)\n"),
        ),
    },
)  # fmt: skip

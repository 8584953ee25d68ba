"""What the log fills in: places and epochs always, its own time if it is given one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2 import record_batch
from craft2.record_batch import CorruptBatch, decode_all, encode_values, iter_headers, verify
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.stamp import stamp

VALUES = [b"UA 1545", b"UA 1714"]


@given(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(-1, 2**62))
def test_it_writes_what_the_toolkit_writes(offset, epoch, append_time_ms):
    batches = [encode_values(VALUES, timestamps=1_000, codec=codec) for codec in ("gzip", "none")]
    ours, theirs = bytearray().join(batches), bytearray().join(batches)
    at, size = len(batches[0]), len(batches[1])
    stamp(ours, at, size, offset, epoch, append_time_ms)
    record_batch.stamp_into(theirs, at, offset, epoch)
    if append_time_ms >= 0:
        record_batch.stamp_append_time(theirs, at, append_time_ms)
    assert ours == theirs
    verify(ours, at)


def test_the_logs_time_holds_for_all_records_and_is_what_they_are_found_by(tmp_path):
    with PartitionLog(tmp_path / "t-0") as log:
        log.append_as_leader(encode_values(VALUES, timestamps=9_000), 0)
        two = encode_values(VALUES, timestamps=1_000, codec="gzip")
        assert log.append_as_leader(two + two, 3, append_time_ms=9_500) == (2, 5, False)
        data = log.read(2, 10_000).read()
        assert [record.timestamp for record in decode_all(data)] == [9_500] * 4
        headers = [header for _, header in iter_headers(data)]
        assert [(one.base_offset, one.leader_epoch, one.codec) for one in headers] == [
            (2, 3, "gzip"),
            (4, 3, "gzip"),
        ]
        assert log.offset_for_timestamp(9_001) == (2, 9_500)


def test_a_new_checksum_hides_no_damage(tmp_path):
    damaged = bytearray(encode_values(VALUES, timestamps=1_000))
    damaged[-3] ^= 1
    with PartitionLog(tmp_path / "t-0") as log:
        with pytest.raises(CorruptBatch, match="crc"):
            log.append_as_leader(damaged, 0, append_time_ms=9_000)
        assert log.end_offset == 0

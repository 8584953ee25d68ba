"""What a partition remembers of its producers: duplicates, gaps, epochs, snapshots."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values, read_header
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase2_groups import producer_sequences
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_sequences import (
    KEPT_BATCHES,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProducerSequences,
    sequence_after,
)

LAST_SEQUENCE = 2**31 - 1


def batch(sequence, count=1, *, producer=7, epoch=0):
    values = [b"%d" % (sequence + number) for number in range(count)]
    return encode_values(values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


class Partition:
    """A state and the end offset that goes with it."""

    def __init__(self):
        self.state = ProducerSequences()
        self.end = 0

    def append(self, *arguments, **fields):
        header = read_header(batch(*arguments, **fields))
        found = self.state.check(header)
        if found is None:
            self.state.update(header._replace(base_offset=self.end))
            self.end += header.count
        return found


def test_the_examples_in_the_text_are_true():
    assert doctest.testmod(producer_sequences).failed == 0


def test_each_of_the_last_five_batches_is_known_again_with_its_old_offsets():
    partition = Partition()
    sizes = [3, 1, 4, 1, 5, 9]
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]
    for first, size in zip(firsts, sizes, strict=True):
        assert partition.append(first, size) is None
    for first, size in list(zip(firsts, sizes, strict=True))[-KEPT_BATCHES:]:
        assert partition.append(first, size) == (first, first + size - 1, True)
    with pytest.raises(OutOfOrderSequence):
        partition.append(firsts[0], sizes[0])  # too long ago: nobody knows any more
    assert partition.end == sum(sizes)


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (2, 2), (1, 1), (0, 2)])
def test_a_gap_and_a_part_of_a_batch_are_out_of_order(sequence, count):
    partition = Partition()
    partition.append(0, 3)
    with pytest.raises(OutOfOrderSequence, match="expected 3") as refused:
        partition.append(sequence, count)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_with_0():
    partition = Partition()
    partition.append(0, 3, epoch=4)
    with pytest.raises(InvalidProducerEpoch, match="epoch 3 in this batch, and 4") as refused:
        partition.append(3, epoch=3)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(OutOfOrderSequence):
        partition.append(3, epoch=5)
    assert partition.append(0, 3, epoch=5) is None  # not the batch of epoch 4
    assert partition.append(0, 3, epoch=5) == (3, 5, True)
    with pytest.raises(InvalidProducerEpoch):
        partition.append(0, 3, epoch=4)


def test_a_producer_that_is_not_known_begins_where_it_likes():
    partition = Partition()
    assert partition.append(40, 2, epoch=3) is None
    assert partition.append(42, epoch=3) is None


def test_producers_do_not_disturb_each_other_and_those_without_a_number_are_not_looked_at():
    partition = Partition()
    partition.append(0, 2, producer=1)
    assert partition.append(0, 2, producer=2) is None
    assert partition.append(0, 2, producer=1) == (0, 1, True)
    for _ in range(2):
        assert partition.append(-1, 2, producer=-1, epoch=-1) is None


def test_after_the_last_sequence_comes_0():
    partition = Partition()
    assert partition.append(LAST_SEQUENCE - 1, 3) is None  # ..., 2147483647, 0
    assert partition.append(LAST_SEQUENCE - 1, 3) == (0, 2, True)
    assert partition.append(1) is None
    assert sequence_after(LAST_SEQUENCE, 1) == 0


def test_who_has_been_silent_the_longest_is_forgotten_first():
    state = ProducerSequences(max_producers=2)
    for producer in (1, 2, 1, 3):
        sequence = 0 if state.check(read_header(batch(0, producer=producer))) is None else 1
        state.update(read_header(batch(sequence, producer=producer)))
    assert state.check(read_header(batch(0, producer=1))).duplicate
    assert state.check(read_header(batch(0, producer=2))) is None  # forgotten
    assert state.check(read_header(batch(0, producer=3))).duplicate


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=30))
def test_a_snapshot_holds_all_there_is_to_know(batches):
    partition, ends = Partition(), dict.fromkeys((1, 2, 3), 0)
    for producer, count in batches:
        partition.append(ends[producer], count, producer=producer)
        ends[producer] += count
    copy = ProducerSequences()
    copy.restore(partition.state.snapshot())
    assert copy.snapshot() == partition.state.snapshot()
    assert copy._known == partition.state._known
    copy.restore(b"")
    assert copy._known == {}


def test_a_log_shared_by_processes_stores_a_batch_once_whoever_is_asked():
    disk = FaultyDisk()
    config = LogConfig(access="shared", segment_bytes=500)

    def opened():
        return PartitionLog("/t-0", config, disk=disk, producer_state=ProducerSequences())

    logs = [opened(), opened()]
    for number in range(20):
        one, other = logs[number % 2], logs[1 - number % 2]
        assert one.append_as_leader(batch(number), 0) == (number, number, False)
        assert other.append_as_leader(batch(number), 0) == (number, number, True)
    with pytest.raises(OutOfOrderSequence):
        logs[0].append_as_leader(batch(21), 0)
    for log in logs:
        log.close()
    again = opened()
    assert again.append_as_leader(batch(19), 0) == (19, 19, True)
    crashed = PartitionLog(
        "/t-0", config, disk=disk.power_loss(keep=1.0), producer_state=ProducerSequences()
    )
    assert crashed.append_as_leader(batch(18), 0) == (18, 18, True)
    assert [record.offset for record in crashed.records()] == list(range(20))

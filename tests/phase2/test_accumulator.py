"""Batches come together, are drained in order, and give their memory back: no threads in here."""

from __future__ import annotations

import doctest
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_transport import Fault, MemoryTransport

from craft2.record_batch import encode_values, verify
from phase2_groups import accumulator, producer_core
from phase2_groups.accumulator import RECORD_OVERHEAD, Accumulator
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_config import (
    DeliveryTimeout,
    ProducerConfig,
    ProducerFailed,
    RecordTooLarge,
    Refused,
)
from phase2_groups.producer_core import ProducerCore
from phase2_groups.transport import Produced

RECORD = 100 + RECORD_OVERHEAD
THREE = ProducerConfig(batch_size=61 + 3 * RECORD, linger_ms=10)  # three records fill a batch
TIMED_OUT = Produced(ErrorCode.REQUEST_TIMED_OUT)
OUT_OF_ORDER = Produced(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def stored(offset):
    return Produced(ErrorCode.NONE, offset)


def put(core, topic, partition=0, count=1, now_ms=0):
    """The batch of the last of `count` records of 100 bytes."""
    for _ in range(count):
        batch = core.append(topic, partition, b"v" * 100, None, 0, (), now_ms)
    return batch


def core_of(config=THREE):
    core = ProducerCore(config, random=lambda: 0.5)
    core.identify(7, 0)
    return core, core.topic("t", 3)


@pytest.mark.parametrize("module", [accumulator, producer_core])
def test_the_examples_in_the_text_are_true(module):
    assert doctest.testmod(module).failed == 0


# When a batch may go.


def test_a_batch_lingers_until_it_is_full_or_old_or_somebody_flushes():
    core = Accumulator(THREE, random=lambda: 0.0)
    topic = core.topic("t", 3)
    full = put(core, topic, 0, 3)
    young = put(core, topic, 1)
    assert core.drain(9) == []  # nobody knows yet that no fourth record fits
    assert put(core, topic, 0) is not full
    assert core.drain(9) == [full]
    assert core.next_moment(9) == 10
    assert young in core.drain(10)
    flushed = put(core, topic, 2, now_ms=10)
    core.seal_all()
    assert flushed in core.drain(10)


def test_no_batch_exceeds_batch_size_but_for_a_single_record():
    core, topic = core_of()
    core.append(topic, 0, b"v" * 300, None, 0, (), 0)
    core.append(topic, 0, b"v" * 900, b"k" * 50, 0, (), 0)
    core.append(topic, 0, b"v", None, 0, (), 0)
    assert [len(batch.timestamps) for batch in core.unfinished()] == [1, 1, 1]
    core.seal_all()
    for batch in core.unfinished():
        assert len(batch.encode("none")) <= batch.size


def test_a_record_that_fits_in_no_request_is_refused_and_leaves_no_trace():
    core, topic = core_of(replace(THREE, max_request_size=1000))
    with pytest.raises(RecordTooLarge, match="1082 bytes, more than max_request_size=1000"):
        core.append(topic, 0, b"v" * 1000, None, 0, (), 0)
    assert not core.busy
    assert core.buffered == 0


def test_records_without_a_key_stay_together_until_their_batch_is_sealed():
    core, topic = core_of()
    batches = [put(core, topic, None) for _ in range(12)]
    partitions = [batch.lane.partition for batch in batches]
    runs = [partitions[start : start + 3] for start in range(0, 12, 3)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))


def test_round_robin_takes_the_partitions_in_turn_whatever_the_key():
    core, topic = core_of(replace(THREE, partitioner="round_robin"))
    batches = [core.append(topic, None, b"", b"UA", 0, (), 0) for _ in range(6)]
    assert [batch.lane.partition for batch in batches] == [2, 0, 1, 2, 0, 1]


def test_a_request_has_one_batch_a_partition_and_who_did_not_fit_comes_first_next_time():
    core, topic = core_of(replace(THREE, max_request_size=2 * (61 + 3 * RECORD)))
    for partition in range(3):
        put(core, topic, partition, 6)
    served = []
    for _ in range(3):
        request = core.drain(100)
        served.append([batch.lane.partition for batch in request])
        for batch in request:
            batch.in_flight, batch.lane.in_flight = False, 0
            core.remove(batch)
    assert served == [[0, 1], [2, 0], [1, 2]]
    assert core.buffered == 0


def test_a_batch_that_comes_encoded_goes_behind_what_was_sent_before():
    core, topic = core_of()
    before = put(core, topic, 0)
    data = encode_values([b"a", b"b"])
    encoded = core.append_encoded(topic.lanes[0], data, 2, 0)
    after = put(core, topic, 0)
    assert list(core.unfinished()) == [before, encoded, after]
    assert (before.count, encoded.count) == (1, 2)
    assert encoded.encode("none") == data
    for batch in (before, encoded, after):
        assert core.take(10) == [batch]
        core.answer(batch, stored(0), 10)
    assert core.buffered == 0
    assert core.append_encoded(topic.lanes[0], bytes(2**26), 2, 0) is None


def test_when_memory_is_short_nothing_lingers_and_nothing_is_taken():
    core, topic = core_of(replace(THREE, buffer_memory=2 * 61 + 3 * RECORD))
    batch = put(core, topic, 0, 3)
    assert put(core, topic, 1) is None
    assert core.take(0) == [batch]
    core.answer(batch, stored(0), 5)
    assert put(core, topic, 1) is not None


# Retries.


def test_nothing_overtakes_a_batch_that_waits_to_be_sent_again():
    core, topic = core_of(replace(THREE, enable_idempotence=False))
    first, second = put(core, topic, 0, 3), put(core, topic, 0, 3)
    assert core.take(10) == [first]
    assert core.take(10) == []  # without numbers: one at a time
    core.answer(first, TIMED_OUT, 20)
    assert core.take(119) == []
    assert core.next_moment(20) == 120
    assert core.take(120) == [first]
    core.answer(first, stored(0), 130)
    assert core.take(130) == [second]


def test_the_pauses_double_up_to_the_maximum_with_a_fifth_of_chance():
    for chance, pauses in [(0.0, [80, 160, 320, 640, 1000]), (0.5, [100, 200, 400, 800, 1000])]:
        core, topic = core_of()
        core._random = lambda chance=chance: chance
        batch, now = put(core, topic, 0, 3), 0
        core.seal_all()
        for pause in pauses:
            assert core.take(now) == [batch]
            core.answer(batch, TIMED_OUT, now)
            assert abs(batch.retry_at_ms - now - pause) <= 1
            now = batch.retry_at_ms


def test_up_to_five_are_in_flight_once_the_other_side_knows_the_producer():
    core, topic = core_of()
    batches = [put(core, topic, 0, 3) for _ in range(8)]
    assert core.take(10) == [batches[0]]
    assert core.take(10) == []  # a gap would not be noticed yet
    core.answer(batches[0], stored(0), 11)
    taken = [core.take(12) for _ in range(6)]
    assert taken == [[batch] for batch in batches[1:6]] + [[]]
    assert [batch.sequence for batch in batches[:6]] == [0, 3, 6, 9, 12, 15]


def test_an_error_that_will_not_pass_fails_the_batch_at_once_and_says_the_fix():
    core, topic = core_of()
    batch = put(core, topic)
    core.take(10)
    core.answer(batch, Produced(ErrorCode.MESSAGE_TOO_LARGE, message="the limit is 50"), 10)
    assert core.finished == [batch]
    assert isinstance(batch.outcome.error, Refused)
    assert "1 records for partition t-0 cannot be stored: MESSAGE_TOO_LARGE (the limit is 50)" in (
        str(batch.outcome.error)
    )
    assert "batch_size" in batch.outcome.error.fix


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "it was never sent"),
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER], "refused each time, and is not stored"),
        ([ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER], "may or may not"),
    ],
)
def test_a_batch_that_is_given_up_says_what_became_of_it(answers, words):
    config = replace(THREE, delivery_timeout_ms=1_000, request_timeout_ms=500)
    core, topic = core_of(config)
    batch, now = put(core, topic), 10
    for error in answers:
        assert core.take(now) == [batch]
        core.answer(batch, Produced(error), now)
        now = batch.retry_at_ms
    assert core.take(1_000) == []
    assert isinstance(batch.outcome.error, DeliveryTimeout)
    assert words in str(batch.outcome.error)
    assert core.buffered == 0


def test_a_batch_that_is_given_up_while_it_is_open_takes_no_more_records():
    core, topic = core_of(replace(THREE, delivery_timeout_ms=1_000, request_timeout_ms=500))
    put(core, topic)
    in_flight = core.take(10)
    old = put(core, topic, now_ms=20)
    core.take(1_020)
    assert old.outcome.error is not None
    young = put(core, topic, now_ms=1_020)
    core.answer(in_flight[0], stored(0), 1_030)
    assert core.take(1_030) == [young]


def test_retries_can_be_limited():
    core, topic = core_of(replace(THREE, retries=2, linger_ms=0))
    batch = put(core, topic)
    for now in (0, 1_000, 2_000):
        assert core.take(now) == [batch]
        core.answer(batch, TIMED_OUT, now)
    assert "retries=2 are used up; it was sent (attempts: 3)" in str(batch.outcome.error)


# Numbers.


def test_a_successor_that_is_refused_waits_for_its_predecessor_and_keeps_its_number():
    core, topic = core_of()
    zero, one, two = (put(core, topic, 0, 3) for _ in range(3))
    core.seal_all()
    core.take(0)
    core.answer(zero, stored(0), 0)
    assert core.take(0) == [one]
    assert core.take(0) == [two]
    core.answer(two, OUT_OF_ORDER, 1)  # it was quicker
    core.answer(one, stored(3), 1)
    assert core.take(1_000) == [two]
    assert (two.epoch, two.sequence) == (0, 6)


def test_when_the_predecessor_is_given_up_those_behind_it_begin_with_0_in_the_next_epoch():
    core, topic = core_of()
    zero, one, two, three = (put(core, topic, 0, 3) for _ in range(4))
    core.seal_all()
    core.take(0)
    core.answer(zero, stored(0), 0)
    for batch in (one, two, three):
        assert core.take(0) == [batch]
    core.answer(one, Produced(ErrorCode.MESSAGE_TOO_LARGE), 1)
    two.maybe_stored = True
    core.answer(two, OUT_OF_ORDER, 1)
    assert not two.maybe_stored
    assert core.take(500) == []  # the third is still on its way, under its old number
    core.answer(three, OUT_OF_ORDER, 500)
    assert core.take(1_000) == [two]
    assert (two.epoch, two.sequence) == (1, 0)
    header = verify(two.encode("none", 7))
    assert header[9:12] == (7, 1, 0)  # producer id, epoch, sequence
    core.answer(two, stored(3), 1_000)
    assert core.take(1_000) == [three]
    assert (three.epoch, three.sequence) == (1, 3)


def test_a_fenced_producer_fails_for_good_and_so_does_one_without_epochs_left():
    for answer in (Produced(ErrorCode.INVALID_PRODUCER_EPOCH), OUT_OF_ORDER):
        core, topic = core_of()
        core.identify(7, producer_core.MAX_EPOCH)
        batch, waiting = put(core, topic, 0, 3), put(core, topic, 1)
        core.take(0)
        core.take(10)
        core.answer(batch, answer, 10)
        assert isinstance(core.failed, ProducerFailed)
        assert isinstance(batch.outcome.error, ProducerFailed)
        assert isinstance(waiting.outcome.error, ProducerFailed)
        assert core.buffered == 0


# Anything may happen.


class BadDay:
    """Drives a core by a list of choices: sends, requests that arrive in any order, lost answers.

    A request that got no answer has either arrived by then, or never will.
    """

    def __init__(self, config, seed):
        self.core = ProducerCore(config, random.Random(seed).random)
        self.core.identify(1, 0)
        self.other_side = MemoryTransport({"t": 2})
        self.topic = self.core.topic("t", 2)
        self.now = 0
        self.flying = []  # [batch, its bytes, the answer or None]
        self.sent = {}  # number -> (batch, index)
        self.finished = Counter()

    def send(self, partition):
        number = len(self.sent)
        batch = self.core.append(self.topic, partition, b"%d" % number, None, 5, (), self.now)
        if batch is not None:
            self.sent[number] = (batch, len(batch.timestamps) - 1)

    def take(self):
        for batch in self.core.take(self.now):
            data = batch.encode("none", self.core.producer_id)
            self.flying.append([batch, data, None])
        self.look()

    def arrive(self, which, fault):
        waiting = [one for one in self.flying if one[2] is None]
        if waiting:
            one = waiting[which % len(waiting)]
            one[2] = self.other_side.produce_one(one[0].lane.name, one[1], fault)

    def hear(self, which):
        answered = [one for one in self.flying if one[2] is not None]
        if answered:
            one = answered[which % len(answered)]
            self.flying.remove(one)
            self.core.answer(one[0], one[2], self.now)
        self.look()

    def look(self):
        self.finished.update(map(id, self.core.finished))
        self.core.finished.clear()
        assert self.core.buffered == sum(batch.size for batch in self.core.unfinished())

    def end_well(self):
        """From now on everything arrives and is heard."""
        self.core.seal_all()
        while self.core.busy:
            self.take()
            for _ in range(len(self.flying)):
                self.arrive(0, Fault.NONE)
                self.hear(0)
            self.now += 7

    def check(self, *, once):
        assert self.core.failed is None
        assert self.core.buffered == 0
        assert set(self.finished.values()) <= {1}
        assert set(self.finished) == {id(batch) for batch, _ in self.sent.values()}
        for partition in (0, 1):
            records = self.other_side.records("t", partition)
            found = [int(record.value) for record in records]
            firsts = list(dict.fromkeys(found))
            assert firsts == sorted(firsts)
            assert not once or firsts == found
            for number, (batch, index) in self.sent.items():
                if batch.lane.partition == partition and batch.outcome.error is None:
                    assert found[batch.outcome.offset + index] == number


faults = st.sampled_from(list(Fault))
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([0, 1, None])),
    st.tuples(st.just("send"), st.sampled_from([0, 1, None])),
    st.tuples(st.just("take")),
    st.tuples(st.just("arrive"), st.integers(0, 9), faults),
    st.tuples(st.just("hear"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([1, 10, 60])),
)


def bad_day(config, choices, seed):
    day = BadDay(config, seed)
    for name, *arguments in choices:
        if name == "wait":
            day.now += arguments[0]
        else:
            getattr(day, name)(*arguments)
    day.end_well()
    return day


HURRIED = ProducerConfig(
    batch_size=61 + 2 * (RECORD_OVERHEAD + 2),
    linger_ms=3,
    buffer_memory=1_500,
    retry_backoff_ms=10,
    retry_backoff_max_ms=40,
    request_timeout_ms=50,
    delivery_timeout_ms=200,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=120), st.integers(0, 9))
def test_an_idempotent_producer_stores_what_it_acknowledges_once_and_in_order(choices, seed):
    bad_day(HURRIED, choices, seed).check(once=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=120), st.integers(0, 9))
def test_without_numbers_what_is_acknowledged_is_stored_at_least_once_in_order(choices, seed):
    config = replace(HURRIED, enable_idempotence=False)
    bad_day(config, choices, seed).check(once=False)


@pytest.mark.parametrize("seed", range(25))
def test_a_long_day_goes_no_other_way_than_a_short_one(seed):
    chance = random.Random(seed)
    choices = []
    for _ in range(2_000):
        fault = chance.choices(list(Fault), [20, 2, 1, 2, 2])[0]
        step = chance.choice(
            [
                ("send", chance.choice([0, 1, None])),
                ("take",),
                ("arrive", chance.randrange(10), fault),
                ("hear", chance.randrange(10)),
            ]
        )
        choices += [step, ("wait", chance.choice([0, 1, 10]))]
    day = bad_day(HURRIED, choices, seed)
    day.check(once=True)
    counts = day.core.counts
    assert counts.records_acknowledged + counts.records_failed == len(day.sent)
    assert counts.records_acknowledged > 100
    assert counts.records_failed
    assert counts.records_retried

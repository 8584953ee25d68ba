"""The token bucket: what passes, what waits, and for how long. Time is an argument."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.apps.ingestion.rate_limit import RateLimiter
from craft2.errors import Craft2Error

rates = st.sampled_from([0.5, 1.0, 10.0, 10_000.0])
requests = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 30)), min_size=1, max_size=60)


def granted(limiter, asked):
    """(second, count) of the requests that pass; each is made so long after the one before."""
    times = accumulate(pause for pause, _ in asked)
    return [
        (at, count)
        for at, (_, count) in zip(times, asked, strict=True)
        if not limiter.take("a", count, at)
    ]


@given(rates, requests)
def test_no_time_sees_more_than_the_rate_and_one_second_saved(rate, asked):
    passed = granted(RateLimiter(rate), asked)
    largest = max((count for _, count in passed), default=0)
    for first, (start, _) in enumerate(passed):
        total = 0
        for at, count in passed[first:]:
            total += count
            most = rate * (at - start + 1) + max(0, largest - rate)
            assert total <= most + 1e-6 * total


@given(rates, requests)
def test_who_waits_as_long_as_told_passes(rate, asked):
    limiter = RateLimiter(rate)
    now = 0.0
    for pause, count in asked:
        now += pause
        wait_s = limiter.take("a", count, now)
        assert wait_s >= 0
        if wait_s:
            assert limiter.take("a", count, now + wait_s * 0.999 - 1e-6) > 0, "not before"
            now += wait_s + 1e-6
            assert limiter.take("a", count, now) == 0.0


@given(rates, requests)
def test_a_client_does_not_notice_the_others(rate, asked):
    alone, crowded = RateLimiter(rate), RateLimiter(rate)
    now = 0.0
    for pause, count in asked:
        now += pause
        crowded.take("b", 1_000, now)
        assert alone.take("a", count, now) == crowded.take("a", count, now)


def test_a_slow_client_always_passes():
    limiter = RateLimiter(10)
    assert [limiter.take("a", 1, second * 0.1) for second in range(100)] == [0.0] * 100


def test_a_batch_larger_than_the_bucket_passes_when_it_is_full_and_is_paid_off():
    limiter = RateLimiter(10)
    assert limiter.take("a", 25, 0.0) == 0.0
    assert limiter.take("a", 1, 0.0) == pytest.approx(1.6)
    assert limiter.take("a", 1, 1.61) == 0.0


def test_time_that_goes_back_gives_nothing():
    limiter = RateLimiter(10)
    assert limiter.take("a", 10, 5.0) == 0.0
    assert limiter.take("a", 1, 4.0) == pytest.approx(0.1)


def test_memory_is_for_clients_of_the_last_second():
    limiter = RateLimiter(10)
    for number in range(5_000):
        assert limiter.take(f"client-{number}", 10, number / 100) == 0.0
    assert len(limiter._buckets) < 1_200
    assert limiter.take("client-4999", 1, 49.99) > 0, "one that owes is not forgotten"


def test_zero_is_no_limit_and_less_is_refused():
    assert RateLimiter(0).take("a", 10**9, 0.0) == 0.0
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(Craft2Error, match="rate limit"):
            RateLimiter(wrong)

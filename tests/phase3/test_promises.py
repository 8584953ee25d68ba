"""Promises are told of at once, and what is to be done about them is done in order, afterwards."""

from __future__ import annotations

import asyncio

import pytest

from phase3_raft.promises import Afterwards, Promise


def test_whoever_waits_is_told_once_and_at_once():
    promise, told = Promise(), []
    promise.when_kept(lambda: told.append(promise.result()))
    assert not promise.is_kept
    promise.keep(1)
    promise.keep(2)
    promise.fail(ValueError("too late"))
    promise.cancel()
    assert (told, promise.result()) == ([1], 1)
    promise.when_kept(lambda: told.append("again"))
    assert told == [1, "again"]


def test_a_promise_that_is_broken_says_why():
    promise = Promise()
    promise.fail(ValueError("no"))
    promise.keep(1)
    with pytest.raises(ValueError, match="no"):
        promise.result()


def test_who_is_to_keep_it_hears_that_nobody_wants_it():
    heard = []
    promise = Promise(lambda: heard.append("given up"))
    promise.when_kept(lambda: heard.append("told"))
    promise.cancel()
    promise.keep(1)
    assert heard == ["given up"]
    with pytest.raises(asyncio.CancelledError):
        promise.result()


def test_a_task_that_waits_gets_the_result_and_gives_up_when_it_is_cancelled():
    async def main():
        heard = []
        kept, wanted = Promise(), Promise(lambda: heard.append("given up"))
        first = asyncio.ensure_future(kept.wait())
        second = asyncio.ensure_future(wanted.wait())
        await asyncio.sleep(0)
        kept.keep(5)
        assert await first == 5
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        return heard

    assert asyncio.run(main()) == ["given up"]


def test_what_is_done_afterwards_is_done_in_order_and_what_it_asks_for_too():
    async def main():
        later, done = Afterwards(), []
        later.call(lambda: (done.append(1), later.call(lambda: done.append(3))))
        later.call(lambda: done.append(2))
        assert done == []
        later.run()
        later.run()
        return done

    assert asyncio.run(main()) == [1, 2, 3]


def test_nobody_has_to_run_what_is_to_be_done_afterwards():
    async def main():
        later, done = Afterwards(), []
        for number in range(3):
            later.call(lambda number=number: done.append(number))
            await asyncio.sleep(0)
        return done

    assert asyncio.run(main()) == [0, 1, 2]


def test_one_that_goes_wrong_keeps_nobody_else_waiting():
    async def main():
        later, done = Afterwards(), []
        later.call(lambda: 1 / 0)
        later.call(lambda: done.append("the other"))
        with pytest.raises(ZeroDivisionError):
            later.run()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return done

    assert asyncio.run(main()) == ["the other"]


def test_many_calls_are_made_in_several_rounds():
    async def main():
        later, done = Afterwards(), []
        for number in range(200):
            later.call(lambda number=number: done.append(number))
        later.run()
        first = len(done)
        later.run()
        for _ in range(4):
            await asyncio.sleep(0)
        return first, done

    first, done = asyncio.run(main())
    assert first < 200
    assert done == list(range(200))

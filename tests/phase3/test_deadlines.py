"""What waits is given up in time: none early, none more than a tick late, none that was removed."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from craft2.sim.loop import SimLoop
from craft2.sim.timeline import Timeline
from phase3_raft.deadlines import Deadlines

TICK_MS = 100
steps = st.lists(
    st.tuples(
        st.integers(0, 700),  # ms that pass before it is added
        st.integers(0, 3_000),  # ms until its time is up
        st.none() | st.integers(0, 3_000),  # ms until it is answered
    ),
    max_size=40,
)


@given(steps)
def test_none_is_early_none_is_late_and_none_that_was_answered_is_given_up(steps):
    timeline = Timeline()
    loop = SimLoop(timeline, "a")
    deadlines = Deadlines(TICK_MS / 1_000)
    added, given_up, expected = {}, {}, {}

    async def add():
        for number, (pause, limit, answered) in enumerate(steps):
            await asyncio.sleep(pause / 1_000)
            now = timeline.now_ms

            def give_up(number=number):
                given_up[number] = timeline.now_ms
                added[number].remove()  # as a request does when it ends, however it does

            one = added[number] = deadlines.add(limit / 1_000, give_up)
            if answered is not None:
                loop.call_later(answered / 1_000, one.remove)
            expected[number] = now + limit, None if answered is None else now + answered

    loop.create_task(add())
    timeline.run(60_000)
    assert loop.errors == []
    for number, (due, answered) in expected.items():
        if answered is not None and answered < due:
            assert number not in given_up
        elif answered is None or answered > due + TICK_MS:
            assert due <= given_up[number] <= due + TICK_MS
        else:  # it was answered within the tick: either is right
            assert due <= given_up.get(number, due) <= due + TICK_MS


def test_what_is_given_up_may_add_another_and_closing_ends_it():
    async def main():
        deadlines, seen = Deadlines(0.001), []

        def again():
            seen.append(len(seen))
            if len(seen) < 3:
                deadlines.add(0, again)

        deadlines.add(0, again)
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        deadlines.add(0.001, again)
        deadlines.close()
        await asyncio.sleep(0.01)
        return seen

    assert asyncio.run(main()) == [0, 1, 2]

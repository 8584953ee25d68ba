"""Exercise 21.2: a long poll that misses no append, on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.exercises.fetch_scenes import records
from craft2.course.expect import doing, equal, that

WAIT_S = 30
LOOKS = 200  # more in one poll is no waiting
STEPS = 8  # an append comes after so many turns of the loop


class _Scene:
    """Partitions to which we append, one poll, and a loop on virtual time.

    Invariant: each partition's `watchers` are those that `watch` was called with, less `unwatch`.
    """

    def __init__(self, module: ModuleType, count: int = 2, error_at: int | None = None) -> None:
        from craft2.sim.loop import SimLoop
        from craft2.sim.timeline import Timeline

        self._module = module
        self.timeline = Timeline()
        self.loop = SimLoop(self.timeline, "broker")  # type: ignore[abstract]
        self.looks: list[int] = []  # when
        self.failed = False
        kind = _partition_of(module)
        self.partitions = [kind() for _ in range(count)]
        code = module.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        held: list[Any] = [
            code if number == error_at else one for number, one in enumerate(self.partitions)
        ]
        self.wanted = [
            module.Wanted("flights", number, one, 0, 10**6, -1) for number, one in enumerate(held)
        ]
        module.look = self._look  # type: ignore[attr-defined]

    def _look(self, wanted: Sequence[Any], max_bytes: int) -> list[Any]:
        self.looks.append(self.timeline.now_ms)
        that(
            f"how often it looks within {self.timeline.now_ms} ms",
            len(self.looks) <= LOOKS,
            expected="once, and once more after each append",
            got=f"more than {LOOKS} times: does something wake it that is still set?",
        )
        found, none = self._module.Found, self._module.ErrorCode.NONE
        answers = []
        for one in wanted:
            if isinstance(one.partition, self._module.ErrorCode):
                answers.append(found(none if self.failed is False else one.partition))
            else:
                answers.append(found(none, 0, 0, records(one.partition.size)))
        return answers

    def poll(self, words: str, min_bytes: int = 1, wait_s: float = WAIT_S) -> Any:
        """Begin it; the task."""
        self.words = f"wait_for_bytes(min_bytes={min_bytes}, wait_s={wait_s}), {words}"
        doing(self.words)
        work = self._module.wait_for_bytes(self.wanted, 10**6, min_bytes, wait_s)
        self.task = self.loop.create_task(work)
        self.ended_ms: int | None = None

        def ended(_task: object) -> None:
            self.ended_ms = self.timeline.now_ms

        self.task.add_done_callback(ended)
        return self.task

    def append_at(self, moment_ms: int, number: int, size: int, steps: int = 0) -> None:
        """An append at a moment, or so many turns of the loop after it."""

        def step(left: int) -> None:
            if left:
                self.timeline.after(0, step, left - 1)
            else:
                self.loop.call(self.partitions[number].append, size)

        self.timeline.at(moment_ms, step, steps)

    def expect(self, at_ms: int, sizes: Sequence[int]) -> None:
        """It replies at that moment, with so many bytes of each partition, and watches no more."""
        self.timeline.run(until_ms=3_600_000)
        if self.task.done() and not self.task.cancelled():
            error = self.task.exception()
            if error is not None:
                raise error
        that(
            f"when {self.words} has its reply",
            self.ended_ms == at_ms,
            expected=f"after {at_ms:,} ms",
            got="never" if self.ended_ms is None else f"after {self.ended_ms:,} ms",
        )
        equal(f"whether {self.words} was cancelled", self.task.cancelled(), False)
        found: Any = self.task.result()
        that(
            f"what {self.words} returns",
            isinstance(found, list) and len(found) == len(self.wanted),
            expected="what the last look has found",
            got=repr(found)[:100],
        )
        got = [0 if one.records is None else one.records.size for one in found]
        equal(f"the bytes of each partition after {self.words}", got, list(sizes))
        self.nobody_watches()

    def nobody_watches(self) -> None:
        watching = [len(one.watchers) for one in self.partitions]
        equal(
            f"how many watch each partition after {self.words}",
            watching,
            [0] * len(self.partitions),
            "whoever watches must unwatch, however it ends",
        )


def _partition_of(module: ModuleType) -> type[Any]:
    """A class of partitions that hold a number of bytes, and nothing else."""
    base: Any = module.Partition

    class Held(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.size = 0
            self.watchers: dict[Callable[[], object], None] = {}

        def append(self, size: int) -> None:
            self.size += size
            for watcher in list(self.watchers):
                watcher()

        def watch(self, watcher: Callable[[], object]) -> None:
            self.watchers[watcher] = None

        def unwatch(self, watcher: Callable[[], object]) -> None:
            self.watchers.pop(watcher, None)

    return Held


def check(module: ModuleType) -> str:
    """What is there already, what comes while it waits, and when; an end from outside."""
    _at_once(module)
    _woken(module)
    _time_is_over(module)
    _cancelled(module)
    return (
        f"polls on virtual time: appends at each of {STEPS} turns of the loop, to each partition, "
        "in small pieces, none at all; whoever ends watches no more"
    )


def _at_once(module: ModuleType) -> None:
    scene = _Scene(module)
    scene.partitions[1].size = 50
    scene.poll("50 bytes are there")
    scene.expect(0, [0, 50])
    scene = _Scene(module)
    scene.poll("nothing is there, and no time to wait", wait_s=0)
    scene.expect(0, [0, 0])
    scene = _Scene(module, error_at=0)
    scene.failed = True
    scene.poll("a partition that does not exist: an error is worth a reply at once")
    scene.expect(0, [0, 0])
    scene = _Scene(module)
    scene.poll("min_bytes is 0", min_bytes=0)
    scene.expect(0, [0, 0])


def _woken(module: ModuleType) -> None:
    for number in (0, 1):
        for steps in range(STEPS):
            scene = _Scene(module)
            scene.poll(f"an append to partition {number} at turn {steps} of the loop")
            scene.append_at(0, number, 70, steps)
            scene.expect(0, [70 * (number == 0), 70 * (number == 1)])
        scene = _Scene(module)
        scene.poll(f"an append to partition {number} after 5,003 ms")
        scene.append_at(5_003, number, 70)
        scene.expect(5_003, [70 * (number == 0), 70 * (number == 1)])
    for steps in range(STEPS):
        scene = _Scene(module)
        scene.poll(f"10 bytes after 1,000 ms, 90 more {steps} turns of the loop later", 100)
        scene.append_at(1_000, 0, 10)
        scene.append_at(1_000, 1, 90, steps)
        scene.expect(1_000, [10, 90])
    scene = _Scene(module)
    scene.poll("30 bytes each second, in turn", min_bytes=100)
    for second in range(1, 8):
        scene.append_at(1_000 * second, second % 2, 30)
    scene.expect(4_000, [60, 60])
    scene = _Scene(module, error_at=1)
    scene.poll("one of two partitions is no Partition, an append to the other after 2,000 ms")
    scene.append_at(2_000, 0, 70)
    scene.expect(2_000, [70, 0])


def _time_is_over(module: ModuleType) -> None:
    scene = _Scene(module)
    scene.poll("nothing comes")
    scene.expect(1_000 * WAIT_S, [0, 0])
    scene = _Scene(module)
    scene.poll("too little comes, 10 bytes each 10 s", min_bytes=100)
    for moment in (10_000, 20_000, 29_999):
        scene.append_at(moment, 0, 10)
    scene.expect(1_000 * WAIT_S, [30, 0])


def _cancelled(module: ModuleType) -> None:
    scene = _Scene(module)
    scene.poll("cancelled after 100 ms: the broker stops")
    scene.timeline.at(100, scene.task.cancel)
    scene.timeline.run(until_ms=3_600_000)
    that(
        f"how {scene.words} ends",
        scene.task.cancelled(),
        expected="cancelled",
        got="it goes on" if not scene.task.done() else "with a reply",
    )
    scene.nobody_watches()


_FIRST = "found = look(wanted, max_bytes)\n"
_ENOUGH = "if is_enough(found, min_bytes) or wait_s <= 0:\n    return found\n"
_EVENT = "appended = asyncio.Event()\n"
_WHO = "partitions = [one.partition for one in wanted if isinstance(one.partition, Partition)]\n"
_WATCH = "for partition in partitions:\n    partition.watch(appended.set)\n"
_TIME = "    async with asyncio.timeout(wait_s):\n"
_WHILE = "        while not is_enough(found, min_bytes):\n"
_WAKE = "            await appended.wait()\n"
_CLEAR = "            appended.clear()\n"
_LOOK = "            found = look(wanted, max_bytes)\n"
_OVER = "except TimeoutError:\n    pass\n"
_FINALLY = "finally:\n    for partition in partitions:\n        partition.unwatch(appended.set)\n"
_RIGHT = (
    _FIRST + _ENOUGH + _EVENT + _WHO + _WATCH + "try:\n" + _TIME + _WHILE + _WAKE + _CLEAR + _LOOK
    + _OVER + _FINALLY + "return found\n"
)  # fmt: skip
_AGAIN = f"""
{_FIRST}{_WHO}deadline = asyncio.get_running_loop().time() + wait_s
while not is_enough(found, min_bytes):
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        break
    appended = asyncio.Event()
    for partition in partitions:
        partition.watch(appended.set)
    try:
        await asyncio.wait_for(appended.wait(), left)
    except TimeoutError:
        break
    finally:
        for partition in partitions:
            partition.unwatch(appended.set)
    found = look(wanted, max_bytes)
return found
"""

EXERCISE = Exercise(
    id="21.2",
    title="a long poll",
    file="phase3_raft/handlers/fetch.py",
    hints=(
        "An asyncio.Event, whose `set` is the callback. In which order do you look, begin to "
        "watch, and wait, so that no append can come between two of them unseen?",
        "Look; return if that is enough. Then watch all partitions (those that are a Partition), "
        "and without any await in between, wait in a loop: until the event is set; clear it; look "
        "again. All that in `async with asyncio.timeout(wait_s)`, with unwatch in a `finally`.",
        "try: async with asyncio.timeout(wait_s): while not is_enough(found, min_bytes): await "
        "appended.wait(); appended.clear(); found = look(wanted, max_bytes). except TimeoutError: "
        "pass. finally: unwatch each. return found.",
    ),
    check=check,
    explanation=(
        "The order is everything: whoever looks first, and begins to watch after somebody else "
        "could have run, sleeps through the append that came in between: the lost wake-up. In "
        "asyncio others run at an await and nowhere else, so look and watch with none between them "
        "is safe; with threads it would take a lock. The event is cleared before the look, not "
        "after it: what comes later sets it again. And whoever waits leaves its callback with the "
        "partition, so it must be taken back however the wait ends: with enough, after its time, "
        "or cancelled. Otherwise each append would call all the polls that ever were."
    ),
    wrong={
        "no waiting": "return look(wanted, max_bytes)",
        "asks again every 100 ms": f"""
{_FIRST}deadline = asyncio.get_running_loop().time() + wait_s
while not is_enough(found, min_bytes) and asyncio.get_running_loop().time() < deadline:
    await asyncio.sleep(0.1)
    found = look(wanted, max_bytes)
return found
""",
        "somebody runs between look and watch": edited(
            _RIGHT, (_WATCH, "await asyncio.sleep(0)\n" + _WATCH)
        ),
        "watches a moment too late": edited(
            _RIGHT,
            (_WATCH, ""),
            (_WHILE, "        await asyncio.sleep(0)\n        for partition in partitions:\n"
                     "            partition.watch(appended.set)\n" + _WHILE),
        ),
        "somebody runs between two watches": edited(
            _AGAIN, ("    appended = asyncio.Event()\n",
                     "    await asyncio.sleep(0)\n    appended = asyncio.Event()\n")
        ),
        "cleared after the look, with a pause": edited(
            _RIGHT, (_CLEAR + _LOOK, _LOOK + "            await asyncio.sleep(0)\n" + _CLEAR)
        ),
        "any append is enough": edited(
            _RIGHT, (_WHILE, "        if not is_enough(found, min_bytes):\n")
        ),
        "never cleared": edited(_RIGHT, (_CLEAR, "            await asyncio.sleep(0)\n")),
        "no second look": edited(_RIGHT, (_LOOK, "            break\n")),
        "the time begins anew with each append": edited(
            _RIGHT,
            (_TIME + _WHILE + _WAKE,
             "    while not is_enough(found, min_bytes):\n"
             "        async with asyncio.timeout(wait_s):\n" + _WAKE),
            (_CLEAR + _LOOK, (_CLEAR + _LOOK).replace("            ", "        ")),
        ),
        "only the first partition": edited(_RIGHT, (
            "for partition in partitions:\n    partition.watch",
            "for partition in partitions[:1]:\n    partition.watch",
        )),
        "errors are watched": edited(_RIGHT, (" if isinstance(one.partition, Partition)", "")),
        "watches for ever": edited(_RIGHT, (_FINALLY, "")),
        "watches for ever if the time is over": edited(
            _RIGHT, (_OVER + _FINALLY, "    for partition in partitions:\n"
                     "        partition.unwatch(appended.set)\n"
                     "except TimeoutError:\n    pass\n")
        ),
        "watches for ever if it is cancelled": edited(
            _RIGHT, ("finally:\n    for partition in partitions:\n        partition.unwatch",
                     "for partition in partitions:\n    partition.unwatch")
        ),
        "another callback is taken back": edited(
            _RIGHT, ("partition.unwatch(appended.set)", "partition.unwatch(appended.clear)")
        ),
        "the time is over, and that is an error": edited(_RIGHT, (_OVER, "")),
        "the time is over, and there is nothing": edited(
            _RIGHT, ("    pass\n", "    found = []\n")
        ),
        "milliseconds": edited(_RIGHT, ("timeout(wait_s)", "timeout(wait_s / 1000)")),
        "waits although there is enough": edited(_RIGHT, (_ENOUGH, ""), (
            _WHILE + _WAKE, "        while True:\n" + _WAKE), (
            _LOOK, _LOOK + "            if is_enough(found, min_bytes):\n                break\n")),
    },
)  # fmt: skip

"""Exercise 3.2: where in the sparse index is an offset?"""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import doing, equal, that
from craft2.faulty_disk import FaultyDisk

BASE = 4_000
ENTRIES: tuple[list[int], ...] = ([], [4_012], [4_012, 4_031], [4_001, 4_012, 4_013, 4_044, 4_100])
STEP = 4_100  # bytes from one entry's position to the next
MANY, MOST_READS = 50_000, 24


def check(module: ModuleType) -> str:
    """Every offset of some small indexes, then a large one, counting the entries read."""
    asked = 0
    for offsets, finished in itertools.product(ENTRIES, (False, True)):
        index = _index(module, offsets, finished=finished)
        for offset in range(BASE, max([BASE, *offsets]) + 3):
            asked += 1
            call = f"lookup({offset}) in a segment from {BASE} on, entries at {offsets}"
            doing(call)
            got = index.lookup(offset)
            equal(call, got, expected := _expected(offsets, offset), _difference(got, expected))
    most = _count_reads(module)
    return (
        f"{asked} offsets in {2 * len(ENTRIES)} indexes, from empty to full; "
        f"and of {MANY:,} entries it reads at most {most}"
    )


def _index(module: ModuleType, offsets: list[int], *, finished: bool = False) -> Any:
    """An index with unused room, as a segment that grows has it; or cut to its content."""
    disk = FaultyDisk()
    index = module.OffsetIndex(disk, "/0.index", BASE, max_bytes=8 * (len(offsets) + 4))
    for number, offset in enumerate(offsets, start=1):
        index.append(offset, number * STEP)
    if finished:
        index.trim()
        return module.OffsetIndex(disk, "/0.index", BASE)
    return index


def _expected(offsets: list[int], offset: int) -> tuple[int, int]:
    before = [(o, number * STEP) for number, o in enumerate(offsets, start=1) if o <= offset]
    return before[-1] if before else (BASE, 0)


def _difference(got: object, expected: tuple[int, int]) -> str:
    if not (isinstance(got, tuple) and len(got) == 2 and isinstance(got[1], int)):
        return ""
    if got[1] > expected[1]:
        return "the reader would start behind the batch and never find it"
    if got[1] < expected[1]:
        return f"found in the end, after {expected[1] - got[1]:,} bytes read for nothing"
    return ""


def _count_reads(module: ModuleType) -> int:
    """The most entries one lookup reads of a large index."""
    index = _index(module, list(range(BASE + 10, BASE + 10 + 2 * MANY, 2)))
    read: set[int] = set()  # a search may look at the same one twice
    entry = index.entry

    def counted(number: int) -> tuple[int, int]:
        read.add(number)
        found: tuple[int, int] = entry(number)
        return found

    index.entry = counted
    most = 0
    for offset in (BASE, BASE + 11, BASE + MANY, BASE + 10 + 2 * MANY):
        read.clear()
        call = f"lookup({offset}) in an index of {MANY:,} entries"
        doing(call)
        index.lookup(offset)
        that(
            f"entries that {call} reads",
            len(read) <= MOST_READS,
            expected=f"{MOST_READS} at most",
            got=f"{len(read):,}",
        )
        most = max(most, len(read))
    return most


EXERCISE = Exercise(
    id="3.2",
    title="sparse index lookup",
    file="phase1_file_queue/offset_index.py",
    hints=(
        "The batch you want may lie between two entries. Which of the two must the reader start "
        "from, so that it cannot miss it? And what if the offset lies before the first entry?",
        "Half the entries can be ruled out with one look at the middle one. Python's "
        "`bisect_right(numbers, offset, key=...)`, imported at the top, does that with anything "
        "that has a length and positions, such as `range(self.count)`.",
        "`bisect_right(range(self.count), offset, key=self._offset)` says how many entries are at "
        "or before the offset. If there are none, the answer is (self.base_offset, 0), else the "
        "last of them: `self.entry(that many - 1)`.",
    ),
    check=check,
    explanation=(
        "Rounding down is safe and rounding up is not: from an entry before the batch a reader "
        "walks a few headers (4 KiB of log, as a rule), from one behind it never finds it. "
        "Because the answer need not be exact, the index can be sparse, and because it is sparse "
        "it fits into memory: some 17 steps over 100,000 entries, then one short read."
    ),
    wrong={
        "bisect_left: misses the exact entry": """
            from bisect import bisect_left

            behind = bisect_left(range(self.count), offset, key=self._offset)
            return self.entry(behind - 1) if behind else (self.base_offset, 0)
        """,
        "the next entry instead of the one before": """
            behind = bisect_right(range(self.count), offset, key=self._offset)
            return self.entry(behind) if behind < self.count else self.entry(self.count - 1)
        """,
        "nothing before the first entry": """
            behind = bisect_right(range(self.count), offset, key=self._offset)
            return self.entry(behind - 1)
        """,
        "one after the other": """
            found = (self.base_offset, 0)
            for number in range(self.count):
                if self.entry(number)[0] <= offset:
                    found = self.entry(number)
            return found
        """,
        "from the end, one after the other": """
            for number in reversed(range(self.count)):
                if self.entry(number)[0] <= offset:
                    return self.entry(number)
            return (self.base_offset, 0)
        """,
        "only exact matches": """
            low, high = 0, self.count - 1
            while low <= high:
                middle = (low + high) // 2
                if self.entry(middle)[0] == offset:
                    return self.entry(middle)
                if self.entry(middle)[0] < offset:
                    low = middle + 1
                else:
                    high = middle - 1
            return (self.base_offset, 0)
        """,
        "unused entries searched as well": """
            behind = bisect_right(range(self._capacity), offset, key=self._offset)
            return self.entry(behind - 1) if behind else (self.base_offset, 0)
        """,
        "a search that leaves out the last entry": """
            low, high = 0, self.count - 1
            while low < high:
                middle = (low + high) // 2
                if self.entry(middle)[0] <= offset:
                    low = middle + 1
                else:
                    high = middle
            return self.entry(low - 1) if low else (self.base_offset, 0)
        """,
        "the segment's start as 0": """
            behind = bisect_right(range(self.count), offset, key=self._offset)
            return self.entry(behind - 1) if behind else (0, 0)
        """,
        "always from the start": "return (self.base_offset, 0)",
    },
)

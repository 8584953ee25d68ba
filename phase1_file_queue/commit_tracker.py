"""Which offset of a partition may be committed, when its messages are finished in any order?

A committed offset is the *next one to handle*. To commit 5 says: everything below 5 is done, and
after a crash nobody comes back to it. With one thread that is easy: finish a message, commit the
next offset. With several threads a later message is often finished first, while an earlier one is
still in somebody's hand:

    offset     0  1  2  3  4  5           0 and 2 are finished: commit 1
    finished   x  .  x  .  .  .           1 as well:            commit 3

>>> tracker = CommitTracker(committed=0)
>>> [tracker.finish(offset) for offset in (0, 2, 1)]
[1, 1, 3]
"""

from __future__ import annotations


class CommitTracker:
    """Keeps account of one partition's messages; who calls it holds a lock.

    committed: the offset that may be committed. Invariant: everything below it is finished, and it
        is not finished itself.
    ahead: the offsets above `committed` that are finished and cannot be committed yet.
    """

    def __init__(self, committed: int) -> None:
        self.committed = committed
        self.ahead: set[int] = set()

    # EXERCISE 2.1 the safe offset
    def finish(self, offset: int) -> int:
        """Note that the message at `offset` is finished; return the offset that may be committed.

        offset: each from the first `self.committed` on comes once, in any order.
        Returns the largest offset below which every message is finished. That is not always a
        larger one than before. `self.committed` and `self.ahead` are what you know: keep both as
        the class describes them, so that `ahead` does not grow for ever.
        """
        # BEGIN SOLUTION
        self.ahead.add(offset)
        while self.committed in self.ahead:
            self.ahead.remove(self.committed)
            self.committed += 1
        return self.committed
        # END SOLUTION

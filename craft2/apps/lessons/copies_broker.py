"""One broker on the stage of `copies`: its copy of the partition, and its fetches from the leader.

What it does in `_fetch`, `_serve` and `_take` is what `Fetcher` and the fetch handler do; only that
a callback at a later moment stands where they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from craft2.apps.lessons.copies_post import Post
from craft2.disk import FileSlice
from craft2.record_batch import decode_all
from phase2_groups.error_codes import ErrorCode
from phase3_raft.fetch_messages import Found
from phase3_raft.handlers.fetch import Wanted, is_enough, read
from phase3_raft.partition import Partition
from phase3_raft.replication.truncation import truncate_at

WAIT_MS = 60  # a leader that has nothing to send answers after so long
_BYTES = 10**6


class Copy:
    """See the module. brokers: all that run. runs: False once it was killed."""

    def __init__(
        self, number: int, partition: Partition, post: Post, brokers: Mapping[int, Copy]
    ) -> None:
        self.number, self.partition, self.runs = number, partition, True
        self.stalled = False
        self._waiting: list[Callable[[], None]] = []  # until its disk works again
        self._post, self._brokers = post, brokers
        post.after(2 * number, self._fetch)

    @property
    def name(self) -> str:
        """As messages have it."""
        return f"broker {self.number}"

    def go_on(self) -> None:
        """Its disk works again."""
        self.stalled, waiting, self._waiting = False, self._waiting, []
        for action in waiting:
            action()

    def hears(self, number: int) -> Copy | None:
        """Another broker, if it runs."""
        return self._brokers.get(number)

    def _fetch(self) -> None:
        """Ask whoever is known as the leader, or look again later."""
        mine, log = self.partition, self.partition.log
        leader = self.hears(mine.record.leader)
        if not self.runs:
            return
        if self.stalled:
            self._waiting.append(self._fetch)
            return
        if mine.leads or leader is None:
            self._post.after(WAIT_MS // 2, self._fetch)
            return
        end, last = log.end_offset, log.latest_epoch
        wanted = Wanted(
            mine.record.topic,
            mine.record.partition,
            leader.partition,
            end,
            _BYTES,
            mine.record.leader_epoch,
            self.number,
            last,
        )
        words = f"what do you have from {end} on?" + (f" my last is of epoch {last}" if end else "")
        if not self._post.send(self.name, leader.name, words, lambda: leader.serve(wanted, self)):
            self._post.after(WAIT_MS, self._fetch)

    def serve(self, wanted: Wanted, follower: Copy) -> None:
        """Answer when there is something, or this has waited long enough."""
        answered = False

        def answer(*, late: bool = False) -> None:
            nonlocal answered
            if answered:
                return
            if not self.runs:
                answered = True
                self._post.after(WAIT_MS, follower._fetch)
                return
            found = read(wanted, _BYTES)
            if late or is_enough([found], 1):
                answered = True
                self.partition.unwatch_log(wake)
                self._reply(found, follower)

        def wake(more: bool) -> None:
            if more:
                self._post.after(0, answer)

        self.partition.watch_log(wake)
        answer()
        self._post.after(WAIT_MS, lambda: answer(late=True))

    def _reply(self, found: Found, follower: Copy) -> None:
        batches = found.records.read() if isinstance(found.records, FileSlice) else b""
        words = f"high watermark {found.high_watermark}"
        if found.error:
            words = ErrorCode(found.error).name
        elif found.diverging is not None:
            words = "we differ: my epoch {} ends at {}".format(*found.diverging)
        elif batches:
            values = [(one.value or b"").decode() for one in decode_all(batches)]
            words = f"here is {' '.join(values)}; {words}"
        if not self._post.send(
            self.name, follower.name, words, lambda: follower.hear(found, batches)
        ):
            self._post.after(WAIT_MS, follower._fetch)

    def hear(self, found: Found, batches: bytes) -> None:
        """What the leader answers."""
        if not self.runs:
            return
        if self.stalled:
            self._waiting.append(lambda: self.hear(found, batches))
            return
        self._take(found, batches)
        self._post.after(1, self._fetch)

    def _take(self, found: Found, batches: bytes) -> None:
        mine = self.partition
        if mine.leads:
            return
        if found.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            mine.reset_to(max(0, found.log_start))
        elif found.diverging is not None:
            mine.truncate_to(truncate_at(found.diverging, mine.log.epoch_end_offset))
        elif not found.error:
            if batches:
                mine.append_as_follower(batches)
            mine.follow_to(found.high_watermark, found.log_start)

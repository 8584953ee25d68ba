"""Read faster than the work goes, without filling memory: pause, work, resume.

    python examples/backpressure.py 127.0.0.1:9092 numbers workers

Four threads work on records, each takes a while. What waits for them is bounded: when it is much,
the partitions are paused. The consumer goes on polling, which gives it nothing and shows the group
that it is alive; whoever stops polling instead is thrown out. Offsets are committed up to the first
record that is not done, so a crash repeats some work and loses none.
"""

import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor

import phase3_raft.client  # noqa: F401  # so that host:port can be given
from craft2.errors import Craft2Error
from phase2_groups.consumer import Consumer, RebalanceListener
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.fetch_buffer import ConsumerRecord

MOST, FEW, IDLE_S = 100, 20, 3.0  # records that wait: pause at the one, resume at the other


def work(record: ConsumerRecord) -> None:
    time.sleep(0.002)


class Waiting(RebalanceListener):
    """Records at work by partition, in order: (offset, its future)."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.records: dict[tuple[str, int], list[tuple[int, Future[None]]]] = {}

    def count(self) -> int:
        return sum(map(len, self.records.values()))

    def commit_done(self) -> None:
        """Commit up to the first that is not done, in each partition."""
        done = {}
        for partition, some in self.records.items():
            while some and some[0][1].done():
                offset, future = some.pop(0)
                future.result()  # work that has failed ends the program here
                done[partition] = offset + 1
        if done:
            self._consumer.commit(done)

    def on_partitions_revoked(self, partitions) -> None:
        """They go to somebody else: finish what is at work, and say so."""
        for partition in partitions:
            for _, future in self.records.get(partition, ()):
                future.result()
        self.commit_done()
        for partition in partitions:
            self.records.pop(partition, None)


def main(bootstrap: str, topic: str, group: str) -> None:
    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=50,
        default_api_timeout_ms=10_000,  # a wrong address is an error after so long
    )
    done, most, pauses = 0, 0, 0
    with Consumer(config) as consumer, ThreadPoolExecutor(4) as threads:
        waiting = Waiting(consumer)
        consumer.subscribe([topic], waiting)
        last_s = time.monotonic()
        while time.monotonic() - last_s < IDLE_S:
            if not consumer.assignment():  # the group is still sharing out
                last_s = time.monotonic()
            for record in consumer.poll(timeout_ms=20):
                last_s = time.monotonic()
                future = threads.submit(work, record)
                key = record.topic, record.partition
                waiting.records.setdefault(key, []).append((record.offset, future))
                done += 1
            most = max(most, waiting.count())
            waiting.commit_done()
            if waiting.count() > MOST and not consumer.paused():
                consumer.pause(*consumer.assignment())
                pauses += 1
            elif waiting.count() < FEW and consumer.paused():
                consumer.resume(*consumer.paused())
    print(f"{done} records, {pauses} pauses, at most {most} waited")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print("usage: python examples/backpressure.py HOST:PORT TOPIC GROUP", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except Craft2Error as error:
        sys.exit(f"backpressure.py: {error}")

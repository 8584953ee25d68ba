"""Print what a topic has, as one of a group: start it twice, and each has a share.

    python examples/consumer.py 127.0.0.1:9092 numbers readers

How far the group is gets committed now and then and at the end, so the next time it goes on there.
It ends when nothing has come for a few seconds, or with an error if nobody answers at the address.
"""

import sys
import time

import phase3_raft.client  # noqa: F401  # so that host:port can be given
from craft2.errors import Craft2Error
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig

IDLE_S = 3.0


def main(bootstrap: str, topic: str, group: str) -> None:
    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        default_api_timeout_ms=10_000,  # a wrong address is an error after so long
    )
    with Consumer(config) as consumer:  # leaving the block commits, and leaves the group
        consumer.subscribe([topic])
        last_s = time.monotonic()
        while time.monotonic() - last_s < IDLE_S:
            if not consumer.assignment():  # the group is still sharing out
                last_s = time.monotonic()
            for record in consumer.poll(timeout_ms=500):
                last_s = time.monotonic()
                value = (record.value or b"").decode()
                print(f"{record.partition}\t{record.offset}\t{value}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print("usage: python examples/consumer.py HOST:PORT TOPIC GROUP", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except Craft2Error as error:
        sys.exit(f"consumer.py: {error}")

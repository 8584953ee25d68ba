"""Send lines of standard input, each as a record, and say how each has fared.

    seq 1000 | python examples/producer.py 127.0.0.1:9092 numbers

The key is the line's first word, so lines that begin alike stay in order. `acks="all"`: a line
counts as sent when every replica in sync has it; with idempotence, which is the default, a retry
does not write it twice.
"""

import sys

import phase3_raft.client  # noqa: F401  # so that host:port can be given
from craft2.errors import Craft2Error
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig


def main(bootstrap: str, topic: str) -> None:
    refused = 0

    def delivered(metadata, error) -> None:
        nonlocal refused
        if error is not None:
            refused += 1
            print(f"not sent: {error}", file=sys.stderr)

    config = ProducerConfig(
        bootstrap_servers=bootstrap,
        acks="all",
        linger_ms=5,
        max_block_ms=10_000,  # a wrong address is an error after so long
    )
    count = 0
    with Producer(config) as producer:  # leaving the block waits for what is on its way
        for line in sys.stdin:
            text = line.rstrip("\n")
            key = text.split(maxsplit=1)[0] if text.strip() else None
            producer.send(topic, text, key=key, on_delivery=delivered)
            count += 1
    print(f"{count - refused} of {count} records are in {topic}")
    if refused:
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python examples/producer.py HOST:PORT TOPIC < LINES", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except Craft2Error as error:
        sys.exit(f"producer.py: {error}")

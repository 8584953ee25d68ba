"""Add up a topic of numbers, exactly once, by keeping the offset with the result.

    seq 1000 | python examples/producer.py 127.0.0.1:9092 numbers
    python examples/manual_offsets.py 127.0.0.1:9092 numbers sums.json

A crash between the work and the commit repeats work, one between the commit and the work loses
some. Here there is nothing in between: one file has the sums and the next offsets, and is replaced
as a whole. The broker is told of no offset at all. Run it again, or kill it whenever you like and
run it again: every number is counted once. It ends at the topic's end.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import phase3_raft.client  # noqa: F401  # so that host:port can be given
from craft2.errors import Craft2Error
from phase2_groups.connect import connect
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.error_codes import ErrorCode
from phase2_groups.fetch_buffer import ConsumerRecord


class NotFound(Craft2Error):
    """How many partitions the topic has is not known."""


class BadFile(Craft2Error):
    """It is not one of ours, or is of another topic."""


class NotANumber(Craft2Error):
    """A record that cannot be added up."""


def number_in(record: ConsumerRecord) -> int:
    """What a record adds to the sum. Raises NotANumber."""
    try:
        return int(record.value or b"0")
    except ValueError:
        where = f"{record.topic}-{record.partition}, offset {record.offset}"
        raise NotANumber(
            f"{where}: {record.value!r} is no number", "produce numbers only to this topic"
        ) from None


def load(path: Path, topic: str) -> dict[str, Any]:
    """What was saved, if something was. Raises BadFile."""
    if not path.exists():
        return {"topic": topic, "sums": {}, "next": {}}
    try:
        state = json.loads(path.read_bytes())
        of, _ = state["topic"], sum([*state["sums"].values(), *state["next"].values()])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BadFile(f"{str(path)!r} is no file of sums", "name another one") from None
    if of != topic:
        raise BadFile(f"{str(path)!r} has sums of topic {of!r}, not {topic!r}", "name another one")
    return state


def save(path: Path, state: dict[str, Any]) -> None:
    """Replace the file, so that whoever reads it sees the old one or the new one."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def main(bootstrap: str, topic: str, file: str) -> None:
    path = Path(file)
    state = load(path, topic)
    transport = connect(bootstrap)
    count = transport.metadata([topic])[topic]
    transport.close()
    if count is ErrorCode.NETWORK_EXCEPTION:
        raise NotFound(f"no broker answers at {bootstrap}", "give the address of one that runs")
    if isinstance(count, ErrorCode):
        raise NotFound(f"topic {topic!r} at {bootstrap}: {count.name}", "correct address and topic")
    save(path, state)  # before any work: a wrong file is an error now
    partitions = [(topic, number) for number in range(count)]
    with Consumer(ConsumerConfig(bootstrap_servers=bootstrap)) as consumer:  # of no group
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, state["next"].get(str(partition[1]), 0))
        while True:
            records = consumer.poll(timeout_ms=500)
            for record in records:
                number = str(record.partition)
                state["sums"][number] = state["sums"].get(number, 0) + number_in(record)
                state["next"][number] = record.offset + 1
            if records:
                save(path, state)
            elif not any(consumer.lag().values()):
                break
    print(f"{sum(state['next'].values())} records, sum {sum(state['sums'].values())}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print("usage: python examples/manual_offsets.py HOST:PORT TOPIC FILE", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except Craft2Error as error:
        sys.exit(f"manual_offsets.py: {error}")
    except OSError as error:  # a folder that is not there, or that is named in place of a file
        sys.exit(f"manual_offsets.py: {error}. Fix: name a file of yours")

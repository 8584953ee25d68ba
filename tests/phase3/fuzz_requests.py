"""A fuzzer that sees which branches its bytes reach: requests for a broker in memory.

    python tests/phase3/fuzz_requests.py CORPUS -max_total_time=60     options are libFuzzer's

Each input is an API, a version and a body. Whatever the body, the broker answers, waits, or refuses
it by BadMessage; any other exception is a finding, and its input is kept.

Source: github.com/google/atheris
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["phase3_raft"]):
    from phase3_raft import codec, connection, dispatch, produce_messages, schemas  # noqa: F401
    from phase3_raft.broker import Broker, BrokerConfig
    from phase3_raft.handlers import APIS

from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values

_RENEW = 2_000  # inputs, or what they have created slows down those to come
_TURNS = 5  # of the event loop; a request that is not answered by then waits


class Target:
    """Gives each input to a broker."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._count = 0

    def __call__(self, data: bytes) -> None:
        if self._count % _RENEW == 0:
            small = {"segment.index.bytes": "4096"}
            config = BrokerConfig("/data", offsets_partitions=1, topic_defaults=small)
            broker = Broker(config, disk=FaultyDisk(), clock=ManualClock(), trouble=lambda _: None)
            self._dispatch = dispatch.Dispatch(broker, APIS)
        self._count += 1
        if len(data) >= 2:
            api = APIS[data[0] % len(APIS)]
            version = api.first + data[1] % (api.last - api.first + 1)
            head = struct.pack(">hhih", api.key, version, 7, 2) + b"me"
            flexible = b"\0" if schemas.is_flexible(api.name, version) else b""
            self._loop.run_until_complete(self._ask(head + flexible + data[2:]))

    async def _ask(self, frame: bytes) -> None:
        asking = asyncio.ensure_future(self._dispatch.answer(frame, "/fuzzer"))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        if not asking.done():
            asking.cancel()
            await asyncio.sleep(0)
            return
        with contextlib.suppress(codec.BadMessage):
            asking.result()


def seeds(folder: Path) -> None:
    """A correct Produce for each version, to begin with; the others are found."""
    folder.mkdir(exist_ok=True)
    batch = encode_values([b"value"], keys=[b"key"])
    for version in range(3, 10):
        topics = [{"name": "t", "partition_data": [{"index": 0, "records": batch}]}]
        fields = {"transactional_id": None, "acks": 1, "timeout": 9, "topic_data": topics}
        body = schemas.encode("produce", version, fields, "request")
        (folder / f"produce-{version}").write_bytes(bytes([0, version - 3]) + body)


if __name__ == "__main__":
    seeds(Path(sys.argv[1]))
    atheris.Setup(sys.argv, Target())
    atheris.Fuzz()

"""Where a single broker keeps its metadata: a log of phase 1, `__cluster_metadata-0`.

`commit` writes records as one batch, which is there as a whole or not at all, syncs it, and only
then applies it. In a cluster the same records are committed by Raft: who calls `commit` does not
see the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from craft2.clock import Clock
from craft2.disk import Disk
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import BrokerId, Record, decode, encode

METADATA_TOPIC = "__cluster_metadata"
_LOG = LogConfig(
    segment_bytes=16 * 1024**2,
    max_message_bytes=2**30,  # a commit is one batch, and a topic may have many partitions
    max_index_bytes=64 * 1024,
)


class MetadataLog:
    """See the module. changed: called with the records of each commit, after they are applied."""

    def __init__(
        self,
        root: str,
        disk: Disk,
        clock: Clock,
        changed: Callable[[Sequence[Record]], object] = lambda records: None,
        *,
        me: BrokerId = 1,
    ) -> None:
        """Raises LogInUse, CorruptLog, BadRecord."""
        folder = os.path.join(root, f"{METADATA_TOPIC}-0")
        self.image = Image()
        self.controller = me
        self.term = 0
        self.changed = changed
        self._clock = clock
        self._log = PartitionLog(folder, _LOG, disk=disk, clock=clock)
        for stored in self._log.records():
            self.image.apply(decode(stored.value or b""))

    async def commit(self, records: Sequence[Record]) -> None:
        """As `write`."""
        self.write(records)

    async def catch_up(self) -> None:
        """Nobody else writes."""

    async def keep_members(self) -> Sequence[str]:
        """There is nobody else."""
        return []

    def write(self, records: Sequence[Record]) -> None:
        """Make these part of the metadata. Raises DiskError: then none of them is."""
        if not records:
            return
        batch = encode_values([encode(one) for one in records], timestamps=self._clock.now_ms())
        self._log.append_as_leader(batch, 0)
        self._log.flush()
        for record in records:
            self.image.apply(record)
        self.changed(records)

    def close(self) -> None:
        self._log.close()

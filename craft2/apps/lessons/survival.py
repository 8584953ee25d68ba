"""What each way to keep a message survives: tried out on disks in memory, and on a stage.

    fates()["log, synced"]             Fate(kill=True, power=True, machine=False)

Three messages are acknowledged, and at once something happens: the process that has them is killed;
the power goes, on all machines at the same moment; or a machine is gone for good. Is what was
acknowledged there afterwards, all of it?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from craft2.apps.lessons.copies import Copies
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import FlushPolicy, LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue

_TEXTS = ("a", "b", "c")


class Fate(NamedTuple):
    """What is survived: `kill -9` of the process, a power cut everywhere, the loss of a machine."""

    kill: bool
    power: bool
    machine: bool

    def __str__(self) -> str:
        """In a chart's words."""
        named = zip(("kill -9", "power cut", "lost machine"), self, strict=True)
        survived = [words for words, kept in named if kept]
        return ", ".join(survived) or "nothing"


def fates() -> dict[str, Fate]:
    """Of each backend of `guarantees.measure_writing`, in its order."""
    found = {
        "file a message": _on_a_disk(lambda disk: _files(disk, fsync=False)),
        "file a message, synced": _on_a_disk(lambda disk: _files(disk, fsync=True)),
        "log": _on_a_disk(lambda disk: _log(disk, "never")),
        "log, synced": _on_a_disk(lambda disk: _log(disk, "batch")),
    }
    for who, brokers in (("one broker", 1), ("three brokers", 3)):
        found[f"{who}, acks=0"] = Fate(False, False, False)  # nobody has said that it arrived
        found[f"{who}, acks=1"] = _on_brokers(brokers, "1", synced=False)
        if brokers == 1:
            found[f"{who}, acks=1, synced"] = _on_brokers(brokers, "1", synced=True)
        else:
            found[f"{who}, acks=all"] = _on_brokers(brokers, "all", synced=False)
            found[f"{who}, acks=all, synced"] = _on_brokers(brokers, "all", synced=True)
    return found


def print_fates(found: Mapping[str, Fate]) -> None:
    """A table."""
    print(f"{'':32}{'kill -9':>9}{'power cut':>11}{'lost machine':>14}")
    for name, fate in found.items():
        kill, power, machine = ("kept" if kept else "lost" for kept in fate)
        print(f"{name:32}{kill:>9}{power:>11}{machine:>14}")


def _on_a_disk(write: Callable[[FaultyDisk], Callable[[FaultyDisk], int]]) -> Fate:
    """write: writes all, and returns how to count what a disk has of it."""
    disk = FaultyDisk()
    count = write(disk)
    after_power, after_kill = disk.power_loss(keep=0.0), disk.kill()
    return Fate(count(after_kill) == len(_TEXTS), count(after_power) == len(_TEXTS), machine=False)


def _files(disk: FaultyDisk, *, fsync: bool) -> Callable[[FaultyDisk], int]:
    queue = PartitionedQueue("/queue", 1, fsync, disk=disk)
    for text in _TEXTS:
        queue.produce("key", text.encode())
    return lambda after: sum(
        path.endswith(".msg") and data != b"" for path, data in after.tree().items()
    )


def _log(disk: FaultyDisk, policy: FlushPolicy) -> Callable[[FaultyDisk], int]:
    log = PartitionLog("/t-0", LogConfig(flush_policy=policy), disk=disk)
    for text in _TEXTS:
        log.append_durably(encode_values([text.encode()]))
    return lambda after: len(list(PartitionLog("/t-0", disk=after).records()))


def _on_brokers(brokers: int, acks: str, *, synced: bool) -> Fate:
    def kept(happens: Callable[[Copies], None]) -> bool:
        copies = Copies(brokers, settings={"flush.messages": "1"} if synced else {})
        copies.run(30)
        copies.produce(*_TEXTS, acks=acks)
        if acks == "all":
            copies.run(100)
        for one in copies.brokers.values():
            if one.partition.must_flush:  # before a broker answers, and before a follower asks on
                one.partition.log.flush()
        assert copies.acknowledged == list(_TEXTS)
        happens(copies)
        copies.run(500)
        return not copies.lost

    def killed(copies: Copies) -> None:
        copies.kill(1)
        if brokers == 1:
            copies.start(1)

    def without_power(copies: Copies) -> None:
        for number in copies.numbers:
            copies.lose_power(number)
        for number in copies.numbers:
            copies.start(number)

    return Fate(kept(killed), kept(without_power), brokers > 1 and kept(lambda c: c.kill(1)))

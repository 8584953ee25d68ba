"""The copies of one partition, on a stage: brokers and their controller, on a clock that we turn.

    copies = Copies(3)             # brokers 1, 2 and 3; 1 leads
    copies.produce("a")            # acks=all
    copies.run(20)                 # milliseconds
    copies.show()

What runs here are the broker's own parts: `Partition` with its log and its `Replicas`, the part of
the fetch handler that reads, `truncate_at`, and the controller's rules. What is left out are
sockets, processes and Raft: messages take 5 ms, and the controller cannot die.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from craft2.apps.lessons.copies_broker import WAIT_MS, Copy
from craft2.apps.lessons.copies_post import WAY_MS, Post
from craft2.apps.lessons.copies_seen import Look, Sent, cells_of
from craft2.errors import Craft2Error
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata.broker_changes import change_isr, fence, unfence
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import (
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from phase3_raft.partition import Partition
from phase3_raft.topic_config import TopicConfig

TOPIC, FOLDER, CONTROLLER = "flights", "/flights-0", "controller"
SESSION_MS = 60  # the controller takes a broker for dead that it has not heard of for so long


class StageError(Craft2Error):
    """What was asked for is not possible at the moment."""


class Copies:
    """See the module. Times in ms.

    settings: of the topic, such as min.insync.replicas. max_lag_ms: a replica that has not had all
    there was for longer is not in sync.
    """

    def __init__(
        self, brokers: int = 3, *, settings: dict[str, str] | None = None, max_lag_ms: int = 300
    ) -> None:
        self.post = Post()
        self.settings, self.max_lag_ms = settings or {}, max_lag_ms
        self.numbers = tuple(range(1, brokers + 1))
        self.controller_waits_ms = 0  # before it decides on an ISR
        self.sent: list[Sent] = []
        # What was seen, and when: of each broker, of the controller, the producer, and the faults.
        self.looks: dict[int, list[Look]] = {number: [] for number in self.numbers}
        self.records: list[tuple[int, PartitionRecord]] = []
        self.sents: list[tuple[int, tuple[Sent, ...]]] = []
        self.done: list[tuple[int, str]] = []
        self._disks = {number: FaultyDisk(clock=self.post.clock) for number in self.numbers}
        self.brokers: dict[int, Copy] = {}  # those that run, each with its `partition`
        self._image = Image()
        everybody = self.numbers
        self._commit(TopicRecord(TOPIC, "0" * 32))
        for name, value in self.settings.items():
            self._commit(ConfigRecord("topic", TOPIC, name, value))
        for number in everybody:
            self._commit(BrokerRecord(number, f"broker-{number}", 9092))
        self._commit(PartitionRecord(TOPIC, 0, everybody, everybody, 1, 0, 0))
        for number in everybody:
            self._open(number)
        self._look()

    @property
    def now_ms(self) -> int:
        """What the clock says."""
        return self.post.now_ms

    @property
    def record(self) -> PartitionRecord:
        """The partition as the controller has it."""
        return self._image.topics[TOPIC].partitions[0]

    # What one does to them.

    def run(self, ms: int) -> None:
        """Let so much time pass."""
        self.post.run(ms, self._look)

    def produce(self, *texts: str, acks: str = "all", to: int | None = None) -> None:
        """Send records to whoever leads, or to a broker that the producer believes to lead."""
        number = self.record.leader if to is None else to
        partition = self._running(number).partition
        self.done.append(
            (self.now_ms, f"{' '.join(texts)} is sent to broker {number}, acks={acks}")
        )
        epoch = partition.record.leader_epoch
        for text in texts:
            if not partition.leads or (acks == "all" and not partition.has_enough_replicas):
                self.sent.append(Sent(text, -1, "refused", epoch))
                continue
            batch = encode_values([text.encode()], timestamps=0)
            offset = partition.append(batch)[0].first_offset
            state = "waiting" if acks == "all" else "acknowledged"
            self.sent.append(Sent(text, offset, state, epoch))
        self._look()

    def kill(self, number: int) -> None:
        """`kill -9`: what it has in the page cache is there when it comes back."""
        self._end(number, "is killed")
        self._disks[number] = self._disks[number].kill()

    def lose_power(self, number: int) -> None:
        """The machine is off: what was not synced is gone."""
        self._end(number, "loses power")
        self._disks[number] = self._disks[number].power_loss(keep=0.0)

    def start(self, number: int) -> None:
        """Start it again."""
        self._did(number, "starts again")
        self._open(number)
        self.post.after(WAY_MS, partial(self._unfence, number))
        self._look()

    def stall(self, number: int) -> None:
        """It fetches nothing more, as if its disk were stuck; but it is there, and says so."""
        self._did(number, "stalls: its disk is stuck")
        self._running(number).stalled = True
        self._look()

    def go_on(self, number: int) -> None:
        """Its disk works again."""
        self._did(number, "goes on: its disk works again")
        self._running(number).go_on()
        self._look()

    def cut(self, number: int) -> None:
        """No message between it and the others, or the controller, arrives; its producer's do."""
        self._did(number, "is cut off from the others")
        self.post.cut_off.add(self._running(number).name)
        self._expect(number)

    def heal(self) -> None:
        """All messages arrive again."""
        self.done.append((self.now_ms, "the network is whole again"))
        self.post.cut_off.clear()
        for broker in self.brokers.values():
            self._tell(broker)
            if self._image.brokers[broker.number].fenced:
                self.post.after(WAY_MS, partial(self._unfence, broker.number))

    # What there is to see.

    def log(self, number: int) -> str:
        """Its log, `epoch:record`; the bar stands where it knows the high watermark to be."""
        cells = self.looks[number][-1].cells
        words = [f"{cell.epoch}:{cell.text}" for cell in cells]
        words.insert(sum(cell.seen for cell in cells), "|")
        return " ".join(words)

    def values(self, number: int) -> list[str]:
        """The records of its log."""
        return [cell.text for cell in self.looks[number][-1].cells]

    def conversation(self, from_ms: int = 0) -> None:
        """Print the messages that were sent since, in the order in which they arrive."""
        letters = [one for one in self.post.letters if one.sent_ms >= from_ms]
        for one in sorted(letters, key=lambda one: one.arrives_ms):
            fate = "  (lost)" if one.lost else ""
            print(f"{one.arrives_ms:4} ms  {one.source} to {one.target}: {one.words}{fate}")

    def show(self) -> None:
        """Print them, and what the producer and the controller know."""
        for number in self.numbers:
            print(f"broker {number} {self.looks[number][-1].role:<8}{self.log(number)}")
        isr = " ".join(map(str, self.record.isr))
        print(f"epoch {self.record.leader_epoch}, ISR {isr}", end="; ")
        print("acknowledged:", " ".join(self.acknowledged) or "nothing")

    @property
    def acknowledged(self) -> list[str]:
        """What the producer was told is stored."""
        return [one.text for one in self.sent if one.state == "acknowledged"]

    @property
    def lost(self) -> list[str]:
        """What was acknowledged, and is not in the leader's log."""
        return [text for text in self.acknowledged if text not in self.values(self.record.leader)]

    def _look(self) -> None:
        self._tell_producer()
        for number, seen in self.looks.items():
            look = self._look_at(number)
            if not seen or seen[-1][1:] != look[1:]:
                seen.append(look)
        if not self.sents or self.sents[-1][1] != tuple(self.sent):
            self.sents.append((self.now_ms, tuple(self.sent)))

    def _look_at(self, number: int) -> Look:
        broker = self.brokers.get(number)
        if broker is None:
            return self.looks[number][-1]._replace(ms=self.now_ms, role="down")
        partition = broker.partition
        role = "stalled" if broker.stalled else "leads" if partition.leads else "follows"
        watermark, end = partition.high_watermark, partition.log.end_offset
        before = self.looks[number][-1] if self.looks[number] else None
        if before and (len(before.cells), before.watermark) == (end, watermark):
            cells = before.cells  # one thing happens at a time: a cut is seen before what follows
        else:
            cells = tuple(cells_of(partition.log, watermark))
        return Look(self.now_ms, role, partition.record.leader_epoch, cells, watermark)

    def _tell_producer(self) -> None:
        """As `Partition.when_replicated`: what the high watermark has passed is acknowledged."""
        leading = {
            one.partition.record.leader_epoch: one.partition
            for one in self.brokers.values()
            if one.partition.leads
        }
        for place, one in enumerate(self.sent):
            if one.state != "waiting":
                continue
            partition = leading.get(one.leader_epoch)
            if partition is None:
                self.sent[place] = one._replace(state="unknown")
            elif partition.high_watermark > one.offset:
                state = "acknowledged" if partition.has_enough_replicas else "unknown"
                self.sent[place] = one._replace(state=state)

    def _did(self, number: int, words: str) -> None:
        self.done.append((self.now_ms, f"broker {number} {words}"))

    # Brokers.

    def _running(self, number: int) -> Copy:
        if number not in self.brokers:
            raise StageError(f"broker {number} does not run", "start it, or ask another one")
        return self.brokers[number]

    def _open(self, number: int) -> None:
        partition = Partition(
            FOLDER,
            self.record,
            TopicConfig(self.settings),
            self._disks[number],
            self.post.clock,
            me=number,
            max_lag_ms=self.max_lag_ms,
        )
        broker = Copy(number, partition, self.post, self.brokers)
        partition.caught_up = lambda: self.post.after(0, lambda: self._ask_for_isr(broker))
        self.brokers[number] = broker
        self.post.after(self.max_lag_ms // 2, lambda: self._keep_isr(broker))

    def _end(self, number: int, words: str) -> None:
        self._running(number).runs = False
        self._did(number, words)
        del self.brokers[number]
        self._expect(number)
        self._look()

    # The controller.

    def _commit(self, record: Record) -> None:
        self._image.apply(record)
        if isinstance(record, PartitionRecord):
            self.records.append((self.now_ms, record))

    def _decide(self, records: Iterable[Record]) -> None:
        """Commit them, and tell all brokers."""
        for record in records:
            self._commit(record)
            if isinstance(record, PartitionRecord):
                for broker in self.brokers.values():
                    self._tell(broker)

    def _unfence(self, number: int) -> None:
        self._decide(unfence(self._image, number))

    def _tell(self, broker: Copy) -> None:
        record = self.record
        leads = f"{record.leader} leads" if record.leader >= 0 else "nobody leads"
        isr = " ".join(map(str, record.isr))
        words = f"epoch {record.leader_epoch}: {leads}, ISR {isr}"

        def hear() -> None:
            if broker.runs and record.partition_epoch > broker.partition.record.partition_epoch:
                broker.partition.become(record)

        self.post.send(CONTROLLER, broker.name, words, hear)

    def _expect(self, number: int) -> None:
        """The controller hears of it no more, and gives up after a while."""
        before = self.brokers.get(number)

        def give_up() -> None:
            now = self.brokers.get(number)
            if now is before and (now is None or now.name in self.post.cut_off):
                self._decide(fence(self._image, number))

        self.post.after(SESSION_MS, give_up)

    def _keep_isr(self, broker: Copy) -> None:
        if broker.runs:
            self._ask_for_isr(broker)
            self.post.after(self.max_lag_ms // 2, lambda: self._keep_isr(broker))

    def _ask_for_isr(self, broker: Copy) -> None:
        """As `Replication._ask_for_isr`."""
        partition, record = broker.partition, broker.partition.record
        replicas = partition.replicas
        wanted = replicas.wanted_isr(partition.log.end_offset, self.now_ms)
        if not broker.runs or not partition.leads or wanted is None:
            return
        replicas.propose(wanted)

        def decide() -> None:
            epochs = record.leader_epoch, record.partition_epoch
            new = change_isr(self._image, broker.number, TOPIC, 0, *epochs, wanted)
            if isinstance(new, PartitionRecord):
                self._decide([new])
                return
            old = new in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH)
            answer = lambda: replicas.answered(refused=not old)  # noqa: E731
            self.post.send(CONTROLLER, broker.name, ErrorCode(new).name, answer)

        words = f"may {' '.join(map(str, wanted))} be those in sync?"
        ask = lambda: self.post.after(self.controller_waits_ms, decide)  # noqa: E731
        if not self.post.send(broker.name, CONTROLLER, words, ask):
            self.post.after(WAIT_MS, lambda: replicas.answered(refused=False))

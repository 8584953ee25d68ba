"""The settings of a `Producer`, and the errors it raises.

Names and defaults are those of Kafka's Java client, in snake case; sizes in bytes, times in ms.
Numbers are int32 as Kafka's are, with one int64, `buffer_memory`. (Kafka has more of these, for
times that are longer than 24 days.)

>>> ProducerConfig(acks=1, enable_idempotence=True, linger_ms=120_000)
Traceback (most recent call last):
...
phase2_groups.producer_config.BadProducerConfig: 2 settings cannot be used:
  enable_idempotence needs acks="all", and acks is 1: set acks="all", or leave idempotence out
  delivery_timeout_ms is 120000, less than linger_ms + request_timeout_ms: raise it to 150000

Source: kafka.apache.org/documentation/#producerconfigs
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from craft2.codecs import CODEC_NAMES
from craft2.errors import Craft2Error
from phase2_groups.kafka_fields import is_text

ALL = -1  # acks
MAX_IN_FLIGHT = 5  # of an idempotent producer: as many batches as a partition remembers
MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1


class BadProducerConfig(Craft2Error):
    """Settings that make no sense; all of them are named."""


class ProducerError(Craft2Error):
    """Base of a producer's own errors."""


class BadRecord(ProducerError):
    """A topic, partition, key, value, timestamp or header that cannot be sent."""


class RecordTooLarge(BadRecord):
    """A record larger than `max_request_size` or `buffer_memory`."""


class UnknownTopic(ProducerError):
    """How many partitions a topic has could not be found out within `max_block_ms`."""


class NobodyAnswers(ProducerError):
    """No broker could be asked about a topic within `max_block_ms`."""


class BufferFull(ProducerError):
    """`buffer_memory` was in use for all of `max_block_ms`."""


class Refused(ProducerError):
    """The other side will not have this batch, however often it is sent."""


class DeliveryTimeout(ProducerError):
    """A record was not acknowledged within `delivery_timeout_ms`, or `retries` were used up."""


class ProducerFailed(ProducerError):
    """The producer cannot go on: its place in the sequences is lost. Make a new one."""


class ProducerClosed(ProducerError):
    """The producer was closed, perhaps with records still in it."""


@dataclass(frozen=True, kw_only=True)
class ProducerConfig:
    """How a producer behaves.

    bootstrap_servers: where the topics are; `file:FOLDER` for topics in files, `host:port` (several
        with commas) for brokers, after `import phase3_raft.client`.
    acks: 0: sent is enough (offsets stay unknown); 1: written is enough; "all" or -1: when safe.
    batch_size: the most records' bytes in one batch, unless a single record is larger; 0 sends each
        record in a batch of its own.
    linger_ms: how long a batch waits for more records before it is sent.
    buffer_memory: records' bytes that wait or are on their way; then `send` blocks.
    max_block_ms: how long `send` may block, for memory or for a topic's partitions.
    retries: how often a batch is sent again; `delivery_timeout_ms` is what usually ends it.
    retry_backoff_ms, retry_backoff_max_ms: the pause before the first retry; it doubles up to the
        maximum, and is taken 20 % longer or shorter at random (KIP-580).
    request_timeout_ms: how long one request may wait for its answer.
    delivery_timeout_ms: from `send` to the acknowledgement or the error, all retries included.
    enable_idempotence: each record is stored once, in order, even if a batch is sent again.
        None: yes, unless another setting is in its way.
    max_in_flight_requests_per_connection: requests that may be unanswered at a time.
    partitioner: for records without a partition of their own. "murmur2_random": by the key's
        murmur2; without a key the same partition until a batch is full (KIP-480). "round_robin":
        one partition after the other, whatever the key.
    max_request_size: the most bytes of one request, and of one record.
    """

    bootstrap_servers: str = ""
    client_id: str = "producer"
    acks: int | Literal["all"] = "all"
    batch_size: int = 16_384
    linger_ms: int = 5
    compression_type: str = "none"
    buffer_memory: int = 32 * 1024**2
    max_block_ms: int = 60_000
    retries: int = MAX_INT
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    enable_idempotence: bool | None = None
    max_in_flight_requests_per_connection: int = 5
    partitioner: Literal["murmur2_random", "round_robin"] = "murmur2_random"
    max_request_size: int = 1024**2

    def __post_init__(self) -> None:
        problems = [*self._wrong_values(), *self._contradictions()]
        if problems:
            count = "1 setting" if len(problems) == 1 else f"{len(problems)} settings"
            raise BadProducerConfig("\n  ".join([f"{count} cannot be used:", *problems]))

    @property
    def required_acks(self) -> int:
        """`acks` as a number: 0, 1 or -1."""
        return ALL if self.acks == "all" else self.acks

    @property
    def idempotent(self) -> bool:
        """Whether batches are numbered: as asked, or if nothing is in its way."""
        if self.enable_idempotence is None:
            return not list(self._in_the_way())
        return self.enable_idempotence

    def _wrong_values(self) -> list[str]:
        least = {name: 0 for name, value in _DEFAULTS.items() if type(value) is int}
        least |= dict.fromkeys(
            ("buffer_memory", "max_in_flight_requests_per_connection", "max_request_size"), 1
        )
        least |= {"request_timeout_ms": 1, "delivery_timeout_ms": 1}
        problems = []
        for name, lowest in least.items():
            value, most = getattr(self, name), MAX_LONG if name == "buffer_memory" else MAX_INT
            if type(value) is not int or not lowest <= value <= most:
                problems.append(f"{name} is {value!r}: give a whole number from {lowest} to {most}")
        for name in ("bootstrap_servers", "client_id"):
            if not is_text(value := getattr(self, name)):
                problems.append(f"{name} is {value!r}: give a text")
        choices = {
            "acks": (0, 1, -1, "all"),
            "compression_type": CODEC_NAMES,
            "enable_idempotence": (True, False, None),
            "partitioner": ("murmur2_random", "round_robin"),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if value not in allowed or (name == "acks" and isinstance(value, bool)):
                near = difflib.get_close_matches(str(value), [str(one) for one in allowed], 1)
                hint = f"did you mean {near[0]!r}?" if near else f"give one of {allowed}"
                problems.append(f"{name} is {value!r}: {hint}")
        return problems

    def _in_the_way(self) -> list[tuple[str, str]]:
        """(what idempotence needs, how to get it) of all that it has not got."""
        found = []
        if self.acks not in ("all", ALL):
            found.append((f'acks="all", and acks is {self.acks!r}', 'set acks="all"'))
        if self.retries == 0:
            found.append(("retries, and retries is 0", "leave retries as it is by default"))
        in_flight = self.max_in_flight_requests_per_connection
        if isinstance(in_flight, int) and in_flight > MAX_IN_FLIGHT:
            needs = f"max_in_flight_requests_per_connection of {MAX_IN_FLIGHT} at most, and it is"
            found.append((f"{needs} {in_flight}", f"set it to {MAX_IN_FLIGHT}"))
        return found

    def _contradictions(self) -> list[str]:
        problems = []
        if self.enable_idempotence:
            for needs, fix in self._in_the_way():
                fix = f"{fix}, or leave idempotence out"
                problems.append(f"enable_idempotence needs {needs}: {fix}")
        pairs = [
            ("delivery_timeout_ms", ("linger_ms", "request_timeout_ms")),
            ("retry_backoff_max_ms", ("retry_backoff_ms",)),
            ("buffer_memory", ("batch_size",)),
            ("max_request_size", ("batch_size",)),
        ]
        for name, parts in pairs:
            values = [getattr(self, one) for one in (name, *parts)]
            if all(type(value) is int for value in values) and values[0] < sum(values[1:]):
                least = sum(values[1:])
                fix = f"raise it to {least}" if least <= MAX_INT else "lower them"
                problems.append(f"{name} is {values[0]}, less than {' + '.join(parts)}: {fix}")
        return problems


_DEFAULTS = {
    name: value for name, value in vars(ProducerConfig).items() if not name.startswith("_")
}

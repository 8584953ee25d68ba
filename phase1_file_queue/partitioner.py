"""Which partition does a key belong to?  The answer of Kafka's Java client, bit for bit.

Every producer of a topic must agree on this function, whatever language it is written in: a key
that lands on two partitions has lost its order.  (librdkafka's default is another one, CRC32; set
`partitioner=murmur2_random` where both write to a topic.)  Python's own `hash()` will not do,
because it differs from one run to the next for str and bytes.

>>> murmur2(b"UA") & 0x7FFFFFFF, partition_for(b"UA", 4)
(1523087098, 2)

Source: `org.apache.kafka.common.utils.Utils.murmur2` and the default partitioner as described in
KIP-480; Austin Appleby's MurmurHash2, with Kafka's seed.
"""

from __future__ import annotations

SEED = 0x9747B28C
M = 0x5BD1E995
R = 24
MASK32 = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """MurmurHash2 of `key`, as an unsigned 32-bit integer."""
    length = len(key)
    h = SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * M & MASK32
        k = (k ^ (k >> R)) * M & MASK32
        h = (h * M & MASK32) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(key[whole:], "little")) * M & MASK32
    h = (h ^ (h >> 13)) * M & MASK32
    return h ^ (h >> 15)


# EXERCISE 0.1 a key's partition
def partition_for(key: bytes, num_partitions: int) -> int:
    """The partition (0 to num_partitions - 1) of `key`, as Kafka's Java client computes it.

    Java has no unsigned integers: its murmur2 may come out negative, so Kafka clears the sign
    bit of the 32 before it takes the remainder.  Taking the absolute value instead looks the same
    and puts half of all keys elsewhere.  Here `murmur2(key)` is never negative.
    """
    # BEGIN SOLUTION
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions
    # END SOLUTION

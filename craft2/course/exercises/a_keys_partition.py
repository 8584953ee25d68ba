"""Exercise 0.1: which partition does a key belong to?"""

from __future__ import annotations

from types import ModuleType

from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import doing, equal, that

# murmur2 of each key as Java prints it, a signed 32-bit integer.  The first six are the vectors of
# Kafka's own unit test (UtilsTest, testMurmur2); the others are airlines of this course's data.
JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"UA": -624396550,
    b"OO": -994527887,
    b"B6": -1613069864,
    b"AA": 426800181,
    b"9E": -315232706,
    b"": 275646681,
}
COUNTS = range(1, 13)


def check(partitioner: ModuleType) -> str:
    """Every key of the table, over 1 to 12 partitions, against what Kafka's Java client chooses."""
    for key, signed in JAVA_MURMUR2.items():
        for count in COUNTS:
            call = f"partition_for({key!r}, {count})"
            doing(call)
            got = partitioner.partition_for(key, count)
            that(
                call,
                type(got) is int and 0 <= got < count,
                expected=f"an int from 0 to {count - 1}",
                got=repr(got),
            )
            equal(call, got, (signed & 0x7FFFFFFF) % count)
    keys = len(JAVA_MURMUR2)
    return f"{keys} keys over 1 to 12 partitions each go where Kafka's Java client sends them"


EXERCISE = Exercise(
    id="0.1",
    title="a key's partition",
    file="phase1_file_queue/partitioner.py",
    hints=(
        "murmur2(key) is already there and right. It gives 32 bits; you need one of num_partitions "
        "numbers, and the same one for the same key each time.",
        "The remainder `%` alone is nearly it, but Kafka first clears the topmost of the 32 bits, "
        "the one Java reads as a minus sign. Which bitwise operator keeps the other 31?",
        "0x7FFFFFFF is thirty-one ones: `h & 0x7FFFFFFF` keeps the low 31 bits of h. Do that "
        "first, then take the remainder, and return it.",
    ),
    check=check,
    explanation=(
        "The mask comes before the remainder as in Kafka's Java client, and a key that two clients "
        "send to two partitions has lost its order. With 4 or 8 partitions a "
        "forgotten mask goes unnoticed (the top bit does not touch the remainder by a power of "
        "two); with 3 or 12 it moves keys. An absolute value moves them even with 4."
    ),
    wrong={
        "absolute value instead of the mask": """
            h = murmur2(key)
            return abs(h - (1 << 32) if h >> 31 else h) % num_partitions
        """,
        "no mask, unsigned": "return murmur2(key) % num_partitions",
        "no mask, signed": """
            h = murmur2(key)
            return (h - (1 << 32) if h >> 31 else h) % num_partitions
        """,
        "mask after the remainder": "return murmur2(key) % num_partitions & 0x7FFFFFFF",
        "Python's hash": "return hash(key) % num_partitions",
        "one bit too few in the mask": "return (murmur2(key) & 0x3FFFFFFF) % num_partitions",
        "always the first partition": "return 0",
        "a float": "return (murmur2(key) & 0x7FFFFFFF) / num_partitions",
        "nothing returned": "(murmur2(key) & 0x7FFFFFFF) % num_partitions",
        "counts from one": "return (murmur2(key) & 0x7FFFFFFF) % num_partitions + 1",
    },
)

"""What went wrong in a run of the cluster's simulator: exercise 28.1 is to read its trace.

A trace says what was done to brokers, what they did, and what clients were told, one line a moment,
here of a single partition. The last line says which rule is broken. That is where the damage shows;
the mistake was made before, perhaps long before, and perhaps by another broker.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Promise(Enum):
    """What brokers keep to, so that nothing acknowledged is lost and nobody reads what may go."""

    WATERMARK = "the high watermark is the smallest end of those in sync, and never falls"
    READS = "consumers get what is before the leader's high watermark, and nothing else"
    ACKNOWLEDGED = "acks=all is answered once the high watermark has passed the record"
    IN_SYNC = "who is in sync is the controller's to say; until it has, both are counted"
    ELECTED = "only one who is in sync becomes leader"
    NEW_EPOCH = "a new leader begins a new epoch, and what knows of it refuses the old one"
    CUT = "a follower cuts its log where it parts from its leader's, and nowhere else"


class Diagnosis(NamedTuple):
    """line: of the trace, the first that could not be if all brokers kept to their promises.
    broker: which one did what it must not. promise: what it does not keep."""

    line: int
    broker: int
    promise: Promise


# EXERCISE 28.1 read a cluster's failed seed
def diagnose() -> Diagnosis:
    """The mistake in the trace of notebook 28: `Diagnosis(line, broker, Promise.…)`.

    Write down, as you go, what each of the three logs holds from offset 148 on, and each broker's
    high watermark. Then ask of every line: may that be, with what this broker knows at that moment?
    A client's line tells what some broker has answered; the line does not say which one.
    """
    # BEGIN SOLUTION
    return Diagnosis(17, 1, Promise.READS)
    # END SOLUTION

"""What went wrong in a run of the simulator: exercise 23.3 is to read its trace.

A trace says what happened to servers, one line a thing, and behind the colon what that changed in
them. The last line says which rule is broken. That is where the damage shows; the mistake was made
before.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Sentence(Enum):
    """What the paper's figure 2 says of a server that gets a message, or counts answers."""

    LATER_TERM = "a message of a later term makes it a follower in that term"
    ONE_VOTE = "it votes once in a term"
    UP_TO_DATE = "it votes for nobody whose log is behind its own"
    PREVIOUS_FITS = "it takes no entries if it has not the one before them"
    CONFLICT = "an entry that contradicts the leader's is deleted, and all that follow it"
    COMMIT = "its commit index rises to the leader's, but not beyond the last new entry"
    OWN_TERM = "a leader counts copies only of entries of its own term"


class Diagnosis(NamedTuple):
    """line: of the trace, in which a server first does what it must not. server: which one.
    sentence: what it does not keep to."""

    line: int
    server: int
    sentence: Sentence


# EXERCISE 23.3 read a failed seed
def diagnose() -> Diagnosis:
    """The mistake in the trace of notebook 23: `Diagnosis(line, server, Sentence.…)`.

    Go through the lines with the paper's figure 2, or with `Sentence`, in your hand. What should
    stand behind the colon? A server that answers a message has done first what it answers for.
    """
    # BEGIN SOLUTION
    return Diagnosis(15, 3, Sentence.CONFLICT)
    # END SOLUTION

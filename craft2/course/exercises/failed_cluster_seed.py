"""Exercise 28.1: which line of a cluster's trace is the mistake?"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import doing, that

LINE, BROKER, PROMISE = 17, 1, "READS"
_APPENDED = "a leader appends what producers send; whether that stays is decided later"
_TAKEN = "the new leader has never had what was at 149 on broker 1: to it, the offset is free"
_AGAIN = "what was read once was read too early, and is read on from there; look further up"
# line -> why that one is as it should be
_INNOCENT = {
    1: "what is done to a machine is no mistake of a broker",
    2: "broker 1 was in sync, and the epoch is a new one",
    3: "broker 3 is back, and has caught up, says the controller",
    4: _APPENDED,
    5: "at that moment all three have what is before 148",
    6: "followers take what the leader has",
    7: "followers take what the leader has",
    8: "a follower hears of the high watermark from its leader, who had 148 in line 5",
    9: "a follower hears of the high watermark from its leader, who had 148 in line 5",
    10: "147 is before 148, the leader's high watermark since line 5",
    11: "by their next fetch both followers have said that they have everything before 149",
    12: "148 is before 149, the leader's high watermark since line 11",
    13: "what is done to a network is no mistake of a broker",
    14: "146 to 148 are before 149",
    15: "146 to 148 are before 149",
    16: f"{_APPENDED}. Nobody has told broker 1 that it is cut off",
    18: _APPENDED,
    19: _APPENDED,
    20: _AGAIN,
    21: _AGAIN,
    22: "broker 3 is in sync: it has everything before 149, and more was never acknowledged",
    23: "all that are in sync now, 3 and 2, have everything before 149",
    24: "a follower hears of the high watermark from its leader, who had 149 in line 23",
    25: _TAKEN,
    26: "followers take what the leader has",
    27: "3 and 2 are in sync, and both have it",
    28: "this is where it shows. Which of the two at offset 149 should nobody have seen?",
}


def check(module: ModuleType) -> str:
    """The line, then the broker, then the promise."""
    doing("diagnose()")
    found: Any = module.diagnose()
    that(
        "diagnose()",
        isinstance(found, module.Diagnosis),
        expected="a Diagnosis(line, broker, promise)",
        got=repr(found),
    )
    that(
        "the line",
        found.line == LINE and type(found.line) is int,
        expected="the first line that could not be if all brokers kept to their promises",
        got=repr(found.line),
        difference=_INNOCENT.get(found.line, "the trace has 28 lines, counted from 1: give one"),
    )
    that(
        "the broker",
        found.broker == BROKER and type(found.broker) is int,
        expected="the one that did what it must not, by its number",
        got=repr(found.broker),
        difference="line 17 is an answer to the reader: which broker has that record by then?",
    )
    that(
        "the promise",
        isinstance(found.promise, module.Promise) and found.promise.name == PROMISE,
        expected="the one that it does not keep",
        got=getattr(found.promise, "name", repr(found.promise)),
        difference=f"a name alone is a text: give Promise.{PROMISE}"
        if found.promise == PROMISE
        else _KEPT.get(getattr(found.promise, "name", ""), "give one of Promise"),
    )
    return "the line, the broker and the promise"


# promise -> why it is kept, in line 17
_KEPT = {
    "WATERMARK": "broker 1 has not moved its high watermark since line 11: it stays at 149",
    "ACKNOWLEDGED": "no producer is told anything after line 12",
    "IN_SYNC": "nobody acts on another ISR than the controller's, of line 3",
    "ELECTED": "nobody becomes leader there; and who does, in line 22, is in sync",
    "NEW_EPOCH": "there is one leader until line 22, and nobody has heard of another",
    "CUT": "nobody cuts anything in this trace",
}


EXERCISE = Exercise(
    id="28.1",
    title="read a cluster's failed seed",
    file="phase3_raft/failed_cluster_seed.py",
    hints=(
        "The last line names two values at offset 149. Who has had which of them, and who has ever "
        "seen the one that is gone?",
        "From line 13 on no follower reaches broker 1, so its high watermark stays where it was in "
        "line 11. Which lines behind that need more than 149?",
        "In line 17 the reader has offset 149 from broker 1, the only one that has it, while the "
        "high watermark is 149: return Diagnosis(17, 1, Promise.READS).",
    ),
    check=check,
    explanation=(
        "The high watermark is 149, so 148 is the last offset that a consumer may have. Broker 1, "
        "cut off, takes 2:96 at 149, which is right: it may still reach the others. But it shows "
        "it to the reader. A second later broker 3 leads, without 2:96, which nobody was promised, "
        "and gives 149 to 0:87. The rule breaks a second and a half after the mistake, at a broker "
        "that has done nothing wrong. Had 2:96 not been read, its loss would be none: its producer "
        "had no answer, and sends it again."
    ),
    wrong={
        "where it shows": "return Diagnosis(28, 3, Promise.WATERMARK)",
        "the new leader": "return Diagnosis(22, 3, Promise.ELECTED)",
        "an offset that is given again": "return Diagnosis(25, 3, Promise.CUT)",
        "a leader that is cut off takes records": "return Diagnosis(16, 1, Promise.NEW_EPOCH)",
        "the second one to read it": "return Diagnosis(20, 1, Promise.READS)",
        "an answer before the watermark is known": "return Diagnosis(12, 1, Promise.ACKNOWLEDGED)",
        "a watermark that rises": "return Diagnosis(11, 1, Promise.WATERMARK)",
        "a broker that has nothing to show": "return Diagnosis(17, 3, Promise.READS)",
        "nobody was acknowledged": "return Diagnosis(17, 1, Promise.ACKNOWLEDGED)",
        "the watermark is not to blame": "return Diagnosis(17, 1, Promise.WATERMARK)",
        "counted from zero": "return Diagnosis(16, 1, Promise.READS)",
        "the promise as text": "return Diagnosis(17, 1, Promise.READS.name)",
        "a tuple": "return (17, 1, Promise.READS)",
    },
)

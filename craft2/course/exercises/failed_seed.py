"""Exercise 23.3: which line of a trace is the mistake?"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import doing, that

LINE, SERVER, SENTENCE = 15, 3, "CONFLICT"
# line -> why that one is as it should be
_INNOCENT = {
    4: "a timer may ring at any time",
    6: "two of three would vote for it, itself included, and it asks in earnest",
    7: "its vote in term 1 is free, and both logs are empty",
    8: "one vote a server: this one votes for the first time in term 1",
    9: "two votes of three, and the no-op is its own first entry",
    10: "server 2 has not heard from the leader yet: nobody has told it that there is one",
    12: "a pre-vote is no vote: it only says that server 1 would",
    13: "term 2 is a new term, and server 1 votes for the first time in it",
    14: "two votes of three, in term 2; that server 3 still leads term 1 is no contradiction",
    16: "this is where it shows. Server 2 counts an answer as figure 2 says; was the answer true?",
}


def check(module: ModuleType) -> str:
    """The line, then the server, then the sentence."""
    doing("diagnose()")
    found: Any = module.diagnose()
    that(
        "diagnose()",
        isinstance(found, module.Diagnosis),
        expected="a Diagnosis(line, server, sentence)",
        got=repr(found),
    )
    that(
        "the line",
        found.line == LINE and type(found.line) is int,
        expected="the first line in which a server does what it must not",
        got=repr(found.line),
        difference=_INNOCENT.get(found.line, "look at what stands behind the colon, and at what "
                                 "does not, in each line that changes a log"),
    )  # fmt: skip
    that(
        "the server",
        found.server == SERVER,
        expected="the one that does it, in that line",
        got=repr(found.server),
        difference="a message goes from one server to another: which of them does something then?",
    )
    that(
        "the sentence",
        isinstance(found.sentence, module.Sentence) and found.sentence.name == SENTENCE,
        expected="the one that it does not keep to",
        got=getattr(found.sentence, "name", repr(found.sentence)),
        difference=f"a name alone is a text: give Sentence.{SENTENCE}"
        if found.sentence == SENTENCE
        else "what did its log hold before that line, and what does it hold after it?",
    )
    return "the line, the server and the sentence of figure 2"


EXERCISE = Exercise(
    id="23.3",
    title="read a failed seed",
    file="phase3_raft/failed_seed.py",
    hints=(
        "Write down the logs as you go: who has which entry 1, and of which term, after line 14?",
        "After line 14 servers 2 and 3 each have an entry 1 of their own, of term 2 and of term 1. "
        "What must become of one of the two when they meet, and what does line 15 say about it?",
        "In line 15 server 3 gets entry 1 of term 2, answers in line 16 that it has it, and has "
        "changed nothing in its log: return Diagnosis(15, 3, Sentence.CONFLICT).",
    ),
    check=check,
    explanation=(
        "Server 3 keeps its own entry 1, of term 1, and says that it has all up to 1. The leader "
        "of term 2 counts that and commits an entry which is on one disk only. The rule breaks one "
        "line later, at another server, that has done nothing wrong: so it is with most bugs in "
        "distributed systems, and that is why a trace has to be short. This one had more "
        "than a thousand events before it was shrunk."
    ),
    wrong={
        "where it shows": "return Diagnosis(16, 2, Sentence.COMMIT)",
        "two leaders": "return Diagnosis(14, 2, Sentence.ONE_VOTE)",
        "a second vote": "return Diagnosis(13, 1, Sentence.ONE_VOTE)",
        "a pre-vote taken for a vote": "return Diagnosis(12, 1, Sentence.ONE_VOTE)",
        "whoever sent it": "return Diagnosis(15, 2, Sentence.CONFLICT)",
        "a term that was not joined": "return Diagnosis(15, 3, Sentence.LATER_TERM)",
        "an entry that did not fit": "return Diagnosis(15, 3, Sentence.PREVIOUS_FITS)",
        "committed too far": "return Diagnosis(16, 2, Sentence.OWN_TERM)",
        "counted from zero": "return Diagnosis(14, 3, Sentence.CONFLICT)",
        "the sentence as text": "return Diagnosis(15, 3, Sentence.CONFLICT.value)",
        "a tuple": "return (15, 3, Sentence.CONFLICT)",
    },
)

"""What a Raft message says, in a few words.

>>> from phase3_raft.raft.messages import RequestVote
>>> words_of(RequestVote(sender=1, to=2, term=3, last_index=4, last_term=2))
'vote for me in term 3? my last entry is 4, of term 2'
"""

from __future__ import annotations

from phase3_raft.raft.messages import (
    AnyMessage,
    Append,
    Appended,
    InstallSnapshot,
    RequestVote,
    TimeoutNow,
    Vote,
)


def words_of(message: AnyMessage) -> str:
    """A message in words."""
    match message:
        case RequestVote():
            ask = "would you vote" if message.pre else "vote"
            last = f"my last entry is {message.last_index}, of term {message.last_term}"
            return f"{ask} for me in term {message.term}? {last}"
        case Vote():
            would = "would" if message.pre else "do"
            return f"yes, I {would}" if message.granted else f"no (I am in term {message.term})"
        case Append():
            after = f"entry {message.prev_index} of term {message.prev_term}"
            until = f"committed up to {message.commit}"
            if not message.entries:
                return f"I lead term {message.term}; {until}"
            first, last_index = message.entries[0].index, message.entries[-1].index
            which = f"{first}" if first == last_index else f"{first} to {last_index}"
            return f"after {after} comes {which}; {until}"
        case Appended():
            if message.ok:
                return f"I have all up to {message.index}"
            if message.hint_index or message.hint_term:
                look = f"look at {message.hint_index}, term {message.hint_term}"
                return f"entry {message.index} does not fit; {look}"
            return f"no (I am in term {message.term})"
        case InstallSnapshot():
            return f"a snapshot up to {message.snapshot.index}"
        case TimeoutNow():
            return "stand for election now"

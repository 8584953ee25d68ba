"""Whether a trace, as it was read from a file, can be played: each action has what it needs.

    what          arguments                                              message
    ask           client, kind, value (null to read), called_ms, fillers
    change        voters, learners
    crash_soon    step (0 to 3), share (0 to 1)
    transfer      to
    slow_disk     slow
    deliver                                                              yes
    all others

>>> why_not(3, [Action(0, 1, "start", 0), Action(5, 1, "crash_soon", 5, (7, 0.5))])
'actions[1].arguments[0]: Expected `int` <= 3'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from craft2.apps.simulate.raft_nodes import Action

MOST_NODES = 9
_Number = Annotated[int, Meta(ge=0, le=2**62)]
_NOTHING: Any = tuple[()]
ARGUMENTS: dict[str, Any] = {
    "start": _NOTHING,
    "crash": _NOTHING,
    "spare": _NOTHING,
    "ring": _NOTHING,
    "beat": _NOTHING,
    "compact": _NOTHING,
    "written": _NOTHING,
    "deliver": _NOTHING,
    "crash_soon": tuple[Annotated[int, Meta(ge=0, le=3)], Annotated[float, Meta(ge=0, le=1)]],
    "ask": tuple[
        _Number,
        Literal["append", "write", "list", "read"],
        _Number | None,
        _Number,
        Annotated[int, Meta(ge=0, le=1_000)],
    ],
    "change": tuple[list[_Number], list[_Number]],
    "transfer": tuple[_Number],
    "slow_disk": tuple[bool],
}


def why_not(nodes: int, actions: Sequence[Action]) -> str:
    """The first thing that is wrong, with its place; "" if nothing is."""
    if not 1 <= nodes <= MOST_NODES:
        return f"nodes: {nodes}, where 1 to {MOST_NODES} are possible"
    before_ms = 0
    for place, action in enumerate(actions):
        wrong = _wrong(nodes, action, before_ms)
        if wrong:
            return f"actions[{place}].{wrong}"
        before_ms = action.ms
    if not any(action.what == "start" for action in actions):
        return 'actions: none of them is "start", so there is no server'
    return ""


def _wrong(nodes: int, action: Action, before_ms: int) -> str:
    if action.what not in ARGUMENTS:
        return f"what: {action.what!r} is none of {', '.join(ARGUMENTS)}"
    if not 1 <= action.server <= nodes:
        return f"server: {action.server}, and there are servers 1 to {nodes}"
    if action.ms < before_ms:
        return f"ms: {action.ms}, after an action at {before_ms}"
    if action.clock_ms < 0:
        return f"clock_ms: {action.clock_ms}, where 0 or more is possible"
    try:
        arguments = msgspec.convert(action.arguments, ARGUMENTS[action.what])
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        return f"arguments{path.rstrip('`')}: {problem}"
    if action.what == "ask" and (arguments[2] is None) != (arguments[1] in ("list", "read")):
        return f"arguments[2]: {arguments[2]!r} is no value to {arguments[1]}"
    message = action.message
    if (message is not None) != (action.what == "deliver"):
        return f"message: {'none' if message is None else 'one'}, with {action.what!r}"
    if message is not None and (message.to, message.sender in range(1, nodes + 1)) != (
        action.server,
        True,
    ):
        return f"message: from {message.sender} to {message.to}, delivered to {action.server}"
    return ""

"""Exercise 20.1: put requests together from bytes that come as they please."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, same_bytes, that

LIMIT = 100_000
SHORT = b"hello"
SHORTLY = b"\0\0\0\5hello\xff\xff\xff\xff"
FRAMES = (b"hello", b"", b"a second request", b"\0\0\0\3" * 3, bytes(range(200)))
# Four feeds: what comes, and which frames are complete then.
CUTS: tuple[tuple[str, tuple[tuple[bytes, tuple[bytes, ...]], ...]], ...] = (
    ("one whole request", ((b"\0\0\0\5hello", (SHORT,)),)),
    ("half a request, then the rest", ((b"\0\0\0\5he", ()), (b"llo", (SHORT,)))),
    ("two requests at once", ((b"\0\0\0\5hello\0\0\0\2ok", (SHORT, b"ok")),)),
    (
        "one and a half, then the rest",
        ((b"\0\0\0\5hello\0\0\0\2o", (SHORT,)), (b"k", (b"ok",))),
    ),
    (
        "a cut in the middle of a size",
        ((b"\0\0\0\5hello\0\0", (SHORT,)), (b"\0", ()), (b"\2ok", (b"ok",))),
    ),
    ("a request of no bytes", ((b"\0\0\0\0", (b"",)), (b"\0\0\0\2ok", (b"ok",)))),
    ("its size alone, then the rest", ((b"\0\0\0\5", ()), (SHORT, (SHORT,)))),
    (
        "the rest of one, and two more",
        ((b"\0\0\0\5hel", ()), (b"lo\0\0\0\1a\0\0\0\1b", (SHORT, b"a", b"b"))),
    ),
    ("a size of 256, whose bytes are in order", ((b"\0\0\1\0" + b"x" * 256, (b"x" * 256,)),)),
)


def check(module: ModuleType) -> str:
    """Each way to cut; byte by byte; sizes that no request has; what many pieces cost."""
    for words, feeds in CUTS:
        _feeds(module, words, feeds)
    _byte_by_byte(module)
    _sizes(module)
    _many_pieces(module)
    return (
        f"{len(CUTS)} ways to cut, every byte alone, sizes that are too large refused before "
        "their bytes come, and a large request in pieces that is copied once"
    )


def _feeds(
    module: ModuleType, words: str, feeds: Iterable[tuple[bytes, tuple[bytes, ...]]]
) -> None:
    frames, sent = module.Frames(LIMIT), b""
    for data, complete in feeds:
        sent += data
        call = f"feed({_shown(data)}), {len(sent)} bytes by then ({words})"
        doing(call)
        _equal(call, frames.feed(data), complete)


def _equal(call: str, got: Any, complete: tuple[bytes, ...]) -> None:
    that(
        f"what {call} returns",
        isinstance(got, list),
        expected="a list of the frames that are complete, perhaps an empty one",
        got=repr(got),
    )
    equal(f"how many frames {call} returns", len(got), len(complete))
    for number, (one, expected) in enumerate(zip(got, complete, strict=True)):
        that(
            f"frame {number} of {call}",
            type(one) is bytes,
            expected="bytes",
            got=type(one).__name__,
        )
        same_bytes(f"frame {number} of {call}", one, expected)


def _shown(data: bytes) -> str:
    return repr(data) if len(data) <= 24 else f"{data[:12]!r}...{len(data)} bytes"


def _byte_by_byte(module: ModuleType) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in FRAMES)
    for size in (1, 2, 3, 7):
        doing(f"{len(FRAMES)} requests, fed {size} byte(s) at a time")
        frames, found = module.Frames(LIMIT), []
        for start in range(0, len(stream), size):
            found += frames.feed(stream[start : start + size])
        _equal(f"feed() of {len(FRAMES)} requests, {size} byte(s) at a time", found, FRAMES)


def _sizes(module: ModuleType) -> None:
    bad: Any = module.BadMessage
    for words, data in (
        ("one byte more than max_bytes", (LIMIT + 1).to_bytes(4, "big")),
        ("a web browser's first words", b"GET / HTTP/1.1\r\n"),
        ("a size of -1", b"\xff\xff\xff\xff"),
    ):
        call = f"feed({data!r}) ({words})"
        doing(call)
        try:
            got = repr(module.Frames(LIMIT).feed(data))
        except bad:
            continue
        that(call, False, expected="BadMessage, as soon as the size is there", got=got)
    frames = module.Frames(LIMIT)
    call = f"feed({SHORTLY!r}), a request and then a size that none has"
    doing(call)
    try:
        _equal(call, frames.feed(SHORTLY), (SHORT,))
    except bad:
        that(call, False, expected=f"[{SHORT!r}]: it is complete", got="BadMessage, and it is lost")
    call = "the call after that, feed(b'')"
    doing(call)
    with suppress(bad):
        that(call, False, expected="BadMessage", got=repr(frames.feed(b"")))
    largest = b"x" * LIMIT
    call = "feed() of a request of max_bytes, which is allowed"
    doing(call)
    _equal(call, module.Frames(LIMIT).feed(LIMIT.to_bytes(4, "big") + largest), (largest,))


def _many_pieces(module: ModuleType) -> None:
    """How often the pieces are joined. What lies in `_pieces` and was not fed was made there."""
    doing("feed() of a request of 64,000 bytes, in pieces of 250")
    body = bytes(range(250)) * 256
    stream = len(body).to_bytes(4, "big") + body
    pieces = [stream[start : start + 250] for start in range(0, len(stream), 250)]
    frames, joins, found = module.Frames(LIMIT), 0, []

    def note(_frame: object, event: str, called: Any) -> None:
        nonlocal joins
        joins += event == "c_call" and called.__name__ == "join"

    for number, piece in enumerate(pieces):
        sys.setprofile(note)
        try:
            found += frames.feed(piece)
        finally:
            sys.setprofile(None)
        fed = set(map(id, pieces[: number + 1]))
        joins += any(id(one) not in fed and len(one) > 250 for one in frames._pieces)
    _equal("feed() of a request of 64,000 bytes, in pieces of 250", found, (body,))
    that(
        f"how often pieces were joined while 64,000 bytes came in {len(pieces)} of them",
        joins <= 5,
        expected="once or twice: keep the pieces, and join them when the request is complete",
        got=str(joins),
    )


_ADD = "self._pieces.append(data)\nself._have += len(data)\n"
_WAIT = "if self._have < 4 or self._have < self._wanted():\n    return []\n"
_JOIN = 'data = b"".join(self._pieces)\nframes, start = [], 0\n'
_SIZE = """    try:
        end = start + 4 + self._size_of(data[start : start + 4])
    except BadMessage:
        break
"""
_LOOP = f"""while len(data) - start >= 4:
{_SIZE}    if end > len(data):
        break
    frames.append(data[start + 4 : end])
    start = end
"""
_KEEP = "self._pieces = [data[start:]]\nself._have = len(data) - start\n"
_RIGHT = _ADD + _WAIT + _JOIN + _LOOP + _KEEP + "return frames\n"

EXERCISE = Exercise(
    id="20.1",
    title="put requests together",
    file="phase3_raft/connection.py",
    hints=(
        "Two steps: put what came to what was left over, then take whole frames off the front "
        "until there is none, and keep the rest. Which three things can be cut off at the end?",
        "Append data to self._pieces and its length to self._have. If that is less than 4, or "
        "than self._wanted() (the size of the first frame, with its 4 bytes), return []. Else "
        "join the pieces, and cut frames off in a loop: self._size_of(the first four bytes).",
        "After joining, while 4 bytes are left at start: end = start + 4 + self._size_of("
        "data[start : start + 4]); if end is behind the data, stop; else take the frame, and go on "
        "at end. What has to be in self._pieces and self._have when the loop is over?",
    ),
    check=check,
    explanation=(
        "TCP carries a stream of bytes and knows nothing of messages: what was sent in one piece "
        "may come in three, and three in one. So a reader must do with every cut, also in the "
        "middle of a size, and give all the frames that are complete: a client that waits for its "
        "reply sends nothing more that would bring out a forgotten one. The size is checked before "
        "its bytes come, or anybody could make a broker wait for two gigabytes. And pieces are "
        "joined once: joined with each read, a request of 100 MB would copy tens of gigabytes."
    ),
    wrong={
        "each feed is a frame": "return [data[4:]]",
        "the rest is forgotten": edited(
            _RIGHT, (_KEEP, "self._pieces, self._have = [], 0\n"), (_WAIT, "")
        ),
        "one frame a call": edited(_RIGHT, ("    start = end\n", "    start = end\n    break\n")),
        "all or nothing": edited(
            _RIGHT,
            (
                "len(data):\n        break\n",
                "len(data):\n        self._pieces = [data]\n        return []\n",
            ),
        ),
        "the size is part of the frame": edited(
            _RIGHT, ("data[start + 4 : end]", "data[start:end]")
        ),
        "the size counts itself": edited(
            _RIGHT, ("end = start + 4 + self", "end = start + self"), (_WAIT, "")
        ),
        "the wrong end first": edited(
            _RIGHT,
            (
                "self._size_of(data[start : start + 4])",
                'int.from_bytes(data[start:start + 4], "little")',
            ),
            (_WAIT, ""),
        ),
        "no limit": edited(
            _RIGHT,
            ("self._size_of(data[start : start + 4])", "int.from_bytes(data[start:start + 4])"),
            (_WAIT, ""),
        ),
        "refused when all of it is there": edited(
            _RIGHT,
            (_SIZE, "    end = start + 4 + int.from_bytes(data[start : start + 4])\n"),
            ("    frames.append", "    self._size_of(data[start : start + 4])\n    frames.append"),
            (_WAIT, ""),
        ),
        "what is good is lost with what is bad": edited(
            _RIGHT, (_SIZE, "    end = start + 4 + self._size_of(data[start : start + 4])\n")
        ),
        "what is bad is passed over": edited(_RIGHT, ("[data[start:]]", "[data[start:][:3]]")),
        "a size is never cut": edited(_RIGHT, ("len(data) - start >= 4", "start < len(data)")),
        "an empty request waits": edited(_RIGHT, ("start >= 4", "start > 4")),
        "a whole request waits for the next": edited(
            _RIGHT, ("end > len(data)", "end >= len(data)")
        ),
        "a byte is lost at the end": edited(
            _RIGHT, ("data[start + 4 : end]", "data[start + 4 : end - 1]")
        ),
        "the start of the next is lost": edited(_RIGHT, ("[data[start:]]", "[data[start + 4:]]")),
        "joined with each call": edited(
            _RIGHT, (_ADD, _ADD + 'self._pieces = [b"".join(self._pieces)]\n')
        ),
        "joined to look": edited(
            _RIGHT,
            (_WAIT, ""),
            (
                _KEEP,
                "self._pieces = [data[start:]] if start else self._pieces\n"
                "self._have = len(data) - start\n",
            ),
        ),
        "how much there is, is forgotten": edited(
            _RIGHT, ("self._have = len(data) - start\n", "self._have = 0\n")
        ),
        "a tuple": edited(_RIGHT, ("return frames\n", "return tuple(frames)\n")),
        "views of the bytes": edited(
            _RIGHT,
            (
                "frames.append(data[start + 4 : end])",
                "frames.append(memoryview(data)[start + 4 : end])",
            ),
        ),
    },
)

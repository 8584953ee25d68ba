"""A Ctrl-C at each moment in which it may come, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator


def interrupt(call: Callable[[], object], at: int) -> bool:
    """Call it, and raise KeyboardInterrupt when Python looks for signals for the `at`-th time.

    It does so when a function begins, and when a call of one written in C has returned. False: it
    looked less often. (Where no error can be raised, as in `__del__`, the interrupt is lost.)
    """
    looks = 0

    def look(frame: object, event: str, arg: object) -> None:
        nonlocal looks
        looks += event in ("call", "c_return")
        if looks == at:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        sys.setprofile(look)
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return looks >= at


def at_each_moment(call: Callable[[], object]) -> Iterator[None]:
    """Interrupt `call` at its first moment, at its second, and so on; a yield after each."""
    at = 1
    while interrupt(call, at):
        yield
        at += 1

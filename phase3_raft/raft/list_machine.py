"""The smallest state machine worth replicating: a list that grows, and a register.

Both are what `linear` can judge from outside: whether a cluster behaved like one machine.

>>> machine = ListMachine()
>>> machine.apply(command("append", 7)), machine.apply(command("write", 3))
(1, 3)
>>> copy = ListMachine()
>>> copy.restore(machine.snapshot())
>>> copy.values, copy.register
([7], 3)
"""

from __future__ import annotations

from typing import Literal

import msgspec

from craft2.errors import Craft2Error

Kind = Literal["append", "write"]
Value = int | str


class BadCommand(Craft2Error):
    """Something that is no command of this machine."""


def command(kind: str, value: Value) -> bytes:
    """kind: append (to the list) or write (the register). Raises BadCommand."""
    if kind not in ("append", "write"):
        raise BadCommand(f"the command {kind!r}", "use append or write")
    if not isinstance(value, str) and not -(2**63) <= value < 2**64:
        raise BadCommand(f"the value {value!r:.40}", "use text, or a number of 64 bits")
    return msgspec.msgpack.encode((kind, value))


class ListMachine:
    """See the module. A `driver.StateMachine`."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.register: Value | None = None

    def apply(self, data: bytes) -> int | Value:
        """Carry out one command; returns the list's new length, or the register.

        Raises BadCommand for what `command` has not made.
        """
        try:
            kind, value = msgspec.msgpack.decode(data, type=tuple[Kind, Value])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadCommand(
                f"{len(data)} bytes are no command of this machine: {error}",
                "propose what `list_machine.command` returns",
            ) from error
        if kind == "append":
            self.values.append(value)
            return len(self.values)
        self.register = value
        return value

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.values, self.register))

    def restore(self, data: bytes) -> None:
        self.values, self.register = msgspec.msgpack.decode(
            data, type=tuple[list[Value], Value | None]
        )

"""A TCP relay that can be told to let nothing through: a partition between real processes.

Whoever connects to it is connected to `target`. While it is cut, bytes wait and no end of a
connection is passed on, so both sides see what they would see if a cable had been pulled: silence.
What was on its way arrives when it is mended, as TCP would send it again. It needs no rights on the
machine, which firewalls and network namespaces do.

>>> with Relays() as relays:
...     address = relays.add("1-2", Address("127.0.0.1", 9))
...     relays.cut(["1-2"])
...     relays.heal()
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from craft2.net import Address, Listener, Reader, RealNet, Writer
from craft2.tasks import Tasks

_READ_BYTES = 64 * 1024
Result = TypeVar("Result")


class Relays:
    """Relays by name, in a thread of their own. `target` may be changed: a process that is started
    again has another port."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks = Tasks()
        self._relays: dict[str, _Relay] = {}
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="relays")
        self._thread.start()

    def add(self, name: str, target: Address) -> Address:
        """A new relay; returns where it listens."""
        relay = self._relays[name] = _Relay(target, self._tasks)
        return self._run(relay.open())

    def aim(self, name: str, target: Address) -> None:
        """Connect the next ones who come to another address."""
        self._relays[name].target = target

    def cut(self, names: Iterable[str]) -> None:
        """Let nothing through these."""
        self._turn(asyncio.Event.clear, [self._relays[name] for name in names])

    def heal(self) -> None:
        """Let everything through again."""
        self._turn(asyncio.Event.set, list(self._relays.values()))

    def close(self) -> None:
        """Hang up on everybody."""

        def end() -> None:
            for relay in self._relays.values():
                relay.close()
            self._tasks.cancel()

        self._call(end)
        self._call(lambda: None)  # one turn of the loop, in which the tasks end
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _turn(self, tap: Callable[[asyncio.Event], None], relays: list[_Relay]) -> None:
        def turn() -> None:
            for relay in relays:
                tap(relay.through)

        self._call(turn)

    def _call(self, act: Callable[[], object]) -> None:
        async def acting() -> None:
            act()

        self._run(acting())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Relays:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Relay:
    def __init__(self, target: Address, tasks: Tasks) -> None:
        self.target = target
        self.through = asyncio.Event()
        self.through.set()
        self._tasks = tasks
        self._listener: Listener | None = None

    async def open(self) -> Address:
        self._listener = await RealNet().listen(
            Address("127.0.0.1", 0), lambda *ends: self._tasks.spawn(self._relay(*ends))
        )
        return self._listener.address

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _relay(self, reader: Reader, writer: Writer) -> None:
        await self.through.wait()
        try:
            far_reader, far_writer = await RealNet().connect(self.target)
        except OSError:
            writer.close()
            return
        self._tasks.spawn(self._pass_on(far_reader, writer))
        await self._pass_on(reader, far_writer)

    async def _pass_on(self, reader: Reader, writer: Writer) -> None:
        try:
            while data := await reader.read(_READ_BYTES):
                await self.through.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self.through.wait()
            writer.close()

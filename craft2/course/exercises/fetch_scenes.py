"""What the checks of the Fetch exercises share: partitions that hold batches of sizes we choose."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

MARK = 1_000  # the high watermark that each partition has: its number more than this


def records(size: int) -> Any:
    """So many bytes of a file that nobody reads."""
    from craft2.disk import FileSlice

    return FileSlice(None, 0, size) if size else None  # type: ignore[arg-type]


def batches_within(sizes: Sequence[int], limit: int) -> int:
    """The bytes of the first whole batches of at most `limit`; a first one that is larger, too."""
    if limit <= 0 or not sizes:
        return 0
    total = 0
    for size in sizes:
        if total and total + size > limit:
            break
        total += size
        if total >= limit:
            break
    return total


class Shelf:
    """Stands in for `read`: what each partition of a request holds.

    sizes: for each partition the sizes of its batches, or the name of an error.
    """

    def __init__(self, module: ModuleType, sizes: Sequence[Sequence[int] | str]) -> None:
        self._module, self._sizes = module, sizes
        self.calls = 0
        module.read = self.read  # type: ignore[attr-defined]

    def wanted(self, limits: Sequence[int]) -> list[Any]:
        """A request for all of them, with these limits."""
        make: Any = self._module.Wanted
        return [
            make("flights", number, self._module.ErrorCode.NONE, 0, limit, -1)
            for number, limit in enumerate(limits)
        ]

    def read(self, one: Any, limit: int) -> Any:
        """See `look`."""
        self.calls += 1
        found: Any = self._module.Found
        held = self._sizes[one.number]
        if isinstance(held, str):
            return found(self._module.ErrorCode[held])
        size = batches_within(held, limit)
        none = self._module.ErrorCode.NONE
        return found(none, MARK + one.number, 0, records(size))

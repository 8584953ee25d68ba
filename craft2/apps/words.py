"""Numbers of things, as they are said."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """A number and its noun. many: several of them, if that is not an s more.

    >>> counted(1, "partition moves", "partitions move"), counted(0, "fault")
    ('1 partition moves', '0 faults')
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"

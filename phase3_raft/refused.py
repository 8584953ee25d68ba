"""What a client is told when it asks for what cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from craft2.errors import Craft2Error
from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata.records import Record
from phase3_raft.schemas import Fields

if TYPE_CHECKING:
    from phase3_raft.metadata.controller import Decide
    from phase3_raft.metadata.image import Image

What = TypeVar("What")


class Refused(Craft2Error):
    """What a client asked for cannot be done; `code` is what it is told."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    @classmethod
    def because(cls, code: ErrorCode, problem: str, fix: str = "") -> Refused:
        """With this code."""
        error = cls(problem, fix)
        error.code = code
        return error


class InDoubt(Refused):
    """It may have been done, or not: the controller led no more before it knew.

    records: what was to be committed. outcome: whether it is, None if that is never known here.
    """

    code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(
        self,
        problem: str,
        fix: str,
        records: Sequence[Record],
        outcome: asyncio.Future[bool | None],
    ) -> None:
        super().__init__(problem, fix)
        self.records, self.outcome = records, outcome


def error_fields(error: Refused | None) -> Fields:
    """How replies say it."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": str(error)}


def each_once(decisions: Iterable[tuple[What, Decide]]) -> dict[What, Decide]:
    """Decisions by what they are about; what several are about is refused instead: a client may
    have meant either, and reads one answer for each."""
    found: dict[What, Decide] = {}
    for what, decide in decisions:
        found[what] = _twice if what in found else decide
    return found


def _twice(image: Image) -> Sequence[Record]:
    """Raises Refused."""
    raise Refused.because(
        ErrorCode.INVALID_REQUEST, "the request has it more than once", "ask once for each"
    )

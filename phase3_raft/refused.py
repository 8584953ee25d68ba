"""What a client is told when it asks for what cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from craft2.errors import Craft2Error
from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata.records import Record
from phase3_raft.schemas import Fields


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

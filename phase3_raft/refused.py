"""What a client is told when it asks for what cannot be."""

from __future__ import annotations

from craft2.errors import Craft2Error
from phase2_groups.error_codes import ErrorCode


class Refused(Craft2Error):
    """What a client asked for cannot be done; `code` is what it is told."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    @classmethod
    def because(cls, code: ErrorCode, problem: str, fix: str = "") -> Refused:
        """With this code."""
        error = cls(problem, fix)
        error.code = code
        return error

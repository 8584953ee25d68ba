"""The errors a `Consumer` raises."""

from __future__ import annotations

from craft2.errors import Craft2Error
from phase2_groups.error_codes import ErrorCode


class ConsumerError(Craft2Error):
    """A call that makes no sense now, or that the other side refused."""


class ConsumerClosed(ConsumerError):
    """A call after `close`."""


class UnknownTopic(ConsumerError):
    """A topic or partition that does not exist."""


class InvalidTopic(UnknownTopic):
    """A name that no topic can have."""


class NobodyAnswers(ConsumerError):
    """No broker could be asked, and none has ever answered, for `default_api_timeout_ms`."""


class NoOffset(ConsumerError):
    """There is nowhere to begin: no committed offset, or a lost one, and no reset policy."""


class NotAssigned(ConsumerError):
    """A partition that this consumer does not have."""


class CommitRefused(ConsumerError):
    """The group has given the partitions to others: what was handled will be handled again."""


class GroupBlocked(ConsumerError):
    """Another process has had the lock on the group's files for longer than we would wait."""


class RebalanceInProgress(ConsumerError):
    """The commit cannot be taken just now; after the next `poll` it can."""


def raise_commit_error(error: ErrorCode, group_id: str, group_instance_id: str | None) -> None:
    """Raise what a group's answer to a commit means; nothing if it is NONE."""
    group = f"group {group_id!r}"
    if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        raise CommitRefused(
            f"{group} has moved on without this member ({error.name}): its partitions were "
            f"given to others, who start from the last commit",
            "poll again; make max_poll_interval_ms longer, or handle fewer records a poll",
        )
    if error is ErrorCode.REBALANCE_IN_PROGRESS:
        raise RebalanceInProgress(f"{group} is rebalancing", "poll, then commit again")
    if error is ErrorCode.FENCED_INSTANCE_ID:
        raise CommitRefused(
            f"another consumer of {group} runs as {group_instance_id!r}",
            "give each consumer a group_instance_id of its own",
        )
    if error:
        raise ConsumerError(f"{group} did not store the commit: {error.name}", "try again")

"""The errors a `Consumer` raises."""

from __future__ import annotations

from craft2.errors import Craft2Error


class ConsumerError(Craft2Error):
    """A call that makes no sense now, or that the other side refused."""


class ConsumerClosed(ConsumerError):
    """A call after `close`."""


class UnknownTopic(ConsumerError):
    """A topic or partition that does not exist."""


class NoOffset(ConsumerError):
    """There is nowhere to begin: no committed offset, or a lost one, and no reset policy."""


class NotAssigned(ConsumerError):
    """A partition that this consumer does not have."""


class CommitRefused(ConsumerError):
    """The group has given the partitions to others: what was handled will be handled again."""


class RebalanceInProgress(ConsumerError):
    """The commit cannot be taken just now; after the next `poll` it can."""

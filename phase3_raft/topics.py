"""Topics, as a broker makes them: decided here, or by the controller.

The handlers of the admin APIs run on the controller: other brokers pass such requests on to it
(`dispatch`). What a broker needs without being asked for it in so many words, a topic that is used
and not there, or the one of the groups, it asks the controller for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.codec import BadMessage
from phase3_raft.metadata import topic_changes
from phase3_raft.metadata.controller import Controller, Decide
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import BrokerId
from phase3_raft.metadata.topic_changes import Assignment
from phase3_raft.peers import Peers
from phase3_raft.refused import Refused

DEFAULT = -1  # partitions or replicas: as the broker's settings say
_TIMEOUT_MS = 5_000


class Topics:
    """See the module. default_partitions, default_replicas: of topics for which nobody says."""

    def __init__(
        self,
        controller: Controller,
        peers: Peers,
        new_id: Callable[[], str],
        *,
        default_partitions: int,
        default_replicas: int,
    ) -> None:
        self._controller, self._peers, self._new_id = controller, peers, new_id
        self._default_partitions, self._default_replicas = default_partitions, default_replicas

    @property
    def _image(self) -> Image:
        return self._controller.metadata.image

    def default_replicas(self) -> int:
        """As many as was said, if there are so many brokers, whether they run at present or not."""
        return max(1, min(self._default_replicas, len(self._image.brokers)))

    def creation(
        self,
        name: str,
        partitions: int = DEFAULT,
        replicas: int = DEFAULT,
        config: Mapping[str, str] | None = None,
        assignment: Assignment | None = None,
    ) -> Decide:
        """What makes a topic, for the controller."""
        partitions = self._default_partitions if partitions == DEFAULT else partitions
        replicas = self.default_replicas() if replicas == DEFAULT else replicas
        return partial(
            topic_changes.create,
            name=name,
            topic_id=self._new_id(),
            partitions=partitions,
            replicas=replicas,
            config=config or {},
            assignment=assignment,
        )

    async def create(self, name: str, partitions: int = DEFAULT) -> None:
        """Make a topic. Raises Refused, DiskError."""
        await self._controller.change(self.creation(name, partitions))

    async def need(self, name: str, partitions: int = DEFAULT) -> ErrorCode:
        """Have a topic made that is used and not there; NONE if this broker knows it now."""
        if name in self._image.topics:
            return ErrorCode.NONE
        error = await self._make(name, partitions)
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return error
        return ErrorCode.NONE if name in self._image.topics else ErrorCode.LEADER_NOT_AVAILABLE

    async def _make(self, name: str, partitions: int) -> ErrorCode:
        controller = self._controller.metadata.controller
        try:
            if controller is None:
                return ErrorCode.LEADER_NOT_AVAILABLE
            if self._controller.is_here:
                await self.create(name, partitions)
                return ErrorCode.NONE
            return await self._ask_for(controller, name, partitions)
        except Refused as error:
            return error.code
        except (OSError, BadMessage):
            return ErrorCode.LEADER_NOT_AVAILABLE
        except DiskError:
            return ErrorCode.KAFKA_STORAGE_ERROR

    async def _ask_for(self, controller: BrokerId, name: str, partitions: int) -> ErrorCode:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": DEFAULT,
            "assignments": [],
            "configs": [],
        }
        fields = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
        reply = await self._peers.ask(controller, "create_topics", 5, fields)
        return ErrorCode(reply.topics[0].error_code)

"""IncrementalAlterConfigs (key 44), versions 0-1: change some settings, leave the others (KIP-339).

Of topics, and those of brokers that can be changed while they run (`broker_settings`). Left out:
adding to lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import BROKER, TOPIC
from phase3_raft.metadata import broker_changes, topic_changes
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import Record
from phase3_raft.refused import Refused, each_once, error_fields
from phase3_raft.schemas import Fields

_SET, _DELETE = 0, 1


Changes: TypeAlias = Mapping[str, str | None]  # None: back to the default


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each resource succeeds or fails for itself, with all its settings."""
    return await alter(broker, request, lambda resource, image: _changes(resource))


async def alter(broker: Broker, request: Any, changes: Callable[[Any, Image], Changes]) -> Fields:
    """The reply. changes: what the request asks for, of one resource."""

    def decide(resource: Any, image: Image) -> Sequence[Record]:
        name, kind = resource.resource_name, resource.resource_type
        if kind == TOPIC:
            return topic_changes.configure(image, name, changes(resource, image))
        if kind == BROKER:
            return broker_changes.configure(image, name, changes(resource, image))
        raise Refused.because(
            ErrorCode.INVALID_REQUEST,
            f"settings of resources of kind {kind} cannot be changed",
            "change those of a topic (2) or a broker (4)",
        )

    decisions = each_once(
        ((resource.resource_type, resource.resource_name), partial(decide, resource))
        for resource in request.resources
    )
    refused = await broker.controller.change_each(
        list(decisions.values()), only_check=request.validate_only
    )
    return {
        "throttle_time": 0,
        "responses": [
            {"resource_type": kind, "resource_name": name, **error_fields(error)}
            for (kind, name), error in zip(decisions, refused, strict=True)
        ],
    }


def _changes(resource: Any) -> Changes:
    changes: dict[str, str | None] = {}
    for one in resource.configs:
        if one.config_operation not in (_SET, _DELETE):
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"operation {one.config_operation} on {one.name}",
                "set it (0) or take it back to its default (1)",
            )
        if one.config_operation == _SET and one.value is None:
            raise Refused.because(ErrorCode.INVALID_REQUEST, f"{one.name} without a value")
        if one.name in changes:
            raise Refused.because(ErrorCode.INVALID_REQUEST, f"{one.name} is changed twice")
        changes[one.name] = one.value if one.config_operation == _SET else None
    return changes

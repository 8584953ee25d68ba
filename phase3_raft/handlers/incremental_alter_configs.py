"""IncrementalAlterConfigs (key 44), versions 0-1: change some settings, leave the others (KIP-339).

Of topics, and those of brokers that can be changed while they run (`broker_settings`). Left out:
adding to lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import BROKER, TOPIC
from phase3_raft.metadata.broker_changes import configure
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import Record
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields
from phase3_raft.topic_config import BadConfig

_SET, _DELETE = 0, 1


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each resource succeeds or fails for itself, with all its settings."""
    only = request.validate_only
    responses = [await alter(broker, one, _changes, only=only) for one in request.resources]
    return {"throttle_time": 0, "responses": responses}


async def alter(
    broker: Broker,
    resource: Any,
    changes: Callable[[Any], dict[str, str | None]],
    *,
    only: bool,
) -> Fields:
    """The reply for one resource. changes: what the request asks for; None: back to the default."""
    error, message = ErrorCode.NONE, None
    try:
        name = resource.resource_name
        if resource.resource_type == TOPIC:
            await broker.topics.configure(name, changes(resource), only_check=only)
        elif resource.resource_type == BROKER:
            await _configure_broker(broker, name, changes(resource), only=only)
        else:
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"settings of resources of kind {resource.resource_type} cannot be changed",
                "change those of a topic (2) or a broker (4)",
            )
    except Refused as refused:
        error, message = refused.code, str(refused)
    except BadConfig as bad:
        error, message = ErrorCode.INVALID_CONFIG, str(bad)
    except DiskError as failed:
        error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


async def _configure_broker(
    broker: Broker, name: str, changes: Mapping[str, str | None], *, only: bool
) -> None:
    def decide(image: Image) -> list[Record]:
        records = configure(image, name, changes)
        return [] if only else records

    await broker.controller.change(decide)


def _changes(resource: Any) -> dict[str, str | None]:
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

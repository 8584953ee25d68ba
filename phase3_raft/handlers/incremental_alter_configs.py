"""IncrementalAlterConfigs (key 44), versions 0-1: change some settings, leave the others (KIP-339).

Left out: settings of brokers (they come from the command line), and adding to lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import TOPIC
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
        if resource.resource_type != TOPIC:
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"settings of resources of kind {resource.resource_type} cannot be changed",
                "change those of a topic (2); a broker's are given when it is started",
            )
        await broker.topics.configure(resource.resource_name, changes(resource), only_check=only)
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

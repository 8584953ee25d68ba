"""AlterConfigs (key 33), versions 0-2: the settings of a topic are these, all others the default.

Kafka advises against it, since who changes one setting undoes what others have set meanwhile
(KIP-339); some clients know nothing newer. Of topics and brokers, as IncrementalAlterConfigs.
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import BROKER
from phase3_raft.handlers.incremental_alter_configs import Changes, alter
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.topic_changes import existing
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each resource succeeds or fails for itself, with all its settings."""

    return await alter(broker, request, _changes)


def _changes(resource: Any, image: Image) -> Changes:
    given = {one.name: one.value for one in resource.configs}
    if len(given) < len(resource.configs):
        raise Refused.because(ErrorCode.INVALID_REQUEST, "a setting is given twice")
    for name, value in given.items():
        if value is None:
            raise Refused.because(ErrorCode.INVALID_REQUEST, f"{name} without a value")
    name = resource.resource_name
    if resource.resource_type == BROKER:
        before = image.broker_config.get(name, {})
    else:
        before = existing(image, name).config
    return {**dict.fromkeys(before), **given}

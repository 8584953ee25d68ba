"""UnregisterBroker (key 64), version 0: a broker that has gone does not come back (KIP-631)."""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.broker_changes import unregister
from phase3_raft.metadata.quorum import Quorum
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    quorum, gone = broker.metadata, request.broker_id
    error, message = ErrorCode.NONE, None
    try:
        if isinstance(quorum, Quorum) and gone in quorum.config.voters:
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"broker {gone} is one of the voters, which every broker is told of when it starts",
                "start the brokers with other --voters",
            )
        await broker.controller.change(lambda image: unregister(image, gone))
    except Refused as refused:
        error, message = refused.code, str(refused)
    except DiskError as failed:
        error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
    return {"throttle_time": 0, "error_code": error, "error_message": message}

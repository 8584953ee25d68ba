"""BrokerHeartbeat (key 63), version 0: a broker is there still, and may be told to go.

Asked by brokers alone.
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    leaving = request.want_shut_down
    try:
        fenced = await broker.controller.heartbeat(
            request.broker_id,
            request.broker_epoch,
            request.current_metadata_offset,
            leaving=leaving,
            gone=request.want_fence,
        )
    except Refused as error:
        return _reply(error.code)
    except DiskError:
        return _reply(ErrorCode.KAFKA_STORAGE_ERROR)
    return _reply(ErrorCode.NONE, fenced=fenced, may_go=leaving)


def _reply(error: ErrorCode, *, fenced: bool = True, may_go: bool = False) -> Fields:
    return {
        "throttle_time": 0,
        "error_code": error,
        "is_caught_up": not fenced,
        "is_fenced": fenced,
        "should_shut_down": may_go,
    }

"""AllocateProducerIds (key 67), version 0: a broker asks the controller for ids to give away.

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
    try:
        ids = await broker.controller.producer_ids()
    except Refused as error:
        return _reply(error.code, range(0))
    except DiskError:
        return _reply(ErrorCode.KAFKA_STORAGE_ERROR, range(0))
    return _reply(ErrorCode.NONE, ids)


def _reply(error: ErrorCode, ids: range) -> Fields:
    return {
        "throttle_time": 0,
        "error_code": error,
        "producer_id_start": ids.start,
        "producer_id_len": len(ids),
    }

"""InitProducerId (key 22), versions 0-4: a number for an idempotent producer (KIP-98, KIP-360).

Left out: transactional ids.
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.codec import BadMessage
from phase3_raft.dispatch import Asked
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields

_LAST_EPOCH = 32_766


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: a new id, or the next epoch of the one that the producer has already."""
    if request.transactional_id is not None:
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    known = request.producer_id
    if known >= 0 and 0 <= request.producer_epoch < _LAST_EPOCH:
        return _give(known, request.producer_epoch + 1)
    try:
        return _give(await broker.new_producer_id(), 0)
    except Refused as error:
        return _refuse(error.code)
    except (OSError, BadMessage, DiskError):
        return _refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _give(producer_id: int, epoch: int) -> Fields:
    return {
        "throttle_time": 0,
        "error_code": 0,
        "producer_id": producer_id,
        "producer_epoch": epoch,
    }


def _refuse(error: ErrorCode) -> Fields:
    return {"throttle_time": 0, "error_code": error, "producer_id": -1, "producer_epoch": -1}

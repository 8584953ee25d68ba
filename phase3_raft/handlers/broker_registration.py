"""BrokerRegistration (key 62), version 2: a broker has started, and tells the controller.

Asked by brokers alone. The listener RAFT is that of a broker which joins a cluster that is there.
Left out: features.
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from craft2.net import Address, is_host
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.records import BrokerRecord
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    if request.cluster_id != broker.cluster_id:
        return _reply(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not all(is_host(one.host) for one in request.listeners) or request.incarnation_id is None:
        return _reply(ErrorCode.INVALID_REQUEST)
    if request.broker_id < 0 or len(request.log_dirs) != 1 or request.log_dirs[0] is None:
        return _reply(ErrorCode.INVALID_REQUEST)
    listeners = {one.name: Address(one.host, one.port) for one in request.listeners}
    where, raft = listeners.get("PLAINTEXT"), listeners.get("RAFT")
    if where is None:
        return _reply(ErrorCode.INVALID_REQUEST)
    record = BrokerRecord(
        request.broker_id,
        where.host,
        where.port,
        request.rack,
        incarnation=request.incarnation_id.hex,
        raft=str(raft or ""),
        directory=request.log_dirs[0].hex,
    )
    try:
        return _reply(ErrorCode.NONE, await broker.controller.register(record))
    except Refused as error:
        return _reply(error.code)
    except DiskError:
        return _reply(ErrorCode.KAFKA_STORAGE_ERROR)


def _reply(error: ErrorCode, epoch: int = -1) -> Fields:
    return {"throttle_time": 0, "error_code": error, "broker_epoch": epoch}

"""DescribeConfigs (key 32), versions 1-4: the settings of topics and of this broker.

Left out: settings of clients, groups and loggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.topic_changes import existing
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields
from phase3_raft.topic_config import SETTINGS, Setting

TOPIC, BROKER = 2, 4  # kinds of resources
SET, SET_FOR_BROKER, SET_FOR_ALL, STATIC, DEFAULT = 1, 2, 3, 4, 5  # where a value comes from
_STRING, _LONG, _LIST = 2, 5, 7  # kinds of values
_LISTS = (
    "cleanup.policy",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
)


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each resource succeeds or fails for itself, and is told of once: a small request
    that names a topic 30,000 times would have a reply of 134 MB."""
    once = {(one.resource_type, one.resource_name): one for one in request.resources}
    results = [_describe(broker, resource, request) for resource in once.values()]
    return {"throttle_time": 0, "results": results}


def _describe(broker: Broker, resource: Any, request: Any) -> Fields:
    error, message, settings = ErrorCode.NONE, None, []
    try:
        if resource.resource_type == TOPIC:
            config = existing(broker.image, resource.resource_name).config
            ours = broker.config.topic_defaults
            settings = [_setting(one, config, ours, request) for one in SETTINGS.values()]
        elif resource.resource_type == BROKER:
            settings = _of_broker(broker, resource.resource_name)
        else:
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"resources of kind {resource.resource_type} have no settings here",
                "ask for a topic (2) or a broker (4)",
            )
    except Refused as refused:
        error, message = refused.code, str(refused)
    keys = resource.configuration_keys
    return {
        "error_code": error,
        "error_message": message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "configs": [one for one in settings if keys is None or one["name"] in keys],
    }


def _setting(
    setting: Setting, config: Mapping[str, str], ours: Mapping[str, str], request: Any
) -> Fields:
    """ours: what this broker has in place of defaults."""
    name = setting.name
    values = [(config.get(name), SET), (ours.get(name), STATIC), (setting.default, DEFAULT)]
    known = [(value, source) for value, source in values if value is not None]
    value, source = known[0]
    synonyms = [{"name": name, "value": one, "source": where} for one, where in known]
    kind = _LONG if setting.is_number else _STRING
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "is_default": source == DEFAULT,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": synonyms if request.include_synonyms else (),
        "config_type": _LIST if name in _LISTS else kind,
        "documentation": setting.about if request.include_documentation else None,
    }


def _of_broker(broker: Broker, name: str) -> list[Fields]:
    me = str(broker.config.broker_id)
    if name not in ("", me):
        raise Refused.because(
            ErrorCode.INVALID_REQUEST, f"this is broker {me}, not {name!r}", "ask that one"
        )
    values = {
        "auto.create.topics.enable": str(broker.config.auto_create_topics).lower(),
        "broker.id": me,
        "log.dirs": broker.config.data_dir,
        "num.partitions": str(broker.config.default_partitions),
        "offsets.topic.num.partitions": str(broker.config.offsets_partitions),
        "socket.request.max.bytes": str(broker.config.max_request_bytes),
    }
    fixed = [_plain(key, value, STATIC) for key, value in values.items() if name]
    given = {
        (key, value): SET_FOR_BROKER if whose else SET_FOR_ALL
        for whose in dict.fromkeys(("", name))
        for key, value in broker.image.broker_config.get(whose, {}).items()
    }
    return fixed + [_plain(key, value, source) for (key, value), source in given.items()]


def _plain(key: str, value: str, source: int) -> Fields:
    return {
        "name": key,
        "value": value,
        "read_only": source == STATIC,
        "is_default": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": (),
        "config_type": _STRING,
        "documentation": None,
    }

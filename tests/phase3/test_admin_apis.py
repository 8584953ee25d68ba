"""What administrators ask of a broker: topics deleted and grown, settings, records, offsets."""

from __future__ import annotations

import asyncio
import doctest
import os
import struct
from uuid import UUID

import pytest
from brokers import delete_topic, make_topic

from craft2.faulty_disk import Crashed, FaultyDisk
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import CorruptLog
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import Commit, OffsetToCommit
from phase2_groups.group_state import State
from phase2_groups.offset_records import offset_key, offset_value
from phase2_groups.topics import MAX_PARTITIONS, create_topic, partition_count
from phase3_raft import codec, partition_files, schemas
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.dispatch import Dispatch
from phase3_raft.groups.coordinator import partition_of
from phase3_raft.groups.offsets import OffsetsPartition
from phase3_raft.handlers import APIS
from phase3_raft.handlers.fetch import Wanted, wait_for_bytes
from phase3_raft.metadata.records import BrokerRecord
from phase3_raft.refused import Refused
from phase3_raft.topic_config import SETTINGS, BadConfig, TopicConfig


@pytest.mark.parametrize("module", [codec, partition_files], ids=lambda m: m.__name__)
def test_the_examples_in_the_text_are_true(module):
    assert doctest.testmod(module).failed == 0


def new_broker(disk=None, said=None, path="/data"):
    ids = iter(range(1, 1000))
    return Broker(
        BrokerConfig(path, offsets_partitions=2),
        disk=disk or FaultyDisk(),
        new_id=lambda: f"{next(ids):032x}",
        trouble=(said if said is not None else []).append,
    )


def ask(broker, name, version, fields):
    """A request as a client sends it, and the reply as it reads it."""
    return asyncio.run(asking(broker, name, version, fields))


async def asking(broker, name, version, fields):
    api = next(api for api in APIS if api.name == name)
    head = struct.pack(">hhih", api.key, version, 7, -1)
    flexible = schemas.is_flexible(name, version)
    frame = head + b"\0" * flexible + schemas.encode(name, version, fields, "request")
    pieces = await Dispatch(broker, APIS).answer(frame, "/127.0.0.1")
    reply = b"".join(piece if isinstance(piece, bytes) else piece.read() for piece in pieces)
    start = 8 + flexible
    return schemas.decode(name, version, reply, start, latest=version, kind="response")


def fill(broker, topic, number=0, count=3):
    broker.partition(topic, number).append(encode_values([b"x"] * count, timestamps=1))


# Deleting.


@pytest.mark.parametrize("version", [1, 5, 6])
def test_a_deleted_topic_is_gone_and_its_name_is_free(version):
    disk = FaultyDisk()
    broker = new_broker(disk)
    make_topic(broker, "t", 2)
    fill(broker, "t", 0)
    fill(broker, "t", 1)
    topics = (
        {"topic_names": ["t", "u"]}
        if version < 6
        else {"topics": [{"name": "t", "topic_id": None}, {"name": "u", "topic_id": None}]}
    )
    reply = ask(broker, "delete_topics", version, {"timeout": 1000, **topics})
    assert [(one.name, one.error_code) for one in reply.responses] == [("t", 0), ("u", 3)]
    assert "t" not in broker.image.topics
    broker.partitions.tidy_all()
    assert partition_count("/data", "t", disk=disk) == 0
    make_topic(broker, "t", 1)
    assert broker.partition("t", 0).log.bounds == (0, 0)


def test_files_that_are_still_to_go_do_not_take_those_of_a_new_topic_with_them():
    broker = new_broker()
    for number in range(3):
        make_topic(broker, "t", 2)
        fill(broker, "t", 0, 1 + number)
        assert broker.partition("t", 0).log.end_offset == 1 + number
        delete_topic(broker, "t")
    make_topic(broker, "t", 2)
    fill(broker, "t", 1, 5)
    broker.partitions.tidy_all()
    assert broker.partition("t", 1).log.end_offset == 5
    assert broker.partition("t", 0).log.end_offset == 0
    fill(broker, "t", 1, 5)


def test_a_topic_can_be_deleted_by_its_id():
    broker = new_broker()
    make_topic(broker, "t", 1)
    known = ask(broker, "metadata", 11, _metadata("t")).topics[0].topic_id
    unknown = type(known)(int=99)
    topics = [{"name": None, "topic_id": known}, {"name": None, "topic_id": unknown}]
    reply = ask(broker, "delete_topics", 6, {"timeout": 1000, "topics": topics})
    assert [one.error_code for one in reply.responses] == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    assert reply.responses[0].name == "t"
    assert not broker.image.topics


def deletion(*topics):
    named = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return {"timeout": 1000, "topics": named}


def id_of(broker, topic):
    return UUID(broker.image.topics[topic].topic_id)


def test_an_id_does_not_delete_a_younger_topic_of_the_same_name():
    async def work():
        broker = new_broker()
        make_topic(broker, "t", 1)
        old = id_of(broker, "t")
        async with broker.controller._turn:
            asked = asyncio.ensure_future(asking(broker, "delete_topics", 6, deletion((None, old))))
            for _ in range(5):
                await asyncio.sleep(0)
            delete_topic(broker, "t")
            make_topic(broker, "t", 1)
        [reply] = (await asked).responses
        assert (reply.name, reply.topic_id) == (None, old)
        assert reply.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert "t" in broker.image.topics

    asyncio.run(work())


def test_who_names_a_topic_twice_deletes_the_others_alone():
    broker = new_broker()
    for name in "abcdef":
        make_topic(broker, name, 1)
    ids = {name: id_of(broker, name) for name in "abcdef"}
    twice = ["a", "a", "nope", "nope"]
    topics = [(name, None) for name in twice] + [(None, ids["b"])] * 2
    topics += [("c", None), (None, ids["c"]), (None, ids["d"]), ("d", None), ("e", None)]
    reply = ask(broker, "delete_topics", 6, deletion(*topics))
    refused = ErrorCode.INVALID_REQUEST
    assert [(one.name, one.topic_id, one.error_code) for one in reply.responses] == [
        ("a", ids["a"], refused),
        ("nope", None, refused),
        ("b", ids["b"], refused),
        ("c", ids["c"], refused),
        ("d", ids["d"], refused),
        ("e", ids["e"], 0),
    ]
    assert sorted(broker.image.topics) == ["a", "b", "c", "d", "f"]
    names = {"timeout": 1000, "topic_names": ["a", "a", "b"]}
    reply = ask(broker, "delete_topics", 5, names)
    assert [(one.name, one.error_code) for one in reply.responses] == [("a", refused), ("b", 0)]


def test_a_deletion_names_a_topic_by_its_name_or_by_its_id():
    broker = new_broker()
    make_topic(broker, "t", 1)
    make_topic(broker, "u", 1)
    t, u = id_of(broker, "t"), id_of(broker, "u")
    for unclear in [("t", t), ("t", u), (None, None)]:
        [reply] = ask(broker, "delete_topics", 6, deletion(unclear)).responses
        assert (reply.name, reply.topic_id) == unclear
        assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert sorted(broker.image.topics) == ["t", "u"]


def _metadata(*names):
    return {
        "topics": [{"topic_id": None, "name": name} for name in names],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


@pytest.mark.parametrize("name", ["a topic", "a/b", "..", "", "x" * 250])
def test_a_name_that_no_topic_can_have_is_told_also_when_none_is_to_be_made(name):
    reply = ask(new_broker(), "metadata", 11, _metadata(name, "t"))
    assert [one.error_code for one in reply.topics] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_topic_is_there_with_all_its_records_or_gone_wherever_the_broker_dies():
    def life(disk):
        broker = new_broker(disk)
        make_topic(broker, "t", 2)
        fill(broker, "t", 0)
        fill(broker, "t", 1)
        before = disk.steps
        delete_topic(broker, "t")
        broker.partitions.tidy_all()
        return before, disk.steps

    before, after = life(FaultyDisk())
    assert after - before > 10
    for step in range(before + 1, after + 1):
        disk = FaultyDisk(crash_at=step)
        with pytest.raises(Crashed):
            life(disk)
        again = new_broker(disk.kill())
        if "t" in again.image.topics:
            assert [again.partition("t", number).log.end_offset for number in (0, 1)] == [3, 3]
        else:
            assert partition_count("/data", "t", disk=again.disk) == 0
            make_topic(again, "t", 2)
            assert again.partition("t", 1).log.end_offset == 0


def test_a_consumer_that_waits_is_told_that_the_topic_is_gone():
    async def work():
        broker = new_broker()
        make_topic(broker, "t", 1)
        wanted = [Wanted("t", 0, broker.partition("t", 0), 0, 100, -1)]
        waiting = asyncio.ensure_future(wait_for_bytes(wanted, 100, 1, 30.0))
        await asyncio.sleep(0)
        delete_topic(broker, "t")
        [found] = await waiting
        assert found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    asyncio.run(work())


def test_what_groups_committed_for_a_deleted_topic_is_forgotten():
    async def work():
        broker = new_broker()
        make_topic(broker, "t", 1)
        make_topic(broker, "u", 1)
        number = partition_of("g", 2)
        make_topic(broker, "__consumer_offsets", 2)
        offsets = broker._offsets_partition(number)
        records = [
            (offset_key("g", topic, 0), offset_value(OffsetToCommit(offset=7), 1))
            for topic in ("t", "u")
        ]
        await offsets.append(records)
        delete_topic(broker, "t")
        await asyncio.sleep(0)
        assert list(await broker.groups.committed("g")) == [("u", 0)]

    asyncio.run(work())


def test_the_offsets_of_groups_cannot_be_deleted():
    broker = new_broker()
    make_topic(broker, "__consumer_offsets", 2)
    with pytest.raises(Refused, match="delete groups"):
        delete_topic(broker, "__consumer_offsets")


def test_folders_of_another_cluster_are_left_alone():
    disk, said = FaultyDisk(), []
    broker = new_broker(disk)
    make_topic(broker, "t", 1)
    fill(broker, "t")
    asyncio.run(broker.close())
    for name in disk.listdir("/data/__cluster_metadata-0"):
        disk.unlink(f"/data/__cluster_metadata-0/{name}")  # somebody has lost it
    again = new_broker(disk, said)
    assert "t" not in again.image.topics
    assert "no topic here has the id" in said[0]
    again.new_id = lambda: "f" * 32
    make_topic(again, "t", 1)
    assert again.partition("t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert "belongs to a topic with the id" in said[1]
    assert disk.exists("/data/t-0/00000000000000000000.log")


def test_a_folder_whose_owner_cannot_be_read_is_not_taken():
    disk = FaultyDisk()
    partition_files.claim(disk, "/data/t-0", "a" * 32)
    file = disk.open("/data/t-0/partition.metadata", "empty")
    file.write_at(0, b"version: 0\ntopic_id: rubbish\n")
    with pytest.raises(CorruptLog, match="does not say which topic"):
        partition_files.claim(disk, "/data/t-0", "b" * 32, removed={"a" * 32})


def test_topics_of_phase_2_are_served_and_then_claimed(tmp_path):
    create_topic(tmp_path, "flights", 3)
    broker = Broker(BrokerConfig(str(tmp_path)))
    broker.partition("flights", 0)
    topic_id = broker.image.topics["flights"].topic_id
    assert partition_files.owner(broker.disk, os.fspath(tmp_path / "flights-0")) == topic_id
    asyncio.run(broker.close())


def test_topics_of_phase_2_keep_names_that_are_refused_today(tmp_path):
    for name in ("a.b", "a_b"):
        create_topic(tmp_path, name, 1)
    broker = Broker(BrokerConfig(str(tmp_path)))
    assert sorted(broker.image.topics) == ["a.b", "a_b"]
    asyncio.run(broker.close())


# Making.


def test_a_topic_cannot_be_where_the_metadata_are():
    broker = new_broker()
    make_topic(broker, "t", 1)
    asked = {"topics": [creation("__cluster_metadata")], "timeout": 1000, "validate_only": False}
    [made] = ask(broker, "create_topics", 4, asked).topics
    assert made.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert list(broker.image.topics) == ["t"]


def creation(name, partitions=1, replicas=1, configs=(), assignments=()):
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [{"partition_index": n, "broker_ids": who} for n, who in assignments],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


def create(broker, *topics, only=False):
    fields = {"topics": topics, "timeout": 1000, "validate_only": only}
    return ask(broker, "create_topics", 7, fields).topics


def test_a_topic_that_is_to_be_made_twice_is_told_of_once_and_not_made():
    broker = new_broker()
    told = create(broker, creation("t", 1), creation("u"), creation("t", 2))
    assert [(one.name, one.error_code) for one in told] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", 0),
    ]
    assert list(broker.image.topics) == ["u"]


def test_a_request_for_millions_of_partitions_is_refused_before_they_are_thought_of():
    broker = new_broker()
    decided = []
    creating = broker.topics.creation

    def noted(name, *rest):
        decide = creating(name, *rest)
        return lambda image: decided.append(name) or decide(image)

    broker.topics.creation = noted
    told = create(broker, *(creation(f"t{n}", MAX_PARTITIONS) for n in range(30)))
    assert {one.error_code for one in told} == {ErrorCode.POLICY_VIOLATION}
    assert decided == ["t0"]
    assert not broker.image.topics


@pytest.mark.parametrize("only", [True, False])
def test_who_makes_a_topic_is_told_its_real_numbers(only):
    broker = new_broker()
    chosen = creation("u", -1, -1, assignments=[(0, [1]), (1, [1])])
    told = create(broker, creation("t", -1, -1), chosen, only=only)
    found = [
        (one.error_code, one.num_partitions, one.replication_factor, len(one.configs) > 0)
        for one in told
    ]
    assert found == [(0, 1, 1, True), (0, 2, 1, True)]
    if not only:
        assert [one.topic_id for one in told] == [id_of(broker, "t"), id_of(broker, "u")]
    assert len(broker.image.topics) == (0 if only else 2)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"partitions": 1, "replicas": -1, "assignments": [(0, [1])]}, ErrorCode.INVALID_REQUEST),
        ({"partitions": -1, "replicas": 1, "assignments": [(0, [1])]}, ErrorCode.INVALID_REQUEST),
        (
            {"partitions": -1, "replicas": -1, "assignments": [(0, [7])]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"configs": [("retention.ms", "9" * 5_000)]}, ErrorCode.INVALID_CONFIG),
    ],
)
@pytest.mark.parametrize("only", [True, False])
def test_a_topic_that_is_not_clear_is_not_made(asked, error, only):
    broker = new_broker()
    told = create(broker, creation("t", **asked), creation("u"), only=only)
    assert [(one.error_code, one.num_partitions) for one in told] == [(error, -1), (0, 1)]
    assert "t" not in broker.image.topics


# Growing.


def test_a_topic_grows_and_does_not_shrink():
    broker = new_broker()
    make_topic(broker, "t", 2)

    def grow(name, count, only=False):
        topic = {"name": name, "count": count, "assignments": None}
        fields = {"topics": [topic], "timeout": 1000, "validate_only": only}
        [result] = ask(broker, "create_partitions", 3, fields).results
        return result.error_code

    assert grow("t", 3, only=True) == 0
    assert len(broker.image.topics["t"].partitions) == 2
    assert grow("t", 5) == 0
    fill(broker, "t", 4)
    assert grow("t", 5) == grow("t", 1) == grow("t", 10**6) == ErrorCode.INVALID_PARTITIONS
    assert grow("u", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("assignment", [[], [[1]], [[1], [1], [1]], [[1, 2]] * 2, [[1], []]])
def test_new_partitions_are_assigned_all_and_have_as_many_replicas_as_the_others(assignment):
    broker = new_broker()
    broker.metadata.write([BrokerRecord(2, "127.0.0.1", 9093)])
    make_topic(broker, "t", 1)

    def grow(assignment):
        topic = {
            "name": "t",
            "count": 3,
            "assignments": [{"broker_ids": who} for who in assignment],
        }
        fields = {"topics": [topic], "timeout": 1000, "validate_only": False}
        return ask(broker, "create_partitions", 3, fields).results[0].error_code

    assert grow(assignment) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(broker.image.topics["t"].partitions) == 1
    assert grow([[1], [2]]) == 0
    replicas = [one.replicas for one in broker.image.topics["t"].partitions.values()]
    assert replicas == [(1,), (1,), (2,)]


def test_a_topic_that_is_to_grow_twice_is_told_of_once_and_does_not():
    broker = new_broker()
    make_topic(broker, "t", 1)
    make_topic(broker, "u", 1)
    topics = [("t", 2), ("t", 3), ("u", 2)]
    topics = [{"name": name, "count": count, "assignments": None} for name, count in topics]
    fields = {"topics": topics, "timeout": 1000, "validate_only": False}
    told = ask(broker, "create_partitions", 3, fields).results
    assert [(one.name, one.error_code) for one in told] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", 0),
    ]
    assert {name: len(it.partitions) for name, it in broker.image.topics.items()} == {
        "t": 1,
        "u": 2,
    }


# Settings.


def describe(broker, name, kind=2, keys=None, version=4):
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    fields = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    [result] = ask(broker, "describe_configs", version, fields).results
    return result


def alter(broker, name, *changes, kind=2, only=False):
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": only}
    [result] = ask(broker, "incremental_alter_configs", 1, fields).responses
    return result.error_code


def test_a_topic_grows_to_as_many_partitions_as_it_may_have_and_is_there_again():
    disk = FaultyDisk()
    broker = new_broker(disk)
    make_topic(broker, "t", 1)
    fields = {"timeout": 1000, "validate_only": False}
    topics = [{"name": "t", "count": MAX_PARTITIONS, "assignments": None}]
    reply = ask(broker, "create_partitions", 3, {"topics": topics, **fields})
    assert reply.results[0].error_code == 0
    broker.metadata.close()
    assert len(new_broker(disk).image.topics["t"].partitions) == MAX_PARTITIONS


def test_a_brokers_own_defaults_hold_where_a_topic_has_no_setting():
    broker = Broker(
        BrokerConfig("/data", topic_defaults={"retention.ms": "5", "segment.bytes": "1000"}),
        disk=FaultyDisk(),
    )
    make_topic(broker, "t", 1, {"segment.bytes": "2000"})
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    asked = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    told = ask(broker, "describe_configs", 4, asked)
    found = {one.name: one for one in told.results[0].configs}
    kept, size = found["retention.ms"], found["segment.bytes"]
    assert (kept.value, kept.config_source) == ("5", 4)
    assert [one.value for one in size.synonyms] == ["2000", "1000", "1073741824"]
    log = broker.partition("t", 0).log
    assert (log.config.retention_ms, log.config.segment_bytes) == (5, 2000)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_log_can_be_what_a_setting_may_be(setting):
    for limit in {str(setting.least), str(setting.most), setting.default}:
        if setting.values or setting.pattern:
            limit = setting.default
        TopicConfig.of({setting.name: limit}).log_config()
    for number in ("1_000", "\u0661\u0662", " 1000", "1e3", ""):
        if not (setting.values or setting.pattern):
            with pytest.raises(BadConfig, match="give a whole number"):
                setting.check(number)


def test_defaults_that_cannot_be_are_refused_at_once():
    with pytest.raises(BadConfig, match=r"retention\.ms='soon'"):
        Broker(BrokerConfig("/data", topic_defaults={"retention.ms": "soon"}), disk=FaultyDisk())


def test_a_setting_is_changed_described_and_taken_back():
    broker = new_broker()
    make_topic(broker, "t", 1, {"retention.ms": "1000"})
    partition = broker.partition("t", 0)
    assert alter(broker, "t", ("max.message.bytes", 0, "100"), ("retention.ms", 1, None)) == 0
    [largest] = describe(broker, "t", keys=["max.message.bytes"]).configs
    assert (largest.value, largest.config_source, largest.read_only) == ("100", 1, False)
    assert [(one.value, one.source) for one in largest.synonyms] == [("100", 1), ("1048588", 5)]
    assert partition.config.number("max.message.bytes") == 100
    [kept] = describe(broker, "t", keys=["retention.ms"]).configs
    assert (kept.value, kept.config_source) == ("604800000", 5)
    assert kept.documentation
    assert alter(broker, "t", ("max.message.bytes", 1, None), only=True) == 0
    assert partition.config.number("max.message.bytes") == 100


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        ("u", ("retention.ms", 0, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", ("retention.ms", 0, "soon"), ErrorCode.INVALID_CONFIG),
        ("t", ("retention.years", 0, "1"), ErrorCode.INVALID_CONFIG),
        ("t", ("retention.years", 1, None), ErrorCode.INVALID_CONFIG),
        ("t", ("retention.ms", 0, None), ErrorCode.INVALID_REQUEST),
        ("t", ("cleanup.policy", 2, "compact"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(name, change, error):
    broker = new_broker()
    make_topic(broker, "t", 1)
    assert alter(broker, name, ("segment.bytes", 0, "1000"), change) == error
    assert broker.image.topics["t"].config == {}


def replace(broker, name, *settings, kind=2, only=False):
    configs = [{"name": key, "value": value} for key, value in settings]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"resources": [resource], "validate_only": only}
    [result] = ask(broker, "alter_configs", 2, fields).responses
    return result.error_code


def test_the_old_request_sets_all_other_settings_back():
    broker = new_broker()
    make_topic(broker, "t", 1, {"retention.ms": "5", "segment.bytes": "2000"})
    assert replace(broker, "t", ("segment.bytes", "3000"), only=True) == 0
    assert replace(broker, "t", ("segment.bytes", "many")) == ErrorCode.INVALID_CONFIG
    assert replace(broker, "t", ("segment.bytes", None)) == ErrorCode.INVALID_REQUEST
    assert replace(broker, "t", *[("segment.bytes", "3000")] * 2) == ErrorCode.INVALID_REQUEST
    assert replace(broker, "u", ("segment.bytes", "3000")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(broker, "1", ("log.dirs", "/"), kind=4) == ErrorCode.INVALID_REQUEST
    assert broker.image.topics["t"].config == {"retention.ms": "5", "segment.bytes": "2000"}
    assert replace(broker, "t", ("segment.bytes", "3000")) == 0
    assert broker.image.topics["t"].config == {"segment.bytes": "3000"}


@pytest.mark.parametrize("request_name", ["alter_configs", "incremental_alter_configs"])
def test_what_is_to_be_set_twice_is_told_of_once_and_not_changed(request_name):
    broker = new_broker()
    make_topic(broker, "1", 1)
    rate = {"name": "follower.replication.throttled.rate", "value": "5", "config_operation": 0}
    kept = {"name": "retention.ms", "value": "5", "config_operation": 0}
    resources = [
        {"resource_type": kind, "resource_name": "1", "configs": [config]}
        for kind, config in [(2, kept), (4, rate), (2, kept)]
    ]
    fields = {"resources": resources, "validate_only": False}
    told = ask(broker, request_name, 1, fields).responses
    assert [(one.resource_type, one.resource_name, one.error_code) for one in told] == [
        (2, "1", ErrorCode.INVALID_REQUEST),
        (4, "1", 0),
    ]
    assert broker.image.topics["1"].config == {}
    assert broker.image.broker_config == {"1": {rate["name"]: "5"}}


def test_what_is_named_again_and_again_is_described_once():
    broker = new_broker()
    make_topic(broker, "t", 1)
    named = [(4, "1"), (2, "t"), (2, "u"), (2, "t"), (4, "1")]
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in named
    ]
    fields = {"resources": resources, "include_synonyms": True, "include_documentation": True}
    told = ask(broker, "describe_configs", 4, fields).results
    assert [(one.resource_type, one.resource_name) for one in told] == named[:3]


def test_a_brokers_settings_are_described_and_not_changed():
    broker = new_broker()
    told = {one.name: one.value for one in describe(broker, "1", kind=4).configs}
    assert told["log.dirs"] == "/data"
    assert describe(broker, "9", kind=4).error_code == ErrorCode.INVALID_REQUEST
    assert describe(broker, "x", kind=8).error_code == ErrorCode.INVALID_REQUEST
    assert alter(broker, "1", ("log.dirs", 0, "/"), kind=4) == ErrorCode.INVALID_REQUEST
    assert describe(broker, "u", version=1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Records and offsets.


def test_records_are_deleted_up_to_an_offset():
    broker = new_broker()
    make_topic(broker, "t", 1)
    fill(broker, "t")
    fill(broker, "t")

    def delete(topic, number, offset):
        partition = {"partition_index": number, "offset": offset}
        fields = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": 1000}
        [reply] = ask(broker, "delete_records", 2, fields).topics[0].partitions
        return reply.low_watermark, reply.error_code

    assert delete("t", 0, 4) == (4, 0)
    assert delete("t", 0, 2) == (4, 0)
    assert delete("t", 0, 7) == delete("t", 0, -2) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert delete("t", 0, -1) == (6, 0)
    assert delete("t", 1, 0) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    make_topic(broker, "__consumer_offsets", 2)
    assert delete("__consumer_offsets", 0, -1) == (-1, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_where_an_epoch_ended():
    broker = new_broker()
    make_topic(broker, "t", 1)
    fill(broker, "t")

    def find(topic, epoch, current=-1):
        partition = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        fields = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [partition]}]}
        [reply] = ask(broker, "offset_for_leader_epoch", 4, fields).topics[0].partitions
        return reply.error_code, reply.leader_epoch, reply.end_offset

    assert find("t", 0) == (0, 0, 3)
    assert find("t", 5) == (0, -1, -1)
    assert find("t", 0, current=3) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert find("u", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def commit(broker, group, topic, *numbers):
    member = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    partitions = [
        {"partition_index": number, "committed_offset": 5, "committed_metadata": None}
        for number in numbers
    ]
    fields = member | {"topics": [{"name": topic, "partitions": partitions}]}
    [reply] = ask(broker, "offset_commit", 8, fields).topics
    return [one.error_code for one in reply.partitions]


def test_a_group_forgets_the_offsets_it_is_told_to():
    broker = new_broker()
    make_topic(broker, "t", 2)
    assert commit(broker, "g", "t", 0, 1) == [0, 0]
    fields = {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    assert ask(broker, "offset_delete", 0, fields).error_code == 0
    assert list(asyncio.run(broker.groups.committed("g"))) == [("t", 1)]
    missing = ask(broker, "offset_delete", 0, fields | {"group_id": "nobody"})
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_first_commit_that_is_on_its_way_goes_with_its_topic(monkeypatch):
    """Or a topic of that name that is made anew would be read from there."""
    broker = new_broker()
    make_topic(broker, "t", 1)
    offsets = (("t", 0, OffsetToCommit(offset=5)),)
    asked = Commit(token="1", member_id="", generation=-1, offsets=offsets)

    async def play():
        safe, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def made_safe(self):
            begun.release()
            await safe.wait()

        monkeypatch.setattr(OffsetsPartition, "_made_safe", made_safe)
        waits = asyncio.ensure_future(broker.groups.ask("g", asked))
        await begun.acquire()
        broker.groups.forget_topic("t")
        await begun.acquire()
        safe.set()
        assert (await waits).error == ErrorCode.NONE
        async with asyncio.timeout(20):
            while await broker.groups.committed("g"):
                await asyncio.sleep(0.01)

    asyncio.run(play())


@pytest.mark.parametrize("partitions", [1, 5])  # 2 are what the broker would make
def test_groups_are_found_by_the_partitions_that_the_offsets_topic_has(partitions):
    async def forget():
        delete_topic(broker, "t")
        await asyncio.sleep(0)

    broker = new_broker()
    make_topic(broker, "t", 1)
    make_topic(broker, "u", 1)
    create(broker, creation("__consumer_offsets", partitions))
    groups = [f"g{number}" for number in range(8)]
    for group in groups:
        assert commit(broker, group, "t", 0) == commit(broker, group, "u", 0) == [0]
        assert group in broker._offsets[partition_of(group, partitions)].table.groups()
    assert list(broker.groups.groups()[0]) == groups
    asyncio.run(forget())
    for group in groups:
        assert broker.groups.describe(group).state is State.EMPTY
        assert list(asyncio.run(broker.groups.committed(group))) == [("u", 0)]


def test_the_cluster_is_described():
    broker = new_broker()
    reply = ask(broker, "describe_cluster", 0, {"include_cluster_authorized_operations": False})
    assert (reply.error_code, reply.controller_id) == (0, 1)

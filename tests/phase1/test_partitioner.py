from types import SimpleNamespace

from aiokafka.partitioner import DefaultPartitioner as AiokafkaPartitioner
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner as KafkaPythonPartitioner

from phase1_file_queue.partitioner import murmur2, partition_for


@given(st.binary(max_size=200), st.integers(1, 500))
def test_a_key_lands_where_two_kafka_clients_put_it(key, count):
    partitions = list(range(count))
    cluster = SimpleNamespace(
        topics=lambda: {"t"},
        partitions_for_topic=lambda topic: set(partitions),
        available_partitions_for_topic=lambda topic: set(partitions),
    )
    chosen = KafkaPythonPartitioner().partition("t", key, key, None, None, cluster)
    assert partition_for(key, count) == chosen
    assert partition_for(key, count) == AiokafkaPartitioner()(key, partitions, partitions)


def test_known_hashes():
    # The values that librdkafka's and the Java client's own tests use.
    assert murmur2(b"kafka") == 0xD067CF64
    assert murmur2(b"giberish123456789") == 0x8F552B0C
    assert murmur2(b"") == 0x106E08D9

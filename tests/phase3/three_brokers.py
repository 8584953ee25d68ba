"""Three brokers in one event loop, for tests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import wraps

from craft2.net import Address, RealNet, free_ports
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.client.broker_connection import BrokerConnection
from phase3_raft.metadata.quorum import QuorumConfig

SOON = 20.0


async def until(reached):
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(SOON):
        while not reached():
            await asyncio.sleep(0.01)


def producing(topic, *values, acks=-1, timeout_ms=5_000, number=0):
    """The fields of a Produce request."""
    batch = encode_values([value.encode() for value in values], timestamps=1)
    data = {"name": topic, "partition_data": [{"index": number, "records": batch}]}
    return {"transactional_id": None, "acks": acks, "timeout": timeout_ms, "topic_data": [data]}


class Brokers:
    """Three in one event loop, and a connection to each."""

    def __init__(self, root, disks=None, clocks=None, **settings):
        ports = free_ports(6)
        voters = {n: Address("127.0.0.1", ports[n - 1]) for n in (1, 2, 3)}
        quorum = QuorumConfig(cluster="c", voters=voters)
        self.said = []
        self.all = {
            n: Broker(
                BrokerConfig(
                    str(root / str(n)),
                    broker_id=n,
                    listen=Address("127.0.0.1", ports[n + 2]),
                    quorum=quorum,
                    offsets_partitions=2,
                    default_replicas=3,
                    drain_s=0.5,
                    **settings,
                ),
                trouble=self.said.append,
                disk=(disks or {}).get(n),
                clock=(clocks or {}).get(n),
            )
            for n in voters
        }

    async def again(self, number):
        """Start one anew that was closed."""
        before = self.all[number]
        self.all[number] = Broker(before.config, disk=before.disk, trouble=self.said.append)
        await self.all[number].open()

    async def ask(self, number, name, version, fields):
        connection = await BrokerConnection.open(RealNet(), self.all[number].address)
        try:
            return await connection.ask(name, version, fields)
        finally:
            connection.close()

    async def make_topic(self, name, partitions=1, replicas=3, asked=1, **config):
        configs = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "assignments": [],
            "configs": configs,
        }
        fields = {"topics": [topic], "timeout": 1_000, "validate_only": False}
        error = ErrorCode.NOT_CONTROLLER
        while error is ErrorCode.NOT_CONTROLLER:  # as clients do, while another one is elected
            reply = await self.ask(asked, "create_topics", 4, fields)
            error = ErrorCode(reply.topics[0].error_code)
        if not error:
            await until(lambda: all(name in one.image.topics for one in self.all.values()))
        return error

    async def produce(self, topic, *values, acks=-1, timeout_ms=5_000, number=0):
        fields = producing(topic, *values, acks=acks, timeout_ms=timeout_ms, number=number)
        reply = await self.ask(self.leader(topic, number), "produce", 7, fields)
        return ErrorCode(reply.responses[0].partition_responses[0].error_code)

    def leader(self, topic, number=0):
        return next(iter(self.all.values())).image.partition(topic, number).leader

    def logs(self, topic, number=0):
        """The values in each replica's log."""
        found = {}
        for n, broker in self.all.items():
            partition = dict(broker.partitions.all()).get((topic, number))
            if partition is not None:
                found[n] = [record.value.decode() for record in partition.log.records()]
        return found


@asynccontextmanager
async def brokers(root, **settings):
    cluster = Brokers(root, **settings)
    try:
        await asyncio.gather(*(one.open() for one in cluster.all.values()))
        await until(lambda: all(one.image.live() == [1, 2, 3] for one in cluster.all.values()))
        yield cluster
    finally:
        for one in cluster.all.values():
            await one.close()


def running(test):
    """Run an asynchronous test."""

    @wraps(test)  # also what pytest gives it: a folder, and more
    def run(*args, **given):
        asyncio.run(test(*args, **given))

    return run

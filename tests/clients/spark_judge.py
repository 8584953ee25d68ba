"""Spark's own Kafka source and sink at a broker, in a process with their jars.

python spark_judge.py BOOTSTRAP NAME JARS FOLDER      prints what it found, as JSON
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from craft2.apps.spark import session


def main(bootstrap: str, name: str, jars: str, folder: str) -> None:
    spark = session("judge", **{"spark.jars": ",".join(map(str, Path(jars).glob("*.jar")))})

    def kafka(source, **options):
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": name, **options}
        return source.format("kafka").options(**options)

    def values(frame):
        return sorted(row.value.decode() for row in frame.select("value").collect())

    rows = [(f"k{n % 3}", f"v{n}", [("n", str(n).encode())], n % 2) for n in range(10)]
    schema = (
        "key string, value string, headers array<struct<key string, value binary>>, partition int"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)  # one writer, one order
    kafka(frame.write, topic=name, includeHeaders="true").save()

    found = {}
    everything = kafka(spark.read, includeHeaders="true").load()
    found["batch"] = sorted(
        [row.key.decode(), row.value.decode(), row.headers[0].value.decode(), row.partition]
        for row in everything.collect()
    )
    part = json.dumps({name: {"0": 1, "1": 2}}), json.dumps({name: {"0": 3, "1": -1}})
    found["slice"] = values(
        kafka(spark.read, startingOffsets=part[0], endingOffsets=part[1]).load()
    )
    times = sorted(row.timestamp.timestamp() for row in everything.select("timestamp").collect())
    since = str(int(times[0] * 1000))
    found["since"] = len(values(kafka(spark.read, startingTimestamp=since).load()))
    until = {"startingOffsets": "earliest", "endingTimestamp": since}
    found["until"] = kafka(spark.read, **until).load().count()
    pattern = {"subscribePattern": f"{name[:-1]}."}
    by_pattern = spark.read.format("kafka").options(
        **{"kafka.bootstrap.servers": bootstrap, **pattern}
    )
    found["pattern"] = by_pattern.load().count()

    def written(topic, value, **options):
        """Write one record without a key; what it looks like when it is read."""
        row = spark.createDataFrame([(None, value)], "key string, value string")
        kafka(row.write, topic=topic, **options).save()
        [found] = kafka(spark.read, subscribe=topic).load().collect()
        return [found.key, found.value and len(found.value), found.offset]

    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    found["codecs"] = [
        written(f"{name}-{codec}", "x" * 900_000, **{"kafka.compression.type": codec})
        for codec in codecs
    ]
    plain = {"kafka.enable.idempotence": "false"}
    found["acks"] = [
        written(f"{name}-acks-{acks}", "x", **plain, **{"kafka.acks": acks})
        for acks in ("1", "all")
    ]
    found["null"] = written(f"{name}-null", None)

    def refused(ask):
        try:
            ask()
        except Exception as error:
            return str(error)
        return "taken"

    large = {"kafka.max.request.size": "3000000"}
    found["too large"] = refused(lambda: written(f"{name}-large", "x" * 2_000_000, **large))
    nobody = {"subscribe": f"{name}-nobody", "kafka.allow.auto.create.topics": "false"}
    found["unknown"] = refused(lambda: kafka(spark.read, **nobody).load().collect())

    def copy_on():
        """A query from the topic to another one, up to what is there now."""
        source = kafka(spark.readStream, startingOffsets="earliest", maxOffsetsPerTrigger="4")
        sink = kafka(
            source.load().selectExpr("key", "value").writeStream,
            topic=f"{name}-out",
            checkpointLocation=f"{folder}/checkpoint",
        )
        sink.trigger(availableNow=True).start().awaitTermination()
        return values(kafka(spark.read, subscribe=f"{name}-out").load())

    found["copied"] = copy_on()
    kafka(spark.createDataFrame([("late",)], "value string").write, topic=name).save()
    found["copied on"] = copy_on()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(name, 0, 3)]).values():
        deleted.result(30)
    gone = {"startingOffsets": json.dumps({name: {"0": 0, "1": 0}})}
    found["lost"] = refused(lambda: values(kafka(spark.read, **gone).load()))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

# craft2: minutes = 35
# craft2: core = true

# %% [markdown]
# # 30 · The pipeline on Spark
#
# *About 35 minutes.* Everything at once: events are sent to three brokers, Spark counts them in windows
# of event time while they come, and the result is a table in files. On the way a broker dies, and
# so does Spark. You will
#
# - send live metrics and flights through the cluster, and see both in Spark;
# - lose events to a wrong watermark, and no more to a right one;
# - kill what can be killed, and compare with a batch job, to the last flight;
# - change one setting, and read the same with Spark's own Kafka source, or from another cluster;
# - work out how many brokers a million messages a second need.

# %%
from craft2.apps.lessons.files import scratch
from craft2.course import begin, compare, predict

begin("30")

# %% [markdown]
# ## 1. Two settings
#
# With `None` all of it runs on this machine. An address takes any cluster that speaks Kafka's protocol,
# `"kafka-1:9092"`, and a URL any Spark cluster, `"spark://host:7077"`. Nothing else changes: that is
# what the protocol is for.

# %%
from contextlib import ExitStack

from phase3_raft.local_cluster import LocalCluster

BOOTSTRAP, MASTER = None, None
opened, folder = ExitStack(), scratch()
cluster = None if BOOTSTRAP else opened.enter_context(LocalCluster(3))
bootstrap = BOOTSTRAP or cluster.bootstrap_servers

# %% [markdown]
# A session of Spark, with its own Kafka source if that can be had: it is a jar, which Maven fetches.

# %%
# NBVAL_IGNORE_OUTPUT
from craft2.apps.lessons.pipeline import kafka_connector
from craft2.apps.spark import session

connector = kafka_connector()
spark = session("pipeline", **connector, **({"spark.master": MASTER} if MASTER else {}))
print("Spark", spark.version, "- its own Kafka source:", "yes" if connector else "no")

# %% [markdown]
# ## 2. Live metrics
#
# The service of notebook 15 stands before the cluster. This machine's processors are read ten times a
# second, each reading is a request, and 200 means that all replicas in sync have it.

# %%
from craft2.apps.ingestion.local_service import LocalService
from craft2.apps.ingestion.sinks import QueueMode
from craft2.apps.lessons.pipeline import Source, load_by_second, post_metrics

options = ("--topic", f"metrics-{folder.name}")
with LocalService(QueueMode.KAFKA, bootstrap=bootstrap, options=options) as service:
    print("taken:", post_metrics(service.address, 30))

# %% [markdown]
# `Source` says where Spark reads: through `craft2`, the source of notebooks 05 and 14, which takes
# `kafka.bootstrap.servers` in place of a path. It is a table, as a folder was:

# %%
# NBVAL_IGNORE_OUTPUT
source = Source("craft2", bootstrap, options[1])
load = load_by_second(spark, source)
load.show(4, truncate=False)
assert load.groupBy().sum("count").first()[0] % 30 == 0

# %% [markdown]
# ## 3. Too late
#
# Now the flights: 8,000 of January, sent by a process of its own, as fast as it can. Spark is to count
# departures by airline and six hours, *of the flight's own time*. A stream cannot wait for ever: the
# watermark says how late an event may be, and what is later is dropped.

# %%
from craft2.apps.ingestion.kafka_sink import make_topic
from craft2.apps.lessons.pipeline import send_flights
from craft2.apps.lessons.processes import Worker

flights = Source("craft2", bootstrap, f"flights-{folder.name}")
make_topic(bootstrap, flights.topic, 6)
print("acknowledged:", len(Worker(send_flights, bootstrap, flights.topic, 8_000, 10**6).finish()))

# %% [markdown]
# The flights come in the order in which they left, and carry the time at which they *should* have.
# And Spark reads six partitions side by side, some a little ahead of others. With a watermark of no
# time at all, about how many of the 8,000 departures will be missing in the result: 0, 100 or 1,000?

# %%
predict("30.1", ...)

# %% [markdown]
# `start_windows` is the query; `late` is the argument of `withWatermark`. Here it ends when all that is
# there has been read. `batch_windows` asks the same of all flights at once, which no watermark can
# harm.

# %%
# NBVAL_IGNORE_OUTPUT
from craft2.apps.lessons.pipeline import batch_windows, departures, start_windows, windows

query = start_windows(spark, flights, folder / "hasty", late="0 seconds", available_now=True)
query.awaitTermination()
whole = departures(batch_windows(spark, flights, late="0 seconds"))
lost = whole - departures(windows(spark, folder / "hasty"))
print(f"{whole} departures, {lost} of them missing")
compare("30.1", min((0, 100, 1_000), key=lambda guess: abs(guess - lost)))
assert lost > 0

# %% [markdown]
# No error, and no word but in a metric (`numRowsDroppedByWatermark`); whoever reads the table sees too
# few departures. A watermark is a bet on how late events can be. For these flights, read side by
# side, four days are enough; the price is that a window comes out four days after its end, in the
# time of the events.
#
# ## 4. Kill a broker, kill Spark
#
# The same live, and with violence. A new topic; a process sends 1,000 flights a second; another one
# runs the query. When it has done two batches, a broker is killed, and then Spark itself: its driver,
# its Java, its Python. The producer goes on. In the end the Spark of this notebook takes over where the
# dead one was. Beside the batch job over all flights, will the result be "the same" or "not the same"?

# %%
predict("30.2", ...)

# %% [markdown]
# Both processes begin; another Spark needs a while to start.

# %%
from craft2.apps.lessons.pipeline import PipelineProcess, stop_after

live = Source("craft2", bootstrap, f"live-{folder.name}")
make_topic(bootstrap, live.topic, 6)
victim = PipelineProcess(live, folder / "live")
producer = Worker(send_flights, bootstrap, live.topic, 8_000, 1_000)
victim.wait_for(2)

# %% [markdown]
# The broker that leads partition 0 dies first. (Another cluster than ours is not killed.)

# %%
if cluster:
    cluster.kill(1)
victim.wait_for(victim.batches() + 1)
victim.kill()
before = victim.batches()
print("the dead one had begun:", before >= 2)

# %% [markdown]
# What the producer was told, and then the rest of the stream:

# %%
acknowledged = producer.finish()
print("acknowledged:", len(acknowledged), "- each once:", len(set(acknowledged)) == 8_000)
query = start_windows(spark, live, folder / "live", available_now=True)
query.awaitTermination()

# %% [markdown]
# Both ways round:

# %%
streamed, batch = windows(spark, folder / "live"), batch_windows(spark, live)
missing, extra = batch.exceptAll(streamed).count(), streamed.exceptAll(batch).count()
print(f"{batch.count()} windows; missing: {missing}, too many: {extra}")
compare("30.2", "the same" if missing == extra == 0 else "not the same")

# %% [markdown]
# The same, and no part of it knows of the others' deaths. The producer is idempotent and had its
# answers from all in sync, so each flight is in the log once. Spark reads up to the high watermark, so
# what it has read cannot go away. Its checkpoint holds offsets and state together, so a batch that
# died is run again as it was. Each promise is one you have built.

# %%
# NBVAL_IGNORE_OUTPUT
from craft2.apps.lessons.pipeline import departures_chart

departures_chart(row.asDict() for row in streamed.collect())

# %% [markdown]
# The Parquet files in `live/result` are the end of the pipeline: any program reads them, and no part of
# Kafka or Spark has to run for it.
#
# ## 5. One setting
#
# Spark has a Kafka source of its own, in Java. Ours has its options and columns, so the format is all
# that changes. It reads the same cluster, with one broker missing:

# %%
own = Source("kafka" if connector else "craft2", bootstrap, live.topic)
query = start_windows(spark, own, folder / "own", available_now=True)
query.awaitTermination()
other = windows(spark, folder / "own")
print("the same:", batch.exceptAll(other).count() == other.exceptAll(batch).count() == 0)

# %% [markdown]
# To Spark our brokers are Kafka. In the other direction `BOOTSTRAP` at the top takes a real one, and
# `MASTER` a Spark cluster (which then needs this package on its machines); run the notebook again, and
# the table should be the same.
#
# ## 6. How large?
#
# A machine like yours is enough to learn, and for more than one would think. The sums for more are
# easy, and should be done before any cluster is bought. A million messages a second of 1 kB, kept for
# seven days, in three copies: how many petabytes of disk?

# %%
predict("30.3", ...)

# %% [markdown]
# `Machine` is what a broker has: by default 48 TB of disks and a network of 10 Gbit/s, of which it
# uses 70 and 60 percent, since a broker that comes back has to catch up.

# %%
from craft2.apps.lessons.capacity import Load, Machine

plan = Load(messages_per_s=1e6, message_bytes=1_000, retention_days=7, replication=3).plan()
plan.show()
compare("30.3", round(plan.on_disk_tb / 1000, 1))

# %% [markdown]
# 600 TB in one copy, 1.8 PB on all disks, and it is the disks that ask for so many brokers: the
# network would do with five. Who keeps one day in place of seven, or compresses, sees what the price
# of each is:

# %%
for words, changed in {
    "one day": Load(1e6, 1_000, 1),
    "compressed to a quarter": Load(1e6, 1_000, 7, compression=4),
    "five readers": Load(1e6, 1_000, 7, readers=5),
}.items():
    found = changed.plan(Machine())
    print(f"{words:<24}{found.least:>3} brokers, {found.on_disk_tb:>6,.0f} TB", found.brokers)

# %% [markdown]
# ## 7. Break it
#
# Retention deletes what is old, whether it was read or not. A query reads a little and stops; while
# it is away the topic is emptied. (`DeleteRecords` does at once what time does otherwise.) When it is
# started again it could go on with what comes. Should it?

# %%
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

query = start_windows(spark, flights, folder / "gone", max_offsets=500)
stop_after(query, batches=1)
admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
everything = [TopicPartition(flights.topic, number, OFFSET_END) for number in range(6)]
for deleted in admin.delete_records(everything).values():
    deleted.result(30)

# %% [markdown]
# It is started again:

# %%
# NBVAL_IGNORE_OUTPUT
from pyspark.errors import StreamingQueryException

try:
    start_windows(spark, flights, folder / "gone", available_now=True).awaitTermination()
except StreamingQueryException as error:
    told = str(error)
print(told[told.index("retention deleted") :].splitlines()[0])

# %% [markdown]
# It stops, and says what is missing: `failOnDataLoss` is true unless one says otherwise, as in Spark's
# own source. A sum that silently lacks thousands would be worse.

# %%
import shutil

spark.stop()
opened.close()
shutil.rmtree(folder)

# %% [markdown]
# ## Summary
#
# - Producers, service, cluster, Spark and files know each other by one protocol; each can be replaced
#   by one setting.
# - Event time needs a watermark, a bet on how late events can be. What loses the bet is dropped in silence.
# - Idempotent producers, acks=all, the high watermark, and a checkpoint with offsets and state: with
#   all four the result survives the death of each part, equal to the batch answer.
# - Capacity is a product of five numbers; with a week of retention, disks come first.
# - A consumer that is slower than retention has to be told, not spared.
#
# ## Questionnaire
#
# 1. Which of the four promises is missing if the producer uses acks=1? What could the result lack then?
# 2. Why does Spark read only up to the high watermark?
# 3. Two partitions: one is a week ahead of the other. What does that do to the windows?
# 4. Which files tell the second Spark where the dead one was?
# 5. Retention of a day in place of a week: which of the needs falls, and which do not?
# 6. Why did the producer of this notebook have at most 500 flights under way?
# 7. When is `failOnDataLoss=false` the right choice?
#
# ## Further exercises
#
# - Start Apache Kafka (`craft2 peer kafka`), set `BOOTSTRAP`, and run the notebook again.
# - Kill two brokers in section 4, one after the other, the first one started again in between.
# - Count delays in place of departures: which airline is late, by hour of the day?
# - Plan your own: what would your company's events need?
#
# This is the end of the path. What you have built is small enough to be read in a weekend; do.

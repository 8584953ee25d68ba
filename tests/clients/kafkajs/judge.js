// What a program that uses kafkajs does: its results, as JSON on standard output.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [bootstrap, name, work] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "judge", brokers: [bootstrap], logLevel: logLevel.ERROR });

async function admin(use) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

// Kafka's metadata spread: a partition that was just made may have no leader yet.
async function soon(ask) {
  for (let left = 50; ; left--) {
    try {
      return await ask();
    } catch (error) {
      if (!error.retriable || left === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

// Consume so many messages as a member of a group.
async function consume(groupId, count, { commit = true } = {}) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000 });
  const found = [];
  await consumer.connect();
  await consumer.subscribe({ topics: [name], fromBeginning: true });
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ topic, partition, message }) => {
        if (found.length === count) return;
        found.push({
          partition,
          offset: message.offset,
          timestamp: message.timestamp,
          key: message.key && message.key.toString(),
          value: message.value && message.value.toString(),
          headers: Object.fromEntries(
            Object.entries(message.headers).map(([key, value]) => [key, value.toString()]),
          ),
        });
        if (commit) {
          const offset = (BigInt(message.offset) + 1n).toString();
          await consumer.commitOffsets([{ topic, partition, offset }]);
        }
        if (found.length === count) resolve();
      },
    });
  });
  await consumer.disconnect();
  return found;
}

const works = {
  async records() {
    await admin((a) =>
      a.createTopics({ topics: [{ topic: name, numPartitions: 2 }], waitForLeaders: true }),
    );
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    const messages = [
      { key: "k", value: "first", headers: { source: "gate 7" }, timestamp: "1700000000000" },
      { key: null, value: "no key", timestamp: "1700000000001" },
      { key: "k2", value: null, timestamp: "1700000000002" },
    ].map((message) => ({ ...message, partition: 0 }));
    for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
      await producer.send({ topic: name, messages, compression, acks: -1 });
    }
    await producer.disconnect();
    return consume(`${name}-records`, 6);
  },

  async group() {
    await admin((a) => a.createTopics({ topics: [{ topic: name, numPartitions: 1 }] }));
    const producer = kafka.producer();
    await producer.connect();
    const messages = [...Array(10).keys()].map((n) => ({ value: String(n) }));
    await producer.send({ topic: name, messages });
    await producer.disconnect();
    const first = await consume(name, 4);
    const offsets = await admin((a) => a.fetchOffsets({ groupId: name, topics: [name] }));
    const second = await consume(name, 6);
    return { first, offsets, second };
  },

  async admin() {
    return admin(async (a) => {
      await a.createTopics({ topics: [{ topic: name, numPartitions: 1 }], waitForLeaders: true });
      const again = await a.createTopics({ topics: [{ topic: name, numPartitions: 1 }] });
      await a.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] });
      const metadata = await a.fetchTopicMetadata({ topics: [name] });
      const offsets = await soon(() => a.fetchTopicOffsets(name));
      const cluster = await a.describeCluster();
      const configs = await a.describeConfigs({
        includeSynonyms: false,
        resources: [{ type: 2, name, configNames: ["retention.ms"] }],
      });
      await a.deleteTopics({ topics: [name] });
      const left = await a.listTopics();
      return {
        again,
        partitions: metadata.topics[0].partitions.length,
        offsets,
        brokers: cluster.brokers.length,
        retention: configs.resources[0].configEntries[0].configValue,
        deleted: !left.includes(name),
      };
    });
  },

  async large() {
    await admin((a) => a.createTopics({ topics: [{ topic: name }], waitForLeaders: true }));
    const producer = kafka.producer({ retry: { retries: 0 } });
    await producer.connect();
    try {
      await producer.send({ topic: name, messages: [{ value: "x".repeat(2_000_000) }] });
      return "taken";
    } catch (error) {
      return error.type || (error.cause && error.cause.type) || String(error);
    } finally {
      await producer.disconnect();
    }
  },
};

works[work]().then(
  (result) => console.log(JSON.stringify(result)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

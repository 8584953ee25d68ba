// What a program that uses kafkajs does: its results, as JSON on standard output.
const { Kafka, CompressionCodecs, CompressionTypes, logLevel } = require("kafkajs");
const lz4 = require("lz4js");
const xxh = require("lz4js/xxh32.js");
const { ZstdCodec } = require("zstd-codec");

const [bootstrap, name, work] = process.argv.slice(2);
const kafka = new Kafka({
  clientId: "judge",
  brokers: bootstrap.split(","),
  logLevel: logLevel.ERROR,
});

// kafkajs itself packs with gzip only; it takes any code that packs with the others.
const bytes = (data) => Buffer.from(data);
const zstd = new Promise((resolve) => ZstdCodec.run((code) => resolve(new code.Simple())));
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => {
    const frame = bytes(lz4.compress(encoder.buffer)); // one block, up to 4 MB
    frame[4] |= 0x20; // which needs no other one: Kafka insists that it says so
    frame[6] = xxh.hash(0, frame, 4, 2) >> 8;
    return frame;
  },
  decompress: async (data) => bytes(lz4.decompress(data)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => bytes((await zstd).compress(encoder.buffer)),
  decompress: async (data) => bytes((await zstd).decompress(data)),
});

async function admin(use, settings = {}) {
  const admin = kafka.admin(settings);
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function produce(messages, settings = {}, how = {}) {
  const producer = kafka.producer(settings);
  await producer.connect();
  try {
    return await producer.send({ topic: name, messages, ...how });
  } finally {
    await producer.disconnect();
  }
}

const make = (numPartitions) =>
  admin((a) => a.createTopics({ topics: [{ topic: name, numPartitions }], waitForLeaders: true }));

// What a work was refused for.
async function refusal(work) {
  try {
    return await work();
  } catch (error) {
    const [one] = error.errors || [error.cause || error];
    return one.type || String(one);
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
    await make(2);
    const messages = [
      { key: "k", value: "first", headers: { source: "gate 7", empty: "" } },
      { key: null, value: "no key" },
      { key: "k2", value: null },
      { key: "", value: "" },
      { key: "large", value: "x".repeat(900_000) },
    ].map((message, n) => ({ ...message, partition: 0, timestamp: String(1700000000000 + n) }));
    const settings = { idempotent: true, maxInFlightRequests: 1 };
    for (const codec of ["None", "GZIP", "Snappy", "LZ4", "ZSTD"]) {
      await produce(messages, settings, { compression: CompressionTypes[codec], acks: -1 });
    }
    const found = await consume(`${name}-records`, 25);
    const short = (value) => (value && value.length > 100 ? `${value.length} bytes` : value);
    return found.map((message) => ({ ...message, value: short(message.value) }));
  },

  async acks() {
    await make(1);
    for (const acks of [0, 1, -1]) {
      await produce([{ value: String(acks) }], {}, { acks });
    }
    return (await consume(`${name}-acks`, 3)).map((message) => message.value).sort();
  },

  async times() {
    await make(2);
    const at = (n) => String(1700000000000 + 1000 * n);
    const messages = [...Array(10).keys()].map((n) => ({
      value: "x",
      partition: 0,
      timestamp: at(n),
    }));
    await produce(messages);
    return admin(async (a) => ({
      between: await a.fetchTopicOffsetsByTimestamp(name, Number(at(3)) + 500),
      all: await a.fetchTopicOffsets(name),
    }));
  },

  async group() {
    await make(1);
    await produce([...Array(10).keys()].map((n) => ({ value: String(n) })));
    const first = await consume(name, 4);
    const offsets = await admin((a) => a.fetchOffsets({ groupId: name, topics: [name] }));
    const second = await consume(name, 6);
    return { first, offsets, second };
  },

  // Two members: what each has got when it is alone, with the other, and alone again.
  async rebalance() {
    await make(2);
    const owned = [[], []];
    let look = () => {};
    const until = (...wanted) =>
      new Promise((resolve) => {
        look = () => owned.every((one, n) => one.length === wanted[n]) && resolve();
        look();
      });
    const members = owned.map(() =>
      kafka.consumer({ groupId: name, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 300 }),
    );
    const start = async (n) => {
      const member = members[n];
      member.on(member.events.GROUP_JOIN, ({ payload }) => {
        owned[n] = payload.memberAssignment[name] || [];
        look();
      });
      await member.connect();
      await member.subscribe({ topics: [name] });
      await member.run({ eachMessage: async () => {} });
    };
    await start(0);
    await until(2, 0);
    await start(1);
    await until(1, 1);
    const shared = owned.flat().sort();
    const described = await admin((a) => a.describeGroups([name]));
    await members[0].disconnect();
    owned[0] = [];
    await until(0, 2);
    await members[1].disconnect();
    const { state, members: known } = described.groups[0];
    const deleted = await admin((a) => a.deleteGroups([name]));
    return { shared, state, known: known.length, deleted: deleted[0].errorCode || 0 };
  },

  async admin() {
    return admin(async (a) => {
      await a.createTopics({ topics: [{ topic: name, numPartitions: 1 }], waitForLeaders: true });
      const again = await a.createTopics({ topics: [{ topic: name, numPartitions: 1 }] });
      await a.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] });
      const metadata = await a.fetchTopicMetadata({ topics: [name] });
      const offsets = await soon(() => a.fetchTopicOffsets(name));
      const cluster = await a.describeCluster();
      await a.alterConfigs({
        validateOnly: false,
        resources: [{ type: 2, name, configEntries: [{ name: "retention.ms", value: "60000" }] }],
      });
      const configs = await a.describeConfigs({
        includeSynonyms: false,
        resources: [{ type: 2, name, configNames: ["retention.ms"] }],
      });
      await a.deleteTopics({ topics: [name] });
      while ((await a.listTopics()).includes(name));
      return {
        again,
        partitions: metadata.topics[0].partitions.length,
        offsets,
        brokers: cluster.brokers.length,
        retention: configs.resources[0].configEntries[0].configValue,
        deleted: true,
      };
    });
  },

  // The numbers up to 200, one by one, and a group that reads them; in the middle of each somebody
  // breaks something, whom standard output tells when.
  async failover() {
    await admin((a) =>
      a.createTopics({ topics: [{ topic: name, numPartitions: 1, replicationFactor: 3 }] }),
    );
    const numbers = [...Array(200).keys()].map(String);
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
    for (const value of numbers) {
      if (value === "100") console.log("sending");
      await producer.send({ topic: name, messages: [{ value }] });
    }
    await producer.disconnect();
    const found = [];
    const consumer = kafka.consumer({ groupId: name, retry: { retries: 50 } });
    await consumer.connect();
    await consumer.subscribe({ topic: name, fromBeginning: true });
    await new Promise((done) => {
      consumer.run({
        eachMessage: async ({ message }) => {
          found.push(message.value.toString());
          if (found.length === 100) console.log("reading");
          if (new Set(found).size === numbers.length) done();
        },
      });
    });
    await consumer.disconnect();
    return found;
  },

  async refused() {
    await make(1);
    const settings = { retry: { retries: 0 } };
    const topic = (one) => refusal(() => admin((a) => a.createTopics({ topics: [one] }), settings));
    return {
      large: await refusal(() => produce([{ value: "x".repeat(2_000_000) }], settings)),
      name: await topic({ topic: "a topic" }),
      none: await topic({ topic: `${name}-none`, numPartitions: 0 }),
      far: await topic({ topic: `${name}-far`, replicationFactor: 3 }),
      unknown: await refusal(() => admin((a) => a.deleteTopics({ topics: [`${name}-no`] }), settings)),
    };
  },
};

works[work]().then(
  (result) => console.log(JSON.stringify(result)),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);

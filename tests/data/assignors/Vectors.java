// Prints what the Java client's assignors decide in random groups, as the JSON of vectors.json.
// How to run it is in README.md.

import java.nio.ByteBuffer;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.*;

public class Vectors {
    static final Random random = new Random(11);

    /** A member as the leader sees it: what it subscribes to, and what it says it owns since when. */
    static class Member {
        List<String> topics;
        String instance;
        List<TopicPartition> owned = List.of();
        int generation = -1;
    }

    static final Map<String, Integer> partitions = new TreeMap<>();
    static final Map<String, Member> members = new TreeMap<>();
    static int joined, generation;

    public static void main(String[] args) {
        System.out.println("{\"simple\":[");
        for (int i = 0; i < 120; i++) System.out.println((i > 0 ? "," : "") + simple());
        System.out.println("],\"sticky\":[");
        sequences(new StickyAssignor(), false);
        System.out.println("],\"cooperative-sticky\":[");
        sequences(new CooperativeStickyAssignor(), true);
        System.out.println("],\"wire\":[");
        for (int i = 0; i < 24; i++) System.out.println((i > 0 ? "," : "") + wire(i));
        System.out.println("]}");
    }

    static void newGroup(int manyMembers) {
        partitions.clear();
        members.clear();
        generation = joined = 0;
        for (int t = 1 + random.nextInt(5); t > 0; t--) partitions.put("t" + t, random.nextInt(9));
        for (int m = 1 + random.nextInt(manyMembers); m > 0; m--) join(random.nextInt(3) > 0);
    }

    static void join(boolean toAll) {
        Member member = new Member();
        do {
            member.topics = new ArrayList<>(partitions.keySet());
            if (!toAll) member.topics.removeIf(topic -> random.nextBoolean());
        } while (member.topics.isEmpty());
        if (random.nextInt(3) == 0) member.instance = "i" + random.nextInt(100) + "-" + joined;
        // Not in the order in which they join, so that a new one may be first.
        members.put("m" + random.nextInt(10) + random.nextInt(10) + "-" + joined++, member);
    }

    static String simple() {
        newGroup(12);
        return "{" + group() + ",\"range\":" + ownedJson(assign(new RangeAssignor(), false))
            + ",\"roundrobin\":" + ownedJson(assign(new RoundRobinAssignor(), false)) + "}";
    }

    /** Groups that live through joins, leaves, growing topics and members that miss a rebalance. */
    static void sequences(ConsumerPartitionAssignor assignor, boolean cooperative) {
        for (int s = 0; s < 30; s++) {
            newGroup(6);
            boolean equal = s % 3 == 0;
            if (equal) members.values().forEach(m -> m.topics = new ArrayList<>(partitions.keySet()));
            for (int step = 0; step < 6; step++) {
                String group = group();
                Map<TopicPartition, String> owners = owners();
                Map<String, List<TopicPartition>> result = assign(assignor, true);
                long kept = owners.entrySet().stream()
                    .filter(e -> result.get(e.getValue()).contains(e.getKey())).count();
                adopt(result, cooperative ? 0 : 12);
                Map<String, List<TopicPartition>> last = result;
                if (cooperative) {
                    last = assign(assignor, true);
                    adopt(last, 12);
                }
                String loads = last.values().stream().map(List::size).sorted()
                    .map(String::valueOf).collect(Collectors.joining(","));
                System.out.println((s + step > 0 ? "," : "") + "{" + group + ",\"kept\":" + kept
                    + ",\"loads\":[" + loads + "]}");
                change(equal);
            }
        }
    }

    /** The members take what they were given; about one in `missing` (0: none) does not hear it. */
    static void adopt(Map<String, List<TopicPartition>> result, int missing) {
        generation++;
        members.forEach((id, member) -> {
            if (missing > 0 && random.nextInt(missing) == 0) return;
            member.owned = result.get(id);
            member.generation = generation;
        });
    }

    static void change(boolean equal) {
        for (int n = 1 + random.nextInt(3); n > 0; n--) {
            int what = random.nextInt(5);
            if (what < 2 && members.size() < 9) {
                join(equal || random.nextInt(3) > 0);
            } else if (what < 4 && members.size() > 1) {
                members.remove(new ArrayList<>(members.keySet()).get(random.nextInt(members.size())));
            } else {
                String topic = "t" + (1 + random.nextInt(partitions.size()));
                partitions.merge(topic, 1 + random.nextInt(3), Integer::sum);
            }
        }
    }

    /** Who rightly owns what: the newest claim, unless two are equally new. */
    static Map<TopicPartition, String> owners() {
        Map<TopicPartition, List<String>> claims = new HashMap<>();
        members.forEach((id, m) -> m.owned.forEach(p -> {
            if (m.topics.contains(p.topic()) && p.partition() < partitions.get(p.topic()))
                claims.computeIfAbsent(p, x -> new ArrayList<>()).add(id);
        }));
        Map<TopicPartition, String> owners = new HashMap<>();
        claims.forEach((p, ids) -> {
            int newest = ids.stream().mapToInt(id -> members.get(id).generation).max().getAsInt();
            ids.removeIf(id -> members.get(id).generation < newest);
            if (ids.size() == 1) owners.put(p, ids.get(0));
        });
        return owners;
    }

    static Map<String, List<TopicPartition>> assign(ConsumerPartitionAssignor assignor, boolean sticky) {
        Node node = new Node(0, "localhost", 9092);
        List<PartitionInfo> infos = new ArrayList<>();
        partitions.forEach((topic, count) -> {
            for (int p = 0; p < count; p++)
                infos.add(new PartitionInfo(topic, p, node, new Node[] {node}, new Node[] {node}));
        });
        Cluster cluster = new Cluster("c", List.of(node), infos, Set.of(), Set.of());
        Map<String, Subscription> subscriptions = new HashMap<>();
        members.forEach((id, m) -> {
            ByteBuffer userData = null;
            if (sticky && assignor instanceof StickyAssignor && m.generation >= 0) userData = userData(m);
            Subscription subscription =
                new Subscription(m.topics, userData, m.owned, m.generation, Optional.empty());
            subscription.setGroupInstanceId(Optional.ofNullable(m.instance));
            subscriptions.put(id, subscription);
        });
        Map<String, List<TopicPartition>> result = new TreeMap<>();
        assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment()
            .forEach((id, assignment) -> result.put(id, assignment.partitions()));
        return result;
    }

    /** What the sticky assignor of this member sends along. */
    static ByteBuffer userData(Member m) {
        StickyAssignor mine = new StickyAssignor();
        mine.onAssignment(
            new Assignment(m.owned),
            new ConsumerGroupMetadata("g", m.generation, "m", Optional.empty()));
        return mine.subscriptionUserData(new HashSet<>(m.topics));
    }

    static String wire(int i) {
        newGroup(1);
        Member m = members.values().iterator().next();
        List<TopicPartition> all = new ArrayList<>();
        partitions.forEach((t, n) -> {
            for (int p = 0; p < n; p++) all.add(new TopicPartition(t, p));
        });
        Collections.shuffle(all, random);
        m.owned = all.subList(0, random.nextInt(all.size() + 1));
        m.generation = random.nextInt(3) * 70000 - 1;
        Collections.shuffle(m.topics, random);
        String rack = i % 2 == 0 ? null : "räck-" + i;
        short version = (short) (i % 4);
        ByteBuffer userData = userData(m);
        Subscription subscription = new Subscription(
            m.topics, i % 3 == 0 ? null : userData, m.owned, m.generation, Optional.ofNullable(rack));
        Assignment assignment =
            new Assignment(m.owned, i % 3 == 0 ? null : ByteBuffer.wrap(new byte[] {1, 2}));
        return "{\"version\":" + version + ",\"topics\":" + strings(m.topics)
            + ",\"owned\":[" + m.owned.stream().map(p -> "[\"" + p.topic() + "\"," + p.partition() + "]")
                .collect(Collectors.joining(",")) + "],\"generation\":" + m.generation
            + ",\"rack\":" + (rack == null ? "null" : "\"" + rack + "\"")
            + ",\"user_data\":" + (i % 3 == 0 ? "null" : "true")
            + ",\"subscription\":" + hex(ConsumerProtocol.serializeSubscription(subscription, version))
            + ",\"assignment\":" + hex(ConsumerProtocol.serializeAssignment(assignment, version))
            + ",\"sticky\":" + hex(userData) + "}";
    }

    static String group() {
        return "\"partitions\":{" + partitions.entrySet().stream()
            .map(e -> "\"" + e.getKey() + "\":" + e.getValue()).collect(Collectors.joining(","))
            + "},\"members\":{" + members.entrySet().stream().map(e -> {
                Member m = e.getValue();
                return "\"" + e.getKey() + "\":[" + strings(m.topics) + "," + grouped(m.owned) + "," + m.generation
                    + "," + (m.instance == null ? "null" : "\"" + m.instance + "\"") + "]";
            }).collect(Collectors.joining(",")) + "}";
    }

    static String strings(Collection<String> texts) {
        return texts.stream().map(t -> "\"" + t + "\"").collect(Collectors.joining(",", "[", "]"));
    }

    static String ownedJson(Map<String, List<TopicPartition>> assignment) {
        return assignment.entrySet().stream().map(e -> "\"" + e.getKey() + "\":" + grouped(e.getValue()))
            .collect(Collectors.joining(",", "{", "}"));
    }

    static String grouped(List<TopicPartition> list) {
        TreeMap<String, TreeSet<Integer>> byTopic = new TreeMap<>();
        list.forEach(p -> byTopic.computeIfAbsent(p.topic(), t -> new TreeSet<>()).add(p.partition()));
        return byTopic.entrySet().stream()
            .map(e -> "\"" + e.getKey() + "\":" + e.getValue().toString().replace(" ", ""))
            .collect(Collectors.joining(",", "{", "}"));
    }

    static String hex(ByteBuffer bytes) {
        if (bytes == null) return "null";
        StringBuilder text = new StringBuilder("\"");
        for (ByteBuffer copy = bytes.duplicate(); copy.hasRemaining(); )
            text.append(String.format("%02x", copy.get()));
        return text.append("\"").toString();
    }
}

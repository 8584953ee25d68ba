"""The checker: each anomaly in its smallest history, and a faultless log that never has one.

In the small histories "b2" is the value 'b' at offset 2 of the one partition t-0.
"""

import doctest
import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craft2.checker import NAMES, CheckerError, check, delivery
from craft2.events import Events
from craft2.history import UNKNOWN, HistoryError, Message, Operation, history_from_events

T0 = ("t", 0)


def messages(text):
    return [Message(*T0, int(word[1:] or UNKNOWN), word[0]) for word in text.split()]


def send(client, text, outcome="ok"):
    kind = "send" if len(text.split()) == 1 else "txn"
    return Operation(client, kind, 0, 0, outcome, sent=messages(text))


def failed(client, text):
    return send(client, text, "fail")


def unknown(client, text):
    return send(client, text, "info")


def poll(client, text, outcome="ok", **fields):
    return Operation(client, "poll", 0, 0, outcome, polled=messages(text), **fields)


def mark(client, kind, **fields):
    return Operation(client, kind, 0, 0, "ok", **fields)


def found(*history):
    return list(check(in_turn(history)).anomalies)


def in_turn(history):
    """One operation after the other."""
    return [op._replace(invoked=now, completed=now) for now, op in enumerate(history)]


ALL = poll("other", "a0 b1 c2 d3")  # somebody who sees everything

# Of each anomaly: the histories that have it and nothing else, and the nearest that have nothing.
CASES = {
    "lost-write": [
        (
            "it was acknowledged and a poll went past it",
            [send("p", "a0"), send("p", "b1"), poll("c", "b1")],
            [send("p", "a0"), send("p", "b1"), poll("c", "b1"), poll("other", "a0")],
        ),
        (
            "a poll that failed does not count as having seen it",
            [send("p", "a0"), send("p", "b1"), poll("c", "a0", "fail"), poll("c", "b1")],
            [send("p", "a0"), send("p", "b1"), poll("c", "a0", "fail"), poll("c", "a0 b1")],
        ),
        (
            "a send of unknown outcome may be lost, even if a poll that failed returned it",
            [send("p", "a0"), send("p", "b1"), poll("c", "a0", "fail"), poll("d", "b1")],
            [unknown("p", "a"), send("p", "b1"), poll("c", "a0", "fail"), poll("d", "b1")],
        ),
        (
            "a send of unknown outcome may be lost, unless another of its transaction was read",
            [unknown("p", "a0 b1 d3"), poll("c", "b1 d3")],
            [unknown("p", "a0"), unknown("q", "b1 d3"), poll("c", "b1 d3")],
        ),
    ],
    "unseen": [
        (
            "it was acknowledged and nobody read that far",
            [send("p", "a0"), send("p", "b1"), poll("c", "a0")],
            [send("p", "a0"), unknown("p", "b1"), poll("c", "a0")],
        ),
        ("nobody read at all", [send("p", "a0")], [send("p", "a0"), poll("c", "a0")]),
        (
            "a poll that failed read it",
            [send("p", "a0"), poll("c", "a0", "fail")],
            [send("p", "a0"), poll("c", "a0", "fail"), poll("c", "a0")],
        ),
    ],
    "duplicate": [
        (
            "one value was read at two offsets",
            [send("p", "a0"), poll("c", "a0 a1")],
            [send("p", "a0"), poll("c", "a0"), poll("d", "a0")],
        ),
        (
            "it was acknowledged at one offset and read at another",
            [send("p", "a0"), poll("c", "a3")],
            [unknown("p", "a"), poll("c", "a3")],
        ),
        (
            "sent again after an unknown outcome, and both landed",
            [unknown("p", "a"), send("p", "a1"), poll("c", "a0 a1")],
            [unknown("p", "a"), send("p", "a1"), poll("c", "a1")],
        ),
    ],
    "inconsistent-offsets": [
        (
            "two consumers saw two values at one offset",
            [poll("c", "a0"), poll("d", "b0")],
            [poll("c", "a0"), poll("d", "b1")],
        ),
        (
            "two values changed places on the way to the consumer",
            [send("p", "a0"), send("p", "b1"), poll("c", "b0 a1")],
            [send("p", "a0"), send("p", "b1"), poll("c", "a0 b1")],
        ),
        (
            "two sends, one offset",
            [send("p", "a0"), send("q", "b0"), poll("c", "a0"), poll("c2", "b0")],
            [send("p", "a0"), unknown("q", "c0"), poll("c", "a0")],
        ),
    ],
    "G1a": [
        (
            "a poll returned a value whose send failed",
            [failed("p", "a"), poll("c", "a0")],
            [unknown("p", "a"), poll("c", "a0")],
        ),
        (
            "unless it was sent again",
            [failed("p", "a"), failed("p", "a"), poll("c", "a0")],
            [failed("p", "a"), send("p", "a0"), poll("c", "a0")],
        ),
        (
            "only a poll that succeeded counts",
            [failed("p", "a"), poll("c", "a0")],
            [failed("p", "a"), poll("c", "a0", "fail")],
        ),
    ],
    "nonmonotonic-send": [
        (
            "the second send of a client lies before its first",
            [send("p", "b1"), send("p", "a0"), ALL],
            [send("p", "b1"), send("q", "a0"), ALL],
        ),
        (
            "also if the second was of unknown outcome, and was read",
            [send("p", "b1"), unknown("p", "a"), ALL],
            [unknown("p", "b"), send("p", "a0"), ALL],
        ),
        (
            "a client that crashed may have left something in flight",
            [send("p", "b1"), send("p", "a0"), mark("p", "crash"), ALL],
            [send("p", "b1"), mark("p", "crash"), send("p", "a0"), ALL],
        ),
    ],
    "int-nonmonotonic-send": [
        (
            "the same in one transaction",
            [send("p", "b1 a0"), ALL],
            [send("p", "a0 b1 d3"), send("q", "c2"), ALL],
        ),
    ],
    "poll-skip": [
        (
            "a consumer's next poll left out what another saw",
            [ALL, poll("c", "a0"), poll("c", "c2 d3")],
            [ALL, poll("c", "a0"), poll("d", "c2 d3")],
        ),
        (
            "an offset that holds no message is no skip",
            [poll("c", "a0"), poll("c", "d3"), poll("other", "b1")],
            [poll("c", "a0"), poll("c", "d3"), poll("other", "a0")],
        ),
        (
            "a rebalance of that partition moves the position",
            [
                ALL,
                poll("c", "a0"),
                mark("c", "rebalance", partitions=[("t", 1)]),
                poll("c", "c2"),
            ],
            [ALL, poll("c", "a0"), mark("c", "rebalance", partitions=[T0]), poll("c", "c2")],
        ),
        (
            "a rebalance of another client does not",
            [ALL, poll("c", "a0"), mark("d", "rebalance"), poll("c", "c2")],
            [ALL, poll("c", "a0"), mark("c", "rebalance"), poll("c", "c2")],
        ),
        (
            "to be assigned the same partition leaves the position, another moves it",
            [ALL, poll("c", "a0"), mark("c", "assign", partitions=[T0]), poll("c", "c2")],
            [ALL, poll("c", "a0"), mark("c", "assign", partitions=[("t", 1)]), poll("c", "c2")],
        ),
        (
            "to subscribe to the same topic leaves the position until a rebalance",
            [ALL, poll("c", "a0"), mark("c", "subscribe", topics=["t"]), poll("c", "c2")],
            [ALL, poll("c", "a0"), mark("c", "subscribe", topics=["u"]), poll("c", "c2")],
        ),
        (
            "a poll that failed must not skip either",
            [ALL, poll("c", "a0"), poll("c", "c2", "fail")],
            [ALL, poll("c", "a0"), poll("c", "b1", "fail")],
        ),
        (
            "a poll that failed leaves the position where it was",
            [ALL, poll("c", "a0"), poll("c", "b1", "fail"), poll("c", "c2")],
            [ALL, poll("c", "a0"), poll("c", "b1", "fail"), poll("c", "b1 c2")],
        ),
    ],
    "int-poll-skip": [
        (
            "a message is missing in the middle of a poll",
            [ALL, poll("c", "a0 c2")],
            [ALL, poll("c", "a0", partitions=[T0]), poll("c", "b1 c2")],
        ),
        (
            "a rebalance while it ran explains it",
            [ALL, poll("c", "a0 c2", partitions=[("t", 1)])],
            [ALL, poll("c", "a0 c2", partitions=[T0])],
        ),
    ],
    "nonmonotonic-poll": [
        (
            "a consumer's next poll went back",
            [poll("c", "a0 b1"), poll("c", "a0 b1")],
            [poll("c", "a0 b1"), poll("c", "c2")],
        ),
        (
            "or returned the last message again",
            [poll("c", "a0 b1"), poll("c", "b1 c2")],
            [poll("c", "a0 b1"), poll("d", "b1 c2")],
        ),
        (
            "after a crash it may start over",
            [poll("c", "a0 b1"), mark("d", "crash"), poll("c", "a0")],
            [poll("c", "a0 b1"), mark("c", "crash"), poll("c", "a0")],
        ),
        (
            "after a rebalance while it polled, too",
            [poll("c", "a0 b1"), poll("c", "a0", partitions=[("t", 1)])],
            [poll("c", "a0 b1"), poll("c", "a0", partitions=[T0])],
        ),
    ],
    "int-nonmonotonic-poll": [
        (
            "one poll goes back",
            [ALL, poll("c", "a0 b1 a0")],
            [ALL, poll("c", "a0 b1 c2")],
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "with_it", "without"),
    [
        pytest.param(name, with_it, without, id=f"{name}: {why}")
        for name, cases in CASES.items()
        for why, with_it, without in cases
    ],
)
def test_of_each_anomaly(name, with_it, without):
    assert found(*with_it) == [name]
    assert found(*without) == []


def test_every_name_has_a_case():
    assert set(CASES) == set(NAMES)


def test_partitions_are_logs_of_their_own():
    elsewhere = Operation("q", "poll", 9, 9, "ok", polled=[Message("t", 1, 0, "z")])
    assert check([*in_turn([send("p", "a0"), poll("c", "a0")]), elsewhere]).ok()


def test_an_overwritten_value_is_lost_and_the_offset_is_inconsistent():
    history = [send("p", "a0"), send("q", "b0"), send("q", "c1"), poll("c", "b0 c1")]
    assert found(*history) == ["lost-write", "inconsistent-offsets"]


def test_sends_count_in_the_order_of_the_calls_and_polls_in_that_of_the_answers():
    b = Operation("p", "send", 1, 9, "ok", sent=messages("b1"))
    a = Operation("p", "send", 2, 3, "ok", sent=messages("a0"))
    assert list(check([a, b, *in_turn([ALL])]).anomalies) == ["nonmonotonic-send"]
    assert check([a._replace(invoked=0), b, *in_turn([ALL])]).ok()
    second = Operation("c", "poll", 1, 9, "ok", polled=messages("b1"))
    moved = Operation("c", "rebalance", 5, 5, "ok")  # while the second poll waited
    first = Operation("c", "poll", 0, 0, "ok", polled=messages("d3"))
    assert list(check([second, first, ALL]).anomalies) == ["nonmonotonic-poll"]
    assert check([second, first, moved, ALL]).ok()


def test_an_anomaly_says_what_where_and_who():
    history = in_turn([send("p", "a0"), send("p", "b1"), send("q", "c2"), poll("c", "b1 c2")])
    [lost] = check(history).anomalies["lost-write"]
    assert lost.what == (
        "t-0: p wrote 'a' at offset 0; c read on to offset 2, and no successful poll saw 'a'"
    )
    assert (lost.topic, lost.partition, lost.offsets, lost.values) == ("t", 0, (0,), ("a",))
    assert lost.evidence == (history[0], history[3])
    assert lost.clients == ("p", "c")


@pytest.mark.parametrize(
    ("history", "what", "clients"),
    [
        ([poll("c", "a0"), poll("d", "a2")], "'a' is at offsets 0, 2", "cd"),
        ([poll("c", "a0"), poll("d", "b0")], "offset 0 holds 'a' for c, 'b' for d", "cd"),
        (
            [failed("p", "a"), poll("c", "a0")],
            "c polled 'a' at offset 0; its send by p failed",
            "pc",
        ),
        (
            [ALL, poll("c", "a0"), poll("c", "d3")],
            "c polled offset 0 and then 3, and skipped 1, 2",
            ["c", "other"],
        ),
        (
            [poll("other", "a0 b1 c2 d3 e4 f5 g6 h7 i8"), poll("c", "a0"), poll("c", "i8")],
            "c polled offset 0 and then 8, and skipped 1, 2, 3, 4, 5 and 2 more",
            ["c", "other"],
        ),
        ([poll("c", "a0 b1"), poll("c", "a0")], "c polled offset 1 and then 0", "c"),
        (
            [send("p", "b1"), send("p", "a0"), ALL],
            "p sent 'b' (offset 1) and then 'a' (offset 0)",
            "p",
        ),
    ],
)
def test_every_rule_in_words(history, what, clients):
    [[anomaly]] = check(in_turn(history)).anomalies.values()
    assert anomaly.what == f"t-0: {what}"
    assert anomaly.clients == tuple(clients)


def test_a_report_in_few_lines():
    history = [send("p", "a0"), send("p", "b1"), unknown("p", "c"), failed("p", "d")]
    history += [poll("c", "a0"), poll("c", "a0 b1", partitions=[T0])]
    report = check(in_turn(history))
    assert str(report) == (
        "sent 4, acknowledged 2, unknown 1, failed 1, delivered 1 once, 1 twice, 0 never\n"
        "no anomaly"
    )
    assert report.counts["polled"] == 3


def test_deliveries_are_counted_group_by_group():
    history = [send("p", "a0"), send("p", "b1")]
    history += [poll("c", "a0 b1", group="billing"), poll("d", "a0", group="audit")]
    history += [poll("d", "b1", "fail", group="audit")]
    report = check(in_turn(history))
    assert str(report.delivered["billing"]) == "2 once, 0 twice, 0 never"
    assert "\ndelivered to audit: 1 once, 0 twice, 1 never\n" in str(report)


def test_what_is_allowed_does_not_spoil_the_report():
    report = check(in_turn([send("p", "a0"), poll("c", "a0 a1")]))
    assert not report.ok()
    assert report.ok(allow={"duplicate"})
    assert not report.ok(allow={"unseen"})
    with pytest.raises(CheckerError, match="'duplicates'"):
        report.ok(allow={"duplicates"})


def test_an_acknowledged_send_needs_its_offset():
    with pytest.raises(HistoryError, match="'a' by 'p'"):
        check([send("p", "a")])


def test_values_that_nobody_sent_are_counted():
    assert "unsent 1" in str(check(in_turn([send("p", "a0"), poll("c", "a0 b1")])))


def test_delivery_counts_effects():
    assert str(delivery(range(1000), range(1000))) == "1000 once, 0 twice, 0 never"
    assert delivery([1, 2, 3, 4], [2, 3, 3, 4, 4, 4, 9]) == (1, 1, 1, 1, 1)
    assert str(delivery([1], [1, 1, 1, 2])) == (
        "0 once, 0 twice, 0 never, 1 more often, and 1 that nobody sent"
    )


# Events


def test_events_become_the_operations_they_tell_of():
    events = Events()

    def tell(kind, who, offset=None, partition=0, **data):
        events.emit(
            kind, who=who, topic="t", partition=partition, offset=offset, group="g", data=data
        )

    tell("sending", "p", value="a")
    tell("sending", "p", value="b", partition=None)
    tell("lag", "p")
    tell("send", "p", 0, value="a")
    tell("sending", "p", value="c")
    tell("send-failed", "p", value="c")
    tell("send-unknown", "q", value="d")
    tell("assigned", "c")
    tell("poll", "c", 0, value="a", call=1)
    tell("commit", "c", 1)
    tell("poll", "c", 1, value="d", call=1)
    tell("rebalance", "c", partition=None)
    tell("poll", "c", 1, value="d", call=1)
    tell("poll", "c", 2, value="e")
    tell("poll", "c", 3, value="f")
    tell("crash", "c")

    assert [(op.invoked, op.completed, str(op)) for op in history_from_events(events.events)] == [
        (0, 3, "p send ok, sent 'a' at t-0:0"),
        (1, None, "p send info, sent 'b' at t-?:?"),
        (4, 5, "p send fail, sent 'c' at t-0:?"),
        (6, 6, "q send info, sent 'd' at t-0:?"),
        (7, 7, "c rebalance ok"),
        (8, 8, "c poll ok, polled 'a' at t-0:0, 'd' at t-0:1"),
        (9, 9, "c commit ok"),
        (11, 11, "c rebalance ok"),
        (12, 12, "c poll ok, polled 'd' at t-0:1"),
        (13, 13, "c poll ok, polled 'e' at t-0:2"),
        (14, 14, "c poll ok, polled 'f' at t-0:3"),
        (15, 15, "c crash ok"),
    ]
    history = history_from_events(events.events)
    assert [op.partitions for op in history if op.kind == "rebalance"] == [(T0,), ()]
    assert [op.committed for op in history if op.kind == "commit"] == [(("t", 0, 1),)]
    assert {op.group for op in history if op.kind == "poll"} == {"g"}


@pytest.mark.parametrize("kind", ["send", "poll", "sending", "commit"])
def test_an_event_that_lacks_a_field_is_named(kind):
    events = Events(who="p")
    events.emit(kind, topic="t", partition=0)
    with pytest.raises(HistoryError, match=f"event 1 of 'p', kind '{kind}'"):
        history_from_events(events.events)


# A faultless log


class Model:
    """Producers, a group of consumers, and the log between them, which makes no mistake.

    Every step takes two small numbers, from which it chooses who and what.
    """

    PARTITIONS = 2
    CLIENTS = 3

    def __init__(self):
        self.history, self.now, self.values = [], 0, 0
        self.logs = [[] for _ in range(self.PARTITIONS)]  # of values; None: an offset without one
        self.late = []  # (partition, value) of sends without an answer that may land yet
        self.committed = [0] * self.PARTITIONS
        self.owner = [0] * self.PARTITIONS
        self.position = [0] * self.PARTITIONS  # of the owner

    def tick(self):
        self.now += 1
        return self.now

    def note(self, client, kind, outcome="ok", began=None, **fields):
        now = self.tick()
        began = now if began is None else began
        self.history.append(Operation(client, kind, began, now, outcome, **fields))

    def new(self, partition, outcome="ok"):
        """A message of a new value, in the log if its outcome is ok."""
        self.values += 1
        offset = len(self.logs[partition]) if outcome == "ok" else UNKNOWN
        if outcome == "ok":
            self.logs[partition].append(self.values)
        return Message("t", partition, offset, self.values)

    def send(self, x, y):
        self.note(f"p{x}", "send", sent=[self.new(y % self.PARTITIONS)])

    def send_some(self, x, y):
        """Several in flight at once; the answers come in another order than the calls."""
        calls = [(self.tick(), self.new(y % self.PARTITIONS)) for _ in range(x + 1)]
        for began, message in reversed(calls):
            self.note(f"p{x}", "send", began=began, sent=[message])

    def send_transaction(self, x, y):
        self.note(f"p{x}", "txn", sent=[self.new(n % self.PARTITIONS) for n in range(y)])

    def send_and_fail(self, x, y):
        self.note(f"p{x}", "send", "fail", sent=[self.new(y % self.PARTITIONS, "fail")])

    def send_without_an_answer(self, x, y):
        message = self.new(y % self.PARTITIONS, "info")
        self.late.append((message.partition, message.value))
        self.note(f"p{x}", "send", "info", sent=[message])

    def land_late(self, x, y):
        if self.late:
            partition, value = self.late.pop(x % len(self.late))
            self.logs[partition].append(value)

    def leave_a_gap(self, x, y):
        self.logs[y % self.PARTITIONS].append(None)

    def crash_producer(self, x, y):
        self.note(f"p{x}", "crash")

    def read(self, partition, start, count):
        log = self.logs[partition][start : start + count]
        return [Message("t", partition, start + n, v) for n, v in enumerate(log) if v is not None]

    def poll(self, x, y, outcome="ok"):
        """The consumer x polls y messages of each of its partitions."""
        polled = []
        for partition in range(self.PARTITIONS):
            if self.owner[partition] == x:
                polled += self.read(partition, self.position[partition], y)
                if outcome == "ok":
                    end = min(len(self.logs[partition]), self.position[partition] + y)
                    self.position[partition] = end
        self.note(f"c{x}", "poll", outcome, polled=polled)

    def poll_and_fail(self, x, y):
        self.poll(x, y, "fail")

    def commit(self, x, y):
        for partition in range(self.PARTITIONS):
            if self.owner[partition] == x:
                self.committed[partition] = self.position[partition]

    def crash_consumer(self, x, y):
        self.note(f"c{x}", "crash")
        for partition in range(self.PARTITIONS):
            if self.owner[partition] == x:
                self.position[partition] = self.committed[partition]

    def rebalance(self, x, y):
        """A partition goes to another consumer, which begins where the old one committed."""
        partition = y % self.PARTITIONS
        self.owner[partition] = x
        self.position[partition] = self.committed[partition]
        self.note(f"c{x}", "rebalance", partitions=[("t", partition)])

    def read_everything(self):
        for partition, log in enumerate(self.logs):
            for start in range(0, len(log), 3):
                self.note("last", "poll", polled=self.read(partition, start, 3))


STEPS = [
    step
    for name, step in vars(Model).items()
    if callable(step) and step.__code__.co_varnames[1:3] == ("x", "y")
]


def steps():
    small = st.integers(0, Model.CLIENTS - 1)
    return st.lists(st.tuples(st.sampled_from(STEPS), small, small), min_size=20, max_size=60)


def run(model, moves):
    for step, x, y in moves:
        step(model, x, y)
    model.read_everything()


@settings(deadline=None)
@given(steps(), st.randoms(use_true_random=False))
def test_a_faultless_log_has_no_anomaly_in_whatever_order_the_notes_are_read(moves, rng):
    model = Model()
    run(model, moves)
    report = check(model.history)
    assert report.anomalies == {}
    acknowledged = {m.value for op in model.history if op.outcome == "ok" for m in op.sent}
    assert report.counts["acknowledged"] == len(acknowledged)
    rng.shuffle(model.history)
    assert check(model.history).ok()


# The same log with one mistake in it. `log` is that of partition 0, and begins with the values
# "a" to "d", sent by "w", at the offsets 0 to 3; what a fault adds happens at the end.


def polled_as(model, change):
    """Let `change` (None: drop it) say what polls return for a message of partition 0."""

    def seen(message):
        return change(message) if message.partition == 0 else message

    for n, op in enumerate(model.history):
        new = [message for message in map(seen, op.polled) if message]
        model.history[n] = op._replace(polled=new)


def drop_an_acknowledged_record(model):
    polled_as(model, lambda m: None if m.offset == 1 else m)


def drop_the_last_record(model):
    model.note("w", "send", sent=[Message("t", 0, len(model.logs[0]), "z")])


def swap_two_offsets(model):
    swapped = {1: "c", 2: "b"}
    polled_as(model, lambda m: m._replace(value=swapped.get(m.offset, m.value)))


def swap_two_sends(model):
    end = len(model.logs[0])
    model.note("w", "send", sent=[Message("t", 0, end + 1, "y")])
    model.note("w", "send", sent=[Message("t", 0, end, "z")])
    model.note("z", "poll", polled=[Message("t", 0, end, "z"), Message("t", 0, end + 1, "y")])


def swap_two_sends_of_a_transaction(model):
    swap_two_sends(model)
    *model.history, one, two, poll = model.history
    model.history += [two._replace(kind="txn", sent=[*one.sent, *two.sent]), poll]


def duplicate_a_record(model):
    model.note("z", "poll", polled=[Message("t", 0, len(model.logs[0]), "b")])


def show_a_failed_send(model):
    model.note("w", "send", "fail", sent=[Message("t", 0, UNKNOWN, "z")])
    model.note("z", "poll", polled=[Message("t", 0, len(model.logs[0]), "z")])


def polls_of(model, *texts):
    for text in texts:
        model.note("z", "poll", polled=messages(text))


FAULTS = [
    (drop_an_acknowledged_record, "lost-write"),
    (drop_the_last_record, "unseen"),
    (swap_two_offsets, "inconsistent-offsets"),
    (swap_two_sends, "nonmonotonic-send"),
    (swap_two_sends_of_a_transaction, "int-nonmonotonic-send"),
    (duplicate_a_record, "duplicate"),
    (show_a_failed_send, "G1a"),
    (lambda model: polls_of(model, "a0 b1", "d3"), "poll-skip"),
    (lambda model: polls_of(model, "a0 b1 d3"), "int-poll-skip"),
    (lambda model: polls_of(model, "a0 b1", "b1 c2"), "nonmonotonic-poll"),
    (lambda model: polls_of(model, "a0 b1 b1 c2"), "int-nonmonotonic-poll"),
]


@pytest.mark.parametrize(("plant", "name"), FAULTS, ids=[name for _, name in FAULTS])
@settings(max_examples=30, deadline=None)
@given(moves=steps())
def test_one_planted_fault_is_found_under_its_name_alone(plant, name, moves):
    model = Model()
    for value in "abcd":
        model.logs[0].append(value)
        model.note("w", "send", sent=[Message("t", 0, len(model.logs[0]) - 1, value)])
    run(model, moves)
    plant(model)
    assert list(check(model.history).anomalies) == [name]


def test_every_name_has_a_fault():
    assert {name for _, name in FAULTS} == set(NAMES)


@pytest.mark.parametrize("module", ["history", "checker", "checker_report"])
def test_the_examples_in_the_docstrings(module):
    failed, tried = doctest.testmod(importlib.import_module(f"craft2.{module}"))
    assert (failed, tried > 0) == (0, True)

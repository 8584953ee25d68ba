"""Three real processes over sockets: killed, stopped, cut apart, while clients write and read.

A partition is made by relays between the servers, not by network namespaces: they need no rights,
work on every system, and cut connections that are there already, with bytes on their way.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import subprocess
import sys
import threading
import time

import pytest

from craft2.apps.raft_cluster import ClusterError, Connection, RaftCluster, Refused
from craft2.apps.simulate.linear import Operation, check_list
from phase3_raft.raft.messages import Members
from phase3_raft.raft.storage import RaftStorage


class Clients:
    """Threads that append different values, and read the list, each one thing at a time."""

    def __init__(self, cluster, count=3):
        self._cluster = cluster
        self._values = itertools.count(1)
        self._ending = threading.Event()
        self.history = []
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, number):
        server, connection = self._cluster.ids[number % len(self._cluster.ids)], None
        for step in itertools.count(1):
            if self._ending.is_set():
                break
            read = step % 40 == 0
            op, fields = ("list", {}) if read else ("append", {"value": next(self._values)})
            called = time.monotonic()
            try:
                if connection is None:
                    connection = Connection(self._cluster.clients[server], timeout_s=1.0)
                result = connection.ask(op, **fields)
            except (OSError, Refused) as error:
                if not (read or (isinstance(error, Refused) and error.kind == "NotLeader")):
                    self.history.append(Operation(op, fields["value"], called))  # nobody knows
                server = getattr(error, "leader", None) or server % len(self._cluster.ids) + 1
                connection = connection and connection.close()
            else:
                seen = tuple(result) if read else ()
                answered = time.monotonic()
                self.history.append(Operation(op, fields.get("value"), called, answered, seen))

    def acknowledged(self):
        """The values whose append was answered."""
        return [op.value for op in self.history if op.kind == "append" and op.answered < math.inf]

    def get_on(self, count=100):
        """Wait until so many more appends are acknowledged."""
        until = len(self.acknowledged()) + count
        self._cluster.wait_until(lambda: len(self.acknowledged()) >= until)

    def end(self):
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def judge(self):
        """Nothing that they were told may be untrue."""
        self.end()
        called = time.monotonic()
        seen = tuple(self._cluster.ask_leader("list"))
        assert not set(self.acknowledged()) - set(seen), "acknowledged and lost"
        last = Operation("list", None, called, time.monotonic(), seen)
        assert check_list([*self.history, last]) is None


@pytest.fixture
def cluster(tmp_path):
    with RaftCluster(tmp_path, options=["--compact-every", "200"]) as cluster:
        yield cluster


@pytest.fixture
def clients(cluster):
    """Clients at work; see `judge`."""
    cluster.wait_for_leader()
    clients = Clients(cluster)
    yield clients
    clients.end()


def caught_up(cluster, server_id):
    """Wait until a server has applied what the leader has committed by now."""
    committed = cluster.status(cluster.wait_for_leader())["committed"]
    cluster.wait_until(lambda: cluster.status(server_id).get("applied", 0) >= committed)


def test_a_leader_that_is_killed_is_replaced_and_comes_back_as_a_follower(cluster, clients):
    for _ in range(2):
        clients.get_on()
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        assert cluster.wait_for_leader() != leader
        clients.get_on()
        cluster.start(leader)
        caught_up(cluster, leader)
    clients.judge()


def test_a_leader_that_stands_still_is_replaced_and_believes_it_when_it_wakes(cluster, clients):
    clients.get_on()
    leader = cluster.wait_for_leader()
    term = cluster.status(leader)["term"]
    others = [i for i in cluster.ids if i != leader]
    cluster.pause(leader)
    assert cluster.wait_for_leader(others) != leader
    clients.get_on()
    cluster.resume(leader)
    caught_up(cluster, leader)
    status = cluster.status(leader)
    assert (status["role"], status["term"] > term) == ("follower", True)
    clients.judge()


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_joins_again(cluster, clients):
    clients.get_on()
    leader = cluster.wait_for_leader()
    others = [i for i in cluster.ids if i != leader]
    cluster.cut([leader])
    lonely = Connection(cluster.clients[leader], timeout_s=10)
    with pytest.raises(Refused, match=r"OutcomeUnknown|NotLeader"):
        lonely.ask("append", value="cut off")
    with pytest.raises(Refused, match="NotLeader"):
        lonely.ask("list")
    lonely.close()
    assert cluster.wait_for_leader(others) != leader
    clients.get_on(1_000)  # more than twice --compact-every: it needs a snapshot
    cluster.heal()
    caught_up(cluster, leader)
    assert any(event.kind == "snapshot-installed" for event in cluster.events(leader))
    clients.end()
    assert "cut off" not in cluster.ask_leader("list")
    clients.judge()


def test_all_killed_at_once_keep_what_was_acknowledged(cluster, clients):
    clients.get_on(300)
    for server_id in cluster.ids:
        cluster.kill(server_id)
    for server_id in cluster.ids:
        cluster.start(server_id)
    clients.get_on()
    clients.judge()


def test_leadership_is_handed_over_under_load(cluster, clients):
    clients.get_on()
    heir = cluster.wait_for_leader() % 3 + 1

    def handed_over():
        leader = cluster.wait_for_leader()
        if leader != heir:
            with contextlib.suppress(OSError, Refused):  # it has just lost it, or is about to
                cluster.ask(leader, "transfer", to=heir)
        return leader == heir

    cluster.wait_until(handed_over)
    clients.get_on()
    clients.judge()


def test_a_server_is_removed_and_comes_back(cluster, clients):
    clients.get_on()
    leader = cluster.wait_for_leader()
    gone = leader % 3 + 1
    stay = [i for i in cluster.ids if i != gone]
    cluster.ask_leader("members", voters=stay)
    clients.get_on()
    assert cluster.ask_leader("status")["voters"] == stay
    cluster.ask_leader("members", voters=stay, learners=[gone])
    caught_up(cluster, gone)
    cluster.ask_leader("members", voters=[*stay, gone])
    clients.get_on()
    clients.judge()


def test_a_damaged_server_joins_again_as_its_error_says_and_nothing_is_lost(cluster):
    """Were it to start as a voter with an empty folder, it and the one that is behind would elect
    each other, and know nothing of what was acknowledged."""
    leader = cluster.append(1)
    damaged, behind = (i for i in cluster.ids if i != leader)
    cluster.kill(behind)
    for value in range(2, 6):
        assert cluster.append(value) == leader
    cluster.kill(damaged)
    folder = cluster.folder / f"server-{damaged}"
    with (folder / "hard_state").open("r+b") as file:
        file.write(b"\xff\xff")
    with pytest.raises(ClusterError, match=r"start it with --join, .* Never start a voter"):
        cluster.start(damaged)
    cluster.start(behind)
    caught_up(cluster, behind)
    cluster.ask_leader("members", voters=[i for i in cluster.ids if i != damaged])
    shutil.rmtree(folder)
    cluster.start(damaged, "--join")
    cluster.ask_leader("members", voters=cluster.ids)
    caught_up(cluster, damaged)
    cluster.kill(cluster.wait_for_leader())
    cluster.append(6)
    assert cluster.ask_leader("list") == [1, 2, 3, 4, 5, 6]


def test_who_joins_with_an_empty_folder_stands_for_no_election(cluster):
    leader = cluster.append(1)
    joins, other = (i for i in cluster.ids if i != leader)
    cluster.kill(joins)
    cluster.kill(other)
    shutil.rmtree(cluster.folder / f"server-{joins}")
    cluster.start(joins, "--join")
    assert cluster.status(joins)["voters"] == []
    assert cluster.status(joins)["term"] == 0


def test_sigterm_ends_a_server_and_status_0_says_that_it_was_meant(cluster):
    leader = cluster.wait_for_leader()
    assert cluster.stop(leader) == 0
    assert cluster.wait_for_leader() != leader


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--peers", "1=nowhere"], "the address 'nowhere'"),
        (["--peers", "1=h:1,1=h:2"], "each number once"),
        (["--id", "9"], "--id 9 is not in --peers"),
        (["--voters", "1,x"], "--voters '1,x'"),
        (["--election-ms", "soon"], "--election-ms 'soon'"),
        (["--election-ms", "50-100"], "0 < heartbeat < shortest timeout"),
        (["--cluster", "other"], "belongs to cluster and server craft2 1"),
        (["--listen", "192.0.2.1:1"], "cannot listen at 192.0.2.1:1"),
    ],
)
def test_bad_arguments_are_told_in_one_line(tmp_path, options, says):
    RaftStorage(tmp_path, "craft2", 1, Members((1,))).close()
    usual = ["--id", "1", "--peers", "1=127.0.0.1:0", "--dir", str(tmp_path)]
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "raft", "serve", *usual, *options]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr


class Answering(RaftCluster):
    """One whose leader answers as told; there are no processes."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def leader(self, among=None):
        return 3

    def ask(self, server_id, op, **fields):
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise Refused(answer, "because", None)
        return answer

    def wait_until(self, reached, timeout_s=20.0):
        while not reached():
            pass


def test_an_append_is_asked_again_only_when_nothing_has_happened():
    assert Answering("NotLeader", "NotLeader", 1).append(7) == 3
    with pytest.raises(Refused, match="OutcomeUnknown"):
        Answering("OutcomeUnknown", 1).append(7)
    assert Answering("NotLeader", "OutcomeUnknown", [7]).ask_leader("list") == [7]

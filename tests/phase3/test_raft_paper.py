"""One test a rule, by the sections of the paper and the thesis (see phase3_raft/raft/messages)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from raft_cluster import Cluster, entries

from phase3_raft.raft.messages import (
    MAX_TERM,
    Append,
    Appended,
    BadMessage,
    InstallSnapshot,
    Members,
    RaftError,
    RequestVote,
    Snapshot,
    TimeoutNow,
    Vote,
)
from phase3_raft.raft.state import Flow, NotLeader, RaftConfig, Role


def ask(cluster, to, sender, term, last=(0, 0), **kwargs):
    """Server `to` is asked for its vote; what it answers."""
    server = cluster[to]
    last_term, last_index = last
    server.step(
        RequestVote(
            sender=sender, to=to, term=term, last_index=last_index, last_term=last_term, **kwargs
        ),
        cluster.now,
    )
    ready = server.ready()
    if ready is None:
        return None
    server.advance(ready)
    return next((m for m in ready.messages if isinstance(m, Vote)), None)


def append(cluster, to, sender, term, prev=(0, 0), new=(), commit=0):
    """Server `to` is sent entries; what it answers."""
    prev_term, prev_index = prev
    server = cluster[to]
    server.step(
        Append(
            sender=sender,
            to=to,
            term=term,
            prev_index=prev_index,
            prev_term=prev_term,
            entries=tuple(new),
            commit=commit,
        ),
        cluster.now,
    )
    ready = server.ready()
    server.advance(ready)
    return next(m for m in ready.messages if isinstance(m, Appended))


# 5.1 Raft basics


def test_5_1_whoever_hears_of_a_later_term_follows_in_it():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].step(Appended(sender=2, to=1, term=9, ok=False, index=0), cluster.now)
    assert (cluster[1].role, cluster[1].term, cluster[1].leader) == (Role.FOLLOWER, 9, None)


def test_5_1_what_comes_from_an_earlier_term_is_refused_with_ours():
    cluster = Cluster(3, terms={1: 5})
    assert append(cluster, 1, 2, term=4).term == 5
    assert not append(cluster, 1, 2, term=4).ok
    assert ask(cluster, 1, 2, term=4, last=(4, 9)).granted is False
    assert cluster[1].leader is None


# 5.2 Leader election


def test_5_2_a_follower_that_hears_nothing_stands_and_leads_with_a_majority():
    cluster = Cluster(5)
    cluster.down = {4, 5}
    assert cluster.elect(1) is Role.LEADER
    assert cluster[1].term == 1
    cluster.down = {2, 4, 5}
    assert cluster.elect(3) is not Role.LEADER


def test_5_2_a_server_votes_once_in_a_term_for_who_comes_first():
    cluster = Cluster(3)
    assert ask(cluster, 1, 2, term=1).granted
    assert not ask(cluster, 1, 3, term=1).granted
    assert ask(cluster, 1, 2, term=1).granted  # the same again: its answer may have been lost
    assert ask(cluster, 1, 3, term=2).granted  # another term, another vote


def test_5_2_the_vote_is_to_be_written_before_it_leaves():
    cluster = Cluster(3)
    cluster[1].step(RequestVote(sender=2, to=1, term=1, last_index=0, last_term=0), cluster.now)
    ready = cluster[1].ready()
    assert ready.hard_state == (1, 2)
    assert [type(message) for message in ready.messages] == [Vote]
    assert not ready.early


def test_5_2_a_candidate_follows_a_leader_of_its_own_term():
    cluster = Cluster(3)
    cluster.down = {2, 3}
    cluster[1]._stand(pre=False)
    assert (cluster[1].role, cluster[1].term) == (Role.CANDIDATE, 1)
    append(cluster, 1, 2, term=1)
    assert (cluster[1].role, cluster[1].leader) == (Role.FOLLOWER, 2)


def test_5_2_a_split_vote_is_decided_in_a_later_term():
    cluster = Cluster(4)
    for one, other in ((1, 2), (3, 4)):
        cluster[one]._stand(pre=False)
        assert ask(cluster, other, one, term=1).granted
    cluster.deliver()
    assert cluster.leaders() == []
    cluster.elect(1)
    assert cluster.leaders() == [1]
    assert cluster[1].term == 2


def test_5_2_timeouts_are_random_within_their_bounds():
    config = RaftConfig()
    cluster = Cluster(3)
    seen = set()
    for chance in (0.0, 0.5, 0.999):
        cluster[1]._random = lambda chance=chance: chance
        cluster[1]._set_election_timer()
        seen.add(cluster[1].election_at_ms)
    assert len(seen) == 3
    assert all(config.election_timeout_ms[0] <= at < config.election_timeout_ms[1] for at in seen)


def test_a_server_that_has_just_begun_may_stand_sooner_and_only_then():
    cluster = Cluster(3, first_election_ms=(20, 40))
    assert cluster[1].election_at_ms == 30
    cluster[1]._set_election_timer()
    assert cluster[1].election_at_ms == 450


def test_5_2_a_new_leader_says_so_at_once():
    cluster = Cluster(3)
    cluster.elect(1)
    assert {cluster[2].leader, cluster[3].leader} == {1}


def test_5_2_a_new_leader_says_so_once():
    """Its no-op is the first heartbeat; the next one comes a heartbeat later."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.pass_time(50)
    said = [message for message in cluster.messages if isinstance(message, Append)]
    assert sum(bool(append.entries) for append in said) == 2  # one to each
    assert sum(not append.entries for append in said) == 2  # that the no-op is committed


# 5.3 Log replication


def test_5_3_an_entry_is_committed_when_a_majority_has_it_and_then_applied_everywhere():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {3}
    cluster[1].propose([b"x"])
    cluster.deliver()
    assert cluster.applied[1] == cluster.applied[2] == [b"", b"x"]
    cluster.down = set()
    cluster.beat(1)
    assert cluster.applied[3] == [b"", b"x"]


def test_5_3_without_a_majority_nothing_is_committed():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {2, 3}
    cluster[1].propose([b"x"])
    cluster.deliver()
    assert cluster.applied[1] == [b""]


def test_5_3_entries_fit_only_behind_an_entry_of_the_same_index_and_term():
    cluster = Cluster(3, logs={1: entries(1, 1, 2)})
    assert not append(cluster, 1, 2, term=3, prev=(3, 3), new=entries(3, first=4)).ok
    assert not append(cluster, 1, 2, term=3, prev=(2, 4), new=entries(3, first=5)).ok
    assert append(cluster, 1, 2, term=3, prev=(2, 3), new=entries(3, first=4)).ok
    assert cluster.terms(1) == [1, 1, 2, 3]


def test_5_3_entries_that_contradict_the_leader_go_with_all_behind_them():
    cluster = Cluster(3, logs={1: entries(1, 1, 2, 2, 2)})
    append(cluster, 1, 2, term=3, prev=(1, 2), new=entries(3, first=3))
    assert cluster.terms(1) == [1, 1, 3]


def test_5_3_a_late_message_that_says_less_cuts_nothing_off():
    cluster = Cluster(3, logs={1: entries(1, 1, 1, 1)})
    assert append(cluster, 1, 2, term=1, prev=(1, 1), new=entries(1, first=2)).index == 2
    assert cluster.terms(1) == [1, 1, 1, 1]


def test_5_3_a_follower_commits_no_further_than_it_is_known_to_agree():
    cluster = Cluster(3, logs={1: entries(1, 1, 2, 2)})
    append(cluster, 1, 2, term=3, prev=(1, 2), commit=4)
    assert cluster[1].log.committed == 2


@pytest.mark.parametrize(
    ("prev", "new"),
    [
        ((1, 1), entries(2, first=2)),  # as many entries as are committed, or fewer
        ((1, 1), entries(2, 2, 2, first=2)),  # more
        ((2, 2), ()),  # what they stand behind
    ],
)
def test_5_3_a_leader_that_contradicts_what_is_committed_stops_the_server(prev, new):
    """Two leaders must have been at work: an answer would make it worse (etcd panics, too)."""
    cluster = Cluster(3, logs={1: entries(1, 1, 1)})
    append(cluster, 1, 2, term=2, prev=(1, 3), commit=3)
    with pytest.raises(RaftError, match="entry 2 is committed"):
        append(cluster, 1, 2, term=2, prev=prev, new=new)
    assert cluster[1].ready() is None
    assert cluster.terms(1) == [1, 1, 1]


def test_7_a_snapshot_that_contradicts_what_is_committed_stops_the_server():
    cluster = Cluster(3, logs={1: entries(1, 1, 1)})
    append(cluster, 1, 2, term=2, prev=(1, 3), commit=3)
    late = Snapshot(2, 2, Members((1, 2, 3)))
    with pytest.raises(RaftError, match="entry 2 is committed"):
        cluster[1].step(InstallSnapshot(sender=2, to=1, term=2, snapshot=late), cluster.now)


FIGURE_7 = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


@pytest.mark.parametrize("name", FIGURE_7)
def test_figure_7_every_follower_comes_to_have_the_leaders_log(name):
    leader = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    logs = {1: entries(*leader), 2: entries(*FIGURE_7[name]), 3: entries(1, 1, 1, 4)}
    cluster = Cluster(3, logs=logs, terms={1: 7, 2: 7, 3: 7})
    cluster.elect(1)
    if cluster[1].role is not Role.LEADER:  # d has more than it, and votes for nobody who lacks it
        cluster.elect(1)
    assert cluster[1].role is Role.LEADER
    assert cluster.terms(1) == [*leader, 8]
    assert cluster.terms(2) == cluster.terms(3) == cluster.terms(1)


def test_5_3_the_leader_goes_back_a_whole_term_in_one_message():
    long = entries(1, *[2] * 50)
    cluster = Cluster(3, logs={1: entries(1, *[3] * 50), 2: long, 3: entries(1, *[3] * 50)})
    cluster.elect(1)
    refused = [m for m in cluster.messages if isinstance(m, Appended) and not m.ok]
    assert len(refused) <= 2
    assert cluster.terms(2) == cluster.terms(1)


# 5.4 Safety


@pytest.mark.parametrize(
    ("mine", "theirs", "granted"),
    [
        ((1, 1), (1, 1), True),
        ((1, 1), (1, 2), True),
        ((1, 2), (1, 1), False),
        ((1, 9), (2, 1), True),
        ((2, 1), (1, 9), False),
    ],
)
def test_5_4_1_nobody_votes_for_a_log_that_is_behind_its_own(mine, theirs, granted):
    term, length = mine
    cluster = Cluster(3, logs={1: entries(*[term] * length)})
    assert ask(cluster, 1, 2, term=3, last=theirs).granted is granted


def test_a_server_with_another_folder_votes_only_for_who_knows_of_it():
    """Servers 1 and 3 have committed entry 2; then 3 has lost its disk. 2 must not lead."""
    cluster = Cluster(3, logs={1: entries(1, 1), 2: entries(1)})
    cluster[3].folder = "new"
    assert not ask(cluster, 3, 2, term=2, last=(1, 1), folder="old").granted
    assert not ask(cluster, 3, 2, term=2, last=(1, 1), folder="old", pre=True).granted
    assert ask(cluster, 3, 1, term=3, last=(1, 2), folder="new").granted
    assert ask(cluster, 3, 1, term=4, last=(1, 2)).granted, "nobody has heard of it yet"


def test_who_stands_says_which_folders_its_log_knows():
    cluster = Cluster(3)
    cluster[1].folders = lambda: {2: "two", 3: "three"}
    cluster[2].folder, cluster[3].folder = "two", "another"
    cluster.down.add(2)
    assert cluster.elect(1) is not Role.LEADER
    cluster[3].folder = "three"
    assert cluster.elect(1) is Role.LEADER


def test_5_3_what_got_lost_is_sent_again_with_the_heartbeat_though_others_have_entries_to_get():
    c = Cluster(3)
    c.elect(1)
    c[1].peers[3].flow, c[1].peers[3].waits = Flow.PROBE, True  # its message was lost
    c[1].propose([b"x"])
    c[1].tick(c[1].heartbeat_at_ms)
    assert {message.to for message in c[1].ready().early} == {2, 3}


def test_5_4_2_figure_8_an_earlier_terms_entry_is_not_committed_by_counting():
    """Server 1, back as the leader of term 4, brings entry 2 to a majority: (c) of the figure."""
    logs = {
        1: entries(1, 2),
        2: entries(1, 2),
        3: entries(1),
        4: entries(1),
        5: entries(1, 3),
    }
    cluster = Cluster(5, logs=logs, terms=dict.fromkeys(logs, 3), max_append_entries=1)
    cluster.down = {5}

    def has_entry_of_term_4(message):
        """Such a message arrives without its entries."""
        if not (isinstance(message, Append) and any(e.term == 4 for e in message.entries)):
            return False
        bare = msgspec.structs.replace(message, entries=())
        cluster[message.to].step(bare, cluster.now)
        return True

    cluster[1]._stand(pre=False)
    cluster.deliver(drop=has_entry_of_term_4)
    assert cluster[1].role is Role.LEADER
    assert [cluster.terms(i) for i in (1, 2, 3)] == [[1, 2, 4], [1, 2], [1, 2]]
    assert cluster[1].log.committed == 0  # a majority has entry 2, and that is not enough
    cluster.beat(1)  # (e): now an entry of term 4 follows it to a majority
    assert cluster[1].log.committed == 3


def test_5_4_2_a_new_leaders_first_entry_is_a_no_op_that_commits_all_before_it():
    cluster = Cluster(3, logs={1: entries(1, 1), 2: entries(1, 1), 3: ()})
    cluster.elect(1)
    assert cluster.applied[1] == [b"1", b"1", b""]


# 5.5, 8 and the thesis


def test_6_4_a_read_waits_until_a_majority_has_said_that_we_still_lead():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.separate(1)
    cluster[1].read("before")
    cluster.deliver()
    assert cluster.reads == []
    cluster.cut.clear()
    cluster.beat(1)
    assert cluster.reads == [("before", 1)]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"index": 3}, "has entry 3, and the last one is 1"),
        ({"index": 1, "round": 1}, "round 1, and the last one is 0"),
        ({"index": 0, "ok": False, "round": 2**62}, "round 4611686018427387904"),
    ],
)
def test_5_3_an_answer_to_what_was_never_sent_is_refused_and_believed_in_nothing(what, says):
    cluster = Cluster(3)
    cluster.elect(1)
    leader = cluster[1]
    before = {i: vars(peer).copy() for i, peer in leader.peers.items()}
    with pytest.raises(BadMessage, match=says):
        leader.step(
            Appended(**{"sender": 2, "to": 1, "term": 1, "ok": True} | what), cluster.now + 1
        )
    assert {i: vars(peer) for i, peer in leader.peers.items()} == before
    assert (leader.log.committed, leader.log.last_index) == (1, 1)


def test_6_4_the_refusal_of_an_earlier_term_confirms_no_round_of_this_one():
    """A leader that starts again counts its rounds anew; a message of its old life comes late."""
    cluster = Cluster(3)
    cluster.elect(1)
    late = Append(sender=1, to=2, term=1, prev_index=1, prev_term=1, entries=(), commit=1, round=9)
    cluster.add(1, cluster[1].log.entries, term=1)
    cluster.now += 1_000
    cluster.elect(1)
    assert (cluster[1].term, cluster[1].round) == (2, 0)
    cluster[2].step(late, cluster.now)
    cluster.deliver()
    assert [message.round for message in cluster.messages if isinstance(message, Appended)][-1] == 0


def test_6_4_reads_of_a_leader_that_is_deposed_fail():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.separate(1)
    cluster[1].read("stale")
    cluster.deliver()
    cluster.elect(2)
    cluster.cut.clear()
    cluster.beat(2)
    assert cluster.reads == [("stale", None)]


def test_6_4_a_new_leader_reads_only_when_an_entry_of_its_own_term_is_committed():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose([b"x"])
    cluster.deliver()
    cluster.now = cluster[2].election_at_ms
    for i in (1, 3):
        cluster[i].heard_leader_ms = -(10**9)
    cluster[2]._stand(pre=False, forced=True)
    cluster.deliver(drop=lambda m: isinstance(m, Append) and m.sender == 2 and bool(m.entries))
    assert cluster[2].role is Role.LEADER
    cluster[2].read("early")
    cluster.deliver(drop=lambda m: isinstance(m, Append) and m.sender == 2 and bool(m.entries))
    assert cluster.reads == []
    cluster.beat(2)
    assert cluster.reads == [("early", 3)]


def test_9_6_a_server_that_was_cut_off_does_not_raise_the_term_when_it_is_back():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.separate(3)
    cluster.pass_time(3_000)
    assert (cluster[3].role, cluster[3].term) == (Role.PRE_CANDIDATE, 1)
    cluster.cut.clear()
    cluster.pass_time(1_000)
    assert cluster.leaders() == [1]
    assert cluster[1].term == 1


def test_6_2_a_leader_that_no_majority_answers_steps_down():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.separate(1)
    cluster.pass_time(1_000)
    assert cluster[1].role in (Role.FOLLOWER, Role.PRE_CANDIDATE)


def test_4_2_3_while_a_leader_is_heard_requests_for_votes_are_not_looked_at():
    cluster = Cluster(3)
    cluster.elect(1)
    assert ask(cluster, 2, 3, term=9, last=(9, 9)) is None
    assert cluster[2].term == 1
    assert ask(cluster, 2, 3, term=9, last=(9, 9), forced=True).granted


LATER = MAX_TERM - 1
REMOVED = {"sender": 3, "to": 1, "term": LATER}
REQUESTS = [
    Append(**REMOVED, prev_index=0, prev_term=0, entries=(), commit=0),
    InstallSnapshot(**REMOVED, snapshot=Snapshot(90, LATER, Members((3,)))),
    RequestVote(**REMOVED, last_index=90, last_term=LATER),
    RequestVote(**REMOVED, last_index=90, last_term=LATER, forced=True),
    TimeoutNow(**REMOVED),
]
ANSWERS = [
    Vote(**REMOVED, granted=False),
    Vote(**REMOVED, granted=True),
    Vote(**REMOVED, granted=False, pre=True),
    Appended(**REMOVED, ok=False, index=0),
    Appended(**REMOVED, ok=True, index=90),
]


def without_3():
    """Server 1 leads 1 and 2; 3 was a member."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].change_members(Members(voters=(1, 2)))
    cluster.deliver()
    cluster.down = {3}
    cluster.beat(1)
    return cluster


def told(message):
    return type(message).__name__


@pytest.mark.parametrize("message", REQUESTS + ANSWERS, ids=told)
def test_4_2_3_while_a_leader_is_heard_nothing_that_a_removed_server_says_counts(message):
    cluster = without_3()
    for to in (1, 2):
        cluster[to].step(msgspec.structs.replace(message, to=to), cluster.now)
    cluster.deliver()
    assert [cluster[i].term for i in (1, 2)] == [1, 1]
    assert (cluster.leaders(), cluster[2].leader) == ([1], 1)


@pytest.mark.parametrize("message", ANSWERS, ids=told)
def test_4_2_3_the_answer_of_a_removed_server_never_counts(message):
    cluster = without_3()
    cluster.pass_time(10)
    cluster.separate(1, 2)
    cluster.down = {1, 3}
    cluster.pass_time(2_000)  # nobody leads any more
    assert cluster[2].role is Role.PRE_CANDIDATE
    cluster[2].step(msgspec.structs.replace(message, to=2), cluster.now)
    assert (cluster[2].role, cluster[2].term) == (Role.PRE_CANDIDATE, 1)


@pytest.mark.parametrize("message", REQUESTS[:3], ids=told)
def test_4_1_when_nobody_leads_a_server_that_is_not_known_yet_may_stand_or_lead(message):
    """Its configuration may be one that has not reached us: it must be able to bring it."""
    cluster = without_3()
    cluster.now += 2_000
    cluster[2].step(msgspec.structs.replace(message, to=2), cluster.now)
    assert cluster[2].term == LATER


def test_4_1_a_server_that_is_behind_follows_a_leader_that_it_does_not_know():
    """4 joins while 3 is away, and 1 hands leadership to it; 3 knows nothing of a server 4."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {3}
    cluster.add(4, members=Members())
    cluster[1].change_members(Members(voters=(1, 2, 3, 4)))
    cluster.deliver()
    cluster.beat(1)
    cluster[1].transfer(4)
    cluster.deliver()
    assert (cluster[3].members.voters, cluster[3].leader) == ((1, 2, 3), 1)
    cluster.down = set()
    cluster.pass_time(400)  # until it has not heard 1 for a while
    assert cluster.leaders() == [cluster[3].leader] == [4]
    assert cluster[3].members.voters == (1, 2, 3, 4)


def test_5_1_the_last_term_is_nobodys():
    """A leader epoch has 31 bits: whoever joined the last term could never stand again."""
    cluster = Cluster(1, terms={1: MAX_TERM - 2})
    assert cluster.elect(1) is Role.LEADER
    cluster = Cluster(1, terms={1: MAX_TERM - 1})
    with pytest.raises(RaftError, match="no term is left"):
        cluster.elect(1)


def test_3_10_leadership_is_handed_over_to_who_has_everything():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {2}
    cluster[1].propose([b"x"])
    cluster.deliver()
    cluster.down = set()
    cluster[1].transfer(2)
    with pytest.raises(NotLeader, match="handing leadership to 2"):
        cluster[1].propose([b"y"])
    cluster.beat(1)
    assert cluster.leaders() == [2]
    assert cluster.applied[2][:2] == [b"", b"x"]


def test_4_1_a_change_counts_as_soon_as_it_is_in_the_log():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {2, 3}
    cluster[1].change_members(Members(voters=(1, 2)))
    cluster.deliver()
    assert cluster[1].members.voters == (1, 2)
    with pytest.raises(RaftError, match="not committed yet"):
        cluster[1].change_members(Members(voters=(1,)))
    cluster.down = {3}
    cluster.beat(1)
    assert cluster[1].log.committed == cluster[1].log.last_index


def test_4_1_voters_change_one_at_a_time():
    cluster = Cluster(3)
    cluster.elect(1)
    with pytest.raises(RaftError, match="one at a time"):
        cluster[1].change_members(Members(voters=(1, 2, 4)))


def test_4_2_1_a_learner_gets_the_log_and_has_no_vote():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.add(4, members=Members())
    cluster[1].change_members(Members(voters=(1, 2, 3), learners=(4,)))
    cluster.deliver()
    assert cluster.applied[4] == cluster.applied[1]
    assert cluster.elect(4) is Role.FOLLOWER
    cluster[1].change_members(Members(voters=(1, 2, 3, 4)))
    cluster.deliver()
    assert cluster[4].members.voters == (1, 2, 3, 4)


def test_4_2_2_a_leader_that_is_removed_leads_until_that_is_committed():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].change_members(Members(voters=(2, 3)))
    assert cluster[1].role is Role.LEADER
    cluster.deliver()
    assert cluster[1].role is Role.FOLLOWER
    assert cluster[2].log.committed == cluster[3].log.committed == 2
    assert cluster.elect(1) is Role.FOLLOWER


def emptied(cluster, i):
    """Server i, started again with an empty folder."""
    cluster.add(i)
    cluster.applied[i] = []


def test_a_voter_whose_disk_was_emptied_is_found_out_and_comes_again_as_a_learner():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose([b"x", b"y"])
    cluster.deliver()
    emptied(cluster, 3)
    cluster.beat(1)
    cluster.beat(1)
    assert cluster[1].emptied == [3]
    assert cluster[3].log.last_index == 0
    cluster[1].change_members(Members(voters=(1, 2), learners=(3,)))
    cluster.beat(1)
    cluster.beat(1)
    assert cluster[1].emptied == []
    assert cluster.applied[3] == cluster.applied[1]
    cluster[1].change_members(Members(voters=(1, 2, 3)))
    cluster.deliver()
    assert cluster[3].members.voters == (1, 2, 3)


def test_what_a_voter_had_acknowledged_does_not_count_once_its_disk_was_emptied():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {2}
    emptied(cluster, 3)
    cluster[1].propose([b"x"])
    for _ in range(5):
        cluster.beat(1)
    assert b"x" not in cluster.applied[1]


def test_a_voter_whose_disk_was_emptied_is_found_out_while_much_is_on_its_way():
    cluster = Cluster(3, max_in_flight=2)
    cluster.elect(1)
    cluster[1].propose([b"x"])
    cluster.deliver()
    cluster.down = {3}
    for n in range(5):
        cluster[1].propose([b"%d" % n])
        cluster.deliver()
    cluster.down = set()
    emptied(cluster, 3)
    for _ in range(4):
        cluster.beat(1)
    assert cluster[1].emptied == [3]


def test_a_learner_whose_disk_was_emptied_gets_everything_again():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.add(4, members=Members())
    cluster[1].change_members(Members(voters=(1, 2, 3), learners=(4,)))
    cluster[1].propose([b"x", b"y"])
    cluster.deliver()
    cluster.add(4, members=Members())
    cluster.applied[4] = []
    cluster.beat(1)
    cluster.beat(1)
    assert cluster.applied[4] == cluster.applied[1]


def test_a_refusal_that_comes_late_is_no_sign_of_a_lost_disk():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {3}
    cluster[1].propose([b"x"])
    cluster.deliver()
    cluster.down = set()
    late = []
    cluster.now = cluster[1].heartbeat_at_ms
    cluster[1].tick(cluster.now)
    cluster.deliver(drop=lambda m: isinstance(m, Appended) and not m.ok and not late.append(m))
    cluster.beat(1)
    assert late
    assert cluster[3].log.last_index == cluster[1].log.last_index
    for again in (*late, *late):
        cluster[1].step(replace(again, index=cluster[1].peers[3].next - 1), cluster.now)
    cluster.deliver()
    assert cluster[1].emptied == []
    cluster.beat(1)
    cluster.beat(1)
    assert cluster[1].emptied == []


def test_7_a_follower_that_needs_what_is_gone_gets_a_snapshot():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.down = {3}
    cluster[1].propose([b"%d" % n for n in range(10)])
    cluster.deliver()
    cluster[1].compact(9, b"the state after 9")
    cluster.down = set()
    cluster.beat(1)
    assert cluster.applied[3] == [b"the state after 9", b"8", b"9"]
    assert cluster[3].log.snapshot.index == 9
    cluster[1].propose([b"on it goes"])
    cluster.deliver()
    assert cluster.applied[3][-1] == b"on it goes"


def test_7_a_snapshot_is_made_of_what_is_applied():
    cluster = Cluster(1)
    cluster.elect(1)
    for index in (0, 2):
        with pytest.raises(RaftError, match="make it of the last applied entry"):
            cluster[1].compact(index, b"")


def test_10_2_1_a_leader_writes_and_sends_at_the_same_time_and_counts_itself_afterwards():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster[1].propose([b"x"])
    ready = cluster[1].ready()
    assert {message.to for message in ready.early} == {2, 3}
    cluster[1].step(Appended(sender=2, to=1, term=1, ok=True, index=2), cluster.now)
    cluster[1].advance(ready)
    assert cluster[1].log.committed == 2


# A connection that breaks says sooner than any timeout that a leader has died.


def test_followers_whose_connection_to_the_leader_broke_elect_another_one_at_once():
    cluster = Cluster(3, heartbeat_ms=60, election_timeout_ms=(300, 600))
    cluster.elect(1)
    cluster.down.add(1)
    for other in (2, 3):
        cluster[other].connection_lost(1, cluster.now)
    cluster[3].election_at_ms += 1  # chance is the same for all here
    cluster.pass_time(60)
    assert cluster.leaders() == [1, 2]  # 1 is dead, and does not know
    assert cluster[2].term == cluster[1].term + 1


def test_a_leader_whose_connection_to_one_follower_broke_is_not_deposed():
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.beat(1)
    term = cluster[1].term
    cluster[2].connection_lost(1, cluster.now)
    cluster[2].connection_lost(3, cluster.now)
    cluster.pass_time(500)
    assert (cluster.leaders(), cluster[2].term, cluster[2].leader) == ([1], term, 1)


def test_no_message_is_longer_than_its_bytes_allow_unless_one_entry_is():
    cluster = Cluster(3, max_append_bytes=1_000)
    cluster.elect(1)
    cluster[1].propose([b"x" * 400] * 5 + [b"y" * 3_000] + [b"z"])
    cluster.deliver()
    appends = [m for m in cluster.messages if isinstance(m, Append) and m.to == 2]
    sizes = [[len(entry.data) for entry in append.entries] for append in appends]
    assert [some for some in sizes if any(some)] == [[400, 400], [400, 400], [400], [3_000], [1]]
    assert cluster[2].log.entries == cluster[1].log.entries

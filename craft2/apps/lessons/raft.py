"""What the notebooks on Raft need: the paper's figures as stages, and many elections at once."""

from __future__ import annotations

from contextlib import suppress
from statistics import median

from craft2.apps.simulate.stage import Stage
from phase3_raft.raft.messages import Appended, RaftError
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import Peer

# Figure 7 of the paper: the leader of term 8, and followers that may look like this.
FIGURE_7 = {
    1: (1, 1, 1, 4, 4, 5, 5, 6, 6, 6),
    2: (1, 1, 1, 4, 4, 5, 5, 6, 6),
    3: (1, 1, 1, 4),
    4: (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    5: (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    6: (1, 1, 1, 4, 4, 4, 4),
    7: (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}

# Figure 8 (b): server 1 led term 2 and reached server 2; then server 5 led term 3, and reached
# nobody.
FIGURE_8 = {1: (1, 2), 2: (1, 2), 3: (1,), 4: (1,), 5: (1, 3)}


def figure_8(server: type[RaftServer] = RaftServer) -> Stage:
    """Figure 8 (c): server 1 leads again, in term 4, and its entry of term 2 is on a majority."""
    stage = Stage(5, logs=FIGURE_8, committed=1, max_append_entries=1, server=server)
    stage.stop(5)
    stage.cut(4)
    stage.time_out(1)
    while stage.server(1).peers.get(3, Peer(1)).match < 2:
        stage.run(1)
    stage.drop(*[letter.number for letter in stage.on_the_way() if letter.message.to == 3])
    return stage


def print_logs(stage: Stage) -> None:
    """Each server's log, `term: command`; the bar stands behind what it knows to be committed."""
    for number in stage.numbers:
        print(f"server {number}: {stage.log(number)}")


def terms_now(stage: Stage) -> dict[int, int]:
    """Which term each server is in."""
    return {number: looks[-1].term for number, looks in stage.looks.items()}


def messages_until_known(stage: Stage, index: int, first: int) -> list[int]:
    """How many messages from number `first` on had arrived when one server knew that an entry is
    committed, when two did, and so on."""
    moments = [
        next(
            look.ms
            for look in looks
            if look.snapshot >= index or any(c.index == index and c.committed for c in look.cells)
        )
        for looks in stage.looks.values()
    ]
    arrived = [letter.arrives_ms for letter in stage.letters[first:]]
    return [sum(ms <= moment for ms in arrived) for moment in sorted(moments)]


def refusals(stage: Stage) -> dict[int, int]:
    """How often each server said that entries do not fit."""
    counts = dict.fromkeys(stage.numbers, 0)
    for letter in stage.letters:
        if isinstance(letter.message, Appended) and not letter.message.ok:
            counts[letter.message.sender] += 1
    return counts


def conversation(stage: Stage, most: int = 12, after: int = 0) -> None:
    """The messages from number `after` on, one a line, in the order in which they arrive."""
    letters = sorted(stage.letters[after:], key=lambda one: one.arrives_ms)
    for letter in letters[:most]:
        message = letter.message
        fate = "" if letter.fate == "arrives" else f"  ({letter.fate})"
        print(f"{letter.arrives_ms:4} ms  {message.sender} to {message.to}: {letter.words}{fate}")
    if len(letters) > most:
        print(f"... and {len(letters) - most} more")


def can_win(logs: dict[int, tuple[int, ...]], candidate: int, seed: int = 1) -> bool:
    """Whether this server is elected if all others are up and it stands first."""
    stage = Stage(len(logs), logs=logs, seed=seed)
    stage.time_out(candidate)
    stage.run(60)
    return stage.leader == candidate


def election_times_ms(
    election_timeout_ms: tuple[int, int], servers: int = 5, runs: int = 200
) -> list[int]:
    """For each seed: how long there is no leader after the first one was stopped."""
    times = []
    for seed in range(runs):
        stage = Stage(servers, seed=seed, election_timeout_ms=election_timeout_ms)
        first = stage.run_until_led(at_most_ms=60_000)
        stage.run(200)
        first = stage.leader or first
        stage.stop(first)
        stopped = stage.now_ms
        with suppress(RaftError):  # nobody in a minute: that is the time it is counted with
            stage.run_until_led(besides=first, at_most_ms=60_000)
        times.append(stage.now_ms - stopped)
    return times


def print_times(times: dict[str, list[int]]) -> None:
    """Median, worst of ten, and worst, a line each."""
    for name, found in times.items():
        found = sorted(found)
        tenth = found[int(0.9 * len(found))]
        print(f"{name:>12}: median {median(found):4.0f} ms, 90 % {tenth} ms, worst {found[-1]} ms")

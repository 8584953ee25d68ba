"""`craft2 cluster move-partitions`, `elect-leaders`."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from craft2.apps.cluster_running import bootstrap_of
from craft2.apps.words import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from craft2.apps.cluster_admin import ClusterStatus, PartitionStatus, TopicPartition

Bootstrap = Annotated[
    str | None,
    typer.Option(
        envvar="CRAFT2_BOOTSTRAP",
        help="host:port of any of its brokers; if it is not given, of those in --data-dir.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="The folder of `craft2 cluster up`; goes before the variable."),
]
SETTLE_S = 2.0  # a broker hears of a change at most so long after the controller
_LOOK_S = 0.1


def register(cluster: typer.Typer) -> None:
    """Add the verbs to `craft2 cluster`."""
    for verb in (move_partitions, elect_leaders):
        cluster.command()(verb)


def move_partitions(
    context: typer.Context,
    topic: Annotated[str | None, typer.Option(help="Of this topic; without it, of all.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this one; repeatable.")] = None,
    to: Annotated[
        str | None, typer.Option(help="2,3,4: the brokers, the preferred leader first.")
    ] = None,
    away: Annotated[
        int | None, typer.Option("--away-from", help="Let this broker have none of them.")
    ] = None,
    cancel: Annotated[
        bool,
        typer.Option(
            "--cancel",
            help="Call moves off instead; replicas may stay in another order than before, and so "
            "another one the first to lead.",
        ),
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait until they have moved.")] = True,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Bytes a second that a broker may copy for it; until they have moved.",
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
) -> None:
    """Let partitions move to other brokers while they are used.

    Give one of --to, --away-from and --cancel.
    """
    from craft2.apps.cluster_admin import AdminError, away_from, move, moving, read_status

    targets = {"--to": to is not None, "--away-from": away is not None, "--cancel": cancel}
    given = [name for name, is_given in targets.items() if is_given]
    if len(given) != 1:
        problem = (
            f"{' and '.join(given)} exclude each other" if given else "it is not said where to"
        )
        raise AdminError(problem, "give one of --to 2,3,4, --away-from 1, --cancel")
    if throttle is not None and cancel:
        raise AdminError("--throttle and --cancel: nothing would be copied", "give one of them")
    if throttle is not None and not wait:
        raise AdminError("--throttle and --no-wait: who would lift the limit?", "give one of them")
    known = bootstrap_of(context, bootstrap, data_dir)
    status = read_status(known)
    chosen = _chosen(status.partitions, topic, partition)
    if cancel:
        under_way = moving(known) & {(one.topic, one.partition) for one in chosen}
        move(known, dict.fromkeys(sorted(under_way)))
        print(f"{counted(len(under_way), 'move')} called off")
        return
    if away is not None:
        _check_known(away, status)
        moves = away_from(status, away, chosen)
    else:
        target = _numbers(to or "", {one.id for one in status.brokers})
        moves = {(one.topic, one.partition): target for one in chosen if one.replicas != target}
    carry_out(known, moves, wait=wait, bytes_per_s=throttle)


def elect_leaders(
    context: typer.Context,
    topic: Annotated[str | None, typer.Option(help="Of this topic; without it, of all.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this one; repeatable.")] = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean",
            help="Where nobody in sync is there, let one lead that is not: records are lost.",
        ),
    ] = False,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
) -> None:
    """Let the first replica of each partition lead again."""
    from craft2.apps.cluster_admin import elect, read_status
    from phase2_groups.error_codes import ErrorCode

    known = bootstrap_of(context, bootstrap, data_dir)
    chosen = None
    if topic is not None or partition:
        parts = _chosen(read_status(known).partitions, topic, partition)
        chosen = [(one.topic, one.partition) for one in parts]
    outcomes = elect(known, chosen, unclean=unclean)
    fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    for (name, number), outcome in sorted(outcomes.items()):
        if outcome not in fine:
            print(f"{name}-{number}: {outcome.name}")
    changed = sum(outcome is ErrorCode.NONE for outcome in outcomes.values())
    words = counted(changed, "partition has", "partitions have")
    print(f"{words} another leader")
    raise typer.Exit(any(outcome not in fine for outcome in outcomes.values()))


def carry_out(
    bootstrap: str,
    moves: Mapping[TopicPartition, Sequence[int]],
    *,
    wait: bool = True,
    bytes_per_s: int | None = None,
) -> None:
    """Move, and say how many are on their way until none is.

    Raises AdminError, also if some have not moved since somebody else has called that off.
    """
    from craft2.apps.cluster_admin import AdminError, move, throttle

    if not moves:
        print("nothing to move")
        return
    elsewhere: list[TopicPartition] = []
    if bytes_per_s is not None:
        throttle(bootstrap, moves, bytes_per_s)
    try:
        move(bootstrap, moves)
        print(counted(len(moves), "partition moves", "partitions move"), flush=True)
        if wait:
            elsewhere = _wait(bootstrap, moves)
    finally:
        if bytes_per_s is not None:
            throttle(bootstrap, moves, None)
    if elsewhere:
        topic, number = elsewhere[0]
        raise AdminError(
            f"{len(elsewhere)} of {counted(len(moves), 'partition')} did not move, such as "
            f"{topic}-{number}: somebody called that off, or moves them elsewhere",
            "see `craft2 cluster status`; to move them all the same, run this again",
        )
    if wait:
        print("all have moved")


def _wait(bootstrap: str, moves: Mapping[TopicPartition, Sequence[int]]) -> list[TopicPartition]:
    """Say how many are on their way until none is; returns those that are not where they were to
    go. That a broker says so is believed after a while: it may not have heard of the move yet.
    Those of a topic that was deleted are left out."""
    from craft2.apps.cluster_admin import moving, read_status

    before, until = None, time.monotonic() + SETTLE_S
    while True:
        left = len(moving(bootstrap) & set(moves))
        if left:
            until = time.monotonic() + SETTLE_S
            if left != before:
                print(counted(left, "is on its way", "are on their way"), flush=True)
            before = left
        else:
            parts = read_status(bootstrap).partitions
            now = {(one.topic, one.partition): one.replicas for one in parts}
            elsewhere = [one for one, to in moves.items() if one in now and now[one] != tuple(to)]
            if not elsewhere or time.monotonic() >= until:
                return elsewhere
        time.sleep(_LOOK_S)


def _check_known(broker: int, status: ClusterStatus) -> None:
    """Raises AdminError for a broker that neither runs nor has anything."""
    from craft2.apps.cluster_admin import AdminError

    known = {one.id for one in status.brokers}
    known.update(who for one in status.partitions for who in one.replicas)
    if broker not in known:
        raise AdminError(
            f"--away-from {broker}: no broker {broker} is there", f"take from {sorted(known)}"
        )


def _chosen(
    partitions: Sequence[PartitionStatus], topic: str | None, numbers: Sequence[int] | None
) -> list[PartitionStatus]:
    """Those that are meant. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError

    if numbers and topic is None:
        raise AdminError(f"--partition {numbers[0]}: it is not said of which topic", "give --topic")
    found = [one for one in partitions if topic in (None, one.topic)]
    missing = set(numbers or ()) - {one.partition for one in found}
    if topic is not None and (missing or not found):
        raise AdminError(
            f"there is no topic {topic!r}"
            if not found
            else f"topic {topic!r} has no partition {min(missing)}",
            "see `craft2 cluster status`",
        )
    return [one for one in found if not numbers or one.partition in numbers]


def _numbers(text: str, known: Set[int]) -> tuple[int, ...]:
    """`2,3,4`, all of them brokers. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError

    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        raise AdminError(f"--to {text!r}", "give numbers of brokers, such as 2,3,4")
    found = tuple(map(int, text.split(",")))
    strange = sorted(set(found) - known)
    if strange or len(set(found)) < len(found):
        problem = f"no broker {strange[0]} is there" if strange else "one is named twice"
        raise AdminError(f"--to {text!r}: {problem}", f"take from {sorted(known)}")
    return found

"""`craft2 cluster add-broker`, `stop-broker`, `move-partitions`, `elect-leaders`."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from craft2.apps.cluster_admin import PartitionStatus, TopicPartition

Bootstrap = Annotated[
    str | None,
    typer.Option(
        envvar="CRAFT2_BOOTSTRAP",
        help="host:port of any of its brokers; if it is not given, of those in --data-dir.",
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="The folder of `craft2 cluster up`.")]
END_S = 30.0  # a broker may take so long to end
_LOOK_S = 0.1


def register(cluster: typer.Typer) -> None:
    """Add the verbs to `craft2 cluster`."""
    for verb in (add_broker, stop_broker, move_partitions, elect_leaders):
        cluster.command()(verb)


def add_broker(
    data_dir: Annotated[Path, typer.Option(help="A folder for the broker is made in it.")],
    bootstrap: Bootstrap = None,
    broker_id: Annotated[
        int | None, typer.Option(min=1, help="Its number; the next one, if it is not given.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 0,
) -> None:
    """Run one more broker, until Ctrl-C or SIGTERM. It has no partitions until some are moved.

    Prints `broker ID pid PID HOST:PORT`, then `ready`.
    """
    import signal
    import subprocess

    from craft2.apps.cluster_admin import read_status
    from craft2.net import free_ports

    known = _bootstrap(bootstrap, data_dir)
    taken = {one.id for one in read_status(known).brokers} | _folders(data_dir).keys()
    number = broker_id or max(taken, default=0) + 1
    folder = data_dir / f"broker-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "broker", "--join", known]
    command += ["--data-dir", str(folder), "--broker-id", str(number)]
    command += ["--port", str(port or free_ports(1)[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for signalled in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signalled, lambda *_: process.send_signal(signal.SIGTERM))
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if words:
            print(f"broker {number} pid {process.pid} {words[1]}\nready", flush=True)
        raise typer.Exit(process.wait())


def stop_broker(
    broker_id: Annotated[int, typer.Argument(help="Its number.")],
    data_dir: Annotated[Path, typer.Option(help="The folder of `craft2 cluster up`.")],
    remove: Annotated[
        bool,
        typer.Option(
            "--remove",
            help="For good: its partitions move to others first, and the cluster forgets it.",
        ),
    ] = False,
) -> None:
    """End a broker of this machine in good order: others lead what it led before it goes."""
    import signal

    from craft2.apps.broker_process import read_pid_file
    from craft2.apps.cluster_admin import AdminError, away_from, read_status, unregister

    folder = data_dir / f"broker-{broker_id}"
    found = read_pid_file(str(folder))
    if found is None and not (remove and folder.is_dir()):
        there = ", ".join(map(str, sorted(_running(data_dir)))) or "none"
        raise AdminError(f"broker {broker_id} does not run in {data_dir}", f"there are: {there}")
    others = ",".join(where for n, where in _running(data_dir).items() if n != broker_id)
    if remove:
        _carry_out(others, away_from(read_status(others), broker_id))
    if found is not None:
        os.kill(found[0], signal.SIGTERM)
        _wait_for_end(found[0], f"broker {broker_id}")
        print(f"broker {broker_id} has ended")
    if remove:
        unregister(others, broker_id)
        print(f"broker {broker_id} is forgotten; its folder is {folder}")


def move_partitions(
    topic: Annotated[str | None, typer.Option(help="Of this topic; without it, of all.")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only this one; repeatable.")] = None,
    to: Annotated[
        str | None, typer.Option(help="2,3,4: the brokers, the preferred leader first.")
    ] = None,
    away: Annotated[
        int | None, typer.Option("--away-from", help="Let this broker have none of them.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Call moves off instead.")] = False,
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
    """Let partitions move to other brokers while they are used."""
    from craft2.apps.cluster_admin import AdminError, away_from, move, moving, read_status

    if sum((to is not None, away is not None, cancel)) != 1:
        raise AdminError(
            "it is not said where to", "give one of --to 2,3,4, --away-from 1, --cancel"
        )
    if throttle is not None and not wait:
        raise AdminError("--throttle and --no-wait: who would lift the limit?", "give one of them")
    known = _bootstrap(bootstrap, data_dir)
    status = read_status(known)
    chosen = _chosen(status.partitions, topic, partition)
    if cancel:
        under_way = moving(known) & {(one.topic, one.partition) for one in chosen}
        move(known, dict.fromkeys(sorted(under_way)))
        print(f"{len(under_way)} moves called off")
        return
    if away is not None:
        moves = away_from(status, away, chosen)
    else:
        target = _numbers(to or "", {one.id for one in status.brokers})
        moves = {(one.topic, one.partition): target for one in chosen}
    _carry_out(known, moves, wait=wait, bytes_per_s=throttle)


def elect_leaders(
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

    known = _bootstrap(bootstrap, data_dir)
    chosen = None
    if topic is not None:
        parts = _chosen(read_status(known).partitions, topic, partition)
        chosen = [(one.topic, one.partition) for one in parts]
    outcomes = elect(known, chosen, unclean=unclean)
    fine = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    for (name, number), outcome in sorted(outcomes.items()):
        if outcome not in fine:
            print(f"{name}-{number}: {outcome.name}")
    changed = sum(outcome is ErrorCode.NONE for outcome in outcomes.values())
    print(f"{changed} partitions have another leader")
    raise typer.Exit(any(outcome not in fine for outcome in outcomes.values()))


def _wait_for_end(pid: int, who: str) -> None:
    """Until a process has ended, whether or not its parent has looked. Raises AdminError."""
    import psutil

    from craft2.apps.cluster_admin import AdminError

    until = time.monotonic() + END_S
    while time.monotonic() < until:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(_LOOK_S)
    raise AdminError(f"{who}, process {pid}, has not ended in {END_S:g} s", "see what it says")


def _carry_out(
    bootstrap: str,
    moves: Mapping[TopicPartition, Sequence[int]],
    *,
    wait: bool = True,
    bytes_per_s: int | None = None,
) -> None:
    """Move, and say how many are on their way until none is."""
    from craft2.apps.cluster_admin import move, moving, throttle

    if not moves:
        print("nothing to move")
        return
    if bytes_per_s is not None:
        throttle(bootstrap, moves, bytes_per_s)
    try:
        move(bootstrap, moves)
        print(f"{len(moves)} partitions move", flush=True)
        before = None
        while wait and (left := len(moving(bootstrap) & set(moves))):
            if left != before:
                print(f"{left} are on their way", flush=True)
            before = left
            time.sleep(_LOOK_S)
    finally:
        if bytes_per_s is not None:
            throttle(bootstrap, moves, None)
    if wait:
        print("all have moved")


def _chosen(
    partitions: Sequence[PartitionStatus], topic: str | None, numbers: Sequence[int] | None
) -> list[PartitionStatus]:
    """Those that are meant. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError

    if numbers and topic is None:
        raise AdminError(f"--partition {numbers[0]} of which topic?", "give --topic")
    found = [one for one in partitions if topic in (None, one.topic)]
    missing = set(numbers or ()) - {one.partition for one in found}
    if topic is not None and (missing or not found):
        raise AdminError(
            f"there is no {topic}" + "".join(f"-{n}" for n in sorted(missing)[:1]),
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


def _folders(data_dir: Path) -> dict[int, Path]:
    """The brokers' folders in that of a cluster."""
    if not data_dir.is_dir():
        return {}
    names = {name: re.fullmatch(r"broker-(\d+)", name) for name in os.listdir(data_dir)}
    return {int(found[1]): data_dir / name for name, found in names.items() if found}


def _running(data_dir: Path) -> dict[int, str]:
    """Where the brokers listen that run in these folders."""
    from craft2.apps.broker_process import read_pid_file

    found = {n: read_pid_file(str(folder)) for n, folder in sorted(_folders(data_dir).items())}
    return {number: one[1] for number, one in found.items() if one is not None}


def _bootstrap(given: str | None, data_dir: Path | None) -> str:
    """Whom to ask. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError

    if given is not None:
        return given
    if data_dir is None:
        raise AdminError("which cluster?", "give --bootstrap or --data-dir")
    found = _running(data_dir)
    if not found:
        raise AdminError(f"no broker runs in {str(data_dir)!r}", "start some: craft2 cluster up")
    return ",".join(found.values())

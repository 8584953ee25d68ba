"""`craft2 cluster add-broker`, `start-broker`, `stop-broker`: one broker of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from craft2.apps.cli_cluster_admin import Bootstrap, carry_out
from craft2.apps.cluster_running import bootstrap_to_join, running
from craft2.apps.words import counted

if TYPE_CHECKING:
    from craft2.apps.cluster_admin import ClusterStatus

DataDir = Annotated[Path, typer.Option(help="The folder of `craft2 cluster up`.")]
BrokerNumber = Annotated[int, typer.Argument(help="Its number.")]
END_S = 30.0  # a broker may take so long to end
ROUNDS = 5  # topics may be made while its partitions move
PAUSE_S = 1.0  # until it is asked again to forget a broker
_LOOK_S = 0.1


def register(cluster: typer.Typer) -> None:
    """Add the verbs to `craft2 cluster`."""
    for verb in (add_broker, start_broker, stop_broker):
        cluster.command()(verb)


def add_broker(
    context: typer.Context,
    data_dir: Annotated[Path, typer.Option(help="A folder for the broker is made in it.")],
    bootstrap: Bootstrap = None,
    broker_id: Annotated[
        int | None, typer.Option(min=1, help="Its number; the next one, if it is not given.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 0,
) -> None:
    """Run one more broker, until Ctrl-C or SIGTERM. It has no partitions until some are moved.

    Prints `broker ID pid PID HOST:PORT`, then `ready`. `craft2 cluster up` starts it, too, the next
    time.
    """
    from craft2.apps.cluster_admin import (
        AdminError,
        read_cluster,
        read_members,
        read_status,
        read_voters,
    )
    from craft2.net import free_ports
    from phase3_raft.cluster_folder import (
        FIRST_NAME,
        broker_folders,
        option,
        read_options,
        shared_options,
    )

    root = str(data_dir)
    known = bootstrap_to_join(context, bootstrap, data_dir)
    for other in broker_folders(root):
        if port and option(read_options(root, other), "--port") == str(port):
            raise AdminError(f"--port {port} is where broker {other} listens", "give another one")
    if broker_id is not None and read_options(root, broker_id):
        raise AdminError(
            f"broker {broker_id} is in {root!r} already",
            f"start it again: craft2 cluster start-broker {broker_id} --data-dir {root}",
        )
    shared, theirs = shared_options(root), read_cluster(known)
    ours = (option(shared, "--cluster") or FIRST_NAME) if shared else theirs
    if ours != theirs:
        raise AdminError(
            f"the brokers in {root!r} are of cluster {ours}, and those at {known} of {theirs}",
            "give one of its own brokers as --bootstrap, or leave that out; or another --data-dir",
        )
    members = read_members(known)
    free = max(members | broker_folders(root).keys()) + 1
    here = {one.id for one in read_status(known).brokers}
    if broker_id in here or broker_id in read_voters(known):  # else its folder is lost
        raise AdminError(
            f"broker {broker_id} belongs to the cluster already",
            f"start it where it was, or give another number, such as {free}",
        )
    number = broker_id or free
    options = ["--broker-id", str(number), "--port", str(port or free_ports(1)[0])]
    _run(root, number, [*options, "--join", known, *shared])


def start_broker(broker_id: BrokerNumber, data_dir: DataDir) -> None:
    """Run a broker again that was stopped or killed, where it was, until Ctrl-C or SIGTERM.

    Prints `broker ID pid PID HOST:PORT`, then `ready`.
    """
    from craft2.apps.broker_process import read_pid_file
    from craft2.apps.cluster_admin import AdminError
    from phase3_raft.cluster_folder import (
        broker_folder,
        broker_folders,
        founders_options,
        read_options,
        with_option,
    )

    root = str(data_dir)
    options = read_options(root, broker_id) or founders_options(root, broker_id)
    if not options:
        known = ", ".join(str(n) for n in broker_folders(root) if read_options(root, n))
        add = f"craft2 cluster add-broker --broker-id {broker_id} --data-dir {root}"
        raise AdminError(
            f"no broker {broker_id} is in {root!r}",
            f"name one of {known}, or add one, also in place of one whose folder is lost: {add}"
            if known
            else f"begin a cluster: craft2 cluster up --data-dir {root}",
        )
    runs = read_pid_file(broker_folder(root, broker_id))
    if runs is not None:
        raise AdminError(
            f"broker {broker_id} runs already, as process {runs[0]}",
            f"stop it first: craft2 cluster stop-broker {broker_id} --data-dir {root}",
        )
    others = running(data_dir)
    if "--join" in options and others:  # they may be elsewhere by now
        options = with_option(options, "--join", ",".join(others.values()))
    _run(root, broker_id, options)


def stop_broker(
    broker_id: BrokerNumber,
    data_dir: DataDir,
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
    from craft2.apps.cluster_admin import AdminError
    from phase3_raft.cluster_folder import forget_options, option, read_options

    folder = data_dir / f"broker-{broker_id}"
    if not remove and read_pid_file(str(folder)) is None:
        there = ", ".join(map(str, running(data_dir)))
        fix = f"name one of {there}" if there else "correct --data-dir: no broker runs in this one"
        raise AdminError(f"broker {broker_id} does not run in {data_dir}", fix)
    options = read_options(str(data_dir), broker_id)
    others = ",".join(where for n, where in running(data_dir).items() if n != broker_id)
    others = others or option(options, "--join") or ""  # alone in its folder: those it has joined
    if remove:
        _check_removable(broker_id, data_dir, others)
        _empty(broker_id, others)
    found = read_pid_file(str(folder))  # only now: it may have died while its partitions moved
    if found is not None:
        with suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGTERM)
        _wait_for_end(found[0], f"broker {broker_id}")
        print(f"broker {broker_id} has ended")
    if remove:
        _forget(broker_id, others)
        forget_options(str(data_dir), broker_id)
        where = f"; its folder is {folder}" if folder.is_dir() else ""
        print(f"broker {broker_id} is forgotten{where}")


def _empty(broker_id: int, others: str, *, tell: bool = True) -> None:
    """Its partitions move to others, and those that it is given meanwhile, too. tell: also if there
    are none. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError, away_from, read_status

    for turn in range(ROUNDS):
        status = read_status(others)
        _check_led(broker_id, status)
        moves = away_from(status, broker_id)
        if moves or (tell and not turn):
            carry_out(others, moves)
        if not moves:
            return
    raise AdminError(
        f"broker {broker_id} is given new partitions all the time: it had some again after its own "
        f"had moved away {counted(ROUNDS, 'time')}",
        "let nobody make topics for a while, and run this again",
    )


def _check_led(broker_id: int, status: ClusterStatus) -> None:
    """Raises AdminError for a partition that nobody can copy."""
    from craft2.apps.cluster_admin import AdminError

    for one in status.partitions:
        if broker_id in one.replicas and one.leader < 0:
            raise AdminError(
                f"nobody leads {one.topic}-{one.partition}, so it cannot move away from broker "
                f"{broker_id}",
                f"start a broker that has all of it: craft2 cluster start-broker "
                f"{(*one.isr, broker_id)[0]}",
            )


def _forget(broker_id: int, others: str) -> None:
    """One that has ended. It may count as running for a moment, and may have been given partitions
    at the last, which move then. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError, unregister

    for left in reversed(range(ROUNDS)):
        try:
            unregister(others, broker_id)
            return
        except AdminError:
            if not left:
                raise
        time.sleep(PAUSE_S)
        _empty(broker_id, others, tell=False)


def _check_removable(broker_id: int, data_dir: Path, others: str) -> None:
    """Before its partitions move, and it ends. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError, read_members, read_voters
    from phase3_raft.cluster_folder import read_options

    root = str(data_dir)
    founder = "--voters" in read_options(root, broker_id)
    if not founder and not others:
        raise AdminError(
            f"no other broker runs in {root!r}, so none can forget broker {broker_id}",
            f"start one: craft2 cluster start-broker N --data-dir {root}",
        )
    if founder or broker_id in read_voters(others):
        raise AdminError(
            f"broker {broker_id} is one of the voters, which founded the cluster: they cannot be "
            "removed",
            f"empty it: craft2 cluster move-partitions --away-from {broker_id} --data-dir {root}; "
            "or stop it without --remove",
        )
    members = read_members(others)
    if broker_id not in members:
        there = ", ".join(map(str, sorted(members)))
        raise AdminError(f"there is no broker {broker_id} in the cluster", f"name one of {there}")


def _run(data_dir: str, number: int, options: Sequence[str]) -> None:
    """A broker until it ends. Its standard error is ours. Options that serve are kept."""
    import signal
    import subprocess
    import sys

    from phase3_raft.cluster_folder import broker_folder, keep_options
    from phase3_raft.local_cluster import own_variables

    folder = broker_folder(data_dir, number)
    os.makedirs(folder, exist_ok=True)
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "broker"]
    command += ["--data-dir", folder, *options]
    environment = {name: os.environ[name] for name in os.environ.keys() - set(own_variables())}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for signalled in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signalled, lambda *_: process.send_signal(signal.SIGTERM))
        assert process.stdout is not None
        print(f"broker {number} pid {process.pid} begins", file=sys.stderr, flush=True)
        words = process.stdout.readline().split()
        if words:
            keep_options(data_dir, number, options)
            print(f"broker {number} pid {process.pid} {words[1]}\nready", flush=True)
        raise typer.Exit(process.wait())


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
    raise AdminError(
        f"{who}, process {pid}, has not ended in {END_S:g} s",
        f"read what it says; at the worst: kill -9 {pid}",
    )

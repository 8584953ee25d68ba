"""`craft2 broker`: run a broker that Kafka's clients accept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from craft2.apps.broker_file import BadBrokerFile

if TYPE_CHECKING:
    from craft2.net import Address
    from phase3_raft.metadata.quorum import QuorumConfig

_ELECTION_MS = 300  # at least: shorter than that and nobody could be heard in time


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command()(broker)


def _take_from_file(context: typer.Context, path: Path | None) -> Path | None:
    """Make what the file says the defaults of the options: flags and the environment go first."""
    if path is not None:
        from craft2.apps.broker_file import check_setting, read_settings

        options = context.command.params
        known = {str(one.name) for one in options}
        lists = {str(one.name) for one in options if getattr(one, "multiple", False)}
        settings = read_settings(path, known, lists)
        for one in options:
            if one.name in settings:
                check_setting(context, one, settings[one.name], path)
        context.default_map = settings
    return path


def _print_example(context: typer.Context, wanted: bool) -> None:
    """A broker.yaml with every setting, its meaning and its default; then end."""
    if wanted:
        from craft2.apps.broker_file import example_file

        typer.echo(example_file(context.command), nl=False)
        raise typer.Exit


def broker(
    data_dir: Annotated[
        Path,
        typer.Option(envvar="CRAFT2_DATA_DIR", help="Where topics, groups and metadata are kept."),
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="CRAFT2_CONFIG",
            callback=_take_from_file,
            is_eager=True,
            help="A broker.yaml with these options, `port: 9092`. Flags and variables go first.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_PORT", min=0, max=65535, help="Where it listens; 0: any free port."
        ),
    ] = 9092,
    host: Annotated[
        str, typer.Option(envvar="CRAFT2_HOST", help="The address it listens at.")
    ] = "127.0.0.1",
    advertised: Annotated[
        str | None,
        typer.Option(
            envvar="CRAFT2_ADVERTISED",
            help="host:port that clients are told to connect to; default: where it listens.",
        ),
    ] = None,
    broker_id: Annotated[
        int, typer.Option(envvar="CRAFT2_BROKER_ID", min=0, help="Its number in the cluster.")
    ] = 1,
    rack: Annotated[
        str | None, typer.Option(envvar="CRAFT2_RACK", help="Where it stands, for its clients.")
    ] = None,
    partitions: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_PARTITIONS",
            min=1,
            help="Partitions of a new topic, unless its maker names a number.",
        ),
    ] = 1,
    replicas: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_REPLICAS",
            min=1,
            help="Replicas of a new topic, unless its maker names a number; no more than brokers.",
        ),
    ] = 1,
    topic_default: Annotated[
        list[str] | None,
        typer.Option(
            help="name=value, such as retention.ms=60000: a default for topics; repeat it. "
            "In broker.yaml: a list of them."
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            envvar="CRAFT2_CLUSTER",
            help="The name of the cluster, the same for all; craft2, or with --join that of those "
            "that it joins, if it is not given.",
        ),
    ] = None,
    voters: Annotated[
        str | None,
        typer.Option(
            envvar="CRAFT2_VOTERS",
            help="1=host:port,2=host:port,...: where each broker's Raft server listens, this one's "
            "too; the same for all. Without it the broker is alone.",
        ),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            envvar="CRAFT2_JOIN",
            help="host:port,...: brokers of a cluster that runs, which this one joins; it does not "
            "vote. In place of --voters.",
        ),
    ] = None,
    raft_listen: Annotated[
        str | None,
        typer.Option(
            envvar="CRAFT2_RAFT_LISTEN",
            help="host:port where this one's Raft server listens, if not there.",
        ),
    ] = None,
    session_ms: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_SESSION_MS",
            min=100,
            help="Fence a broker that sent no heartbeat for so many ms; replace a controller that "
            "is silent for half of it, 300 at least.",
        ),
    ] = 2_000,
    max_lag_ms: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_MAX_LAG_MS",
            min=100,
            help="A replica that has not caught up for so many ms leaves the ISR.",
        ),
    ] = 10_000,
    leader_rebalance_s: Annotated[
        float,
        typer.Option(
            envvar="CRAFT2_LEADER_REBALANCE_S",
            min=0.1,
            help="Every so many s the first replica of each partition leads again, if it can.",
        ),
    ] = 300.0,
    auto_create: Annotated[
        bool,
        typer.Option(
            envvar="CRAFT2_AUTO_CREATE",
            help="Make topics that clients use without having made them.",
        ),
    ] = True,
    max_connections: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_MAX_CONNECTIONS",
            min=1,
            help="Connections at most; a new one beyond that is closed at once.",
        ),
    ] = 10_000,
    group_initial_rebalance_delay_ms: Annotated[
        int,
        typer.Option(
            envvar="CRAFT2_GROUP_INITIAL_REBALANCE_DELAY_MS",
            min=0,
            help="A new group waits so many ms for more members before it assigns partitions.",
        ),
    ] = 3_000,
    retention_check_s: Annotated[
        float,
        typer.Option(
            envvar="CRAFT2_RETENTION_CHECK_S",
            min=0.01,
            help="Look for segments to delete every so many seconds.",
        ),
    ] = 300.0,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="CRAFT2_METRICS_PORT",
            min=1,
            max=65535,
            help="Serve /metrics for Prometheus there.",
        ),
    ] = None,
    example_config: Annotated[
        bool,
        typer.Option(
            "--example-config",
            is_eager=True,
            callback=_print_example,
            help="Print a broker.yaml with every setting, explained, and end.",
        ),
    ] = False,
    with_stdin: Annotated[
        bool, typer.Option("--with-stdin", help="End when standard input does.")
    ] = False,
) -> None:
    """Run a broker in the foreground: any client of Kafka's can use it.

    Prints `ready HOST:PORT` when it serves. SIGTERM and Ctrl-C end it in good order.
    """
    from craft2.apps.broker_process import serve
    from craft2.net import Address
    from phase2_groups.group_state import GroupLimits
    from phase3_raft.broker import BrokerConfig

    _check_folder(str(data_dir), alone=voters is None and join is None)
    limits = GroupLimits(initial_rebalance_delay_ms=group_initial_rebalance_delay_ms)
    serve(
        BrokerConfig(
            data_dir=str(data_dir),
            broker_id=broker_id,
            listen=Address(host, port),
            advertised=_address("--advertised", advertised) if advertised else None,
            rack=rack,
            default_partitions=partitions,
            default_replicas=replicas,
            topic_defaults=dict(_setting(one) for one in topic_default or ()),
            quorum=_quorum(broker_id, cluster, voters, join, raft_listen, session_ms),
            session_ms=session_ms,
            heartbeat_ms=max(20, session_ms // 10),
            max_lag_ms=max_lag_ms,
            leader_rebalance_s=leader_rebalance_s,
            auto_create_topics=auto_create,
            group_limits=limits,
            max_connections=max_connections,
            retention_check_s=retention_check_s,
        ),
        metrics=None if metrics_port is None else Address(host, metrics_port),
        with_stdin=with_stdin,
    )


def _check_folder(data_dir: str, *, alone: bool) -> None:
    """Raises BadBrokerFile for one that a broker must not make its own."""
    from phase3_raft.cluster_folder import OPTIONS_FILE, broker_folders, is_brokers
    from phase3_raft.metadata.metadata_log import METADATA_TOPIC

    if brokers := broker_folders(data_dir):
        raise BadBrokerFile(
            f"--data-dir {data_dir} is the folder of a cluster",
            f"name a broker's own, such as {next(iter(brokers.values()))}, or run all of them: "
            f"craft2 cluster up --data-dir {data_dir}",
        )
    if not alone and os.path.isdir(os.path.join(data_dir, f"{METADATA_TOPIC}-0")):
        raise BadBrokerFile(
            f"--data-dir {data_dir} belongs to a broker that runs alone, and has topics of its own",
            "give another one, and copy what is needed with a client",
        )
    if alone and is_brokers(data_dir):
        raise BadBrokerFile(
            f"--data-dir {data_dir} belongs to a broker of a cluster, which cannot run alone",
            f"give --voters or --join as before; {OPTIONS_FILE} has them if a command started it",
        )


def _setting(text: str) -> tuple[str, str]:
    """`name=value`. Raises BadBrokerFile."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadBrokerFile(f"--topic-default {text!r}", "give name=value, retention.ms=1000")
    return name, value


def _address(option: str, text: str) -> Address:
    """`host:port`. Raises NetError."""
    from craft2.net import NetError, parse_address

    try:
        return parse_address(text.strip())
    except NetError as error:
        raise NetError(f"{option} {text!r}: {error.problem}", error.fix) from None


def _quorum(
    me: int,
    cluster: str | None,
    voters: str | None,
    join: str | None,
    listen: str | None,
    session_ms: int,
) -> QuorumConfig | None:
    """The cluster that the broker is one of. Raises BadBrokerFile, NetError, AdminError."""
    if voters is None and join is None:
        return None
    from craft2.apps.cluster_admin import read_cluster, read_voters
    from craft2.apps.raft_process import parse_peers
    from phase3_raft.cluster_folder import FIRST_NAME
    from phase3_raft.metadata.quorum import QuorumConfig
    from phase3_raft.raft.state import RaftConfig

    if voters is not None and join is not None:
        raise BadBrokerFile("--voters and --join", "who joins founds nothing: give one")
    where = _address("--raft-listen", listen) if listen else None
    silence = max(_ELECTION_MS, session_ms // 2)  # a busy broker must not be taken for a dead one
    raft = RaftConfig(
        election_timeout_ms=(silence, 2 * silence),
        first_election_ms=(silence // 10, silence // 2),
        heartbeat_ms=silence // 5,
    )
    if join is None:
        found = parse_peers(voters or "", "--voters")
        if me not in found:
            names = ", ".join(map(str, sorted(found)))
            raise BadBrokerFile(
                f"--voters names {names} and not this broker, {me}",
                f"add {me}=host:port, or use --join",
            )
        name = cluster or FIRST_NAME
        return QuorumConfig(cluster=name, voters=found, listen=where, raft=raft)
    seeds = [_address("--join", one) for one in join.split(",")]
    found, name = read_voters(join), read_cluster(join)
    if cluster not in (None, name):
        raise BadBrokerFile(
            f"--cluster {cluster}, and the brokers of --join are those of {name}",
            "join the other cluster, or leave --cluster out",
        )
    if me in found:
        raise BadBrokerFile(
            f"--broker-id {me} is that of a voter of this cluster, and a voter does not join",
            "give a new broker a number of its own; start the voter with --voters, in its folder",
        )
    return QuorumConfig(cluster=name, voters=found, listen=where, raft=raft, seeds=seeds)

"""`craft2 raft`: run a Raft server as a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

raft = typer.Typer(
    help="Raft: run a server; simulate clusters.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add the verbs of `raft` to `app`."""
    app.add_typer(raft, name="raft")


@raft.callback()
def _verbs() -> None:
    """Raft: run a server; simulate clusters."""


@raft.command()
def serve(
    server_id: Annotated[int, typer.Option("--id", help="This server's number.")],
    peers: Annotated[str, typer.Option(help="Everybody, as 1=host:port,2=host:port,3=host:port.")],
    directory: Annotated[Path, typer.Option("--dir", help="Where its data are.")],
    client: Annotated[
        str, typer.Option(help="Where clients connect to; lines of JSON: see raft/service.py.")
    ] = "127.0.0.1:0",
    listen: Annotated[
        str | None, typer.Option(help="Where the others connect to; default: as in --peers.")
    ] = None,
    voters: Annotated[
        str | None, typer.Option(help="Who founds the cluster, as 1,2,3; default: all peers.")
    ] = None,
    join: Annotated[
        bool,
        typer.Option(
            "--join",
            help="It founds nothing: it joins a cluster that is there, or again after its folder "
            "was lost. The leader adds it to the members.",
        ),
    ] = False,
    cluster: Annotated[str, typer.Option(help="The cluster's name.")] = "craft2",
    election_ms: Annotated[
        str, typer.Option(help="How long a silent leader is waited for: from-to.")
    ] = "300-600",
    heartbeat_ms: Annotated[int, typer.Option(help="How often a leader is heard.")] = 60,
    compact_every: Annotated[
        int, typer.Option(help="Entries from one snapshot to the next.")
    ] = 50_000,
    events: Annotated[Path, typer.Option(help="Where events go, as lines of JSON.")] = Path(
        "/dev/stderr"
    ),
    fsync: Annotated[
        bool, typer.Option(help="Without it, a power cut may lose what was acknowledged.")
    ] = True,
    with_stdin: Annotated[
        bool, typer.Option("--with-stdin", help="End when standard input does.")
    ] = False,
) -> None:
    """Run one server of a cluster, with a list and a register that all of them share.

    Prints a line when it is ready, with its addresses. Ends on SIGTERM; or, with exit status 1,
    when something is wrong that only a person can mend.
    """
    from craft2.apps import raft_process
    from craft2.net import parse_address
    from phase3_raft.raft.application import NodeConfig
    from phase3_raft.raft.messages import Members, RaftError
    from phase3_raft.raft.state import RaftConfig

    if server_id < 1:
        raise RaftError(f"--id {server_id}", "give a whole number of 1 or more")
    if not cluster:
        raise RaftError("--cluster is empty", 'give the cluster a name, such as "craft2"')
    if compact_every < 1:
        raise RaftError(f"--compact-every {compact_every}", "give a whole number of 1 or more")
    addresses = raft_process.parse_peers(peers)
    if server_id not in addresses:
        raise RaftError(f"--id {server_id} is not in --peers {peers}", "add it there")
    if join and voters:
        raise RaftError(f"--join and --voters {voters}", "who joins founds nothing: give one")
    founders = raft_process.parse_numbers(voters) if voters else tuple(sorted(addresses))
    strangers = sorted(set(founders) - set(addresses))
    if strangers:
        raise RaftError(
            f"--voters {voters} names {strangers[0]}, which is not in --peers {peers}",
            "add it there with its address, or leave it out of --voters",
        )
    raft_process.serve(
        NodeConfig(
            cluster=cluster,
            server_id=server_id,
            listen=parse_address(listen) if listen else addresses[server_id],
            peers=addresses,
            raft=RaftConfig(
                election_timeout_ms=raft_process.parse_range(election_ms),
                heartbeat_ms=heartbeat_ms,
            ),
            compact_every=compact_every,
        ),
        str(directory),
        Members() if join else Members(founders),
        parse_address(client),
        events=str(events),
        fsync=fsync,
        with_stdin=with_stdin,
    )

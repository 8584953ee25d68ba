"""The brokers of this machine that run in the folder of a cluster: whom a command can ask."""

from __future__ import annotations

from pathlib import Path

import typer

from phase3_raft.cluster_folder import broker_folders


def running(data_dir: Path) -> dict[int, str]:
    """Where the brokers listen that serve."""
    from craft2.apps.broker_process import read_pid_file

    found = {n: read_pid_file(folder) for n, folder in broker_folders(str(data_dir)).items()}
    return {number: one[1] for number, one in found.items() if one is not None and one[1]}


def how_to_stop(data_dir: Path) -> dict[int, str]:
    """A command for each broker that runs there, also for those that do not serve yet."""
    from craft2.apps.broker_process import read_pid_file

    return {
        number: f"craft2 cluster stop-broker {number} --data-dir {data_dir}"
        for number, folder in broker_folders(str(data_dir)).items()
        if read_pid_file(folder) is not None
    }


def check_none_runs(data_dir: Path) -> None:
    """Before all are started. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError

    stop = how_to_stop(data_dir)
    if stop:
        names = ", ".join(map(str, stop))
        who = f"broker {names} runs" if len(stop) == 1 else f"the brokers {names} run"
        raise AdminError(
            f"{who} already in {str(data_dir)!r}",
            f"end each with Ctrl-C where it was started, or: {'; '.join(stop.values())}",
        )


def bootstrap_of(context: typer.Context, given: str | None, data_dir: Path | None) -> str:
    """Whom to ask: what was typed goes before a variable. Raises AdminError."""
    from craft2.apps.cluster_admin import AdminError

    if given is not None and data_dir is not None:
        if is_typed(context, "bootstrap"):
            raise AdminError(
                f"--bootstrap {given} and --data-dir {data_dir} may be of two clusters",
                "give one of them",
            )
        given = None
    if given is not None:
        return given
    if data_dir is None:
        raise AdminError("no cluster is named", "give --bootstrap or --data-dir")
    found = running(data_dir)
    if not found:
        raise AdminError(
            f"no broker runs in {str(data_dir)!r}",
            f"start some: craft2 cluster up --data-dir {data_dir}",
        )
    return ",".join(found.values())


def bootstrap_to_join(context: typer.Context, given: str | None, data_dir: Path) -> str:
    """Whom a new broker asks, whose folder is made in `data_dir`: who runs there, or elsewhere.
    What was typed goes before them, and they before a variable. Raises AdminError."""
    if given is not None and (is_typed(context, "bootstrap") or not running(data_dir)):
        return given
    return bootstrap_of(context, None, data_dir)


def is_typed(context: typer.Context, option: str) -> bool:
    """Whether the value of an option is from the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"

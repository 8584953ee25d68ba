"""The folder of a cluster on one machine: `broker-1`, `broker-2`, ..., one for each broker.

    cluster.name              drawn when it is founded, so that no two clusters have one name
    broker-N/broker.options   how it was started last: the words behind `craft2 broker --data-dir`
    broker-N/broker.log       what it has said, and when
    broker-N/broker.pid       while it runs: its process, and where it listens

Who starts a broker again takes the options from there, so that it is where it was.

>>> import tempfile
>>> root = tempfile.mkdtemp()
>>> os.mkdir(broker_folder(root, 2))
>>> keep_options(root, 2, ["--port", "19093", "--voters", "1=h:1,2=h:2"])
>>> option(read_options(root, 2), "--port")
'19093'
>>> known_voters(root)
(1, 2)
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from uuid import uuid4

from craft2.errors import Craft2Error

NAME_FILE, FIRST_NAME = "cluster.name", "craft2"  # the name of those that were founded without one
RAFT_FOLDER = "__raft"  # in a broker's folder, if it is one of a cluster
LOG_FILE, OPTIONS_FILE = "broker.log", "broker.options"
_OWN = ("--broker-id", "--port", "--voters", "--join", "--metrics-port")  # not the same for all


class DamagedOptions(Craft2Error):
    """A file of options with which no broker was ever started."""


def broker_folder(data_dir: str, number: int) -> str:
    """Where a broker's own files are."""
    return os.path.join(data_dir, f"broker-{number}")


def broker_folders(data_dir: str) -> dict[int, str]:
    """Those that are there, by number."""
    names = os.listdir(data_dir) if os.path.isdir(data_dir) else []
    found = filter(None, (re.fullmatch(r"broker-(\d+)", name) for name in names))
    numbers = sorted(int(one[1]) for one in found)
    return {number: broker_folder(data_dir, number) for number in numbers}


def cluster_name(data_dir: str) -> str:
    """What the cluster in this folder is called; it is drawn if there is none yet."""
    path = os.path.join(data_dir, NAME_FILE)
    with contextlib.suppress(FileNotFoundError), open(path) as file:
        return file.read().strip()
    if any(read_options(data_dir, number) for number in broker_folders(data_dir)):
        return FIRST_NAME
    os.makedirs(data_dir, exist_ok=True)
    name = uuid4().hex
    with open(f"{path}.new", "w") as file:
        file.write(f"{name}\n")
    os.replace(f"{path}.new", path)
    return name


def is_brokers(folder: str) -> bool:
    """Whether a folder is that of one broker of a cluster."""
    return any(os.path.exists(os.path.join(folder, name)) for name in (RAFT_FOLDER, OPTIONS_FILE))


def keep_options(data_dir: str, number: int, options: Sequence[str]) -> None:
    """A broker was started with these, in its folder."""
    path = os.path.join(broker_folder(data_dir, number), OPTIONS_FILE)
    with open(f"{path}.new", "w") as file:
        file.write(f"{shlex.join(options)}\n")
    os.replace(f"{path}.new", path)


def read_options(data_dir: str, number: int) -> list[str]:
    """With what it was started last; nothing, if that is not known. Raises DamagedOptions."""
    folder = broker_folder(data_dir, number)
    path = os.path.join(folder, OPTIONS_FILE)
    try:
        with open(path, errors="replace") as file:
            text = file.read()
    except FileNotFoundError:
        return []
    try:
        options = shlex.split(text)
        int(option(options, "--port") or 0)
        for voter in filter(None, (option(options, "--voters") or "").split(",")):
            for one in (voter.partition("=")[0], voter.rpartition(":")[2]):
                int(one)
    except (ValueError, IndexError):
        raise DamagedOptions(
            f"{path!r} is damaged: {text.strip()!r}",
            f"correct it: these are the words behind `craft2 broker --data-dir {folder}`",
        ) from None
    return options


def forget_options(data_dir: str, number: int) -> None:
    """The broker is not to be started again."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(broker_folder(data_dir, number), OPTIONS_FILE))


def option(options: Sequence[str], name: str) -> str | None:
    """The value behind an option, if it is there."""
    return options[options.index(name) + 1] if name in options else None


def with_option(options: Sequence[str], name: str, value: str) -> list[str]:
    """The options, with another value of one of them, or with one more."""
    if name not in options:
        return [*options, name, value]
    place = options.index(name)
    return [*options[: place + 1], value, *options[place + 2 :]]


def shared_options(data_dir: str) -> list[str]:
    """What all brokers are started with, as far as one of them shows it."""
    options = next(filter(None, (read_options(data_dir, n) for n in broker_folders(data_dir))), [])
    for name in _OWN:
        if name in options:
            place = options.index(name)
            del options[place : place + 2]
    return options


def known_voters(data_dir: str) -> tuple[int, ...]:
    """The brokers that found the cluster; nobody, if that is not known."""
    return tuple(sorted(int(one.partition("=")[0]) for one in _voters(data_dir)))


def known_ports(data_dir: str) -> list[int]:
    """Where those brokers listened last, and then their Raft servers; nothing, if that is not
    known. One whose folder is lost was in the row with the others, if these are in one; else 0."""
    options = {number: read_options(data_dir, number) for number in known_voters(data_dir)}
    ports = {number: option(some, "--port") for number, some in options.items()}
    firsts = {int(port) - number for number, port in ports.items() if port}
    first = firsts.pop() if len(firsts) == 1 else None
    found = [int(port or (first + number if first else 0)) for number, port in ports.items()]
    return [*found, *(int(one.rpartition(":")[2]) for one in _voters(data_dir))]


def _voters(data_dir: str) -> list[str]:
    """As they are listed in the options of one of them: `1=host:port`."""
    for number in broker_folders(data_dir):
        voters = option(read_options(data_dir, number), "--voters")
        if voters is not None:
            return voters.split(",")
    return []


def founders_options(data_dir: str, number: int) -> list[str]:
    """Of a founder whose folder is lost, as the others show them; nothing, if it is none."""
    ports = dict(zip(known_voters(data_dir), known_ports(data_dir), strict=False))
    if not ports.get(number):
        return []
    own = ("--broker-id", str(number), "--port", str(ports[number]))
    return [*own, "--voters", ",".join(_voters(data_dir)), *shared_options(data_dir)]


def joined(data_dir: str) -> dict[int, list[str]]:
    """The brokers that were added since, and the options of each."""
    found = {number: read_options(data_dir, number) for number in broker_folders(data_dir)}
    return {number: some for number, some in found.items() if "--join" in some}

"""The large packages (Spark, pandas, a Java runtime) arrive while the lab is already open.

`craft2 lab` starts `python -m craft2.course.packages LOG` in the background.  A cell that needs
one of them too early is told so by `require_installed`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

from craft2.course.edition import REFERENCE, Edition
from craft2.errors import Craft2Error

TOTAL_MB = 765
_END = "exit code "
_PROGRESS = re.compile(r"Progress (\d+) of \d+")
_SIZE = re.compile(r"\(([\d.]+) (kB|MB|GB)\)")
_UNITS = {"kB": 0.001, "MB": 1.0, "GB": 1000.0}


class NotInstalledError(Craft2Error):
    """A package of the `spark` extra is missing, or still on its way."""


def spark_requirements() -> list[str]:
    """The names in the `spark` extra, as the installed course declares them."""
    declared = requires("craft2") or []
    return [line.split(";")[0].strip() for line in declared if "extra == 'spark'" in line]


def missing() -> list[str]:
    """The packages of the `spark` extra that cannot be imported."""
    return [name for name in spark_requirements() if importlib.util.find_spec(name) is None]


def pip_command() -> list[str]:
    """The command that installs the `spark` extra with the pinned versions."""
    command = [sys.executable, "-m", "pip", "install", "--no-compile"]  # imports compile, if used
    if _pip_tells_progress():
        command += ["--progress-bar", "raw"]
    for folder in (REFERENCE, Path(__file__).parent):
        if (folder / "constraints.txt").is_file():
            command += ["-c", str(folder / "constraints.txt")]
            break
    return [*command, *spark_requirements()]


def _pip_tells_progress() -> bool:
    """Whether this pip knows `--progress-bar raw` (24.1); an older one refuses the option."""
    major, minor = (int(part) for part in version("pip").split(".")[:2])
    return (major, minor) >= (24, 1)


def install_in_background(log: Path) -> bool:
    """Start installing what is missing, logging to `log`; False if there is nothing to do.

    The process is in a session of its own: closing the lab does not stop it half way.
    """
    if is_running(log) or not missing():
        return False
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as out:
        subprocess.Popen(
            [sys.executable, "-m", "craft2.course.packages", str(log)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return True


def is_running(log: Path) -> bool:
    """True while the installation that writes `log` is at work."""
    try:
        text = log.read_text(errors="replace")
    except FileNotFoundError:
        return False
    if not text.startswith("process "):
        return not text  # not a line yet: it has only just been started
    if _ended(text):
        return False
    return _alive(int(text.split(maxsplit=2)[1]))


def require_installed(name: str) -> None:
    """Raise NotInstalledError, saying how far the installation is, unless `name` can be imported.

    >>> require_installed("json")
    """
    edition = Edition.find()
    log = edition.private / "install.log" if edition else Path("install.log")
    # While pip copies files a package may be half there, so a running installation counts first.
    running = name in spark_requirements() and is_running(log)
    if not running and importlib.util.find_spec(name) is not None:
        return
    by_hand = " ".join(f"'{word}'" if " " in word else word for word in pip_command())
    if running:
        raise NotInstalledError(
            f"{name} is still being installed ({fetched_mb(log.read_text(errors='replace'))} of "
            f"about {TOTAL_MB} MB fetched, see {log})",
            "run this cell again in a minute",
        )
    if log.is_file():
        last = [line for line in log.read_text(errors="replace").splitlines() if "ERROR" in line]
        why = last[-1] if last else "it ended early"
        raise NotInstalledError(f"installing {name} failed: {why} (see {log})", f"run {by_hand}")
    raise NotInstalledError(f"{name} is not installed", f"run {by_hand}")


def fetched_mb(log: str) -> int:
    """How many megabytes pip has fetched, read from its log (an old pip's: whole files only)."""
    done, current, expected = 0.0, 0.0, 0.0
    for line in log.splitlines():
        if line.lstrip().startswith("Downloading "):
            done, current = done + (current or expected), 0.0
            size = _SIZE.search(line)
            expected = float(size[1]) * _UNITS[size[2]] if size else 0.0
        elif match := _PROGRESS.search(line):
            current = int(match[1]) / 1e6
        elif "Installing collected packages" in line:
            return TOTAL_MB
    return round(done + current)


def _ended(text: str) -> bool:
    return bool(re.search(rf"^{_END}-?\d+$", text.rstrip().rsplit("\n", 1)[-1]))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def main() -> None:
    """Run pip, with this process's id as the log's first line and pip's exit code as its last."""
    print(f"process {os.getpid()}", flush=True)
    code = subprocess.run(pip_command(), check=False).returncode
    print(f"{_END}{code}", flush=True)


if __name__ == "__main__":
    main()

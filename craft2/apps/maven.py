"""Jars from a Maven repository, with all they need, fetched once into the user's cache.

Source: maven.apache.org/plugins/maven-dependency-plugin/copy-dependencies-mojo.html
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from craft2.errors import Craft2Error


class MavenError(Craft2Error):
    """The jars cannot be fetched here."""


class Artifact(NamedTuple):
    """What Maven calls a library: its group, its name, its version."""

    group: str
    name: str
    version: str


def jars(name: str, artifacts: Sequence[Artifact]) -> Path:
    """The folder `name` of the cache, with the artifacts' jars in it. Raises MavenError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "craft2"
    folder = cache / name
    if folder.exists():
        return folder
    if shutil.which("mvn") is None:
        raise MavenError("Maven is not installed", f"install maven: it fetches the jars of {name}")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        (Path(work) / "pom.xml").write_text(_pom(artifacts))
        found = Path(work) / "jars"
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={found}"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MavenError(
                f"Maven cannot fetch {name}: {(done.stdout + done.stderr)[-500:]}",
                "see whether this machine reaches its Maven repository",
            )
        with contextlib.suppress(OSError):  # somebody else was quicker
            found.rename(folder)
    return folder


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{each.group}</groupId><artifactId>{each.name}</artifactId>"
        f"<version>{each.version}</version></dependency>"
        for each in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>craft2</groupId>"
        "<artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )

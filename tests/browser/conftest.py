"""The lab as a learner gets it, `make lab` in a fresh clone, and a browser to look at it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_page import Lab, LabPage

ROOT = Path(__file__).parents[2]
QUIET = (  # no word to the browser's maker, and no sandbox, which root cannot have
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LIMIT_S = 600


@pytest.fixture(scope="module")
def lab(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A fresh clone of what is committed, with `make lab` running in it."""
    folder = tmp_path_factory.mktemp("lab")
    clone, home = folder / "clone", folder / "jupyter"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    dropped = ("PYTHONPATH", "VIRTUAL_ENV", "CRAFT2_GRADING", "MAKEFLAGS", "MAKELEVEL")
    env = {k: v for k, v in os.environ.items() if k not in dropped and "PYTEST" not in k}
    env |= {"CI": "true", "SHELL": shutil.which("bash") or "/bin/sh"}
    env |= {"JUPYTER_CONFIG_DIR": str(home), "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces")}
    python = Path(sys.base_prefix) / "bin" / "python3"
    log = folder / "lab.log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            ["make", "lab", f"PYTHON={python}"],
            cwd=clone,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield Lab(_address(server, log), clone / "workbook", server.pid)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=60)


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        if found := re.search(r"http://127\S+token=\w+", log.read_text()):
            return found[0]
        time.sleep(0.2)
    pytest.fail(f"`make lab` printed no address:\n{log.read_text()[-2000:]}")


@pytest.fixture
def page(chromium: str, lab: Lab) -> Iterator[LabPage]:
    """A browser at the address that `make lab` printed."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.set_default_timeout(60_000)
        page.goto(lab.address)
        yield LabPage(lab, page)
        browser.close()

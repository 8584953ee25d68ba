"""What tests of several folders share."""

from __future__ import annotations

import shutil

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; without one the tests are skipped, and say so."""
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    pytest.skip(f"there is no {BROWSERS[0]} on this machine: apt-get install chromium")

"""The edition most tests of the course work on."""

from __future__ import annotations

from pathlib import Path

import pytest
from course_helpers import NOTEBOOKS

from craft2.course.edition import Edition
from craft2.course.workbook import start


@pytest.fixture
def edition(tmp_path: Path) -> Edition:
    """A fresh edition with the tests' notebook in it."""
    folder = tmp_path / "workbook"
    start(folder, notebooks=NOTEBOOKS)
    return Edition(folder.resolve())

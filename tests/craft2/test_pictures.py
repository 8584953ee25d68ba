"""The README's pictures: measured, drawn and photographed by the repository itself."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import matplotlib.image
import nbformat
import numpy as np
import pytest

from craft2.apps import pictures
from craft2.apps.bench.scenarios import bench_in
from craft2.apps.pictures import (
    PicturesError,
    browser,
    measure,
    photograph,
    section_of,
    throughput_picture,
    without_empty_end,
)

ROOT = Path(__file__).parents[2]


def notebook():
    markdown, code = nbformat.v4.new_markdown_cell, nbformat.v4.new_code_cell
    cells = [markdown("# Title"), code("0"), markdown("before\n\n## 1. First\n\nwords"), code("1")]
    cells += [code("## 2. not a heading"), markdown("end of 1\n\n## 2. Second"), code("2")]
    return nbformat.v4.new_notebook(cells=cells)


def test_a_section_begins_and_ends_at_its_headings_wherever_they_stand():
    sources = [cell.source.strip() for cell in section_of(notebook(), "1.")]
    assert sources == ["## 1. First\n\nwords", "1", "## 2. not a heading", "end of 1"]
    with pytest.raises(PicturesError, match=r"'## 3\."):
        section_of(notebook(), "3.")


def test_the_empty_end_of_a_picture_is_cut_off():
    pixels = np.ones((100, 10, 4))
    pixels[30, 5] = 0
    assert without_empty_end(pixels, margin=7).shape == (37, 10, 4)
    assert without_empty_end(np.ones((3, 3, 4))).shape == (3, 3, 4)


def test_without_a_browser_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PicturesError, match="apt-get install chromium"):
        browser()


@pytest.mark.skipif(
    not any(map(shutil.which, pictures._BROWSERS)), reason="there is no Chromium on this machine"
)
def test_a_section_is_photographed(tmp_path):
    nbformat.write(notebook(), tmp_path / "n.ipynb")
    photograph(tmp_path / "n.ipynb", "1.", tmp_path / "n.png")
    height, width, _ = matplotlib.image.imread(tmp_path / "n.png").shape
    assert width == pictures.SIZE[0]
    assert 100 < height < 600


def test_the_chart_shows_what_was_measured_and_where(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "_CLIENTS", (1, 2))
    monkeypatch.setattr(pictures, "_ROUNDS", 1)
    with bench_in(tmp_path) as bench:
        rows = measure(bench, seconds=0.02)
        assert len(rows) == 8
    axes = throughput_picture(rows).axes[0]
    names = {text.get_text() for text in axes.texts}
    assert {"file per message, fsync never", "log, batches of 100"} <= names
    assert rows[0].machine.cpu in axes.get_xlabel()


def test_the_readme_shows_small_pictures_that_are_there():
    shown = re.findall(r'src="(docs/[^"]+)"', (ROOT / "README.md").read_text())
    assert shown == [
        "docs/notebook.png",
        "docs/throughput.png",
        "docs/consumers.png",
        "docs/broker.png",
    ]
    assert all((ROOT / path).stat().st_size < 300_000 for path in shown)

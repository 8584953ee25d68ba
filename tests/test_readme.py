"""The README's program runs as it is printed, and again: a group goes on where it was."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from craft2.apps.inspect import inspect

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def first_program() -> str:
    """The README's block of Python that keeps its topics in a folder."""
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    return next(block for block in blocks if "file:" in block)


def test_the_first_program_prints_what_it_sent_and_the_next_time_only_what_is_new(tmp_path):
    for offset in (0, 3):
        done = subprocess.run(
            [sys.executable, "-c", first_program()],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.stdout == "".join(f"2 {offset + n} departure {n}\n" for n in range(3)), done
    look = re.search(r"`craft2 inspect (my-topics/\S+)`", README)
    assert look is not None
    assert inspect(tmp_path / look[1], Console(file=io.StringIO()))


def test_the_brokers_program_leaves_nothing_to_send(tmp_path):
    pytest.importorskip("confluent_kafka")
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    [program] = [block for block in blocks if "LocalBroker" in block]
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "0 messages are left to send\n", done


def test_the_steps_of_a_records_life_are_numbered_one_after_the_other():
    life = README.partition("## The life of one record")[2].partition("\n## ")[0]
    numbers = [int(one) for one in re.findall(r"^(\d+)\. ", life, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) > 10

"""Imports go down only: notebooks and tests, then the phases from 3 to 1, then the toolkit."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ORDER = ["craft2", "phase1_file_queue", "phase2_groups", "phase3_raft"]
FILES = sorted(path for name in ORDER for path in (ROOT / name).rglob("*.py"))


def imported(path):
    """The full names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_import_goes_up(path):
    room = path.relative_to(ROOT).parts[0]
    is_app = path.relative_to(ROOT).parts[:2] == ("craft2", "apps")
    above = [] if is_app else ORDER[ORDER.index(room) + 1 :]
    for name in imported(path):
        assert name.split(".")[0] not in above, f"{name} is above {room}"
        if not is_app:
            assert not name.startswith("craft2.apps"), f"{name}: only apps and tests use apps"


def test_queue_and_log_need_neither_pandas_nor_arrow_nor_numpy():
    modules = ["partitioned_queue", "queue_consumer", "partition_log"]
    imports = "; ".join(f"import phase1_file_queue.{name}" for name in modules)
    heavy = "{'pandas', 'pyarrow', 'numpy', 'pyspark', 'matplotlib'}"
    code = f"import sys; {imports}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

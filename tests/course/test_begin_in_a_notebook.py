"""A learner's session in one kernel: fall back, edit, wrong, right, without restarting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import nbformat
import pytest
from course_helpers import child_environment, write_body
from nbclient import NotebookClient

from craft2.course.edition import Edition
from craft2.course.help import reference_body


def text_of(output) -> str:
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.data["text/plain"]


def test_a_learners_session(edition):
    notebook = nbformat.read(edition.root / "notebooks" / "99_tiny.ipynb", as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=30, allow_errors=True)
    client.resources = {"metadata": {"path": str(edition.root / "notebooks")}}

    def run(number: int) -> str:
        index = (1, 3, 5)[number]  # begin, a cell that needs 0.1, its check
        client.execute_cell(notebook.cells[index], index)
        return "".join(text_of(output) for output in notebook.cells[index].outputs)

    with client.setup_kernel(env=child_environment()):
        assert "For 0.1 the reference answers" in run(0)
        assert run(1) == "2"
        assert "not started" in run(2)

        write_body(edition, "0.1", "return 4711")
        assert run(1) == "4711", "the edit is in force in the next cell"
        failed = run(2)
        assert "Traceback" not in failed
        assert "got        4711" in failed

        write_body(edition, "0.1", "raise ValueError('mine')")
        assert "This cell needs exercise 0.1, which is wrong: expected no exception" in run(1)
        assert "This cell needs" not in run(2), "a check speaks for itself"

        write_body(edition, "0.1", reference_body("0.1"))
        assert run(1) == "2"
        assert "0.1 a key's partition: passed" in run(2)


@pytest.fixture
def run(edition: Edition) -> Iterator[Callable[[str], str]]:
    """Runs cells in one kernel of the edition; gives what a cell showed, without colours."""
    notebook = nbformat.v4.new_notebook()
    client = NotebookClient(notebook, kernel_name="python3", timeout=30, allow_errors=True)
    client.resources = {"metadata": {"path": str(edition.root / "notebooks")}}

    def run_cell(source: str) -> str:
        notebook.cells.append(nbformat.v4.new_code_cell(source))
        client.execute_cell(notebook.cells[-1], len(notebook.cells) - 1)
        shown = "".join(text_of(output) for output in notebook.cells[-1].outputs)
        return re.sub(r"\x1b\[[0-9;]*m", "", shown)

    with client.setup_kernel(env=child_environment()):
        run_cell("from craft2.course import begin, check, show")
        run_cell("begin('99')")
        yield run_cell


def test_after_an_edit_show_and_tracebacks_point_to_the_right_lines(edition, run):
    run("from phase1_file_queue.partitioner import partition_for")
    run("partition_for(b'UA', 4)")
    path = edition.root / "phase1_file_queue" / "partitioner.py"
    for message in ("first", "second"):
        write_body(edition, "0.1", f"number = 17\nraise ValueError('{message}')")
        line = path.read_text().splitlines().index(f"    raise ValueError('{message}')") + 1
        trace = run("partition_for(b'UA', 4)")
        assert f"partitioner.py:{line}, in partition_for" in trace
        assert f"---> {line} raise ValueError('{message}')" in trace
        assert run("show(partition_for)").startswith("def partition_for(")
    path.write_text("# a new first line\n" + path.read_text())
    assert f"partitioner.py:{line + 1}, in" in run("partition_for(b'UA', 4)")
    assert run("begin('99')").count("\n") == 1, "and no noise about what is loaded already"


def test_an_edit_reaches_modules_that_imported_the_function_and_objects_made_before(edition, run):
    run("from phase1_file_queue.partitioned_queue import PartitionedQueue")
    run("queue = PartitionedQueue('q')")
    assert run("queue.produce(b'UA', b'1')") == "(2, 0)"
    write_body(edition, "1.1", "raise ValueError('my publish')")
    assert "ValueError: my publish" in run("queue.produce(b'UA', b'2')")
    write_body(edition, "0.1", "return 3")
    write_body(edition, "1.1", reference_body("1.1"))
    assert run("queue.produce(b'UA', b'2')") == "(3, 0)"
    path = edition.root / "phase1_file_queue" / "partitioned_queue.py"
    path.write_text(path.read_text() + "\n\nPartitionedQueue.mine = lambda self: 4711\n")
    assert run("queue.mine()") == "4711"
    assert run("queue.produce(b'UA', b'3')") == "(3, 1)"
    for number in (1, 22, 333):  # every further save reaches the old object, too
        path.write_text(path.read_text() + f"\n\nPartitionedQueue.mine = lambda self: {number}\n")
        assert run("queue.mine()") == str(number)


def test_a_file_that_does_not_load_is_one_line_and_the_last_good_version_stays(edition, run):
    run("from phase1_file_queue.partitioner import partition_for")
    path = edition.root / "phase1_file_queue" / "partitioner.py"
    good = path.read_text()
    for body, what in (("return (", "SyntaxError"), ("pass\nnonsense\n    x", "IndentationError")):
        write_body(edition, "0.1", body)
        shown = run("partition_for(b'UA', 4)")
        assert re.match(rf"partitioner\.py line \d+: {what}: .*; the last good version", shown)
        assert shown.endswith("save it again\n2")
        assert run("partition_for(b'UA', 4)") == "2", "said once"
    path.write_text(good + "\nnot_defined\n")
    line = len(path.read_text().splitlines())
    shown = run("partition_for(b'UA', 4)")
    assert shown.startswith(f"partitioner.py line {line}: NameError: name 'not_defined' is not")
    write_body(edition, "0.1", "return 0")
    path.write_text(path.read_text().replace("\nnot_defined\n", ""))
    assert run("partition_for(b'UA', 4)") == "0"

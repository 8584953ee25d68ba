"""A learner's session in one kernel: fall back, edit, wrong, right, without restarting."""

from __future__ import annotations

import nbformat
from course_helpers import child_environment, write_body
from nbclient import NotebookClient

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
        assert "For 0.1, 1.1 the reference answers" in run(0)
        assert run(1) == "2"
        assert "not started" in run(2)

        write_body(edition, "0.1", "return 4711")
        assert run(1) == "4711", "autoreload: the edit is in force in the next cell"
        failed = run(2)
        assert "Traceback" not in failed
        assert "got        4711" in failed

        write_body(edition, "0.1", "raise ValueError('mine')")
        assert "This cell needs exercise 0.1, which is wrong: expected no exception" in run(1)
        assert "This cell needs" not in run(2), "a check speaks for itself"

        write_body(edition, "0.1", reference_body("0.1"))
        assert run(1) == "2"
        assert "0.1 a key's partition: passed" in run(2)

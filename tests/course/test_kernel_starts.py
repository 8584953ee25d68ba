"""How the course's pytest plugin begins a notebook's kernel."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from nbval.plugin import IPyNbFile

from craft2.course.pytest_plugin import CourseNotebook


def begin(monkeypatch, failures):
    begun = []

    def setup(notebook):
        begun.append(notebook)
        if len(begun) <= failures:
            raise RuntimeError("Kernel didn't respond in 60 seconds")
        notebook.kernel = SimpleNamespace()

    monkeypatch.setattr(IPyNbFile, "setup", setup)
    notebook = object.__new__(CourseNotebook)
    notebook.name = "27.ipynb"
    return begun, notebook


def test_a_kernel_that_never_answers_has_a_second_one(monkeypatch):
    begun, notebook = begin(monkeypatch, 1)
    with pytest.warns(UserWarning, match="27.ipynb: Kernel didn't respond .* another"):
        notebook.setup()
    assert len(begun) == 2
    assert callable(notebook.kernel.await_reply)


def test_a_second_one_that_does_not_answer_either_is_an_error(monkeypatch):
    begun, notebook = begin(monkeypatch, 2)
    with (
        pytest.warns(UserWarning, match="another kernel"),
        pytest.raises(RuntimeError, match="didn't respond"),
    ):
        notebook.setup()
    assert len(begun) == 2

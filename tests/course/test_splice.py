"""Exercise regions: stubs, solutions, planted bugs and overlays are one operation on lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.course.edition import PACKAGES, REFERENCE, package_files
from craft2.course.exercises import EXERCISES
from craft2.course.splice import (
    BEGIN,
    END,
    MarkerError,
    body_of,
    emptied,
    function_name,
    indented,
    is_started,
    regions,
    splice,
    stub,
)

SOURCE = '''\
import os


class Box:
    # EXERCISE 7.1 put a thing in
    def put(self, thing: int, /, *rest: int, twice: bool = False, **others: int) -> int:
        """Put it in."""
        # BEGIN SOLUTION
        if twice:
            self.n += thing
        self.n += thing
        return self.n
        # END SOLUTION


# EXERCISE 7.2 a sum
def total(a: int, b: int) -> int:
    # BEGIN SOLUTION
    return a + b
    # END SOLUTION


# EXERCISE 7.3 a sum that takes its time
async def slow_total(a: int, *, b: int) -> int:
    # BEGIN SOLUTION
    await asyncio.sleep(a)
    return a + b
    # END SOLUTION


AFTER = 1
'''
LINES = st.text("abc #\"'\\()", max_size=20).filter(
    lambda t: t.strip() not in (BEGIN, END) and "EXERCISE" not in t
)


def test_finds_regions_in_order_with_their_titles():
    found = regions(SOURCE)
    assert [(r.id, r.title) for r in found.values()] == [
        ("7.1", "put a thing in"),
        ("7.2", "a sum"),
        ("7.3", "a sum that takes its time"),
    ]
    assert function_name(SOURCE, "7.1") == "Box.put"
    assert function_name(SOURCE, "7.2") == "total"
    assert function_name(SOURCE, "7.3") == "slow_total"


def test_stub_keeps_signature_and_docstring_and_passes_every_argument():
    text = emptied(SOURCE)
    ast.parse(text)
    assert 'return reference("7.1")(self, thing, *rest, twice=twice, **others)' in text
    assert 'return reference("7.2")(a, b)' in text
    assert 'return await reference("7.3")(a, b=b)' in text
    assert "# your code here" in text
    assert '"""Put it in."""' in text
    assert "self.n" not in text
    assert "a + b" not in text
    assert not is_started(text, "7.1")
    assert is_started(SOURCE, "7.1")


@given(st.lists(LINES).map("\n".join))
def test_splice_changes_the_region_and_nothing_else(body):
    """Whatever a learner writes, also what does not parse, can be taken out and put back."""
    changed = splice(SOURCE, "7.1", body)
    before, after = regions(SOURCE)["7.1"], regions(changed)["7.1"]
    old, new = SOURCE.splitlines(), changed.split("\n")
    assert new[: after.begin + 1] == old[: before.begin + 1]
    assert changed.endswith(SOURCE.split("        # END SOLUTION")[1])
    assert body_of(changed, "7.1").rstrip("\n") == body.rstrip("\n")
    assert splice(changed, "7.1", body_of(SOURCE, "7.1")) == SOURCE
    assert emptied(changed) == emptied(SOURCE)


@given(st.sampled_from(["7.1", "7.2", "7.3"]))
def test_an_indented_body_parses(exercise_id):
    body = """
        if True:
            return 1

        return 2
    """
    ast.parse(splice(SOURCE, exercise_id, indented(SOURCE, exercise_id, body)))


@pytest.mark.parametrize("marker", ["# EXERCISE 7.1 put a thing in", BEGIN, END])
def test_a_missing_marker_is_named(marker):
    broken = SOURCE.replace(marker, "", 1)
    with pytest.raises(MarkerError) as error:
        regions(broken)["7.1"]
    assert "craft2 update" in str(error.value)


def test_a_doubled_exercise_is_refused():
    with pytest.raises(MarkerError, match="marked twice"):
        regions(SOURCE + SOURCE)


def test_an_exercise_that_is_not_there_is_named():
    with pytest.raises(MarkerError, match=r"exercise 9\.9"):
        body_of(SOURCE, "9.9")


def test_every_exercise_has_its_region_and_every_region_its_exercise():
    found = {}
    for package in PACKAGES:
        for path in package_files(REFERENCE, package):
            if path.suffix == ".py":
                for region in regions((REFERENCE / path).read_text()).values():
                    found[region.id] = (path.as_posix(), region.title)
    assert found == {e.id: (e.file, e.title) for e in EXERCISES.values()}


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_a_region_is_the_whole_body_after_the_docstring(exercise_id):
    """The stub calls the reference with the arguments, so nothing may run before the region."""
    text = (REFERENCE / EXERCISES[exercise_id].file).read_text()
    name = function_name(text, exercise_id).split(".")[-1]
    tree = ast.parse(splice(text, exercise_id, stub(text, exercise_id)))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    function = next(n for n in ast.walk(tree) if isinstance(n, kinds) and n.name == name)
    assert ast.get_docstring(function), "the docstring is the task's text"
    assert len(function.body) == 3, "docstring, import, return: anything else is outside the region"


def test_package_files_leave_out_caches(tmp_path: Path):
    (tmp_path / "p" / "__pycache__").mkdir(parents=True)
    (tmp_path / "p" / "__pycache__" / "x.pyc").write_bytes(b"")
    (tmp_path / "p" / "x.py").write_text("")
    assert list(package_files(tmp_path, "p")) == [Path("p/x.py")]

"""Predict, then run: `predict` records an answer before the experiment, `compare` recalls it after.

A prediction is graded on being there, not on being right.  It goes into the edition's `.craft2/`
folder; in the repository itself there is none and nothing is kept.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import EllipsisType

from craft2.course.edition import Edition
from craft2.course.workbook import source_of
from craft2.errors import Craft2Error

GRADING = "CRAFT2_GRADING"  # environment: a pristine notebook is being graded, do not record
GRADING_RESULTS = "CRAFT2_RESULTS"  # environment: the folder for measurements of that grading

Answer = int | float | str | bool | tuple[int | float | str, ...]


class UnknownPredictionError(Craft2Error):
    """No notebook of the edition asks for a prediction of that id."""


def predict(prediction_id: str, answer: Answer | EllipsisType) -> None:
    """Record what you expect, before you run it: predict("01.1", 4); several: ("25.5", (2, 2)).

    `...` stands for no answer yet.  A later answer replaces an earlier one.  In an edition,
    UnknownPredictionError for an id that no notebook asks for.
    """
    if answer is ...:
        print(f"Prediction {prediction_id}: write your answer in place of the three dots.")
        return
    several = isinstance(answer, tuple) and all(
        isinstance(one, int | float | str) for one in answer
    )
    if not (several or isinstance(answer, int | float | str)):
        raise TypeError(
            f"prediction {prediction_id}: {answer!r} is a {type(answer).__name__}, "
            "not a number, a text, True/False, or several of them in parentheses"
        )
    edition = Edition.find()
    if edition is not None and not os.environ.get(GRADING):
        known = prediction_ids(edition.twins)
        if prediction_id not in known:
            raise UnknownPredictionError(
                f"no notebook asks for prediction {prediction_id!r}",
                f"use one of {', '.join(known)}" if known else "remove it: they ask for none",
            )
        said = str(answer) if several else answer
        edition.remember("predictions", edition.remembered("predictions") | {prediction_id: said})
    print(f"Prediction {prediction_id} recorded.")


def compare(prediction_id: str, actual: object) -> None:
    """Print what was predicted beside what came out; the edition remembers the latter too."""
    edition = Edition.find()
    recorded = edition.remembered("predictions") if edition is not None else {}
    if edition is not None and not os.environ.get(GRADING):
        outcomes = edition.remembered("outcomes") | {prediction_id: repr(actual)}
        edition.remember("outcomes", outcomes)
    if prediction_id not in recorded:
        said = f"you recorded nothing; it is {actual!r}"
    elif same(recorded[prediction_id], actual):
        said = f"you said {recorded[prediction_id]!r}, and so it is"
    else:
        said = f"you said {recorded[prediction_id]!r}; it is {actual!r}"
    print(f"Prediction {prediction_id}: {said}.")


def same(said: object, actual: object) -> bool:
    """Whether a prediction came true: "No. " does for "no", "14" for 14.0, "2,2" for "2 2".

    Either may be given as its repr, which is how `actual` is remembered.
    """
    return _plain(said) == _plain(actual)


def _plain(answer: object) -> float | str:
    text = re.sub(r"[\s,]+", " ", str(answer).strip(" '\"").rstrip(" '\".").casefold())
    try:
        return float(text)
    except ValueError:
        return text


def prediction_ids(notebooks: Path) -> list[str]:
    """The id of every prediction the notebooks in a folder ask for, in their order."""
    return [
        found
        for path in sorted(notebooks.glob("*.ipynb"))
        for cell in json.loads(path.read_text())["cells"]
        for found in re.findall(r'^predict\("([^"]+)"', source_of(cell), flags=re.MULTILINE)
    ]

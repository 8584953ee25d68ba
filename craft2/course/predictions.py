"""Predict, then run: `predict` records an answer before the experiment, `compare` recalls it after.

A prediction is graded on being there, not on being right.  It goes into the edition's `.craft2/`
folder; in the repository itself there is none and nothing is kept.
"""

from __future__ import annotations

import os
from types import EllipsisType

from craft2.course.edition import Edition

GRADING = "CRAFT2_GRADING"  # environment: a pristine notebook is being graded, do not record

Answer = int | float | str | bool


def predict(prediction_id: str, answer: Answer | EllipsisType) -> None:
    """Record what you expect, before you run it: predict("01.1", 4).

    `...` stands for no answer yet.  A later answer replaces an earlier one.
    """
    if answer is ...:
        print(f"Prediction {prediction_id}: write your answer in place of the three dots.")
        return
    if not isinstance(answer, (int, float, str)):
        raise TypeError(
            f"prediction {prediction_id}: {answer!r} is a {type(answer).__name__}, "
            "not a number, a text or True/False"
        )
    edition = Edition.find()
    if edition is not None and not os.environ.get(GRADING):
        edition.remember("predictions", edition.remembered("predictions") | {prediction_id: answer})
    print(f"Prediction {prediction_id} recorded.")


def compare(prediction_id: str, actual: object) -> None:
    """Print what was predicted beside what came out."""
    edition = Edition.find()
    recorded = edition.remembered("predictions") if edition is not None else {}
    said = repr(recorded[prediction_id]) if prediction_id in recorded else "nothing recorded"
    print(f"Prediction {prediction_id}: you said {said}; it is {actual!r}.")

"""The course: whose code runs, checks, predictions, editions, grading.

A notebook needs only these:

    from craft2.course import begin, check, compare, hint, predict, show
"""

from craft2.course.checking import check
from craft2.course.fallback import reference
from craft2.course.help import hint
from craft2.course.predictions import compare, predict
from craft2.course.show import show
from craft2.course.whose_code import begin

__all__ = ["begin", "check", "compare", "hint", "predict", "reference", "show"]

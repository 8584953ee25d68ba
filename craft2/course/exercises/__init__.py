"""The exercises, by id.  One file holds one exercise: its hints, check, explanation, mistakes."""

from __future__ import annotations

from craft2.course.exercises import (
    a_keys_partition,
    advance_commit,
    append_check,
    atomic_publish,
    even_assignment,
    failed_cluster_seed,
    failed_seed,
    grant_a_vote,
    group_commit,
    high_watermark,
    long_poll,
    offset_with_result,
    requests_together,
    revoke_first,
    safe_offset,
    sent_twice,
    sparse_lookup,
    stale_commit,
    stamp_a_batch,
    the_drain,
    the_tick,
    torn_tail,
    truncate_by_epoch,
    within_limits,
)
from craft2.course.exercises.exercise import Exercise
from craft2.errors import Craft2Error

EXERCISES: dict[str, Exercise] = {
    module.EXERCISE.id: module.EXERCISE
    for module in (
        a_keys_partition,
        atomic_publish,
        safe_offset,
        group_commit,
        sparse_lookup,
        torn_tail,
        the_tick,
        even_assignment,
        revoke_first,
        the_drain,
        sent_twice,
        offset_with_result,
        stale_commit,
        requests_together,
        stamp_a_batch,
        within_limits,
        long_poll,
        grant_a_vote,
        append_check,
        advance_commit,
        failed_seed,
        high_watermark,
        truncate_by_epoch,
        failed_cluster_seed,
    )
}


class UnknownExerciseError(Craft2Error):
    """There is no exercise of that number."""


def exercise(exercise_id: str) -> Exercise:
    """The exercise of that id ("0.1"); UnknownExerciseError names the ones there are."""
    if exercise_id not in EXERCISES:
        raise UnknownExerciseError(
            f"there is no exercise {exercise_id!r}", f"use one of {', '.join(EXERCISES)}"
        )
    return EXERCISES[exercise_id]

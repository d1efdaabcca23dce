"""What a package's records show to have happened."""

import pytest

from tests.records.samples import make_update
from traingen.compare.exercise import RecordExercise
from traingen.records import SchedulerState

QUIET = {"clipped": False, "scheduler": None, "rng": None, "rng_forward": {"torch": "a"},
         "rng_after": {"torch": "a"}}  # fmt: skip
IDLE = [
    "clipping: it never changed a gradient in the package",
    "scheduler: the package has none",
    "random draws within a step: there were none",
]


def missing_after(*updates):
    exercise = RecordExercise()
    for changes in updates:
        exercise.add(make_update(1, **(QUIET | changes)))
    return exercise.missing()


def test_a_quiet_update_exercises_nothing_more_than_none():
    assert missing_after({}) == missing_after() == IDLE


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"clipped": True}, 0),
        ({"scheduler": [SchedulerState(id=0, last_epoch=1, ticks=1)]}, 1),
        ({"rng_after": {"torch": "b"}}, 2),
        ({"rng_forward": None, "rng": {"torch": "b"}}, 2),
    ],
    ids=str,
)
def test_what_happened_once_is_exercised(changes, gone):
    assert missing_after({}, changes, {}) == [line for n, line in enumerate(IDLE) if n != gone]


def test_a_scheduler_that_never_ticks_is_there_at_least():
    still = [SchedulerState(id=0, last_epoch=0, ticks=0)]
    assert "scheduler: it never ticked" in missing_after({"scheduler": still})


@pytest.mark.parametrize("changes", [{"rng_after": None}, {"rng_forward": None}], ids=str)
def test_draws_that_one_moment_alone_was_seen_of_are_not_known(changes):
    assert missing_after({}, changes)[-1] == "random draws within a step: they were not observed"

"""What a pass does not speak for is kept and said."""

from typing import Any

import pytest
import torch

from tests.records.samples import make_update
from traingen.lockstep.exercise import Exercise
from traingen.lockstep.name_map import ResolvedMap
from traingen.observe.live import LiveState
from traingen.records import SchedulerState

NAMES = ResolvedMap(pairs=(), only_original={}, only_package={})
QUIET = {"clipped": False, "scheduler": None, "rng_forward": {"torch": "a"},
         "rng_after": {"torch": "a"}}  # fmt: skip
IDLE = [
    "parameter a: its gradient was zero throughout",
    "parameter b: its gradient was zero throughout",
    "buffer mean: it never moved",
    "clipping: it never changed a gradient in the package",
    "scheduler: the package has none",
    "random draws within a step: there were none",
    "averaged weights and samplers of a plain loop: not observed",
    "initialization, validation results, the tail of the last update",
]


def live(gradients: dict[str, list[float]], mean: float = 0.0) -> LiveState:
    return LiveState(
        parameters={"a": torch.ones(2), "b": torch.ones(2)},
        gradients={name: torch.tensor(values) for name, values in gradients.items()},
        buffers={"mean": torch.tensor([mean])},
        optimizer_state={},
        clip_coefficient=1.0,
    )


def missing_after(*steps: tuple[dict[str, Any], LiveState]) -> list[str]:
    exercise = Exercise(live({}), NAMES, fed=False)
    for changes, state in steps:
        exercise.add(make_update(**(QUIET | changes)), state, state)
    return exercise.missing()


def test_nothing_seen_is_nothing_exercised():
    assert missing_after() == IDLE
    assert missing_after(({}, live({"a": [0.0, 0.0]}))) == IDLE


@pytest.mark.parametrize(
    ("changes", "state", "gone"),
    [
        ({}, live({"a": [0.0, 1e-30]}), IDLE[0]),
        ({}, live({"b": [-1.0, 0.0]}), IDLE[1]),
        ({}, live({}, mean=1e-30), IDLE[2]),
        ({"clipped": True}, live({}), IDLE[3]),
        ({"scheduler": [SchedulerState(id=0, last_epoch=1, ticks=1)]}, live({}), IDLE[4]),
        ({"rng_after": {"torch": "b"}}, live({}), IDLE[5]),
    ],
    ids=["a", "b", "mean", "clipping", "scheduler", "draws"],
)
def test_what_was_seen_once_is_exercised(changes, state, gone):
    lines = missing_after((changes, state), ({}, live({})))
    assert lines == [line for line in IDLE if line != gone]


def test_a_scheduler_that_stands_still_is_not_exercised():
    still = {"scheduler": [SchedulerState(id=0, last_epoch=0, ticks=0)]}
    lines = missing_after((still, live({})), (still, live({})))
    assert "scheduler: it never ticked" in lines
    assert "scheduler: the package has none" not in lines


def test_a_buffer_is_compared_with_its_first_value_not_with_itself():
    state = live({})
    exercise = Exercise(state, NAMES, fed=False)
    state.buffers["mean"].add_(1)  # in place, as BatchNorm does
    exercise.add(make_update(**QUIET), state, state)
    assert IDLE[2] not in exercise.missing()


def test_a_parameter_that_is_excused_and_trained_is_said():
    names = ResolvedMap(pairs=(), only_original={"a": "unused"}, only_package={"b": "extra"})
    exercise = Exercise(live({}), names, fed=False)
    assert exercise.excused == {"original a": "unused", "package b": "extra"}
    exercise.add(make_update(**QUIET), live({"a": [0.0, 0.0]}), live({"b": [0.0, 1.0]}))
    assert exercise.excused_trained == ["package b"]


def test_a_package_that_was_fed_says_nothing_of_its_own_data():
    lines = Exercise(live({}), NAMES, fed=True).missing()
    assert lines[0] == "package data: it was fed the original's batches"
    assert lines[1:] == IDLE

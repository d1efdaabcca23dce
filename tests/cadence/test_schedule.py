"""How a scheduler is called and found, and which settings make a cadence."""

from typing import Any

import numpy
import pytest

from traingen.cadence.plan import Cadence
from traingen.cadence.schedule import Schedule


class Cosine:
    """Stands for a scheduler: only its name is looked at."""


def make(**facts: Any) -> Schedule:
    given = {"index": 2, "scheduler": Cosine(), "optimizer": 1, "interval": "step", "frequency": 1}
    return Schedule(**(given | facts))


@pytest.mark.parametrize("interval", ["step", "epoch"])
@pytest.mark.parametrize("frequency", [1, 7])
def test_sound_settings_make_a_cadence(interval, frequency):
    schedule = make(interval=interval, frequency=frequency)
    assert schedule.cadence == Cadence(interval=interval, frequency=frequency)


@pytest.mark.parametrize(("frequency", "same"), [(True, 1), (numpy.int64(3), 3), (2.0, 2), (-4, 4)])
def test_a_frequency_that_is_a_whole_number_of_another_type_makes_the_same_cadence(frequency, same):
    assert make(frequency=frequency).cadence == make(frequency=same).cadence


@pytest.mark.parametrize("frequency", [0, None, 2.5, "1", float("nan"), [1], False])
def test_a_frequency_that_is_none_makes_no_cadence(frequency):
    assert make(frequency=frequency).cadence is None


@pytest.mark.parametrize("interval", ["steps", "Epoch", "", "batch"])
def test_an_interval_that_is_none_makes_no_cadence(interval):
    assert make(interval=interval).cadence is None


def test_it_is_called_by_its_class_and_its_number():
    assert make().label == "Cosine (scheduler 2)"
    assert make(name="warmup").label == "Cosine (scheduler 2)"  # as the tables of Lightning do


@pytest.mark.parametrize("key", ["2", "warmup", "Cosine"])
def test_it_answers_to_its_number_its_name_and_its_class(key):
    assert make(name="warmup").answers_to(key)


@pytest.mark.parametrize("key", ["1", "cosine", "None", "", "Cosine (scheduler 2)"])
def test_it_answers_to_nothing_else(key):
    assert not make().answers_to(key)

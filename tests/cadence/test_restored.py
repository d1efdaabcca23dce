"""Which settings of a scheduler are kept to compare, and what is said of those that differ."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedules

from traingen.cadence.restored import capture_settings, describe_overridden


def make_optimizer(lr: float = 0.2) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr, momentum=0.9)


def advance(scheduler: Any, ticks: int, *metrics: float) -> None:
    for _ in range(ticks):
        scheduler.optimizer.step()
        scheduler.step(*metrics)


def sequence(optimizer: torch.optim.Optimizer, *, horizon: int = 40) -> Any:
    parts = [
        schedules.LinearLR(optimizer, total_iters=6),
        schedules.CosineAnnealingLR(optimizer, T_max=horizon),
    ]
    return schedules.SequentialLR(optimizer, parts, milestones=[6])


MAKERS: dict[str, Any] = {
    "cosine": lambda o: schedules.CosineAnnealingLR(o, T_max=40, eta_min=0.01),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.9, total_steps=40),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, T_0=4, T_mult=2),
    "milestones": lambda o: schedules.MultiStepLR(o, milestones=[3, 5, 5]),
    "cyclic": lambda o: schedules.CyclicLR(o, 0.1, 0.4, step_size_up=3),
    "lambda": lambda o: schedules.LambdaLR(o, lambda tick: 1 / (1 + tick)),
    "sequence": sequence,
    "chain": lambda o: schedules.ChainedScheduler([sequence(o), schedules.StepLR(o, 3)]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_ticking_changes_no_setting(name):
    scheduler = MAKERS[name](make_optimizer())
    before = capture_settings(scheduler)
    advance(scheduler, 17)
    assert describe_overridden(before, capture_settings(scheduler)) == ""
    assert before != {}


def test_a_plateau_that_cooled_down_has_its_settings_still():
    scheduler = schedules.ReduceLROnPlateau(make_optimizer(), patience=1, cooldown=3)
    before = capture_settings(scheduler)
    advance(scheduler, 9, 1.0)
    assert scheduler.optimizer.param_groups[0]["lr"] < 0.2
    assert describe_overridden(before, capture_settings(scheduler)) == ""


@pytest.mark.parametrize("name", MAKERS)
def test_a_resume_with_the_same_configuration_overrides_nothing(name):
    saved = MAKERS[name](make_optimizer())
    advance(saved, 9)
    scheduler = MAKERS[name](make_optimizer())
    before = capture_settings(scheduler)
    scheduler.load_state_dict(saved.state_dict())
    assert describe_overridden(before, capture_settings(scheduler)) == ""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            lambda o: schedules.CosineAnnealingLR(o, T_max=90),
            lambda o: schedules.CosineAnnealingLR(o, T_max=250),
            "T_max 250 → 90",
        ),
        (
            lambda o: schedules.StepLR(o, 7, gamma=0.5),
            lambda o: schedules.StepLR(o, 9, gamma=0.1),
            "step_size 9 → 7, gamma 0.1 → 0.5",
        ),
        (
            lambda o: schedules.MultiStepLR(o, [3, 8]),
            lambda o: schedules.MultiStepLR(o, [3, 9]),
            "milestones {3: 1, 9: 1} → {3: 1, 8: 1}",
        ),
        (
            lambda o: sequence(o, horizon=90),
            lambda o: sequence(o, horizon=250),
            "1.T_max 250 → 90",
        ),
        (
            lambda o: schedules.ChainedScheduler([schedules.StepLR(o, 1), sequence(o, horizon=90)]),
            lambda o: schedules.ChainedScheduler([schedules.StepLR(o, 1), sequence(o, horizon=91)]),
            "1.1.T_max 91 → 90",
        ),
        (
            lambda o: schedules.ReduceLROnPlateau(o, patience=2),
            lambda o: schedules.ReduceLROnPlateau(o, patience=5),
            "patience 5 → 2",
        ),
    ],
)
def test_what_a_checkpoint_overrides_is_told_with_both_values(old, new, told):
    scheduler = new(make_optimizer())
    before = capture_settings(scheduler)
    scheduler.load_state_dict(old(make_optimizer()).state_dict())
    assert describe_overridden(before, capture_settings(scheduler)) == told


def test_another_initial_rate_is_told():
    scheduler = schedules.StepLR(make_optimizer(0.2), 5)
    before = capture_settings(scheduler)
    scheduler.load_state_dict(schedules.StepLR(make_optimizer(0.7), 5).state_dict())
    assert describe_overridden(before, capture_settings(scheduler)) == "base_lrs [0.2] → [0.7]"


# ---- what is kept -------------------------------------------------------------------------------


class Mine:
    """A scheduler by somebody: what it was given, and what it keeps beside."""

    def __init__(self, total: Any = 5, *, other: Any = None, **beside: Any) -> None:
        self.total, self.other = total, other
        vars(self).update(beside)


def other_of(value: Any) -> Any:
    """What is captured of a setting that holds `value`, else a word."""
    return capture_settings(Mine(other=value)).get("other", "left out")


@pytest.mark.parametrize("name", ["T_cur", "best", "num_bad_epochs", "ticks", "_hidden", "self"])
def test_what_is_no_argument_is_what_a_scheduler_counts_or_hides(name):
    scheduler = Mine(8, other=1)
    setattr(scheduler, name, 3)
    assert capture_settings(scheduler) == {"total": 8, "other": 1}


def test_how_far_a_scheduler_was_is_no_setting_though_it_is_an_argument():
    scheduler = schedules.StepLR(make_optimizer(), 5)
    before = capture_settings(scheduler)
    scheduler.last_epoch = 77
    assert capture_settings(scheduler) == before


@pytest.mark.parametrize(
    "value",
    [torch.zeros(1), len, lambda tick: 1.0, object(), [torch.zeros(1)], {"a": len}, (1, [len])],
)
def test_what_is_no_plain_value_is_no_setting(value):
    assert other_of(value) == "left out"


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "cos", [1, 2], {"a": [1]}, [[1], {"b": 2}]])
def test_a_plain_value_is_a_setting(value):
    assert other_of(value) == value


def test_a_tuple_is_the_same_setting_as_the_list_that_a_checkpoint_makes_of_it():
    before, after = capture_settings(Mine(other=(1, 2))), capture_settings(Mine(other=[1, 2]))
    assert describe_overridden(before, after) == ""


class Derived(Mine):
    def __init__(self, *args: Any, floor: float, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.floor = floor


def test_arguments_of_every_class_it_derives_from_are_settings():
    assert capture_settings(Derived(7, floor=0.1)) == {"total": 7, "other": None, "floor": 0.1}


def test_the_optimizer_is_no_setting():
    scheduler = schedules.StepLR(make_optimizer(), 5)
    assert set(capture_settings(scheduler)) == {"step_size", "gamma", "base_lrs"}


def test_parts_are_named_by_their_place():
    optimizer = make_optimizer()
    chain = schedules.ChainedScheduler([schedules.StepLR(optimizer, 4), sequence(optimizer)])
    settings = capture_settings(chain)
    assert (settings["0.step_size"], settings["1.1.T_max"]) == (4, 40)
    assert settings["1.0.total_iters"] == 6


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ([1, 2], lambda value: value.append(3)),
        ({"a": 1}, lambda value: value.update(a=2)),
        (Counter([3, 4]), lambda value: value.update([3])),
        ([[1], [2]], lambda value: value[0].append(9)),
        ({"a": {"b": 1}}, lambda value: value["a"].update(b=2)),
    ],
)
def test_what_was_kept_does_not_follow_the_scheduler(value, change):
    scheduler = Mine(other=value)
    before = capture_settings(scheduler)
    change(scheduler.other)
    told = describe_overridden(before, capture_settings(scheduler))
    assert told.startswith("other ")
    assert "→" in told


def test_what_was_kept_can_be_changed_without_changing_the_scheduler():
    scheduler = Mine(other=[1, 2])
    capture_settings(scheduler)["other"].append(3)
    assert scheduler.other == [1, 2]


def test_without_attributes_there_are_no_settings():
    assert capture_settings(None) == {}
    assert capture_settings(object()) == {}


# ---- what is said -------------------------------------------------------------------------------


def test_equal_settings_say_nothing():
    settings = {"total": 5, "ends": [1, 2], "name": None}
    assert describe_overridden(settings, dict(settings)) == ""
    assert describe_overridden({}, settings) == ""


def test_a_setting_that_is_gone_is_told():
    assert describe_overridden({"total": 5}, {}) == "total 5 → None"


def test_a_setting_that_is_not_a_number_is_equal_to_itself():
    before = capture_settings(Mine(other=float("nan")))
    after = capture_settings(Mine(other=float("nan")))
    assert describe_overridden(before, after) == ""


class Warmup(schedules.LRScheduler):
    """A schedule by somebody who counts for himself."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, horizon: int) -> None:
        self.horizon, self.step_in_cycle, self.cycle = horizon, -1, 0
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        self.step_in_cycle += 1
        if self.step_in_cycle == self.horizon:
            self.step_in_cycle, self.cycle = 0, self.cycle + 1
        return [rate / (1 + self.step_in_cycle) for rate in self.base_lrs]


def test_of_somebodys_class_what_it_counts_is_not_told_as_overridden():
    saved = Warmup(make_optimizer(), horizon=4)
    advance(saved, 6)
    scheduler = Warmup(make_optimizer(), horizon=4)
    before = capture_settings(scheduler)
    scheduler.load_state_dict(saved.state_dict())
    assert describe_overridden(before, capture_settings(scheduler)) == ""


def test_of_somebodys_class_another_horizon_is_told():
    scheduler = Warmup(make_optimizer(), horizon=4)
    before = capture_settings(scheduler)
    scheduler.load_state_dict(Warmup(make_optimizer(), horizon=9).state_dict())
    assert describe_overridden(before, capture_settings(scheduler)) == "horizon 4 → 9"

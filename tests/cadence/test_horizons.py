"""What can be read off a scheduler about its length, and that reading it runs nothing."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import SWALR

from traingen.cadence.horizons import Horizon, closure_of, horizons_of


def make_optimizer(groups: int = 1) -> torch.optim.Optimizer:
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(groups)]
    return torch.optim.SGD([{"params": [one]} for one in parameters], lr=0.4, momentum=0.9)


def found(make: Callable[[torch.optim.Optimizer], Any]) -> list[Horizon]:
    return horizons_of(make(make_optimizer()))


def facts(horizons: list[Horizon]) -> list[tuple[float, str, bool, bool]]:
    return [(one.ticks, one.name, one.whole, one.periodic) for one in horizons]


# ---- torch's own --------------------------------------------------------------------------------

BUILT_IN = [
    (
        lambda o: schedules.OneCycleLR(o, 0.3, total_steps=70),
        [(70, "total_steps", True, False)],
    ),
    (
        lambda o: schedules.OneCycleLR(o, 0.3, epochs=4, steps_per_epoch=6),
        [(24, "total_steps", True, False)],
    ),
    (lambda o: schedules.CosineAnnealingLR(o, T_max=33), [(33, "T_max", True, True)]),
    (
        lambda o: schedules.PolynomialLR(o, total_iters=21, power=0.9),
        [(21, "total_iters", True, False)],
    ),
    (
        lambda o: schedules.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=17),
        [(17, "total_iters", True, False)],
    ),
    (
        lambda o: schedules.LinearLR(o, start_factor=0.1, end_factor=1.0, total_iters=17),
        [(17, "total_iters", False, False)],
    ),
    (lambda o: schedules.ConstantLR(o, total_iters=3), [(3, "total_iters", False, False)]),
    (lambda o: schedules.StepLR(o, step_size=13), [(13, "step_size", False, False)]),
    (
        lambda o: schedules.MultiStepLR(o, milestones=[40, 15, 90]),
        [(90, "milestones", False, False)],
    ),
    (
        lambda o: schedules.CosineAnnealingWarmRestarts(o, T_0=11, T_mult=3),
        [(11, "T_0", False, False)],
    ),
    (
        lambda o: schedules.CyclicLR(o, 0.1, 0.4, step_size_up=8, step_size_down=5),
        [(13, "step_size_up + step_size_down", False, False)],
    ),
    (lambda o: schedules.MultiStepLR(o, milestones=[]), []),
    (lambda o: schedules.ExponentialLR(o, gamma=0.9), []),
    (lambda o: schedules.ReduceLROnPlateau(o, patience=4), []),
    (lambda o: schedules.LambdaLR(o, lambda tick: 0.5), []),
    (lambda o: schedules.MultiplicativeLR(o, lambda tick: 0.5), []),
    (lambda o: SWALR(o, swa_lr=0.01, anneal_epochs=6), []),
    (
        lambda o: schedules.ChainedScheduler([schedules.ConstantLR(o), schedules.StepLR(o, 9)]),
        [(5, "total_iters", False, False), (9, "step_size", False, False)],
    ),
    (
        lambda o: schedules.SequentialLR(
            o,
            [schedules.LinearLR(o, total_iters=6), schedules.CosineAnnealingLR(o, T_max=50)],
            milestones=[6],
        ),
        [(6, "milestones[0]", False, False), (56, "milestones[0] + T_max", True, True)],
    ),
]


@pytest.mark.parametrize(("make", "expected"), BUILT_IN)
def test_a_schedule_of_torch_says_after_how_many_ticks_it_is_over(make, expected):
    horizons = found(make)
    assert facts(horizons) == expected
    assert not any(one.guessed for one in horizons)


def test_no_schedule_of_torch_is_left_out_above():
    made = {type(make(make_optimizer())) for make, _ in BUILT_IN}
    public = {getattr(schedules, name) for name in schedules.__all__} | {SWALR}
    assert public - {schedules.LRScheduler} == made


@pytest.mark.parametrize(
    "cls", [schedules.OneCycleLR, schedules.CosineAnnealingLR, schedules.StepLR]
)
def test_a_subclass_of_a_schedule_is_read_as_that_schedule(cls):
    given = {"max_lr": 0.3, "total_steps": 29} if cls is schedules.OneCycleLR else {}
    rest = () if given else (29,)
    mine = type("Mine", (cls,), {})(make_optimizer(), *rest, **given)
    assert [(one.ticks, one.guessed) for one in horizons_of(mine)] == [(29, False)]


def test_an_advanced_schedule_has_the_same_horizon():
    optimizer = make_optimizer()
    scheduler = schedules.CosineAnnealingLR(optimizer, T_max=12)
    for _ in range(7):
        optimizer.step()
        scheduler.step()
    assert facts(horizons_of(scheduler)) == [(12, "T_max", True, True)]


# ---- functions ----------------------------------------------------------------------------------


def linear_with_warmup(tick: int, *, num_warmup_steps: int, num_training_steps: int) -> float:
    """As get_linear_schedule_with_warmup hands to LambdaLR."""
    if tick < num_warmup_steps:
        return tick / max(1, num_warmup_steps)
    return max(0.0, (num_training_steps - tick) / max(1, num_training_steps - num_warmup_steps))


def polynomial(tick: int, max_iters: int, power: float) -> float:
    return (1 - min(tick, max_iters) / max_iters) ** power


def closing_over(total_updates: int, warmup: int) -> Callable[[int], float]:
    def factor(tick: int) -> float:
        return min(tick / warmup, max(0.0, 1 - tick / total_updates))

    return factor


class Decay:
    """A callable object, as a hydra config makes one."""

    def __init__(self, *, decay_steps: int, warm_steps: float) -> None:
        self.decay_steps = decay_steps
        self.warm_steps = warm_steps
        self.calls = 0

    def __call__(self, tick: int) -> float:
        self.calls += 1
        return 1.0

    def factor(self, tick: int) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            functools.partial(linear_with_warmup, num_warmup_steps=30, num_training_steps=450),
            {"num_training_steps": (450, True), "num_warmup_steps": (30, False)},
        ),
        (functools.partial(polynomial, max_iters=77, power=0.9), {"max_iters": (77, True)}),
        (closing_over(140, 20), {"total_updates": (140, True), "warmup": (20, False)}),
        (
            functools.partial(closing_over(140, 20), tick=3),
            {"total_updates": (140, True), "warmup": (20, False)},
        ),
        (
            Decay(decay_steps=64, warm_steps=2.5),
            {"decay_steps": (64, True), "warm_steps": (2.5, False)},
        ),
        (lambda tick: 0.95**tick, {}),
        (Decay(decay_steps=64, warm_steps=2.5).factor, {}),  # a method may belong to anything
        (torch.nn.Identity(), {}),
        (math.exp, {}),
    ],
)
def test_a_function_is_read_by_the_names_of_what_it_was_given(function, expected):
    scheduler = schedules.LambdaLR.__new__(schedules.LambdaLR)
    scheduler.lr_lambdas = [function]
    horizons = horizons_of(scheduler)
    assert {one.name: (one.ticks, one.whole) for one in horizons} == expected
    assert not any(one.guessed or one.periodic for one in horizons)


def test_an_inner_partial_is_overridden_by_the_outer_one():
    inner = functools.partial(linear_with_warmup, num_warmup_steps=1, num_training_steps=2)
    outer = functools.partial(inner, num_training_steps=600)
    horizons = found(lambda o: schedules.LambdaLR(o, outer))
    assert {one.name: one.ticks for one in horizons} == {
        "num_training_steps": 600,
        "num_warmup_steps": 1,
    }


def test_reading_calls_no_function():
    factor = Decay(decay_steps=64, warm_steps=2)
    scheduler = schedules.LambdaLR(make_optimizer(), factor)
    before = factor.calls
    assert len(horizons_of(scheduler)) == 2
    assert factor.calls == before


def test_a_factor_upon_a_factor_is_read_as_well():
    horizons = found(lambda o: schedules.MultiplicativeLR(o, closing_over(140, 20)))
    assert [one.name for one in horizons] == ["total_updates", "warmup"]


def test_one_function_for_several_groups_is_one_horizon():
    function = functools.partial(polynomial, max_iters=88, power=2.0)
    scheduler = schedules.LambdaLR(make_optimizer(groups=3), function)
    assert facts(horizons_of(scheduler)) == [(88, "max_iters", True, False)]


def test_functions_that_differ_each_have_their_horizon():
    several = [functools.partial(polynomial, max_iters=n, power=2.0) for n in (60, 90)]
    scheduler = schedules.LambdaLR(make_optimizer(groups=2), several)
    assert [one.ticks for one in horizons_of(scheduler)] == [60, 90]


def test_a_variable_that_is_not_assigned_yet_is_passed_over():
    def function(tick: int) -> float:
        return tick / (total_steps + warmup_steps)

    warmup_steps = 15
    assert closure_of(function) == {"warmup_steps": 15}
    total_steps = 150
    assert closure_of(function) == {"warmup_steps": 15, "total_steps": 150}


# ---- classes of others --------------------------------------------------------------------------


class Mine(schedules.LRScheduler):
    """A schedule by somebody, with attributes of all kinds."""

    def __init__(self, optimizer: torch.optim.Optimizer, **attributes: Any) -> None:
        vars(self).update(attributes)
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]


def test_the_horizon_of_somebodys_class_is_a_guess():
    horizons = found(lambda o: Mine(o, max_iters=120, warmup_iters=12, gamma=0.5, name="poly"))
    assert [(one.ticks, one.name, one.whole) for one in horizons] == [
        (120, "max_iters", True),
        (12, "warmup_iters", False),
    ]
    assert all(one.guessed for one in horizons)


@pytest.mark.parametrize("value", [True, "120", None, [120], {"a": 120}])
def test_what_is_no_number_is_no_horizon(value):
    assert found(lambda o: Mine(o, total_steps=value)) == []
    assert len(found(lambda o: Mine(o, total_steps=120))) == 1


def test_what_is_no_torch_scheduler_at_all_is_read_by_its_attributes():
    class Timm:
        def __init__(self) -> None:
            self.t_initial, self.warmup_t, self.lr_min = 300, 5, 1e-5

    assert facts(horizons_of(Timm())) == [
        (300, "t_initial", True, False),
        (5, "warmup_t", False, False),
    ]
    assert horizons_of(object()) == []


# ---- composed -----------------------------------------------------------------------------------


def test_of_a_sequence_only_the_last_part_reaches_the_end():
    def make(optimizer: torch.optim.Optimizer) -> Any:
        parts = [
            schedules.ConstantLR(optimizer, total_iters=2),
            schedules.CosineAnnealingLR(optimizer, T_max=999),
            schedules.PolynomialLR(optimizer, total_iters=40),
        ]
        return schedules.SequentialLR(optimizer, parts, milestones=[5, 25])

    assert facts(found(make)) == [
        (5, "milestones[0]", False, False),
        (25, "milestones[1]", False, False),
        (65, "milestones[1] + total_iters", True, False),
    ]


def test_a_sequence_in_a_sequence_adds_up():
    def make(optimizer: torch.optim.Optimizer) -> Any:
        inner = schedules.SequentialLR(
            optimizer,
            [schedules.ConstantLR(optimizer), schedules.CosineAnnealingLR(optimizer, T_max=30)],
            milestones=[4],
        )
        outer = [schedules.LinearLR(optimizer), inner]
        return schedules.SequentialLR(optimizer, outer, milestones=[10])

    assert [(one.ticks, one.periodic) for one in found(make)] == [
        (10, False),
        (14, False),
        (44, True),
    ]


# ---- no lengths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ticks", [-1, 0, math.inf, -math.inf, math.nan])
def test_a_horizon_that_is_no_length_says_so_and_is_shown_as_it_is(ticks):
    (horizon,) = found(lambda o: schedules.CosineAnnealingLR(o, T_max=ticks))
    assert not horizon.is_length
    assert str(horizon) == f"T_max={ticks}"


@pytest.mark.parametrize(
    ("ticks", "shown"), [(900, "900"), (900.0, "900"), (37.5, "37.5"), (2**40, str(2**40))]
)
def test_a_horizon_that_is_a_length_is_shown_as_a_number(ticks, shown):
    horizon = Horizon(ticks=ticks, name="max_steps")
    assert horizon.is_length
    assert str(horizon) == f"max_steps={shown}"


@pytest.mark.parametrize("ticks", [-1, 0, math.inf])
def test_a_part_that_is_no_length_is_not_added_to_the_milestone(ticks):
    def make(optimizer: torch.optim.Optimizer) -> Any:
        parts = [
            schedules.LinearLR(optimizer),
            schedules.CosineAnnealingLR(optimizer, T_max=ticks),
        ]
        return schedules.SequentialLR(optimizer, parts, milestones=[5])

    last = found(make)[-1]
    assert (last.ticks, last.name, last.is_length) == (ticks, "T_max", False)


def test_a_part_that_is_no_number_is_passed_over():
    def make(optimizer: torch.optim.Optimizer) -> Any:
        parts = [
            schedules.LinearLR(optimizer),
            schedules.CosineAnnealingLR(optimizer, T_max=None),  # type: ignore[arg-type]
        ]
        return schedules.SequentialLR(optimizer, parts, milestones=[5])

    assert [one.name for one in found(make)] == ["milestones[0]"]


def test_an_integer_of_numpy_is_a_number():
    numpy = pytest.importorskip("numpy")
    horizons = found(lambda o: schedules.CosineAnnealingLR(o, T_max=numpy.int64(900)))
    assert [str(one) for one in horizons] == ["T_max=900"]

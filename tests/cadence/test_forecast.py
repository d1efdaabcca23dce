"""The forecast is what really ticking gives, bit for bit, and it leaves no trace."""

import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as schedules
from torch.optim.swa_utils import SWALR

from tests.callbacks.small import BATCHES, Small, fit
from traingen.cadence import forecast as module
from traingen.cadence.forecast import Forecast, forecast_all, forecast_rates
from traingen.cadence.plan import Cadence, RunPlan, count_steps, iter_ticks
from traingen.cadence.schedule import Schedule

STEP, EPOCH = Cadence(interval="step"), Cadence(interval="epoch")
Paced = Sequence[tuple[Any, Cadence]]


def make_optimizer(*rates: float, cls: type[torch.optim.Optimizer] = torch.optim.SGD) -> Any:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(2))], "lr": rate} for rate in rates]
    return cls(groups or [torch.nn.Parameter(torch.zeros(2))], **momentum(cls), lr=0.4)


def momentum(cls: type[torch.optim.Optimizer]) -> dict[str, Any]:
    return {"momentum": 0.9} if cls is torch.optim.SGD else {}


def linear_with_warmup(tick: int, *, warmup: int, total: int) -> float:
    return tick / max(1, warmup) if tick < warmup else max(0.0, (total - tick) / (total - warmup))


def sequence(optimizer: Any) -> Any:
    parts = [
        schedules.LinearLR(optimizer, start_factor=0.25, total_iters=3),
        schedules.CosineAnnealingLR(optimizer, T_max=7),
        schedules.ExponentialLR(optimizer, gamma=0.9),
    ]
    return schedules.SequentialLR(optimizer, parts, milestones=[3, 8])


def sequence_in_sequence(optimizer: Any) -> Any:
    """Torch builds it and fails at its milestone."""
    parts = [schedules.ConstantLR(optimizer, total_iters=2), schedules.StepLR(optimizer, 3)]
    inner = schedules.SequentialLR(optimizer, parts, milestones=[4])
    outer = [schedules.LinearLR(optimizer, total_iters=2), inner]
    return schedules.SequentialLR(optimizer, outer, milestones=[2])


MAKERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: schedules.LambdaLR(
        o, functools.partial(linear_with_warmup, warmup=4, total=30)
    ),
    "MultiplicativeLR": lambda o: schedules.MultiplicativeLR(o, lambda tick: 1 - 1 / (tick + 3)),
    "StepLR": lambda o: schedules.StepLR(o, step_size=4, gamma=0.3),
    "MultiStepLR": lambda o: schedules.MultiStepLR(o, milestones=[2, 5, 5, 11], gamma=0.7),
    "ConstantLR": lambda o: schedules.ConstantLR(o, factor=0.5, total_iters=6),
    "LinearLR": lambda o: schedules.LinearLR(o, start_factor=0.1, total_iters=9),
    "ExponentialLR": lambda o: schedules.ExponentialLR(o, gamma=0.93),
    "SequentialLR": sequence,
    "PolynomialLR": lambda o: schedules.PolynomialLR(o, total_iters=13, power=1.7),
    "CosineAnnealingLR": lambda o: schedules.CosineAnnealingLR(o, T_max=7, eta_min=0.01),
    "ChainedScheduler": lambda o: schedules.ChainedScheduler(
        [schedules.ConstantLR(o, total_iters=4), schedules.ExponentialLR(o, gamma=0.9)]
    ),
    "CyclicLR": lambda o: schedules.CyclicLR(
        o, 0.05, 0.4, step_size_up=3, step_size_down=5, mode="exp_range", gamma=0.99
    ),
    "CosineAnnealingWarmRestarts": lambda o: schedules.CosineAnnealingWarmRestarts(
        o, T_0=3, T_mult=2
    ),
    "OneCycleLR": lambda o: schedules.OneCycleLR(o, 0.9, total_steps=200, three_phase=True),
    "SWALR": lambda o: SWALR(o, swa_lr=0.02, anneal_epochs=5),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "a sequence in a chain": lambda o: schedules.ChainedScheduler(
        [sequence(o), schedules.ExponentialLR(o, gamma=0.95)]
    ),
    "LinearLR of the end": lambda o: schedules.LinearLR(o, 1.0, 0.2, total_iters=6),
    "CyclicLR without momentum": lambda o: schedules.CyclicLR(
        o, 0.1, 0.2, step_size_up=2, mode="triangular2", cycle_momentum=False
    ),
    "CyclicLR of a function": lambda o: schedules.CyclicLR(
        o, 0.1, 0.2, step_size_up=2, scale_fn=lambda x: 0.5**x, cycle_momentum=False
    ),
    "OneCycleLR, linear": lambda o: schedules.OneCycleLR(
        o, 0.9, epochs=20, steps_per_epoch=10, anneal_strategy="linear"
    ),
    "cosine over -1": lambda o: schedules.CosineAnnealingLR(o, T_max=-1),
}

plans = st.builds(
    RunPlan,
    batches=st.integers(1, 7),
    epochs=st.integers(1, 4),
    max_steps=st.none() | st.integers(1, 20),
    accumulation=st.builds(lambda a, b: {0: a, 2: b}, st.integers(1, 3), st.integers(1, 3)),
)
cadences = st.builds(
    Cadence, interval=st.sampled_from(["step", "epoch"]), frequency=st.integers(1, 3)
)


# ---- ticking for real ---------------------------------------------------------------------------


def really(optimizer: Any, paced: Paced, plan: RunPlan) -> Iterator[tuple[float, ...]]:
    """The rates of every counted step, as Lightning's loop uses them, and those it leaves."""
    ticks = [(list(iter_ticks(plan, cadence)), scheduler) for scheduler, cadence in in_order(paced)]
    for step in range(plan.step + 1, plan.step + count_steps(plan) + 1):
        yield rates_of(optimizer)
        optimizer.step()
        for due, scheduler in ticks:
            if step in due:
                scheduler.step()
    yield rates_of(optimizer)


def in_order(paced: Paced) -> list[tuple[Any, Cadence]]:
    """All of interval step before any of interval epoch, as training_epoch_loop.py calls them."""
    return sorted(paced, key=lambda one: one[1].interval == "epoch")


def rates_of(optimizer: Any) -> tuple[float, ...]:
    return tuple(group["lr"] for group in optimizer.param_groups)


def assert_as_forecast(optimizer: Any, paced: Paced, plan: RunPlan) -> None:
    told = forecast_rates(optimizer, paced, plan=plan)
    assert isinstance(told, Forecast), told
    *used, left = really(optimizer, paced, plan)
    first = plan.step + 1
    assert (told.first_step, told.steps) == (first, len(used))
    assert [told.rates_at(step) for step in range(first, first + len(used))] == used
    assert told.rates[-1] == left


def advance(optimizer: Any, scheduler: Any, ticks: int) -> None:
    for _ in range(ticks):
        optimizer.step()
        scheduler.step()


def test_no_schedule_of_torch_is_left_out_above():
    public = {getattr(schedules, name) for name in schedules.__all__} | {SWALR}
    made = {type(make(make_optimizer())) for make in MAKERS.values()}
    assert public - made == {schedules.LRScheduler, schedules.ReduceLROnPlateau}


@pytest.mark.parametrize("ticked", [0, 1, 6])
@pytest.mark.parametrize("name", [*MAKERS, *OTHERS])
def test_it_is_what_ticking_really_gives(name, ticked):
    optimizer = make_optimizer(0.4, 0.03)
    scheduler = (MAKERS | OTHERS)[name](optimizer)
    advance(optimizer, scheduler, ticked)
    plan = RunPlan(batches=5, epochs=6, max_steps=27, epoch=1, batch=2, step=8)
    assert_as_forecast(optimizer, [(scheduler, STEP)], plan)


@given(
    st.sampled_from(sorted(MAKERS)), plans, cadences, st.sampled_from([(), (0.4,), (0.2, 0.3, 1.0)])
)
def test_it_is_what_ticking_really_gives_at_any_cadence(name, plan, cadence, rates):
    optimizer = make_optimizer(*rates, cls=torch.optim.Adam)
    assert_as_forecast(optimizer, [(MAKERS[name](optimizer), cadence)], plan)


chainable = st.sampled_from(["StepLR", "ExponentialLR", "MultiplicativeLR", "LinearLR"])


@given(chainable, chainable, plans, cadences, cadences)
def test_two_schedulers_on_one_optimizer_act_together(one, other, plan, its, others):
    optimizer = make_optimizer(0.4, 0.1)
    paced = [(MAKERS[one](optimizer), its), (MAKERS[other](optimizer), others)]
    assert_as_forecast(optimizer, paced, plan)


@pytest.mark.parametrize("intervals", [(STEP, EPOCH), (EPOCH, STEP), (STEP, STEP)])
def test_of_two_schedulers_those_by_step_tick_first_as_in_lightning(intervals):
    optimizer = make_optimizer()
    paced = [
        (schedules.ExponentialLR(optimizer, gamma=0.5), intervals[0]),  # times the rate there is
        (schedules.LambdaLR(optimizer, lambda tick: 1 / (1 + tick)), intervals[1]),  # sets it
    ]
    assert_as_forecast(optimizer, paced, RunPlan(batches=3, epochs=3, max_steps=None))


class Two(Small):
    """An absolute schedule by step and a factor by epoch; notes the rate of every batch."""

    def __init__(self, *, epoch_first: bool) -> None:
        super().__init__()
        self.epoch_first = epoch_first
        self.used: list[tuple[float, ...]] = []
        self.told: Forecast | str = ""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        by_step = schedules.LambdaLR(optimizer, lambda tick: 1 / (1 + tick))
        configs = [
            {"scheduler": by_step, "interval": "step"},
            {"scheduler": schedules.ExponentialLR(optimizer, gamma=0.5), "interval": "epoch"},
        ]
        return [optimizer], configs[::-1] if self.epoch_first else configs

    def on_train_start(self) -> None:
        self.told = forecast_rates(
            self.trainer.optimizers[0],
            [
                (one.scheduler, Cadence(interval=one.interval))  # type: ignore[arg-type]
                for one in self.trainer.lr_scheduler_configs
            ],
            plan=RunPlan(batches=BATCHES, epochs=2, max_steps=None),
        )

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.used.append(rates_of(optimizer))


@pytest.mark.parametrize("epoch_first", [False, True])
def test_it_is_what_a_real_fit_with_two_schedulers_uses(epoch_first):
    model = Two(epoch_first=epoch_first)
    fit([], model=model, max_epochs=2)
    told = model.told
    assert isinstance(told, Forecast)
    assert [told.rates_at(step) for step in range(1, 2 * BATCHES + 1)] == model.used


# ---- no trace -----------------------------------------------------------------------------------


def frozen(value: Any, seen: dict[int, Any]) -> Any:
    """`value` with all that schedulers and optimizers keep in it, as a value to compare."""
    if id(value) in seen:
        return "seen"
    if isinstance(value, schedules.LRScheduler | torch.optim.Optimizer):
        seen[id(value)] = value
        return {name: frozen(one, seen) for name, one in vars(value).items()} | {"": id(value)}
    if isinstance(value, dict):
        return {key: frozen(one, seen) for key, one in value.items()} | {"": id(value)}
    if isinstance(value, list | tuple):
        return [frozen(one, seen) for one in value]
    if isinstance(value, bool | int | float | str | None):
        return value
    return id(value)


@pytest.mark.parametrize("name", [*MAKERS, *OTHERS])
@pytest.mark.parametrize("ticked", [0, 2])
def test_schedulers_and_their_optimizer_are_left_as_they_were(name, ticked):
    optimizer = make_optimizer(0.4, 0.03)
    scheduler = (MAKERS | OTHERS)[name](optimizer)
    advance(optimizer, scheduler, ticked)
    before = frozen([scheduler, optimizer], {})
    streams = torch.get_rng_state().tolist(), random.getstate()
    told = forecast_rates(
        optimizer, [(scheduler, STEP)], plan=RunPlan(batches=8, epochs=2, max_steps=None)
    )
    assert isinstance(told, Forecast)
    assert frozen([scheduler, optimizer], {}) == before
    assert (torch.get_rng_state().tolist(), random.getstate()) == streams


def test_what_is_compared_above_sees_a_tick():
    optimizer = make_optimizer()
    scheduler = sequence(optimizer)
    before = frozen([scheduler, optimizer], {})
    advance(optimizer, scheduler, 1)
    assert frozen([scheduler, optimizer], {}) != before


def test_a_forecast_in_vain_leaves_no_trace_either():
    optimizer = make_optimizer()
    scheduler = schedules.OneCycleLR(optimizer, 0.9, total_steps=5)
    before = frozen([scheduler, optimizer], {})
    plan = RunPlan(batches=8, epochs=2, max_steps=None)
    assert isinstance(forecast_rates(optimizer, [(scheduler, STEP)], plan=plan), str)
    assert frozen([scheduler, optimizer], {}) == before


def test_rng_drawn_by_a_schedule_function_is_not_drawn_once_more():
    optimizer = make_optimizer()
    scheduler = schedules.LambdaLR(optimizer, lambda tick: random.random())
    before = random.getstate()
    told = forecast_rates(
        optimizer, [(scheduler, STEP)], plan=RunPlan(batches=2, epochs=2, max_steps=None)
    )
    assert told == "LambdaLR calls a function that may do more than compute"
    assert random.getstate() == before


# ---- what is not forecast -----------------------------------------------------------------------


def reason(make: Callable[[Any], Any], optimizer: Any = None) -> Any:
    optimizer = optimizer or make_optimizer()
    plan = RunPlan(batches=6, epochs=2, max_steps=None)
    return forecast_rates(optimizer, [(make(optimizer), STEP)], plan=plan)


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tick: float) -> float:
        self.calls += 1
        return 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda o, f: schedules.LambdaLR(o, f),
        lambda o, f: schedules.LambdaLR(o, lambda tick: f(tick)),
        lambda o, f: schedules.MultiplicativeLR(o, f),
        lambda o, f: schedules.CyclicLR(
            o, 0.1, 0.2, step_size_up=2, scale_fn=f, cycle_momentum=False
        ),
        lambda o, f: schedules.ChainedScheduler([schedules.LambdaLR(o, f)]),
        lambda o, f: schedules.SequentialLR(
            o, [schedules.ConstantLR(o), schedules.LambdaLR(o, f)], milestones=[2]
        ),
    ],
)
def test_a_function_that_counts_its_calls_is_not_called(make):
    function = Counting()
    optimizer = make_optimizer()
    scheduler = make(optimizer, function)
    before = function.calls
    told = reason(lambda o: scheduler, optimizer)
    assert "LR calls a function that may do more than compute" in told
    assert function.calls == before


class Mine(schedules.StepLR):
    pass


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: Mine(o, 3), "Mine is not torch's own schedule"),
        (
            lambda o: schedules.ChainedScheduler([schedules.StepLR(o, 3), Mine(o, 3)]),
            "Mine is not torch's own schedule",
        ),
    ],
)
def test_what_somebody_else_decides_is_not_forecast(make, expected):
    assert reason(make) == expected


def test_one_scheduler_that_cannot_be_told_spoils_its_optimizer():
    optimizer = make_optimizer()
    paced = [(schedules.StepLR(optimizer, 3), STEP), (Mine(optimizer, 3), EPOCH)]
    plan = RunPlan(batches=6, epochs=2, max_steps=None)
    assert forecast_rates(optimizer, paced, plan=plan) == "Mine is not torch's own schedule"
    assert isinstance(forecast_rates(optimizer, paced[:1], plan=plan), Forecast)


def make_schedule(scheduler: Any, **facts: Any) -> Schedule:
    given = {"index": 0, "optimizer": 0, "interval": "step", "frequency": 1}
    return Schedule(**(given | {"scheduler": scheduler} | facts))


def test_every_optimizer_has_a_forecast_of_its_own():
    optimizers = [make_optimizer(rate) for rate in (0.4, 0.2, 0.1)]
    schedules_ = [
        make_schedule(schedules.ExponentialLR(optimizers[2], gamma=0.5), optimizer=2),
        make_schedule(schedules.StepLR(optimizers[0], 1, gamma=0.1), index=1, interval="epoch"),
    ]
    plan = RunPlan(batches=2, epochs=2, max_steps=None)
    told = forecast_all(optimizers, schedules_, plan=plan, automatic=True)
    assert list(told) == [0, 2]  # the one between has no scheduler
    assert [told[0].rates_at(n)[0] for n in (1, 2, 3)] == [0.4, 0.4, 0.4 * 0.1]
    assert [told[2].rates_at(n)[0] for n in (1, 2, 3)] == [0.1, 0.05, 0.025]


@pytest.mark.parametrize(
    ("make", "facts", "run", "expected"),
    [
        (lambda o: schedules.StepLR(o, 3), {}, {"automatic": False}, "own code ticks"),
        (lambda o: schedules.StepLR(o, 3), {}, {"plan": None}, "is not known"),
        (lambda o: schedules.StepLR(o, 3), {"frequency": 0}, {}, "is not known"),
        (schedules.ReduceLROnPlateau, {"plateau": True}, {}, "ReduceLROnPlateau (scheduler 0) fol"),
    ],
)
def test_without_a_plan_or_with_a_plateau_nothing_is_forecast(make, facts, run, expected):
    optimizer = make_optimizer()
    given = {"plan": RunPlan(batches=2, epochs=2, max_steps=None), "automatic": True} | run
    told = forecast_all([optimizer], [make_schedule(make(optimizer), **facts)], **given)
    assert expected in told[0]
    assert told[0].endswith("no rate is predicted")


def test_rates_in_tensors_are_not_forecast():
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    optimizer = torch.optim.SGD(parameters, lr=torch.tensor(0.1))
    scheduler = schedules.ExponentialLR(optimizer, gamma=0.5)
    assert reason(lambda o: scheduler, optimizer) == "the rates are tensors"
    assert optimizer.param_groups[0]["lr"].item() == pytest.approx(0.1)


def test_a_method_put_on_a_scheduler_is_not_called():
    called = []
    optimizer = make_optimizer()
    scheduler = schedules.StepLR(optimizer, 3)
    scheduler.get_lr = lambda: called.append(1) or [0.1]  # type: ignore[method-assign]
    assert isinstance(reason(lambda o: scheduler, optimizer), str)
    assert called == []


@pytest.mark.parametrize(("total", "last"), [(7, 8), (11, 12)])
def test_one_cycle_that_runs_over_says_where_the_run_will_stop(total, last):
    told = reason(lambda o: schedules.OneCycleLR(o, 0.9, total_steps=total))
    assert told.startswith(f"the schedule will stop the run after update {last}: ")
    assert f"{total}" in told.partition(": ")[2]
    assert isinstance(reason(lambda o: schedules.OneCycleLR(o, 0.9, total_steps=12)), Forecast)


def over(tick: int, *, total: int) -> Any:
    return (1 - tick / total) ** 0.9  # a complex number past its end


@pytest.mark.parametrize(
    "make",
    [
        lambda o: schedules.CosineAnnealingLR(o, T_max=0),
        lambda o: schedules.CosineAnnealingLR(o, T_max=None),
        lambda o: schedules.StepLR(o, step_size=0),
        lambda o: schedules.LambdaLR(o, lambda tick: 1 / (5 - tick)),
        lambda o: schedules.LambdaLR(o, lambda tick: 9.0 ** (tick * 100)),
        lambda o: schedules.LambdaLR(o, functools.partial(over, total=8)),
        sequence_in_sequence,
    ],
    ids=["cosine 0", "cosine None", "step 0", "division", "overflow", "complex", "nested"],
)
def test_a_schedule_that_fails_on_the_way_is_a_reason_and_raises_nothing(make):
    assert isinstance(reason(make), str)


def test_many_ticks_are_too_many_and_one_less_is_not(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 11)
    optimizer = make_optimizer()
    scheduler = schedules.ExponentialLR(optimizer, gamma=0.9)
    told = [
        forecast_rates(
            optimizer, [(scheduler, STEP)], plan=RunPlan(batches=n, epochs=1, max_steps=None)
        )
        for n in (11, 12)
    ]
    assert isinstance(told[0], Forecast)
    assert told[1] == "more than 11 ticks: too many to forecast"


def test_a_training_without_an_end_is_not_forecast_for_ever(monkeypatch):
    monkeypatch.setattr(module, "LONGEST", 30)
    optimizer = make_optimizer()
    scheduler = schedules.ExponentialLR(optimizer, gamma=0.9)
    plan = RunPlan(batches=4, epochs=None, max_steps=None)
    assert "too many" in str(forecast_rates(optimizer, [(scheduler, EPOCH)], plan=plan))


# ---- what it says -------------------------------------------------------------------------------


def make_forecast(*rates: float, first: int = 1, every: int = 1, steps: int | None = None) -> Any:
    """A forecast of one group whose rate changes every so many steps."""
    changes = tuple(first - 1 + every * number for number in range(1, len(rates)))
    steps = every * len(rates) if steps is None else steps
    return Forecast(
        first_step=first, steps=steps, changes=changes, rates=tuple((rate,) for rate in rates)
    )


def test_a_step_uses_the_rates_that_the_tick_before_it_left():
    told = make_forecast(0.5, 0.25, 0.125, first=41, every=2)
    assert [told.rates_at(step)[0] for step in range(41, 47)] == [
        0.5, 0.5, 0.25, 0.25, 0.125, 0.125,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (make_forecast(0.2), "LR will be constant at 0.2"),
        (make_forecast(0.2, 0.2, 0.2), "LR will be constant at 0.2"),
        (make_forecast(0.2, 0.1, steps=1), "LR will be constant at 0.2"),
        (make_forecast(0.2, 0.1), "LR 0.2 → 0.1 (update 2)"),
        (make_forecast(0.2, 0.3, 0.1), "LR 0.2 → 0.3 (update 2) → 0.1 (update 3)"),
        (make_forecast(0.2, 0.05, 0.1), "LR 0.2 → 0.05 (update 2) → 0.1 (update 3)"),
        (
            make_forecast(0.2, 0.7, 0.3, 0.1, 0.4, first=101, every=10),
            "LR 0.2 → 0.7 (update 111) → 0.1 (update 131) → 0.4 (update 150)",
        ),
        (
            make_forecast(0.2, 0.1, 0.9, 0.3),
            "LR 0.2 → 0.1 (update 2) → 0.9 (update 3) → 0.3 (update 4)",
        ),
        (make_forecast(1 / 3, 1e-7), "LR 0.333333 → 1e-07 (update 2)"),
    ],
)
def test_it_is_told_by_where_it_begins_peaks_dips_and_ends(told, text):
    assert told.describe() == text
    assert told.is_constant == ("constant" in text)


def test_a_rate_that_no_update_uses_is_not_told():
    told = make_forecast(0.2, 0.4, 99.0, steps=2)
    assert told.describe() == "LR 0.2 → 0.4 (update 2)"
    assert make_forecast(0.2, 99.0, steps=1).is_constant


def test_it_is_constant_only_if_every_group_is():
    told = Forecast(first_step=1, steps=2, changes=(1,), rates=((0.1, 0.2), (0.1, 0.3)))
    assert not told.is_constant
    assert "constant" not in told.describe()


def test_a_group_that_moves_is_told_if_the_first_does_not():
    told = Forecast(first_step=1, steps=2, changes=(1,), rates=((0.1, 0.2), (0.1, 0.3)))
    assert "0.3" in told.describe()


def test_a_fit_without_a_step_has_a_constant_rate():
    optimizer = make_optimizer()
    plan = RunPlan(batches=4, epochs=2, max_steps=None, epoch=2, step=8)
    told = forecast_rates(optimizer, [(schedules.StepLR(optimizer, 1), STEP)], plan=plan)
    assert isinstance(told, Forecast)
    assert (told.steps, told.describe()) == (0, "LR will be constant at 0.4")


def test_an_interval_of_an_epoch_leaves_the_rate_until_its_end():
    optimizer = make_optimizer()
    scheduler = schedules.ExponentialLR(optimizer, gamma=0.5)
    plan = RunPlan(batches=5, epochs=3, max_steps=None)
    told = forecast_rates(optimizer, [(scheduler, EPOCH)], plan=plan)
    assert isinstance(told, Forecast)
    assert [told.rates_at(step)[0] for step in (1, 5, 6, 10, 11, 15)] == [
        0.4, 0.4, 0.2, 0.2, 0.1, 0.1,
    ]  # fmt: skip


def test_the_words_of_a_cosine_hold_its_turn():
    optimizer = make_optimizer()
    scheduler = schedules.CosineAnnealingLR(optimizer, T_max=4)
    plan = RunPlan(batches=8, epochs=1, max_steps=None)
    told = forecast_rates(optimizer, [(scheduler, STEP)], plan=plan)
    assert isinstance(told, Forecast)
    assert math.isclose(told.rates_at(5)[0], 0.0, abs_tol=1e-12)
    assert told.describe().startswith("LR 0.4 → 0 (update 5) → ")

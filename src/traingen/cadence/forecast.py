"""The whole curve of learning rates that a run will use, before its first update.

The schedulers are copied onto a stand-in for their optimizer and the copies are ticked; the real
ones are not touched. What would run somebody's own code is not forecast: it might draw, count or
print, and training with the forecast and without it must end in the same bits.
"""

from __future__ import annotations

import bisect
import copy
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.optim import lr_scheduler as torch_schedulers

from traingen.cadence.plan import Cadence, RunPlan, count_steps, iter_ticks
from traingen.cadence.purity import is_pure
from traingen.cadence.schedule import Schedule

LONGEST = 100_000  # ticks: about a second of work


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The rates of one optimizer over the coming counted steps."""

    first_step: int  # numbered from 1 over the whole training
    steps: int  # counted steps it speaks for
    changes: tuple[int, ...]  # counted steps after which the rates are new
    rates: tuple[tuple[float, ...], ...]  # per parameter group; one more than `changes`

    def rates_at(self, step: int) -> tuple[float, ...]:
        """The rates that counted step `step` uses."""
        return self.rates[bisect.bisect_left(self.changes, step)]

    @property
    def is_constant(self) -> bool:
        """Whether every counted step uses the same rates."""
        return all(rates == self.rates[0] for rates in self._used())

    def describe(self) -> str:
        """The rate of the first group that moves: where it begins, peaks, dips and ends.

        >>> rates = ((0.1,), (0.3,), (0.2,))
        >>> Forecast(first_step=1, steps=3, changes=(1, 2), rates=rates).describe()
        'LR 0.1 → 0.3 (update 2) → 0.2 (update 3)'
        """
        last = self.first_step + self.steps - 1
        if self.is_constant:
            return f"LR will be constant at {self.rates[0][0]:.6g}"
        groups = list(zip(*self._used(), strict=True))
        moving = next(at for at, rates in enumerate(groups) if len(set(rates)) > 1)
        used = groups[moving]
        name = f"LR of group {moving}" if moving else "LR"
        starts = [self.first_step, *(step + 1 for step in self.changes)][: len(used)]
        turns = sorted({used.index(min(used)), used.index(max(used))} - {0, len(used) - 1})
        points = [f"{used[at]:.6g} (update {starts[at]})" for at in turns]
        return " → ".join([f"{name} {used[0]:.6g}", *points, f"{used[-1]:.6g} (update {last})"])

    def _used(self) -> tuple[tuple[float, ...], ...]:
        """Without the rates after the last counted step, which no update uses."""
        last = self.first_step + self.steps - 1
        return self.rates[: bisect.bisect_left(self.changes, last) + 1]


def forecast_all(
    optimizers: Sequence[torch.optim.Optimizer],
    schedules: Sequence[Schedule],
    *,
    plan: RunPlan | None,
    automatic: bool,
) -> dict[int, Forecast | str]:
    """By optimizer, its rates under all of its schedules, or why they are not forecast."""
    forecasts: dict[int, Forecast | str] = {}
    for index in sorted({schedule.optimizer for schedule in schedules}):
        those = [schedule for schedule in schedules if schedule.optimizer == index]
        paced = [(one.scheduler, one.cadence) for one in those if one.cadence is not None]
        followers = [one.label for one in those if one.plateau]
        if not automatic:
            forecasts[index] = "the module's own code ticks, so no rate is predicted"
        elif followers:
            forecasts[index] = f"{followers[0]} follows a metric, so no rate is predicted"
        elif plan is None or len(paced) < len(those):
            forecasts[index] = "how often it ticks is not known, so no rate is predicted"
        else:
            forecasts[index] = forecast_rates(optimizers[index], paced, plan=plan)
    return forecasts


def forecast_rates(
    optimizer: torch.optim.Optimizer,
    schedulers: Sequence[tuple[torch_schedulers.LRScheduler, Cadence]],
    *,
    plan: RunPlan,
) -> Forecast | str:
    """The rates of `optimizer` under all of its `schedulers`, or why they are not forecast.

    `plan` begins where the schedulers stand now; a schedule ends early where torch would raise.
    """
    reason = _unpredictable(optimizer, [scheduler for scheduler, _ in schedulers])
    if reason is not None:
        return reason
    stand_in = _StandIn(optimizer)
    copies = [copy.deepcopy(scheduler, {id(optimizer): stand_in}) for scheduler, _ in schedulers]
    events = heapq.merge(
        *(_ticks(plan, cadence, position) for position, (_, cadence) in enumerate(schedulers))
    )
    changes: list[int] = []
    rates = [stand_in.rates()]
    for done, (step, _, position) in enumerate(events):
        if done == LONGEST:
            return f"more than {LONGEST} ticks: too many to forecast"
        try:
            copies[position].step()
            now = stand_in.rates()
        except Exception as error:  # as the real one will, then: a OneCycleLR that is over …
            return f"the schedule will stop the run after update {step}: {error}"
        if changes and changes[-1] == step:
            rates[-1] = now
        else:
            changes.append(step)
            rates.append(now)
    return Forecast(
        first_step=plan.step + 1,
        steps=count_steps(plan),
        changes=tuple(changes),
        rates=tuple(rates),
    )


def _ticks(plan: RunPlan, cadence: Cadence, position: int) -> Iterator[tuple[int, bool, int]]:
    """In Lightning's order: after a batch first all schedulers by step, then those by epoch."""
    for step in iter_ticks(plan, cadence):
        yield step, cadence.interval == "epoch", position


class _StandIn:
    """What a scheduler needs of its optimizer: groups with rates and momenta, without tensors."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.param_groups = [
            {key: value for key, value in group.items() if key != "params"} | {"params": []}
            for group in optimizer.param_groups
        ]
        self.defaults = dict(optimizer.defaults)
        self._opt_called = True  # or torch warns of a tick before the first update

    def step(self) -> None:
        """Nothing to update."""

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]

    def rates(self) -> tuple[float, ...]:
        return tuple(float(group["lr"]) for group in self.param_groups)


def _unpredictable(optimizer: torch.optim.Optimizer, schedulers: Sequence[object]) -> str | None:
    """Why the rates cannot be told beforehand without touching anything, or None."""
    if any(isinstance(group.get("lr"), torch.Tensor) for group in optimizer.param_groups):
        return "the rates are tensors"
    for scheduler in schedulers:
        if isinstance(scheduler, torch_schedulers.ReduceLROnPlateau):
            return "ReduceLROnPlateau follows a metric"
        for part in _parts(scheduler):
            name = type(part).__name__
            if any(
                callable(value) and hasattr(type(part), key) for key, value in vars(part).items()
            ):
                return f"{name} has a method put on it"
            if type(part).__module__ not in ("torch.optim.lr_scheduler", "torch.optim.swa_utils"):
                return f"{name} is not torch's own schedule"
            functions = [*getattr(part, "lr_lambdas", ()), getattr(part, "_scale_fn_custom", None)]
            if not all(function is None or is_pure(function) for function in functions):
                return f"{name} calls a function that may do more than compute"
    return None


def _parts(scheduler: object) -> Iterator[object]:
    yield scheduler
    for part in getattr(scheduler, "_schedulers", ()):
        yield from _parts(part)

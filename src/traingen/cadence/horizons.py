"""After how many ticks a schedule is over, as far as the scheduler itself says."""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.optim import lr_scheduler as torch_schedulers

# What schedules call the ticks of the whole run, and those of their warmup.
WHOLE = (
    "total_steps", "T_max", "total_iters", "num_training_steps", "max_steps", "total_iterations",
    "max_iters", "max_iter", "t_initial", "training_steps", "train_steps", "num_steps",
    "total_updates", "max_updates", "decay_steps", "steps_total", "n_steps", "total",
)  # fmt: skip
WARMUP = (
    "warmup_steps", "num_warmup_steps", "warmup_iters", "warmup_updates", "warmup_t", "warmup",
    "warmup_num_steps", "n_warmup_steps", "warm_steps", "num_stable_steps", "num_decay_steps",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """A number of ticks after which a schedule, or a part of it, is over."""

    ticks: float
    name: str  # of the argument that holds it
    whole: bool = False  # the schedule is meant to last the whole run
    periodic: bool = False  # the rate rises again after it
    drop: bool = False  # only where the rate falls, which a short trial need not reach
    guessed: bool = False  # read off an attribute of somebody else's class, by its name

    @property
    def is_length(self) -> bool:
        """Whether `ticks` is a number of ticks at all: neither -1 nor infinite."""
        return 0 < self.ticks < float("inf")

    def __str__(self) -> str:
        return f"{self.name}={self.ticks:g}" if self.ticks % 1 else f"{self.name}={int(self.ticks)}"


def horizons_of(scheduler: object) -> list[Horizon]:
    """Every horizon that can be read off `scheduler`, once each; none of its code is run."""
    return list(dict.fromkeys(_find(scheduler)))


def _find(scheduler: object) -> Iterator[Horizon]:
    return (horizon for horizon in _find_any(scheduler) if is_number(horizon.ticks))


def _find_any(scheduler: object) -> Iterator[Horizon]:
    if isinstance(scheduler, torch_schedulers.SequentialLR):
        yield from _sequential(scheduler)
    elif isinstance(scheduler, torch_schedulers.ChainedScheduler):
        for part in scheduler._schedulers:
            yield from _find(part)
    elif isinstance(scheduler, torch_schedulers.LambdaLR | torch_schedulers.MultiplicativeLR):
        for function in scheduler.lr_lambdas:
            yield from _named(_variables_of(function))
    else:
        attributes = getattr(scheduler, "__dict__", {})
        guesses = (replace(found, guessed=True) for found in _named(attributes))
        yield from _built_in(scheduler) or guesses


def _built_in(scheduler: object) -> list[Horizon]:
    """The horizon of torch's own schedules."""
    match scheduler:
        case torch_schedulers.OneCycleLR():
            return [Horizon(ticks=scheduler.total_steps, name="total_steps", whole=True)]
        case torch_schedulers.CosineAnnealingLR():
            return [Horizon(ticks=scheduler.T_max, name="T_max", whole=True, periodic=True)]
        case torch_schedulers.PolynomialLR():
            return [Horizon(ticks=scheduler.total_iters, name="total_iters", whole=True)]
        case torch_schedulers.LinearLR():
            falls = scheduler.end_factor < scheduler.start_factor
            return [Horizon(ticks=scheduler.total_iters, name="total_iters", whole=falls)]
        case torch_schedulers.ConstantLR():
            return [Horizon(ticks=scheduler.total_iters, name="total_iters")]
        case torch_schedulers.StepLR():
            return [Horizon(ticks=scheduler.step_size, name="step_size", drop=True)]
        case torch_schedulers.MultiStepLR():
            milestones = scheduler.milestones  # a Counter: milestone -> how often
            last = max(milestones, default=None)
            return [] if last is None else [Horizon(ticks=last, name="milestones", drop=True)]
        case torch_schedulers.CosineAnnealingWarmRestarts():
            return [Horizon(ticks=scheduler.T_0, name="T_0")]
        case torch_schedulers.CyclicLR():
            return [Horizon(ticks=scheduler.total_size, name="step_size_up + step_size_down")]
    return []


def _sequential(scheduler: torch_schedulers.SequentialLR) -> Iterator[Horizon]:
    """Each milestone, and what the last part adds to the last one."""
    milestones = list(scheduler._milestones)
    for position, milestone in enumerate(milestones):
        yield Horizon(ticks=milestone, name=f"milestones[{position}]")
    offset = milestones[-1] if milestones else 0
    for part in _find(scheduler._schedulers[-1]):
        if part.is_length:
            name = f"milestones[{len(milestones) - 1}] + {part.name}"
            yield replace(part, ticks=offset + part.ticks, name=name)
        else:
            yield part


def _named(variables: Mapping[str, Any]) -> Iterator[Horizon]:
    """Numbers under a name that says what they are."""
    for names, whole in ((WHOLE, True), (WARMUP, False)):
        for name in names:
            if name in variables:
                yield Horizon(ticks=variables[name], name=name, whole=whole)


def is_number(value: object) -> bool:
    """Whether `value` counts something; numpy's numbers do, True does not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _variables_of(function: Callable[..., Any]) -> dict[str, Any]:
    """What a schedule function was given: by partial, by closure, or as attributes."""
    if isinstance(function, functools.partial):
        return {**_variables_of(function.func), **function.keywords}
    if inspect.isfunction(function):
        return closure_of(function)
    if inspect.ismethod(function) or isinstance(function, torch.nn.Module | type):
        return {}
    return dict(getattr(function, "__dict__", {}))


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The variables that `function` closes over, as they stand now."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty: not assigned yet
            found[name] = cell.cell_contents
    return found

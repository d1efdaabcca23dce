"""At which counted steps of a Lightning run a scheduler ticks, worked out before it begins.

A counted step is what `trainer.global_step` counts: a batch at which the optimizer is called. The
rules are those of `training_epoch_loop.py` in Lightning 2.6: with interval "step" a scheduler ticks
at a batch that steps and whose number in the epoch (from 1) is divisible by `frequency`; with
"epoch" at the last batch of every `frequency`-th epoch. Both counts know nothing of resumes: they
run over the whole training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Interval = Literal["step", "epoch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """How often Lightning ticks one scheduler."""

    interval: Interval
    frequency: int = 1  # batches of the epoch, or epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """How long a training is, and where in it this fit begins."""

    batches: int  # in every epoch
    epochs: int | None  # the training ends before this one, counted from 0; None: no such limit
    max_steps: int | None  # counted steps at which the training ends; None: no such limit
    accumulation: Mapping[int, int] = field(default_factory=lambda: {0: 1})  # from epoch: batches
    epoch: int = 0  # in which this fit begins
    batch: int = 0  # batches of that epoch done before
    step: int = 0  # counted steps done before

    def accumulation_in(self, epoch: int) -> int:
        """Batches per counted step in `epoch`."""
        return self.accumulation[max(first for first in self.accumulation if first <= epoch)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The batches of one epoch that run: those after `done`, up to and including `last`."""

    epoch: int
    done: int
    last: int
    batches: int  # in the whole epoch
    accumulation: int

    @property
    def steps(self) -> int:
        """Counted steps of this span."""
        return self._steps_until(self.last) - self._steps_until(self.done)

    def ticks(self, cadence: Cadence) -> int:
        """How often a scheduler of this cadence ticks in this span."""
        if cadence.interval == "epoch":
            return int(self.last == self.batches and (self.epoch + 1) % cadence.frequency == 0)
        return self._ticks_until(self.last, cadence) - self._ticks_until(self.done, cadence)

    def ticked_steps(self, cadence: Cadence) -> Iterator[int]:
        """The counted steps of this span, from 1, after which a scheduler of this cadence ticks."""
        if cadence.interval == "epoch":
            yield from [self.steps] * self.ticks(cadence)
            return
        every = math.lcm(self.accumulation, cadence.frequency)
        before = self._steps_until(self.done)
        for batch in range(self.done - self.done % every + every, self.last + 1, every):
            yield self._steps_until(batch) - before
        partial = self.last == self.batches and self.last % self.accumulation != 0
        if partial and self.last > self.done and self.last % cadence.frequency == 0:
            yield self.steps

    def _steps_until(self, batch: int) -> int:
        partial = batch == self.batches and batch % self.accumulation != 0
        return batch // self.accumulation + partial

    def _ticks_until(self, batch: int, cadence: Cadence) -> int:
        both = math.lcm(self.accumulation, cadence.frequency)
        partial = batch == self.batches and batch % self.accumulation != 0
        return batch // both + (partial and batch % cadence.frequency == 0)


def iter_runs(plan: RunPlan) -> Iterator[tuple[Span, int]]:
    """The epochs of this fit in order, alike ones together: the first of them and how many.

    So a long training takes no longer to count than a short one. Endless without a limit.
    """
    epoch, done, step = plan.epoch, plan.batch, plan.step
    while (plan.epochs is None or epoch < plan.epochs) and (
        plan.max_steps is None or step < plan.max_steps
    ):
        span = _span(plan, epoch, done=done, step=step)
        alike = 1 if done or span.last < span.batches else _epochs_alike(plan, span, step)
        yield span, alike
        epoch, done, step = epoch + alike, 0, step + alike * span.steps


def _span(plan: RunPlan, epoch: int, *, done: int, step: int) -> Span:
    accumulation, last = plan.accumulation_in(epoch), plan.batches
    if plan.max_steps is not None:
        last = min(last, (done // accumulation + plan.max_steps - step) * accumulation)
    return Span(epoch=epoch, done=done, last=last, batches=plan.batches, accumulation=accumulation)


def _epochs_alike(plan: RunPlan, span: Span, step: int) -> int:
    """How many whole epochs like `span`, which begins after `step`, follow one another."""
    ends = [first for first in plan.accumulation if first > span.epoch]
    ends += [] if plan.epochs is None else [plan.epochs]
    limits = [min(ends) - span.epoch] if ends else []
    limits += [] if plan.max_steps is None else [(plan.max_steps - step) // span.steps]
    return max(min(limits), 1) if limits else 1


def iter_spans(plan: RunPlan) -> Iterator[Span]:
    """The epochs of this fit, one by one."""
    for span, alike in iter_runs(plan):
        for later in range(alike):
            yield replace(span, epoch=span.epoch + later) if later else span


def whole(plan: RunPlan) -> RunPlan:
    """The same training from its beginning, what was done before included."""
    return replace(plan, epoch=0, batch=0, step=0)


def count_steps(plan: RunPlan) -> int:
    """Counted steps of this fit."""
    return sum(alike * span.steps for span, alike in iter_runs(plan))


def count_batches(plan: RunPlan) -> int:
    """Batches of this fit."""
    return sum(alike * (span.last - span.done) for span, alike in iter_runs(plan))


def count_epochs(plan: RunPlan, *, started: bool = False) -> int:
    """Epochs of this fit that reach their last batch; with `started`, all that it begins."""
    return sum(alike for span, alike in iter_runs(plan) if started or span.last == span.batches)


def count_ticks(plan: RunPlan, cadence: Cadence) -> int:
    """Ticks of this fit."""
    return sum(_ticks_of(span, alike, cadence) for span, alike in iter_runs(plan))


def _ticks_of(span: Span, alike: int, cadence: Cadence) -> int:
    if cadence.interval == "step":
        return alike * span.ticks(cadence)
    if span.last < span.batches:
        return 0
    return (span.epoch + alike) // cadence.frequency - span.epoch // cadence.frequency


def iter_ticks(plan: RunPlan, cadence: Cadence) -> Iterator[int]:
    """The counted steps after which the scheduler ticks, numbered from 1 over the whole training.

    >>> plan = RunPlan(batches=10, epochs=2, max_steps=None, accumulation={0: 4})
    >>> list(iter_ticks(plan, Cadence(interval="step", frequency=4)))
    [1, 2, 4, 5]
    """
    step = plan.step
    for span in iter_spans(plan):
        yield from (step + within for within in span.ticked_steps(cadence))
        step += span.steps


def is_due(cadence: Cadence, *, epoch: int, batch: int, batches: int | None, steps: bool) -> bool:
    """Whether Lightning ticks after this batch.

    Args:
        cadence: of the scheduler.
        epoch: counted from 0.
        batch: counted from 1 in its epoch.
        batches: in the epoch; None if this batch is known not to be the last.
        steps: whether this batch made a counted step.
    """
    if cadence.interval == "epoch":
        return batch == batches and (epoch + 1) % cadence.frequency == 0
    return steps and batch % cadence.frequency == 0

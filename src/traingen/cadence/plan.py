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

    def _steps_until(self, batch: int) -> int:
        partial = batch == self.batches and batch % self.accumulation != 0
        return batch // self.accumulation + partial

    def _ticks_until(self, batch: int, cadence: Cadence) -> int:
        both = math.lcm(self.accumulation, cadence.frequency)
        partial = batch == self.batches and batch % self.accumulation != 0
        return batch // both + (partial and batch % cadence.frequency == 0)


def iter_spans(plan: RunPlan) -> Iterator[Span]:
    """The epochs of this fit, in order; endless if the plan has no limit."""
    epoch, done, step = plan.epoch, plan.batch, plan.step
    while (plan.epochs is None or epoch < plan.epochs) and (
        plan.max_steps is None or step < plan.max_steps
    ):
        accumulation = plan.accumulation_in(epoch)
        last = plan.batches
        if plan.max_steps is not None:
            last = min(last, (done // accumulation + plan.max_steps - step) * accumulation)
        span = Span(
            epoch=epoch, done=done, last=last, batches=plan.batches, accumulation=accumulation
        )
        yield span
        epoch, done, step = epoch + 1, 0, step + span.steps


def whole(plan: RunPlan) -> RunPlan:
    """The same training from its beginning, what was done before included."""
    return replace(plan, epoch=0, batch=0, step=0)


def count_steps(plan: RunPlan) -> int:
    """Counted steps of this fit."""
    return sum(span.steps for span in iter_spans(plan))


def count_epochs(plan: RunPlan) -> int:
    """Epochs of this fit that reach their last batch."""
    return sum(span.last == span.batches for span in iter_spans(plan))


def count_ticks(plan: RunPlan, cadence: Cadence) -> int:
    """Ticks of this fit."""
    return sum(span.ticks(cadence) for span in iter_spans(plan))


def iter_ticks(plan: RunPlan, cadence: Cadence) -> Iterator[int]:
    """The counted steps after which the scheduler ticks, numbered from 1 over the whole training.

    >>> plan = RunPlan(batches=10, epochs=2, max_steps=None, accumulation={0: 4})
    >>> list(iter_ticks(plan, Cadence(interval="step", frequency=4)))
    [1, 2, 4, 5]
    """
    step = plan.step
    for span in iter_spans(plan):
        for batch in range(span.done + 1, span.last + 1):
            steps = batch % span.accumulation == 0 or batch == span.batches
            step += steps
            if is_due(cadence, epoch=span.epoch, batch=batch, batches=span.batches, steps=steps):
                yield step


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

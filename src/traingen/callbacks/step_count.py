"""Tell which optimizer steps a Lightning loop counts, and which it does not know of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import lightning.pytorch as pl


class Calls(Protocol):
    """How often the loop has begun, and has ended, what it counts as a step."""

    ready: int
    completed: int  # the loop's `global_step`


def counted_calls(trainer: pl.Trainer) -> Calls:
    """What the loop of `trainer` counts: calls of `optimizer_step`, or manual steps."""
    loop = trainer.fit_loop.epoch_loop
    if trainer.lightning_module.automatic_optimization:
        return loop.automatic_optimization.optim_progress.optimizer.step.total
    return loop.manual_optimization.optim_step_progress.total


class StepCount:
    """Compare what the loop counts as steps with the steps that optimizers take.

    Automatic optimization counts each call of the module's `optimizer_step`, whatever that does. In
    manual optimization the loop counts the calls of `step` on what `self.optimizers()` gives: only
    then Lightning announces the optimizer (`on_before_optimizer_step`). A call counts for one step
    of the optimizer that it is made for; any other step is behind the loop's back.

    Args:
        calls: what the loop counts.
        automatic: whether the module is optimized automatically.
    """

    def __init__(self, calls: Calls, *, automatic: bool) -> None:
        self._calls = calls
        self._own = 0 if automatic else None  # what a call is made for
        self._meant: int | None = self._own
        self._left_open = calls.ready - calls.completed  # by an attempt that was cut off in a call
        self._before = calls.completed  # when the counts were compared last
        self._counted = 0  # steps since then that were taken or skipped within a call
        self._answered = calls.ready  # the call of the last of them
        self._uncounted: Counter[int] = Counter()  # optimizer: steps outside of calls

    @property
    def global_step(self) -> int:
        """The loop's counter, once the call that may be running is done."""
        return self._calls.completed + self._is_called

    def announce(self, index: int | None) -> None:
        """Lightning is about to step this optimizer."""
        if self._own is None:
            self._meant = index

    def takes(self, index: int | None) -> bool:
        """Whether a step that this optimizer takes now is the one that the loop counts."""
        unanswered = self._is_called and self._calls.ready != self._answered
        return unanswered and index is not None and index == self._meant

    def applied(self, index: int, *, counted: bool) -> None:
        """Optimizer `index` has taken a step, or AMP has left it out."""
        if counted:
            self._counted += 1
            self._answered = self._calls.ready
            self._meant = self._own
        else:
            self._uncounted[index] += 1

    def settle(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Compare the counts since the last time, outside of a call: events for what differs."""
        step = self._calls.completed
        without = step - self._before - self._counted
        if without > 0:
            yield "counted_without_update", {"count": without, "global_step": step}
        for index, count in sorted(self._uncounted.items()):
            yield "uncounted_update", {"optimizer": index, "count": count, "global_step": step}
        self._before, self._counted = step, 0
        self._uncounted.clear()

    @property
    def _is_called(self) -> bool:
        return self._calls.ready - self._calls.completed > self._left_open

"""Hear the updates and ticks of one fit and hand them to the watches on ticks and on rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from torch.optim.lr_scheduler import LRScheduler

from traingen.cadence.plan import is_due
from traingen.cadence.rates import RateWatch
from traingen.cadence.schedule import Schedule
from traingen.cadence.ticks import TickWatch
from traingen.observe.events import Listener
from traingen.observe.hooking import Remove
from traingen.observe.listening import start_listening
from traingen.observe.optimizers import rates_of


class CadenceRun(Listener):
    """One fit, from `on_train_start` to its end.

    Args:
        trainer: about to train.
        schedules: those in effect, each with what is expected of it: "step", "epoch", "auto" or
            "reference".
        ticks: told what happens to schedulers.
        rates: told which rates are used.
    """

    def __init__(
        self,
        trainer: pl.Trainer,
        schedules: Sequence[tuple[Schedule, str]],
        *,
        ticks: TickWatch,
        rates: RateWatch,
    ) -> None:
        self.ticks = ticks
        self.rates = rates
        self._trainer = trainer
        self._schedules: dict[int, Schedule] = {}  # by index
        self._step = trainer.global_step
        self._due: dict[int, bool] = {}  # which schedulers the last batch had to tick
        self._stepped = True  # whether the last batch called an optimizer
        self._ended = True  # whether it was trained on
        self._epoch_ended = False  # whether the epoch has had its last batch
        self._epoch: int | None = None
        self._rates_taken = False
        self._found_inf: dict[int, torch.Tensor] = {}  # steps that fused optimizers skipped
        self._remove: Remove | None = None
        for schedule, expected in schedules:
            self.follow(schedule, expected)

    def listen(self) -> None:
        """Hear this thread's updates and ticks until `stop`."""
        self._remove = start_listening(self)

    def stop(self) -> None:
        """Hear nothing more; safe to call twice."""
        if self._remove is not None:
            self._remove()

    def schedule(self, index: int) -> Schedule | None:
        """The scheduler that is followed under this index."""
        return self._schedules.get(index)

    def follows(self, configs: Sequence[Any]) -> bool:
        """Whether these are the schedulers that are followed, each in its place."""
        return len(configs) == len(self._schedules) and all(
            self._schedules[index].scheduler is config.scheduler
            for index, config in enumerate(configs)
        )

    def follow(self, schedule: Schedule, expected: str, *, judged: bool = True) -> None:
        """Count this scheduler from now on, in the place of the one of the same index."""
        self._schedules[schedule.index] = schedule
        heard = self.is_heard(schedule)
        self.ticks.follow(schedule, expected, judged=judged and heard)
        if not heard:  # its ticks move the rate unheard
            self.rates.unheard.add(schedule.optimizer)

    def is_heard(self, schedule: Schedule) -> bool:
        """Whether its ticks, and the updates of its optimizer, reach torch's hooks."""
        optimizer = self._trainer.optimizers[schedule.optimizer]
        return isinstance(schedule.scheduler, LRScheduler) and isinstance(
            optimizer, torch.optim.Optimizer
        )

    def take_rates(self) -> None:
        """The rates as they are now are where the next comparison begins."""
        for index, optimizer in enumerate(self._trainer.optimizers):
            self.rates.left(index, tuple(rates_of(optimizer)))

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        """Hear an update, at the rates in the optimizer now."""
        for index, one in enumerate(self._trainer.optimizers):
            if one is optimizer or shares_parameters(one, optimizer):
                self._note_found_inf(index, optimizer)
                self.rates.updated(index, tuple(rates_of(one)))
                self.ticks.updated(index)
                return

    def scheduler_ticked(self, scheduler: LRScheduler) -> None:
        """Hear a tick; of a scheduler that the trainer does not know only the rates count."""
        for index, optimizer in enumerate(self._trainer.optimizers):
            if getattr(scheduler, "optimizer", None) is optimizer:
                self.rates.left(index, tuple(rates_of(optimizer)))
        for schedule in self._schedules.values():
            if schedule.scheduler is scheduler:
                validation = schedule.plateau and self._is_validation_metric(schedule.monitor)
                self.ticks.ticked(schedule.index, on_validation=validation)

    def tick_entered(self, scheduler: LRScheduler) -> None:
        """The rates must be those that the last tick, or the last update, left."""
        for index, optimizer in enumerate(self._trainer.optimizers):
            if getattr(scheduler, "optimizer", None) is optimizer:
                self.rates.about_to_change(index, tuple(rates_of(optimizer)))

    def epoch_begins(self, epoch: int) -> None:
        """In manual optimization the epoch before is over, with all that its hooks ticked."""
        self._end_epoch()
        self._epoch, self._epoch_ended = epoch, False

    def batch_begins(self) -> None:
        """A batch is handed over; rates set before the first one are where training begins."""
        self._ended = False
        if not self._rates_taken:
            self._rates_taken = True
            self.take_rates()

    def batch_ends(self, batch_idx: int) -> None:
        """Note which schedulers Lightning had to tick; what follows still belongs to this batch."""
        trainer, batch = self._trainer, batch_idx + 1
        steps, self._step = trainer.global_step > self._step, trainer.global_step
        last = trainer.is_last_batch or batch == trainer.num_training_batches
        self._stepped, self._ended, self._epoch_ended = steps, True, last
        if not self.ticks.automatic:
            return
        self._due = {
            index: is_due(
                schedule.cadence,
                epoch=trainer.current_epoch,
                batch=batch,
                batches=batch if last else None,
                steps=steps,
            )
            for index, schedule in self._schedules.items()
            if schedule.cadence is not None
        }

    def batch_over(self) -> None:
        """Everything that follows the last batch has happened: validation, hooks, epoch end."""
        due, self._due = self._due, {}
        self.ticks.batch_over(due, stepped=self._stepped, ended=self._ended)
        self._stepped = self._ended = True

    def end(self) -> None:
        """Judge what only the end of training shows."""
        self.batch_over()
        self._end_epoch()
        for index, found in self._found_inf.items():
            self.ticks.skipped(index, int(found.item()))
        self.ticks.end()
        self.rates.end()

    def judged(self) -> bool:
        """Whether ticks or rates were held against what is expected; of every reference, some."""
        if any(not self.rates.compared.get(optimizer) for optimizer in self.rates.references):
            return False
        counts = [*self.ticks.retired, *self.ticks.counts.values()]
        return any(self.rates.compared.values()) or any(one.judged and one.due for one in counts)

    def describe(self) -> str:
        """How often each scheduler ticked and was due, and how many rates were compared."""
        parts = []
        for count in [*self.ticks.retired, *self.ticks.counts.values()]:
            due = f"{count.due} were due" if count.judged and count.due else "not judged"
            parts.append(f"{count.schedule.label} ticked {count.ticks} times, {due}")
        for optimizer, compared in self.rates.compared.items():
            parts.append(f"{compared} rates of optimizer {optimizer} compared with the reference")
        return "; ".join(parts) or "there is no scheduler"

    def _end_epoch(self) -> None:
        if self._epoch is not None and (self.ticks.automatic or self._epoch_ended):
            self.ticks.epoch_over(self._epoch)

    def _note_found_inf(self, index: int, optimizer: torch.optim.Optimizer) -> None:
        """A fused optimizer is stepped even to skip; its flag stays on the device until the end."""
        found = getattr(optimizer, "found_inf", None)
        if found is not None:
            skips = (found > 0).to(torch.int64)
            self._found_inf[index] = self._found_inf.get(index, torch.zeros_like(skips)) + skips

    def _is_validation_metric(self, monitor: str | None) -> bool:
        """Whether validation logs `monitor`; names only, no metric is computed."""
        results = getattr(self._trainer.fit_loop.epoch_loop.val_loop, "_results", None) or {}
        names = {item.meta.name for item in results.values()}
        plain = (monitor or "").split("/dataloader_idx_")[0]
        return plain in names or plain.removesuffix("_epoch").removesuffix("_step") in names


def shares_parameters(outer: torch.optim.Optimizer, inner: torch.optim.Optimizer) -> bool:
    """Whether `inner` does the steps of `outer`, which wraps it without torch's own hooks."""
    if getattr(type(outer).step, "hooked", False):  # torch's mark on a step that it patched
        return False
    first = next((p for group in inner.param_groups for p in group["params"]), None)
    return any(p is first for group in outer.param_groups for p in group["params"])

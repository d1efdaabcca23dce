"""Hear the steps of a Lightning training and compare them with what its trainer counts."""

from __future__ import annotations

import torch

from traingen.callbacks.step_count import StepCount
from traingen.observe.forwarding import ObserverListener
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.update import UpdateObserver


class RecorderEar(ObserverListener):
    """Hears the updates of one trainer's optimizers.

    Args:
        observer: what makes the records.
        schedulers: those whose ticks are counted.
        steps: what is compared with the trainer's own count.
    """

    def __init__(
        self,
        observer: UpdateObserver,
        schedulers: SchedulerBook,
        steps: StepCount,
    ) -> None:
        self._updates = observer
        self.observer = observer
        self._schedulers = schedulers
        self._steps = steps

    def scaler_step_left(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        counted = self._steps.takes(self._updates.index_of(optimizer))
        index = self._updates.scaler_step_left(optimizer, global_step=self._steps.global_step)
        if index is not None:
            self._steps.applied(index, counted=counted)

    def scheduler_ticked(self, scheduler: torch.optim.lr_scheduler.LRScheduler) -> None:
        self._schedulers.tick(scheduler)

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        counted = self._steps.takes(self._updates.index_of(optimizer))
        index = self._updates.applied(optimizer, global_step=self._steps.global_step)
        if index is not None:
            self._steps.applied(index, counted=counted)

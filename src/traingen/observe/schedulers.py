"""Which learning-rate schedulers there are and how often each has ticked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

from traingen.observe.optimizers import class_path
from traingen.records import SchedulerIdentity, SchedulerState


@dataclass(slots=True)
class _Entry:
    scheduler: LRScheduler
    interval: str | None
    frequency: int | None
    optimizer: int
    ticks: int = 0  # since it was added
    retired: bool = False


class SchedulerBook:
    """The schedulers of a run, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(
        self,
        scheduler: LRScheduler,
        *,
        interval: str | None = None,
        frequency: int | None = None,
        optimizer: int = 0,
    ) -> None:
        """List `scheduler`; one that is listed already keeps its number and count."""
        if self._find(scheduler) is None:
            self._entries.append(_Entry(scheduler, interval, frequency, optimizer))

    def retire(self, scheduler: LRScheduler) -> None:
        """The loop has put another one in its place: its counters are told no more."""
        entry = self._find(scheduler)
        if entry is not None:
            entry.retired = True

    def tick(self, scheduler: LRScheduler) -> None:
        """Count an outermost `scheduler.step()`; a scheduler that is not listed is not ours."""
        entry = self._find(scheduler)
        if entry is not None:
            entry.ticks += 1

    @property
    def schedulers(self) -> list[LRScheduler]:
        """Those that drive a rate themselves: not the parts of a composed scheduler."""
        return [entry.scheduler for entry in self._outer()]

    def identities(self) -> list[SchedulerIdentity]:
        """The schedulers with their effective interval and frequency."""
        return [
            SchedulerIdentity(
                id=number,
                class_path=class_path(entry.scheduler),
                optimizer=entry.optimizer,
                interval=entry.interval,
                frequency=entry.frequency,
            )
            for number, entry in enumerate(self._outer())
        ]

    def states(self) -> list[SchedulerState] | None:
        """Counters of every scheduler now; None if the loop has none."""
        outer = self._outer()
        if not outer:
            return None
        return [
            SchedulerState(
                id=number,
                last_epoch=_counter_of(entry.scheduler),
                ticks=entry.ticks,
            )
            for number, entry in enumerate(outer)
            if not entry.retired
        ]

    def number_of(self, scheduler: LRScheduler) -> int:
        """The number of a listed scheduler."""
        return next(n for n, e in enumerate(self._outer()) if e.scheduler is scheduler)

    def _find(self, scheduler: LRScheduler) -> _Entry | None:
        return next((e for e in self._entries if e.scheduler is scheduler), None)

    def _outer(self) -> list[_Entry]:
        parts = {
            id(part)
            for entry in self._entries
            for part in getattr(entry.scheduler, "_schedulers", ())
        }
        return [entry for entry in self._entries if id(entry.scheduler) not in parts]


def _counter_of(scheduler: object) -> int | float | None:
    """Its `last_epoch` as a plain number: it may be stepped by fractions, or by numbers of arrays.

    Read where it lies, so that no property of anybody's is run.
    """
    counter = getattr(scheduler, "__dict__", {}).get("last_epoch")
    if isinstance(counter, torch.Tensor | np.generic | np.ndarray):
        counter = counter.item() if counter.ndim == 0 else None
    plain = isinstance(counter, int | float) and not isinstance(counter, bool)
    return counter if plain else None

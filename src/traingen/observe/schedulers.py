"""Which learning-rate schedulers there are and how often each has ticked."""

from __future__ import annotations

from dataclasses import dataclass

from torch.optim.lr_scheduler import LRScheduler

from traingen.observe.optimizers import class_path
from traingen.records import SchedulerIdentity, SchedulerState


@dataclass(slots=True)
class _Entry:
    scheduler: LRScheduler
    interval: str | None
    frequency: int | None
    ticks: int = 0  # since it was added


class SchedulerBook:
    """The schedulers of a run, numbered in the order in which they were added."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def add(
        self, scheduler: LRScheduler, *, interval: str | None = None, frequency: int | None = None
    ) -> None:
        """List `scheduler`; one that is listed already keeps its number and count."""
        if self._find(scheduler) is None:
            self._entries.append(_Entry(scheduler, interval, frequency))

    def tick(self, scheduler: LRScheduler) -> None:
        """Count an outermost `scheduler.step()`; a scheduler that is not listed is not ours."""
        entry = self._find(scheduler)
        if entry is not None:
            entry.ticks += 1

    @property
    def schedulers(self) -> list[LRScheduler]:
        """Those that drive a rate themselves: not the parts of a composed scheduler."""
        return [entry.scheduler for entry in self._outer()]

    def identities(self, *, optimizer: int = 0) -> list[SchedulerIdentity]:
        """The schedulers with their effective interval and frequency."""
        return [
            SchedulerIdentity(
                id=number,
                class_path=class_path(entry.scheduler),
                optimizer=optimizer,
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
                last_epoch=getattr(entry.scheduler, "last_epoch", None),
                ticks=entry.ticks,
            )
            for number, entry in enumerate(outer)
        ]

    def _find(self, scheduler: LRScheduler) -> _Entry | None:
        return next((e for e in self._entries if e.scheduler is scheduler), None)

    def _outer(self) -> list[_Entry]:
        parts = {
            id(part)
            for entry in self._entries
            for part in getattr(entry.scheduler, "_schedulers", ())
        }
        return [entry for entry in self._entries if id(entry.scheduler) not in parts]

"""Keep the list of a trainer's schedulers right while callbacks put others in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lightning.pytorch as pl
from torch.optim.lr_scheduler import LRScheduler

from traingen.callbacks.lightning_run import index_of, is_a
from traingen.observe.hooking import Remove, replace
from traingen.observe.optimizers import class_path
from traingen.observe.schedulers import SchedulerBook


class FollowedSchedulers:
    """The schedulers of one fit, those in effect and those that were before.

    Args:
        trainer: whose `lr_scheduler_configs` are followed.
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        self._trainer = trainer
        self._removes: dict[type, Remove] = {}  # class: what stops counting the ticks of its own
        self.book = SchedulerBook()
        self.follow()

    def follow(self) -> list[dict[str, Any]]:
        """List those that have come since the last call; what to say of each that has."""
        configs = self._trainer.lr_scheduler_configs
        now = [config.scheduler for config in configs]
        before = self.book.schedulers
        if len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True)):
            return []
        for one in before:
            if not any(one is other for other in now):
                self.book.retire(one)
        for config in configs:
            self._count_ticks(config.scheduler)
            self.book.add(
                config.scheduler,
                interval=config.interval,
                frequency=config.frequency,
                optimizer=index_of(self._trainer.optimizers, config.scheduler.optimizer),
            )
        return list(self._swapped(before, now))

    def close(self) -> None:
        """Count no more ticks."""
        for remove in self._removes.values():
            remove()
        self._removes.clear()

    def _count_ticks(self, scheduler: Any) -> None:
        """Hear a scheduler that is none of torch's: its class may be anybody's with a `step`."""
        owner = next((cls for cls in type(scheduler).__mro__ if "step" in vars(cls)), None)
        if isinstance(scheduler, LRScheduler) or owner is None or owner in self._removes:
            return

        def watch(step: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(step)
            def wrapper(one: Any, *args: Any, **kwargs: Any) -> Any:
                result = step(one, *args, **kwargs)
                self.book.tick(one)
                return result

            return wrapper

        self._removes[owner] = replace(owner, "step", watch)

    def _swapped(self, before: Sequence[Any], now: Sequence[Any]) -> Iterator[dict[str, Any]]:
        gone = [one for one in before if not any(one is other for other in now)]
        for new in now:
            if not any(new is other for other in before):
                old = next((one for one in gone if one.optimizer is new.optimizer), None)
                yield {
                    "id": self.book.number_of(new),
                    "before": None if old is None else class_path(old),
                    "after": class_path(new),
                    "by": self._who_swaps(new),
                }

    def _who_swaps(self, scheduler: Any) -> str | None:
        """The callback of Lightning that is known to put this scheduler in."""
        callbacks: Sequence[Any] = self._trainer.callbacks  # type: ignore[attr-defined]
        averaging = (one for one in callbacks if is_a(one, "StochasticWeightAveraging"))
        return next(map(class_path, averaging), None) if is_a(scheduler, "SWALR") else None

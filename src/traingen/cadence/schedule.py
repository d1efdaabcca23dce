"""One scheduler of a Lightning training, as it is in effect."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

from traingen.cadence.plan import Cadence


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What Lightning made of one entry of `configure_optimizers`."""

    index: int  # among the trainer's schedulers
    scheduler: Any
    optimizer: int  # index of the one it drives
    interval: str  # in manual optimization any text
    frequency: Any  # as given: Lightning does not check it
    plateau: bool = False  # ticks with a metric
    monitor: str | None = None
    name: str | None = None  # as given
    stated: bool = False  # the interval was written by somebody, it is not the default

    @property
    def label(self) -> str:
        """How findings call it."""
        return f"{type(self.scheduler).__name__} (scheduler {self.index})"

    @property
    def cadence(self) -> Cadence | None:
        """When Lightning ticks it; None if these settings make no sense."""
        whole = isinstance(self.frequency, numbers.Real) and self.frequency % 1 == 0
        frequency = abs(int(self.frequency)) if whole else 0  # as Lightning's remainder takes it
        if frequency < 1 or self.interval not in ("step", "epoch"):
            return None
        return Cadence(interval=self.interval, frequency=frequency)  # type: ignore[arg-type]

    def answers_to(self, key: str) -> bool:
        """Whether `key` means it: its index, its given name or the name of its class."""
        return key in (str(self.index), self.name, type(self.scheduler).__name__)

"""Tell which of the batches that a loop fetches are the ones it trains on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """One batch on its way from a loader to the loop."""

    loader: DataLoader[Any]
    iteration: int  # which `iter(loader)`, from 0
    index: int  # within this iteration, from 0
    batch: Any  # the loop's own object


class TrainingBatches:
    """Sort fetched batches into those of the training loader and others.

    A loop may peek at a loader or evaluate before it trains. The training loader is the one whose
    iteration delivered the last batch before the model was first called in training mode with
    gradients on; `settle` is called at that moment. From then on its batches, and only those,
    belong to updates.
    """

    def __init__(self) -> None:
        self.loader: DataLoader[Any] | None = None
        self._early: list[Fetch] = []
        self._iteration: tuple[int, int] | None = None
        self._index = -1

    def fetched(self, loader: DataLoader[Any], iteration: int, batch: Any) -> Fetch | None:
        """Note a batch; returns it if it is known to be a training batch."""
        if self.loader is not None and loader is not self.loader:
            return None
        if (id(loader), iteration) != self._iteration:
            self._iteration, self._index = (id(loader), iteration), -1
        self._index += 1
        fetch = Fetch(loader=loader, iteration=iteration, index=self._index, batch=batch)
        if self.loader is None:
            self._early.append(fetch)
            return None
        return fetch

    def settle(self) -> list[Fetch]:
        """Name the training loader now; returns its batches that were fetched already."""
        early, self._early = self._early, []
        if self.loader is not None or not early:
            return []
        last = early[-1]
        self.loader = last.loader
        return [f for f in early if f.loader is last.loader and f.iteration == last.iteration]

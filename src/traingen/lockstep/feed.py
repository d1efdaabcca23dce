"""Hand one system the very batches that the other one has loaded."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from traingen.errors import SystemFailed
from traingen.loops.batches import Fetch
from traingen.observe.rng import RngState, replay_draws


class FeedExhausted(SystemFailed):
    """A system asked for a batch that the other one did not use for this update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """The generators before and after a loader made one batch."""

    before: RngState
    after: RngState

    def replay(self) -> None:
        """Draw what the loader drew from every generator that stands where it found it."""
        replay_draws(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    epoch: int
    batch: Any
    draws: Draws | None


class Feed:
    """A sized loader over the batches of the original, in its order and its epochs.

    Batches are copied when the original loads them, before it can change them. Where the loader's
    own draws are known, handing a batch out repeats them, so that a system that would draw the
    same in its own loader finds its generators where it expects them.

    Args:
        on_batch: called when a batch is about to be handed out.
    """

    def __init__(self, on_batch: Callable[[], None]) -> None:
        self.length: int | None = None  # batches per epoch; known with the first batch
        self._on_batch = on_batch
        self._items: deque[_Item] = deque()

    def offer(self, fetch: Fetch, draws: Draws | None) -> None:
        """Keep a copy of a batch of the original."""
        self._items.append(
            _Item(epoch=fetch.iteration, batch=copy.deepcopy(fetch.batch), draws=draws)
        )
        if self.length is None:
            try:
                self.length = len(fetch.loader)
            except TypeError as error:
                raise SystemFailed(
                    "the original's loader has no length, so its batches cannot be fed: expected a "
                    "dataset that is not iterable only."
                ) from error

    def __len__(self) -> int:
        if self.length is None:
            raise SystemFailed("feed: the original has loaded no batch yet, so it has no length.")
        return self.length

    def __iter__(self) -> Iterator[Any]:
        """One epoch, the original's next one; nothing is drawn or taken before the first batch."""
        epoch = None
        for _ in range(len(self)):
            if not self._items:
                raise FeedExhausted(
                    "the package asked for another batch in this update than the original used: "
                    "do both accumulate the same number of micro-batches?"
                )
            if epoch is not None and self._items[0].epoch != epoch:
                return  # the original's epoch was shorter than its loader's length
            item = self._items.popleft()
            epoch = item.epoch
            if item.draws is not None:
                item.draws.replay()
            self._on_batch()
            yield item.batch

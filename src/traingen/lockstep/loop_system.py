"""Drive any plain-PyTorch training function, unmodified, one update at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from traingen.lockstep.feed import Draws, Feed
from traingen.lockstep.system import System
from traingen.lockstep.taps import tap_functions, tap_modules
from traingen.lockstep.worker import STALL_SECONDS, StopSystem
from traingen.loops.batches import Fetch
from traingen.loops.recorder import LoopRecorder
from traingen.observe.events import Listener
from traingen.observe.listening import listening
from traingen.observe.rng import RngState, capture_rng
from traingen.observe.update import UpdateObserver


class LoopSystem(System):
    """A training function that is called without arguments and trains to its end.

    It is parked from torch's own optimizer hooks, and its batches come from its own DataLoader.

    Args:
        factory: runs the whole training; called anew for every run.
        name: for messages and as the folder of its recording.
        stall_seconds: how long one update may take.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        *,
        name: str = "original",
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        super().__init__(name=name, stall_seconds=stall_seconds)
        self.feeds: Feed | None = None  # takes a copy of every training batch
        self._factory = factory
        self._recorder: LoopRecorder | None = None
        self._draws = _LoaderDraws()

    @property
    def schedulers(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        """The schedulers that were built over the optimizer."""
        return [] if self._recorder is None else self._recorder.schedulers

    def _body(self) -> None:
        recorder = self._recorder = LoopRecorder(
            self, on_start=self._on_start, on_fetch=self._on_fetch
        )
        with listening(self._draws), listening(recorder), tap_functions(self.taps, self._deliver):
            try:
                self._factory()
            except StopSystem:
                recorder.close("stopped")
                raise
            except BaseException as error:
                recorder.close("exception", message=repr(error))
                raise
            recorder.close("finished")

    def _reset(self) -> None:
        self._recorder = None
        self._draws = _LoaderDraws()
        self._draws.wanted = self.feeds is not None

    @property
    def _observer(self) -> UpdateObserver | None:
        return None if self._recorder is None else self._recorder.observer

    def _on_start(self, module: torch.nn.Module) -> None:
        assert self._recorder is not None
        self.optimizer = self._recorder.optimizer
        tap_modules(self.taps, module, self._deliver)
        self._prepare_model(module)
        self._ready()

    def _on_fetch(self, fetch: Fetch) -> None:
        if self.feeds is not None:
            self.feeds.offer(fetch, self._draws.last)
        self._batch_arrived()


class _LoaderDraws(Listener):
    """Generator states around the batch that was fetched last; listens before the recorder."""

    def __init__(self) -> None:
        self.wanted = False
        self.last: Draws | None = None
        self._before: RngState | None = None

    def loader_entered(self, loader: DataLoader[Any]) -> None:
        """`iter()` draws a base seed: it belongs to the first batch."""
        self._before = capture_rng() if self.wanted else None

    def fetch_entered(self, loader: DataLoader[Any]) -> None:
        if self.wanted and self._before is None:
            self._before = capture_rng()

    def batch_fetched(self, loader: DataLoader[Any], iteration: int, batch: Any) -> None:
        if self.wanted and self._before is not None:
            self.last = Draws(before=self._before, after=capture_rng())
        self._before = None

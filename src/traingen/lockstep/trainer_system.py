"""Drive a real, unmodified `Trainer.fit` one update at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from traingen.callbacks import StepRecorder
from traingen.errors import ConfigError
from traingen.lockstep.feed import Feed
from traingen.lockstep.system import System
from traingen.lockstep.taps import tap_functions, tap_modules
from traingen.lockstep.worker import STALL_SECONDS, StopSystem
from traingen.observe.events import Listener
from traingen.observe.listening import listening
from traingen.observe.update import UpdateObserver


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCall:
    """The arguments of one `trainer.fit`."""

    trainer: pl.Trainer
    model: pl.LightningModule
    datamodule: pl.LightningDataModule | None = None
    train_dataloaders: Any = None
    val_dataloaders: Any = None


class TrainerSystem(System):
    """A Lightning training, run by its own `Trainer.fit`.

    The only additions are one `StepRecorder` among its callbacks and, where the system is fed, the
    batches: `train_dataloader` then gives those of the original. Initial weights are set before
    `fit`, because callbacks may copy them in `setup`.

    Args:
        factory: makes trainer, model and data; called anew for every run.
        name: for messages and as the folder of its recording.
        stall_seconds: how long one update may take.
    """

    def __init__(
        self,
        factory: Callable[[], FitCall],
        *,
        name: str = "package",
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        super().__init__(name=name, stall_seconds=stall_seconds)
        self.fed_by: Feed | None = None
        self._factory = factory
        self._recorder: StepRecorder | None = None
        self._trainer: pl.Trainer | None = None
        self._started = False

    def make_feed(self) -> Feed:
        """Train on batches that another system offers to the returned feed."""
        self.fed_by = Feed(self._arrived)
        return self.fed_by

    @property
    def schedulers(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        """Those of the trainer's effective configuration."""
        if self._trainer is None:
            return []
        return [c.scheduler for c in self._trainer.lr_scheduler_configs]

    def _body(self) -> None:
        call = self._factory()
        if not isinstance(call, FitCall):
            raise ConfigError(
                f"{self.name}: its factory must return a traingen.lockstep.FitCall, got "
                f"{type(call).__name__}."
            )
        if not isinstance(call.trainer, pl.Trainer) or not isinstance(
            call.model, pl.LightningModule
        ):
            raise ConfigError(
                f"{self.name}: its FitCall must hold a Trainer and a LightningModule, got "
                f"{type(call.trainer).__name__} and {type(call.model).__name__}."
            )
        self._trainer = call.trainer
        self._recorder = StepRecorder.to_sink(self)
        call.trainer.callbacks.insert(0, self._recorder)  # type: ignore[attr-defined]
        call.trainer.callbacks.insert(0, _Refusal())  # type: ignore[attr-defined]
        if self.fed_by is None:
            call.trainer.callbacks.insert(0, _OwnBatches(self._arrived))  # type: ignore[attr-defined]
        tap_modules(self.taps, call.model, self._deliver)
        self._prepare_model(call.model)
        with listening(_Ear(self)), tap_functions(self.taps, self._deliver):
            self._fit(call)

    def _fit(self, call: FitCall) -> None:
        if self.fed_by is None:
            call.trainer.fit(
                call.model, call.train_dataloaders, call.val_dataloaders, call.datamodule
            )
        elif call.datamodule is not None:
            feed = self.fed_by
            call.datamodule.train_dataloader = lambda: feed  # type: ignore[method-assign]
            call.trainer.fit(call.model, datamodule=call.datamodule)
        else:
            call.trainer.fit(call.model, self.fed_by, call.val_dataloaders)

    def _reset(self) -> None:
        self._recorder = self._trainer = None
        self._started = False

    def _park(self, report: Any) -> None:
        """A Trainer is ended by `should_stop`; one that goes on regardless is stopped hard."""
        try:
            super()._park(report)
        except StopSystem:
            if self._trainer is None or self._trainer.should_stop:
                raise
            self._trainer.should_stop = True

    def _arrived(self) -> None:
        """A batch is about to be handed to the trainer."""
        if not self._started:
            self._started = True
            assert self._trainer is not None
            self.optimizer = self._trainer.optimizers[0]
            self._ready()
        self._batch_arrived()

    @property
    def _observer(self) -> UpdateObserver | None:
        return None if self._recorder is None else self._recorder.observer


class _Ear(Listener):
    """Tells the recorder when the first module of an update is called."""

    def __init__(self, system: TrainerSystem) -> None:
        self._system = system

    def module_entered(self, module: torch.nn.Module) -> None:
        observer = self._system._observer
        if observer is not None and module.training and torch.is_grad_enabled():
            observer.forward()


class _OwnBatches(pl.Callback):
    """Tells a system that loads its own batches when one is handed to its loop."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._arrived = arrived

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._arrived()


class _Refusal(pl.Callback):
    """Raises at fit start for a loop that the lockstep cannot drive update by update yet."""

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not pl_module.automatic_optimization:
            found = "manual optimization"
        elif len(trainer.optimizers) != 1:
            found = f"{len(trainer.optimizers)} optimizers"
        elif isinstance(trainer.optimizers[0], torch.optim.LBFGS):
            found = "LBFGS, which evaluates its closure several times per update"
        elif getattr(trainer.precision_plugin, "scaler", None) is not None:
            found = "a GradScaler, which skips updates"
        else:
            return
        raise MisconfigurationException(
            "the lockstep drives automatic optimization with one optimizer and without gradient "
            f"scaling, found {found}: record both trainings and compare the recordings."
        )

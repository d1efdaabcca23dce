"""Record the updates of an unmodified torch training loop in the thread that runs it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from traingen.errors import SystemFailed
from traingen.loops.batches import Fetch, TrainingBatches
from traingen.observe.build import Options
from traingen.observe.environment import describe_run
from traingen.observe.forwarding import ObserverListener
from traingen.observe.optimizers import class_path, identify_optimizer, parameters_of
from traingen.observe.rng import GENERATORS
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.torch_hooks import forget_unfinished_step
from traingen.observe.update import UpdateObserver
from traingen.records import Sink

OBSERVES = [
    "update", "optimizer", "epoch", "batch_idx", "micro_batches", "loss", "micro_losses",
    "objective", "closure", "grad_norm", "grad_norm_source", "grad_norm_clipped", "clipped",
    "clip_coefficient", "shard", "lr", "hyper_parameters", "scheduler", "amp_scale", "amp_growth",
    "rng", "rng_forward", "rng_after", "batch",
]  # fmt: skip

OnStart = Callable[[torch.nn.Module], None]
OnFetch = Callable[[Fetch], None]


class LoopRecorder(ObserverListener):
    """Hear one loop with one optimizer and hand its records to a sink.

    Recording starts at the first call, in training mode and with gradients on, of the module that
    owns all parameters of an optimizer: the model and the training loader are known from then on.

    Args:
        sink: takes the records.
        on_start: called once, at that moment, before the forward runs.
        on_fetch: called with every training batch from then on, before the loop has it and before
            it is recorded (at the start, for the batches fetched so far).
        rng: the generators to digest.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        on_start: OnStart | None = None,
        on_fetch: OnFetch | None = None,
        rng: Sequence[str] = GENERATORS,
    ) -> None:
        self._sink = sink
        self._on_start = on_start
        self._on_fetch = on_fetch
        self._rng = rng
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._schedulers = SchedulerBook()
        self._early_schedulers: list[LRScheduler] = []
        self._early_ticks: list[LRScheduler] = []
        self._first_iteration = 0
        self._in_closure: torch.optim.Optimizer | None = None  # that began before recording did
        self.batches = TrainingBatches()
        self.module: torch.nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.observer = None

    @property
    def schedulers(self) -> list[LRScheduler]:
        """The loop's own schedulers of the recorded optimizer."""
        return self._schedulers.schedulers

    def close(self, reason: str, *, message: str | None = None) -> None:
        """Write the `end` line, if anything was recorded."""
        if self.observer is not None:
            self.observer.close(reason, message=message)

    def optimizer_built(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.append(weakref.ref(optimizer))

    def scheduler_built(self, scheduler: LRScheduler) -> None:
        self._early_schedulers.append(scheduler)
        self._take_schedulers()

    def scheduler_ticked(self, scheduler: LRScheduler) -> None:
        if self.optimizer is None:
            self._early_ticks.append(scheduler)
        else:
            self._schedulers.tick(scheduler)

    def batch_fetched(self, loader: DataLoader[Any], iteration: int, batch: Any) -> None:
        forget_unfinished_step()
        self._in_closure = None
        fetch = self.batches.fetched(loader, iteration, batch)
        if fetch is not None:
            self._begin(fetch)

    def closure_entered(self, optimizer: torch.optim.Optimizer) -> None:
        self._in_closure = optimizer
        super().closure_entered(optimizer)

    def module_entered(self, module: torch.nn.Module) -> None:
        if not self._is_training(module):
            return
        if self.observer is not None:
            if module is self.module:
                for fetch in self._settle():  # it was first called before it had a batch
                    self._begin(fetch)
            self.observer.forward()
            return
        optimizer = self._owned_by(module)
        if optimizer is not None:
            self._start(module, optimizer)

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        if self.observer is None:
            raise SystemFailed(
                f"{class_path(optimizer)}.step() ran before any module that owns all of its "
                "parameters was called in training mode: this loop cannot be recorded."
            )
        if optimizer is not self.optimizer:
            raise SystemFailed(
                f"a second optimizer, {class_path(optimizer)}, stepped; expected only "
                f"{class_path(self.optimizer)}: loops with several optimizers are not recorded yet."
            )
        self.observer.applied(global_step=None)

    def _start(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.module, self.optimizer = module, optimizer
        early = self._settle()
        self._take_schedulers()
        self.observer = UpdateObserver(
            [optimizer],
            emit=self._sink.write,
            schedulers=self._schedulers,
            options=Options(generators=self._rng),
        )
        self._sink.write(
            describe_run(
                observes=OBSERVES,
                optimizers=[identify_optimizer(optimizer, index=0)],
                schedulers=self._schedulers.identities(),
            )
        )
        if self._on_fetch is not None:
            for fetch in early:
                self._on_fetch(fetch)
        if self._on_start is not None:
            self._on_start(module)
        for fetch in early:
            self._record_begin(fetch)
        if self._in_closure is optimizer:
            self.observer.closure_entered(optimizer)
        self.observer.forward()

    def _begin(self, fetch: Fetch) -> None:
        if self._on_fetch is not None:
            self._on_fetch(fetch)
        self._record_begin(fetch)

    def _record_begin(self, fetch: Fetch) -> None:
        assert self.observer is not None
        epoch = fetch.iteration - self._first_iteration
        self.observer.begin(fetch.batch, epoch=epoch, batch_idx=fetch.index)

    def _settle(self) -> list[Fetch]:
        """The training batches fetched so far, if the loader becomes known by now."""
        early = self.batches.settle()
        if early:  # a loop may have gone over this loader before, to peek or to evaluate
            self._first_iteration = early[0].iteration
        return early

    def _take_schedulers(self) -> None:
        """List the schedulers that drive the recorded optimizer, once it is known."""
        if self.optimizer is None:
            return
        for scheduler in self._early_schedulers:
            if getattr(scheduler, "optimizer", None) is self.optimizer:
                self._schedulers.add(scheduler)
        self._early_schedulers.clear()
        for scheduler in self._early_ticks:
            self._schedulers.tick(scheduler)
        self._early_ticks.clear()

    def _is_training(self, module: torch.nn.Module) -> bool:
        return module.training and torch.is_grad_enabled()

    def _owned_by(self, module: torch.nn.Module) -> torch.optim.Optimizer | None:
        """The optimizer all of whose parameters are in `module`, if there is one."""
        held = {id(p) for p in module.parameters()}
        for reference in self._optimizers:
            optimizer = reference()
            if optimizer is not None and {id(p) for p in parameters_of(optimizer)} <= held:
                return optimizer
        return None

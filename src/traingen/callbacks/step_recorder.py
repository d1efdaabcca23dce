"""Record every optimizer update of a Lightning training in one JSONL file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from traingen.callbacks.attendance import notice_evicted
from traingen.callbacks.guest import unwrap
from traingen.callbacks.mirror import Mirror
from traingen.observe.environment import describe_run
from traingen.observe.events import Clip, Listener
from traingen.observe.listening import start_listening
from traingen.observe.optimizers import class_path, identify_optimizer
from traingen.observe.rng import GENERATORS
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.torch_hooks import Remove, forget_unfinished_step
from traingen.observe.update import UpdateObserver
from traingen.records import JsonlSink, RunRecord, Sink

OBSERVES = [
    "update", "optimizer", "global_step", "epoch", "batch_idx", "micro_batches", "loss",
    "objective", "divisor", "grad_norm", "grad_norm_source", "grad_norm_clipped", "clipped", "lr",
    "hyper_parameters", "scheduler",
]  # fmt: skip


class StepRecorder(pl.Callback):
    """Write one line per completed `optimizer.step()`: loss, norms, rates, schedulers, RNG, batch.

    The line is written inside the optimizer's outermost post-hook, so that it is on disk before
    the next batch begins. `lr` is the rate this update used; `scheduler` and `rng` are as found
    when its first micro-batch was handed to the loop. Training with the callback and without it
    ends in the same bits.

    It records automatic optimization with one optimizer, accumulation and clipping.

    Args:
        path: the recording: a file that ends in `.jsonl`, or a folder for
            `updates.rank<r>.jsonl`. Must not exist yet.
        overwrite: move an existing file aside (it is never deleted) instead of refusing.
        rng: random generators whose state is digested at each update, of `python`, `numpy`,
            `torch`.
        digest_batches: digest the content of every batch on the CPU.
        mirror: also send loss, objective, norms and rates of every update to the trainer's
            loggers, as `traingen/loss` and so on; `log_every_n_steps` does not thin them out.

    Raises:
        MisconfigurationException: at fit start, for a loop that this callback cannot record.
        RecordingError: at fit start, if `path` exists and `overwrite` is off.

    Example::

        trainer = Trainer(callbacks=[StepRecorder("runs/first")])
    """

    def __init__(
        self,
        path: str = "recording",
        overwrite: bool = False,
        rng: Sequence[str] = ("torch",),
        digest_batches: bool = True,
        mirror: bool = False,
    ) -> None:
        unknown = [name for name in rng if name not in GENERATORS]
        if unknown:
            raise MisconfigurationException(
                f"StepRecorder(rng=…) expects names of {list(GENERATORS)}, got {unknown[0]!r}."
            )
        self.settings = {
            "path": path, "overwrite": overwrite, "rng": list(rng),
            "digest_batches": digest_batches, "mirror": mirror,
        }  # fmt: skip
        self._path = str(path)
        self._overwrite = overwrite
        self._rng = tuple(rng)
        self._digest_batches = digest_batches
        self._mirrors = mirror
        self._mirror: Mirror | None = None
        self._given_sink: Sink | None = None
        self._sink: Sink | None = None
        self._remove: Remove | None = None
        self.observer: UpdateObserver | None = None
        self.seed_source = "PL_GLOBAL_SEED"  # a command line that seeds knows more

    @classmethod
    def to_sink(
        cls, sink: Sink, *, rng: Sequence[str] = GENERATORS, mirror: bool = False
    ) -> StepRecorder:
        """Return a recorder that hands its records to `sink` and writes no file itself."""
        recorder = cls(path=f"<{type(sink).__name__}>", rng=rng, mirror=mirror)
        recorder._given_sink = sink
        return recorder

    @property
    def state_key(self) -> str:
        """Distinguishes several recorders in one checkpoint."""
        return self._generate_state_key(path=self._path)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Notice if the model has evicted one of our callbacks."""
        if stage == "fit":
            notice_evicted(self, trainer, pl_module)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse what cannot be recorded, open the recording and write its `run` line."""
        check_loop(trainer, pl_module)
        optimizer = trainer.optimizers[0]
        schedulers = SchedulerBook()
        for config in trainer.lr_scheduler_configs:
            schedulers.add(
                config.scheduler,
                interval=config.interval,
                frequency=config.frequency,
            )
        self._sink = self._given_sink or JsonlSink(
            Path(self._path), rank=trainer.global_rank, overwrite=self._overwrite
        )
        if self._mirrors:
            self._sink = self._mirror = Mirror(self._sink)
        self.observer = UpdateObserver(
            optimizer,
            emit=self._sink.write,
            schedulers=schedulers,
            generators=self._rng,
            digest_batches=self._digest_batches,
        )
        self._sink.write(self._describe(trainer, optimizer, schedulers))
        self._remove = start_listening(_Ear(trainer, optimizer, self.observer, schedulers))

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop a window that the last epoch left open: its gradients are zeroed at batch 0."""
        if self.observer is not None:
            self.observer.drop_window()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin: the micro-batch is handed to the loop."""
        if self.observer is not None:
            forget_unfinished_step()
            self.observer.begin(batch, epoch=trainer.current_epoch, batch_idx=batch_idx)

    def on_before_backward(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: torch.Tensor
    ) -> None:
        """Root: `loss` is already divided by the accumulation (Lightning's automatic loop)."""
        if self.observer is not None:
            self.observer.root(loss, divisor=trainer.accumulate_grad_batches)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Mirror: at the step of this batch's own metrics, which Lightning logs next."""
        if self._mirror is not None:
            step = trainer.fit_loop.epoch_loop._batches_that_stepped
            self._mirror.send(trainer.loggers, step=step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End: every tick and validation of the last update is done."""
        self._close("finished")

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """End: training raised."""
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._close("interrupted" if interrupted else "exception", message=repr(exception))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Close what a run that ended otherwise has left open."""
        self._close("stopped")

    def _describe(
        self, trainer: pl.Trainer, optimizer: torch.optim.Optimizer, schedulers: SchedulerBook
    ) -> RunRecord:
        seed = os.environ.get("PL_GLOBAL_SEED")
        observes = list(OBSERVES)
        observes += ["rng", "rng_after"] if self._rng else []
        observes += ["batch"] if self._digest_batches else []
        clip, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
        return describe_run(
            observes=observes,
            optimizers=[identify_optimizer(optimizer, index=0)],
            schedulers=schedulers.identities(),
            seed=None if seed is None else int(seed),
            seed_source=None if seed is None else self.seed_source,
            clipping={"value": clip, "algorithm": algorithm.value if algorithm else "norm"}
            if clip
            else None,
            accumulation=trainer.accumulate_grad_batches,
            precision=str(trainer.precision),
            world_size=trainer.world_size,
            rank=trainer.global_rank,
            callbacks=[class_path(unwrap(one)) for one in trainer.callbacks],  # type: ignore[attr-defined]
        )

    def _close(self, reason: str, *, message: str | None = None) -> None:
        """Take the hooks out first: nothing may be recorded into a closed sink."""
        if self._remove is not None:
            self._remove()
        sink, observer = self._sink, self.observer
        self._remove = self._sink = self._mirror = self.observer = None
        if sink is not None and observer is not None:
            try:
                observer.close(reason, message=message)
            finally:
                sink.close()


class _Ear(Listener):
    """Hears the updates of one trainer's optimizer."""

    def __init__(
        self,
        trainer: pl.Trainer,
        optimizer: torch.optim.Optimizer,
        observer: UpdateObserver,
        schedulers: SchedulerBook,
    ) -> None:
        self._trainer = trainer
        self._optimizer = optimizer
        self._observer = observer
        self._schedulers = schedulers

    def clip_entered(self, clip: Clip) -> None:
        self._observer.before_clip(clip)

    def scheduler_ticked(self, scheduler: torch.optim.lr_scheduler.LRScheduler) -> None:
        self._schedulers.tick(scheduler)

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        if optimizer is self._optimizer:  # Lightning counts the step after this hook
            self._observer.applied(global_step=self._trainer.global_step + 1)


def check_loop(trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
    """Raise for a loop whose updates this recorder would misstate.

    Raises:
        MisconfigurationException: manual optimization, no or several optimizers, LBFGS, or
            gradient scaling.
    """
    if not pl_module.automatic_optimization:
        found = "manual optimization"
    elif not any(optimizer.param_groups for optimizer in trainer.optimizers):
        found = "no optimizer"  # Lightning stands in one without parameters
    elif len(trainer.optimizers) != 1:
        found = f"{len(trainer.optimizers)} optimizers"
    elif isinstance(trainer.optimizers[0], torch.optim.LBFGS):
        found = "LBFGS, which evaluates its closure several times per update"
    elif getattr(trainer.precision_plugin, "scaler", None) is not None:
        found = "a GradScaler, which skips updates"
    else:
        return
    raise MisconfigurationException(
        "StepRecorder records automatic optimization with one optimizer and without gradient "
        f"scaling, found {found}: remove the callback for this run."
    )

"""Record every optimizer update of a Lightning training in one JSONL file."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException

from traingen.callbacks.attendance import notice_evicted
from traingen.callbacks.begin_state import BeginState
from traingen.callbacks.followed_schedulers import FollowedSchedulers
from traingen.callbacks.lightning_run import is_a, optimizers_of
from traingen.callbacks.loss_terms import hear_terms
from traingen.callbacks.outlet import Outlet
from traingen.callbacks.own_clip import watch_own_clip
from traingen.callbacks.recorder_ear import RecorderEar
from traingen.callbacks.run_line import describe_fit, observed_fields
from traingen.callbacks.saved_weights import digest_saved, saved_weights
from traingen.callbacks.step_count import StepCount, counted_calls
from traingen.observe.build import Options
from traingen.observe.hooking import Remove, all_of
from traingen.observe.listening import start_listening
from traingen.observe.moments import digest_parameters
from traingen.observe.norms import is_sharded
from traingen.observe.optimizers import class_path, parameters_of
from traingen.observe.probes import StateProbe, check_probes
from traingen.observe.rng import GENERATORS
from traingen.observe.torch_hooks import forget_unfinished_step
from traingen.observe.update import NOT_SHOWN, UpdateObserver
from traingen.records import RunRecord, Sink


class StepRecorder(pl.Callback):
    """Write one line per completed `optimizer.step()`: loss, norms, rates, schedulers, RNG, batch.

    The line is written inside the optimizer's outermost post-hook, so that it is in the file before
    the next batch begins. `lr` is the rate this update used; `scheduler`, `rng`, `ema` and samplers
    are as found when its first micro-batch was handed to the loop. Training with the callback and
    without it ends in the same bits.

    Every loop of Lightning is recorded: accumulation, clipping, several optimizers, manual
    optimization, closures that are evaluated several times, AMP, averaged weights, several ranks. A
    step that AMP leaves out is an event and no update. A fit that loads a checkpoint of a recorded
    run continues its recording as the next attempt; a second fit of one trainer goes on in the same
    recording.

    Args:
        path: the recording: a file that ends in `.jsonl`, or a folder for
            `updates.rank<r>.jsonl`. Must not exist yet, unless this very run is resumed.
        overwrite: move an existing file aside (it is never deleted) instead of refusing.
        rng: random generators whose state is digested at each update, of `python`, `numpy`,
            `torch`.
        digest_batches: digest the content of every batch on the CPU.
        mirror: also send loss, objective, norms and rates of every update to the trainer's
            loggers, as `traingen/loss` and so on, those of a second optimizer as
            `traingen/optimizer-1/loss`; `log_every_n_steps` does not thin them out.
        on_write_error: what a line that cannot be written does, once the batch is done: `raise`
            ends the training with RecordingError, `warn` lets it go on without recording.
        times: write the seconds of each update, and those its data was waited for, to
            `times.jsonl` beside the recording; if that fails in training, it warns and goes on.
        layer_norms: also the gradient norm of every parameter.
        update_ratios: also, for every parameter, the norm of its change divided by its norm; keeps
            a copy of the parameters.
        moment_norms: also the norm over all parameters of each kind of optimizer state.
        digest_parameters: also a digest of the parameters after every update, and at checkpoints.
        probes: further values of the training's own state, each recorded under its name.

    Raises:
        MisconfigurationException, ConfigError: an argument has a value that it cannot have.
        RecordingError: at fit start, if `path` exists and `overwrite` is off, or nothing can be
            written there; during training, by `on_write_error`.

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
        on_write_error: Literal["raise", "warn"] = "raise",
        times: bool = True,
        layer_norms: bool = False,
        update_ratios: bool = False,
        moment_norms: bool = False,
        digest_parameters: bool = False,
        probes: Sequence[StateProbe] = (),
    ) -> None:
        unknown = [name for name in rng if name not in GENERATORS]
        if unknown:
            raise MisconfigurationException(
                f"StepRecorder(rng=…) expects names of {list(GENERATORS)}, got {unknown[0]!r}."
            )
        if on_write_error not in ("raise", "warn"):
            raise MisconfigurationException(
                f"StepRecorder(on_write_error=…) expects 'raise' or 'warn', got {on_write_error!r}."
            )
        self.settings: dict[str, Any] = {
            "path": str(path), "overwrite": overwrite, "rng": list(rng),
            "digest_batches": digest_batches, "mirror": mirror, "on_write_error": on_write_error,
            "times": times, "layer_norms": layer_norms, "update_ratios": update_ratios,
            "moment_norms": moment_norms, "digest_parameters": digest_parameters,
        }  # fmt: skip
        check_probes(probes)
        self._probes = tuple(probes)
        self._outlet = Outlet(self.settings)
        self._hears_terms = True
        self._remove: Remove | None = None
        self._schedulers: FollowedSchedulers | None = None
        self._steps: StepCount | None = None
        self._renews_statistics = False  # in the epoch that averaging adds for batch norms
        self.observer: UpdateObserver | None = None
        self.seed_source = "PL_GLOBAL_SEED"  # a command line that seeds knows more

    @classmethod
    def to_sink(
        cls, sink: Sink, *, rng: Sequence[str] = GENERATORS, mirror: bool = False
    ) -> StepRecorder:
        """Return a recorder that hands its records to `sink` and writes no file itself.

        What `sink` raises passes through; the loss has the terms that `observer.term` is given.
        """
        recorder = cls(path=f"<{type(sink).__name__}>", rng=rng, mirror=mirror, times=False)
        recorder._outlet = Outlet(recorder.settings, sink=sink)
        recorder._hears_terms = False
        return recorder

    @property
    def state_key(self) -> str:
        """Distinguishes several recorders in one checkpoint."""
        return self._generate_state_key(path=self.settings["path"])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint says of the recording: no update that its file does not hold."""
        if self.observer is not None:
            return self._outlet.state(self.observer.updates_by_optimizer)
        return self._outlet.state(self._outlet.place.updates)  # a last checkpoint comes at the end

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note of which run the training is the next attempt."""
        if trainer.state.fn == "fit":
            self._outlet.resume(trainer, checkpoint, key=self.state_key)

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Notice if the model has evicted one of our callbacks."""
        if stage == "fit":
            notice_evicted(self, trainer, pl_module)
            self._outlet.prepare(trainer)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Open the recording, or refuse to: nothing has been trained yet."""
        if pl_module.automatic_optimization and not optimizers_of(trainer):
            raise MisconfigurationException(
                "StepRecorder records updates of optimizers, found no optimizer: remove the "
                "callback for this run."
            )
        late = trainer.strategy.restore_checkpoint_after_setup
        if not late:  # else neither whether a run is resumed is known yet, nor which
            self._outlet.open(rank=trainer.global_rank)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the `run` line, once the loader is made and a checkpoint restored, and listen."""
        if not self._outlet.is_open:
            self._outlet.open(rank=trainer.global_rank)
        state = BeginState(trainer, pl_module, self._probes)
        self._schedulers = FollowedSchedulers(trainer)
        self._renews_statistics = False
        run = None if self._outlet.place.goes_on else self._run_line(trainer, state)
        self.observer = UpdateObserver(
            optimizers_of(trainer),
            emit=self._outlet.write,
            schedulers=self._schedulers.book,
            options=self._options(trainer, pl_module),
            read_state=state.read,
            updates=self._outlet.place.updates,
            clock=time.perf_counter,
            emit_times=self._outlet.write_times,
        )
        self.observer.watch_scaler(getattr(trainer.precision_plugin, "scaler", None))
        self._steps = StepCount(counted_calls(trainer), automatic=pl_module.automatic_optimization)
        self._describe(trainer, state, run)
        ear = RecorderEar(self.observer, self._schedulers.book, self._steps)
        removes = [
            start_listening(ear),
            self._schedulers.close,
            watch_own_clip(trainer, pl_module, self.observer.complete),
        ]
        if self._hears_terms:
            removes.append(hear_terms(trainer, self.observer.term))
        self._remove = all_of(removes)
        self._report_failure(trainer)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop a window that the last epoch left open: its gradients are zeroed at batch 0."""
        if self.observer is not None:
            self.observer.idle()
            if pl_module.automatic_optimization:
                self.observer.drop_window()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin: the micro-batch is handed to the loop."""
        if self.observer is None or self._schedulers is None:
            return
        forget_unfinished_step()
        for swapped in self._schedulers.follow():
            self.observer.event("scheduler_swapped", swapped)
        self._settle()
        if trainer.fit_loop._skip_backward and batch_idx == 0:  # averaging has reset its statistics
            self._renews_statistics = True
            self._event(trainer, "batch_norm_epoch", buffers=_digest_buffers(pl_module))
        loop = trainer.fit_loop.epoch_loop
        automatic = pl_module.automatic_optimization
        fetches_itself = is_a(trainer.fit_loop._data_fetcher, "_DataLoaderIterDataFetcher")
        self.observer.begin(
            NOT_SHOWN if fetches_itself else batch,  # else it is the one before
            epoch=trainer.current_epoch,
            batch_idx=None if fetches_itself else batch_idx,
            total_batch_idx=loop.total_batch_idx,
            batches_that_stepped=loop._batches_that_stepped,
            divisor=trainer.accumulate_grad_batches if automatic else None,
        )

    def on_before_backward(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: torch.Tensor
    ) -> None:
        """The loss of automatic optimization; a module may differentiate more than that."""
        if self.observer is not None and pl_module.automatic_optimization:
            self.observer.loss(loss)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Lightning is about to step `optimizer`; what it does not announce, it does not count."""
        if self.observer is not None and self._steps is not None:
            self._steps.announce(self.observer.index_of(optimizer))

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Compare the counts of steps, mirror, and say if the recording has failed."""
        if self.observer is None:
            return
        left_out = self._settle()
        if left_out or not pl_module.automatic_optimization:
            self.observer.leave_out()
        # at the step of this batch's own metrics, which are logged next
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        self._outlet.send(trainer.loggers, step=step)
        self._report_failure(trainer)
        if self.observer is not None:
            self.observer.idle()

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A validation within the training is an event."""
        if self.observer is not None and not trainer.sanity_checking:
            self._event(trainer, "validation")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """What follows is waiting for data again."""
        if self.observer is not None:
            self.observer.idle()

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """A checkpoint is an event: with the updates it holds and, if asked, its digest."""
        if self.observer is not None:
            weights: tuple[Mapping[str, Any] | None, ...] = (None, None)
            if self.settings["digest_parameters"]:
                weights = saved_weights(checkpoint, trainer.callbacks)  # type: ignore[attr-defined]
            live, averaged = (
                None if state is None else digest_saved(state, pl_module, trainer.optimizers)
                for state in weights
            )
            self._event(
                trainer,
                "checkpoint",
                updates=self.observer.updates_by_optimizer,
                parameters=live,
                averaged=averaged,
            )

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """End: every tick and validation of the last update is done."""
        if self.observer is not None and self._renews_statistics:
            self._event(trainer, "batch_norm_epoch_end", buffers=_digest_buffers(pl_module))
        self._close("stopped" if trainer.should_stop else "finished")

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say if the end could not be recorded, when all others have ended the training."""
        self._report_failure(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """End: training raised, or was told to end."""
        told = isinstance(exception, KeyboardInterrupt) or is_a(exception, "SIGTERMException")
        self._close("interrupted" if told else "exception", message=repr(exception))
        error = self._outlet.new_error()
        if error is not None:
            _warn(f"traingen: the recording has failed as well. {error}")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Close what a run that ended otherwise has left open."""
        self._close("stopped")

    def _options(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> Options:
        names = ("digest_batches", "digest_parameters", "layer_norms", "update_ratios")
        return Options(
            generators=tuple(self.settings["rng"]),
            moment_norms=self.settings["moment_norms"],
            names={id(p): name for name, p in pl_module.named_parameters()},
            world_size=trainer.world_size,
            only_whole_terms=not pl_module.automatic_optimization,
            flat_shards=is_a(trainer.strategy, "FSDPStrategy"),
            **{name: self.settings[name] for name in names},
        )

    def _describe(self, trainer: pl.Trainer, state: BeginState, run: RunRecord | None) -> None:
        """Write the `run` line, or without one that another fit of this run begins."""
        assert self.observer is not None
        place = self._outlet.place
        place.fits += 1
        if run is None:
            self._event(
                trainer,
                "segment",
                fit=place.fits,
                max_epochs=trainer.max_epochs,
                max_steps=trainer.max_steps,
                optimizers=[class_path(one) for one in optimizers_of(trainer)],
                schedulers=[class_path(c.scheduler) for c in trainer.lr_scheduler_configs],
            )
        else:
            self._outlet.write(run)
        if state.averaging is not None:
            self.observer.event("averaging", state.averaging)

    def _run_line(self, trainer: pl.Trainer, state: BeginState) -> RunRecord:
        assert self._schedulers is not None
        return describe_fit(
            trainer,
            place=self._outlet.place,
            schedulers=self._schedulers.book.identities(),
            observes=observed_fields(
                self.settings,
                terms=self._hears_terms,
                probes=bool(self._probes),
                sharded=is_sharded(p for o in trainer.optimizers for p in parameters_of(o)),
            ),
            loader=state.loader,
            seed_source=self.seed_source,
        )

    def _settle(self) -> bool:
        """Write events for steps and updates that do not agree; whether the loop counts more."""
        if self.observer is None or self._steps is None:
            return False
        events = list(self._steps.settle())
        for name, details in events:
            self.observer.event(name, details)
        return any(name == "counted_without_update" for name, _ in events)

    def _event(self, trainer: pl.Trainer, name: str, **details: Any) -> None:
        assert self.observer is not None
        place = {"global_step": trainer.global_step, "epoch": trainer.current_epoch}
        self.observer.event(name, place | details)

    def _report_failure(self, trainer: pl.Trainer) -> None:
        """Raise what has kept a record from being written, or warn; the loop is whole here."""
        if (lost := self._outlet.new_times_error()) is not None:
            _warn(f"traingen: times are no longer kept, updates go on being recorded. {lost}")
        error = self._outlet.new_error()
        if error is None:
            return
        if self.settings["on_write_error"] == "raise":
            self._close("exception", message=str(error))
            raise error
        # It goes on being observed: a checkpoint must know how many updates there were.
        _warn(f"traingen: the training goes on without being recorded. {error}")

    def _close(self, reason: str, *, message: str | None = None) -> None:
        """Take the hooks out first: nothing may be recorded into a closed sink."""
        if self._remove is not None:
            self._remove()
        self._settle()
        observer, self._remove, self.observer = self.observer, None, None
        try:
            if observer is not None:
                self._outlet.place.updates = observer.updates_by_optimizer
                observer.close(reason, message=message)
        finally:
            self._outlet.close()


def _warn(message: str) -> None:
    """Warn on every rank: each writes a file of its own."""
    warnings.warn(message, stacklevel=2)


def _digest_buffers(pl_module: pl.LightningModule) -> str:
    return digest_parameters(pl_module.buffers())

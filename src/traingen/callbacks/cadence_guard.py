"""Hold every learning-rate scheduler of a Lightning training to its cadence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import lightning.pytorch as pl
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn

from traingen.cadence import kinds
from traingen.cadence.check import Setting, announce, check_schedule, check_ticked
from traingen.cadence.entries import Entry, check_dropped, check_entry, iter_entries
from traingen.cadence.expectation import parse_expected
from traingen.cadence.forecast import Forecast, forecast_all
from traingen.cadence.rates import RateWatch
from traingen.cadence.reference import RateTable
from traingen.cadence.restored import capture_settings
from traingen.cadence.schedule import Schedule
from traingen.cadence.ticks import TickWatch
from traingen.callbacks import lightning_run
from traingen.callbacks.attendance import notice_evicted
from traingen.callbacks.cadence_checks import (
    check_checkpoint,
    check_command_line,
    check_parameters,
)
from traingen.callbacks.cadence_run import CadenceRun
from traingen.compare.findings import Finding
from traingen.errors import CadenceViolation, CadenceWarning, ConfigError
from traingen.observe.hooking import Remove
from traingen.observe.torch_hooks import forget_unfinished_step

WRITE_STEP_IN_FIT = "Add lr_scheduler_config: {interval: step} beside lr_scheduler."
WRITE_STEP_IN_CLI = (
    'Override configure_optimizers of your LightningCLI to return {"optimizer": optimizer, '
    '"lr_scheduler": {"scheduler": lr_scheduler, "interval": "step"}}, or build the scheduler in '
    "the model."
)


class CadenceGuard(pl.Callback):
    """Stop a training whose learning-rate schedulers do not tick as they should.

    Before the first update it looks at the configuration in effect, at what `configure_optimizers`
    returned and at the length of the run, and predicts the rates; during training it counts every
    tick and every update. Training with the guard and without it ends in the same bits.

    Args:
        expected: when each scheduler should tick: `step` (every update), `epoch`, `auto` (a mistake
            only where it can be proved; else a warning that asks for this argument), the path of an
            original run's rates (a recording, JSONL or CSV), or any of these by scheduler: a
            mapping from its index, name or class name.
        on_violation: `raise` a CadenceViolation, or `warn` and train on.
        reference_updates: how many updates are compared with a reference, rate by rate.

    Raises:
        ConfigError: for an `expected` that is none of these, at once or, for a name that no
            scheduler answers to, when training starts.
        CadenceViolation: from the hook of the batch that shows it; before the first one for what
            the configuration shows.

    Example::

        trainer = Trainer(callbacks=[CadenceGuard(expected="step")])
    """

    def __init__(
        self,
        expected: str | dict[str, str] = "auto",
        on_violation: Literal["raise", "warn"] = "raise",
        reference_updates: int = 300,
    ) -> None:
        if on_violation not in ("raise", "warn"):
            raise ConfigError(
                f"CadenceGuard: on_violation must be raise or warn, got {on_violation!r}."
            )
        if not isinstance(reference_updates, int) or reference_updates < 1:
            raise ConfigError(
                f"CadenceGuard: reference_updates must be 1 or more, got {reference_updates!r}."
            )
        self.settings = {
            "expected": expected, "on_violation": on_violation,
            "reference_updates": reference_updates,
        }  # fmt: skip
        self._expectation = parse_expected(expected)
        self._raises = on_violation == "raise"
        self._reference_updates = reference_updates
        self._forget()

    def _forget(self) -> None:
        """Begin a fit with nothing known."""
        self.findings: list[Finding] = []
        self.forecasts: dict[int, Forecast | str] = {}  # by optimizer; text: why there is none
        self._pending: list[Finding] = []
        self._returned: list[Any] = []  # by configure_optimizers
        self._entries: list[Entry] = []
        self._settings: dict[int, dict[str, Any]] = {}  # as configured, by id of the scheduler
        self._saved_schedulers: int | None = None  # in the checkpoint that was loaded
        self._max_epochs: int | None = None
        self._from_command_line = False
        self._overridden: str | None = None  # whose configure_optimizers the command line replaced
        self._undo: Remove | None = None
        self._stands_down = False  # another guard does the work
        self._run: CadenceRun | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Arrange to see what configure_optimizers returns."""
        if stage != "fit":
            return
        self._forget()
        notice_evicted(self, trainer, pl_module)
        callbacks: Sequence[Any] = trainer.callbacks  # type: ignore[attr-defined]
        first = next((one for one in callbacks if isinstance(one, CadenceGuard)), self)
        self._stands_down = first is not self
        if self._stands_down:
            rank_zero_info("CadenceGuard: another one comes first and does the work.")
            return
        self._max_epochs = trainer.max_epochs
        self._from_command_line = lightning_run.is_from_command_line(pl_module)
        if self._from_command_line and lightning_run.has_own_optimizers(pl_module):
            self._overridden = type(pl_module).__name__
        self._undo = lightning_run.watch_configuration(pl_module, self._returned.append)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Note how schedulers are configured, before a checkpoint is loaded into them."""
        self._entries = [entry for returned in self._returned for entry in iter_entries(returned)]
        self._settings = {
            id(entry.scheduler): capture_settings(entry.scheduler) for entry in self._entries
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Note how many schedulers a checkpoint holds: Lightning pairs them off silently."""
        self._saved_schedulers = len(checkpoint.get("lr_schedulers", ()))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Judge the configuration in effect, then listen."""
        if self._stands_down:
            return
        schedules = lightning_run.schedules_of(trainer, self._entries)
        self._expectation.check_keys(schedules)
        self._run = CadenceRun(
            trainer,
            [(schedule, self._expectation.word(schedule)) for schedule in schedules],
            ticks=TickWatch(
                emit=self._emit,
                automatic=pl_module.automatic_optimization,
                scaled=getattr(trainer.precision_plugin, "scaler", None) is not None,
                resumed=self._saved_schedulers is not None,
                held_back=lightning_run.ticks_by_own_code(pl_module),
            ),
            rates=RateWatch(
                emit=self._emit,
                references=self._references(trainer, schedules),
                compare=self._reference_updates,
                updates={0: trainer.global_step} if len(trainer.optimizers) == 1 else {},
            ),
        )
        self._check_before(trainer, pl_module, schedules)
        self._run.listen()
        self._act()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """In manual optimization the last epoch is over, with all that its hooks have ticked."""
        if self._run is not None:
            self._run.epoch_begins(trainer.current_epoch)
            self._act()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """The last batch is over, with its validation, its epoch and everybody's hooks."""
        if self._run is not None:
            forget_unfinished_step()
            self._run.batch_over()
            self._notice_exchanges(trainer, self._run)
            self._run.batch_begins()
            self._act()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Note which schedulers Lightning had to tick for this batch."""
        if self._run is not None:
            self._run.batch_ends(batch_idx)
            self._act()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The metrics of validation are new."""
        if self._run is not None:
            self._run.ticks.validated()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Judge what only the end shows; nothing is raised before checkpoints are written."""
        if self._run is None:
            return
        self._run.end()
        short = trainer.should_stop or trainer.fast_dev_run  # type: ignore[attr-defined]
        if not pl_module.automatic_optimization and not short:
            for count in self._run.ticks.counts.values():
                if count.judged and count.ticks and count.expected == "auto":
                    last = getattr(count.schedule.scheduler, "last_epoch", None)
                    self._emit_all(check_ticked(count.schedule, last or count.ticks))

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say how it went."""
        if self._run is not None:
            self._run.stop()
            rank_zero_info(f"CadenceGuard: {self.describe()}")
            self._act()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Take the hooks out."""
        self._stop()

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take out what a run that ended otherwise has left."""
        self._stop()

    @property
    def verdict(self) -> Literal["pass", "fail", "inconclusive"]:
        """`fail` with an error among the findings; `pass` only if a tick or a rate was judged."""
        if any(finding.severity == "error" for finding in self.findings):
            return "fail"
        return "pass" if self._run is not None and self._run.judged() else "inconclusive"

    def describe(self) -> str:
        """The verdict, and how much it speaks for, in one line."""
        run = self._run
        counted = "nothing was judged" if run is None else run.describe()
        found = ", ".join(dict.fromkeys(finding.id for finding in self.findings))
        return f"{self.verdict}: {counted}" + (f"; found {found}" if found else "")

    def _references(
        self, trainer: pl.Trainer, schedules: Sequence[Schedule]
    ) -> dict[int, RateTable]:
        """The reference of each optimizer; none where its update numbers are not known."""
        several = len(trainer.optimizers)
        found = self._expectation.references(schedules, optimizers=several)
        if found and several > 1 and trainer.global_step:
            told = f"resumed with {several} optimizers: how far each had come is not known"
            self._emit(kinds.REFERENCE_SHORT.found(told))
            return {}
        return found

    def _check_before(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, schedules: Sequence[Schedule]
    ) -> None:
        """Everything that needs no update."""
        dropped = None if self._from_command_line else lightning_run.scheduler_asked_for(trainer)
        self._emit_all(check_command_line(dropped=dropped, overridden=self._overridden))
        self._emit_all(
            check_checkpoint(schedules, saved=self._saved_schedulers, configured=self._settings)
        )
        self._emit_all(check_parameters(trainer, pl_module))
        wanted = [one for one in self._expectation.words() if one in ("step", "epoch")]
        if wanted and not schedules:
            self._emit(kinds.NONE.found(f"expected is {wanted[0]}, and the trainer has none"))
        for returned in self._returned:
            self._emit_all(check_dropped(returned))
        setting = Setting(
            plan=lightning_run.plan_of(trainer, max_epochs=self._max_epochs),
            updates=lightning_run.updates_of(trainer),
            automatic=pl_module.automatic_optimization,
            shortened=bool(trainer.fast_dev_run),  # type: ignore[attr-defined]
            write_step=self._write_step(trainer),
        )
        self.forecasts = forecast_all(
            trainer.optimizers, schedules, plan=setting.plan, automatic=setting.automatic
        )
        for schedule in schedules:
            self._check_schedule(schedule, setting)
            forecast = self.forecasts[schedule.optimizer]
            rank_zero_info(f"CadenceGuard: {announce(schedule, setting, forecast)}")

    def _write_step(self, trainer: pl.Trainer) -> str:
        """The lines that make a scheduler tick by update, where this one comes from."""
        if not self._from_command_line:
            return kinds.WRITE_STEP
        ours = "lr_scheduler_config" in lightning_run.command_line_of(trainer)
        return WRITE_STEP_IN_FIT if ours else WRITE_STEP_IN_CLI

    def _check_schedule(self, schedule: Schedule, setting: Setting) -> None:
        if self._run is not None and not self._run.is_heard(schedule):
            told = f"{schedule.label} is no torch.optim.lr_scheduler.LRScheduler"
            self._emit(kinds.NOT_HEARD.found(told))
        for entry in self._entries:
            if entry.scheduler is schedule.scheduler:
                lost = check_entry(entry, schedule, write_step=setting.write_step)
                if lost:  # what is in effect was not asked for: no use in judging it
                    return self._emit_all(lost)
        forecast = self.forecasts.get(schedule.optimizer)
        outlook = forecast.describe() if isinstance(forecast, Forecast) else ""
        word = self._expectation.word(schedule)
        self._emit_all(check_schedule(schedule, setting, expected=word, outlook=outlook))

    def _notice_exchanges(self, trainer: pl.Trainer, run: CadenceRun) -> None:
        """Schedulers that took the place of those followed so far, or came on top."""
        if run.follows(trainer.lr_scheduler_configs):
            return
        for schedule in lightning_run.schedules_of(trainer, ()):
            old = run.schedule(schedule.index)
            if old is not None and old.scheduler is schedule.scheduler:
                continue
            kind = (
                kinds.SWAPPED if lightning_run.is_averaging(trainer, schedule) else kinds.REPLACED
            )
            before = "nothing" if old is None else old.label
            self._emit(
                kind.found(f"in epoch {trainer.current_epoch} {schedule.label} replaced {before}")
            )
            run.follow(schedule, "auto", judged=False)
            run.take_rates()

    def _emit_all(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self._emit(finding)

    def _emit(self, finding: Finding) -> None:
        self.findings.append(finding)
        self._pending.append(finding)

    def _act(self) -> None:
        """Tell the user what is new; raise for errors, all of them at once."""
        pending, self._pending = self._pending, []
        errors = [finding for finding in pending if finding.severity == "error" and self._raises]
        for finding in pending:
            if finding.severity == "info":
                rank_zero_info(str(finding))
            elif finding not in errors:
                rank_zero_warn(str(finding), category=CadenceWarning)
        if errors:
            raise CadenceViolation("\n".join(map(str, errors)))

    def _stop(self) -> None:
        if self._undo is not None:
            self._undo()
        if self._run is not None:
            self._run.stop()

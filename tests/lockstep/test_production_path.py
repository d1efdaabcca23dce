"""What runs in lockstep is `Trainer.fit` as in production: its hooks, logger and validation."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger

from tests.lockstep.small import PER_EPOCH, UPDATES, Trace, fit, plain_loop
from traingen.lockstep import LoopSystem, NameMap, TrainerSystem, lockstep

HOOKS = (
    "setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start",
    "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad",
    "on_train_batch_end", "on_validation_start", "on_validation_batch_end", "on_validation_end",
    "on_train_epoch_end", "on_train_end", "on_fit_end", "teardown",
)  # fmt: skip


class Witness(pl.Callback):
    """Notes every hook, and from where the first update is called."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = dict.fromkeys(HOOKS, 0)
        self.stack: list[str] = []
        self.thread = ""
        for hook in HOOKS:
            setattr(self, hook, self._note(hook))

    def _note(self, hook: str) -> Any:
        def note(*_: Any, **__: Any) -> None:
            self.calls[hook] += 1
            if hook == "on_before_optimizer_step":
                self.stack = [frame.name for frame in traceback.extract_stack()]
                self.thread = threading.current_thread().name

        return note


def test_every_hook_logger_and_validation_of_the_trainer_runs(tmp_path: Path) -> None:
    witness = Witness()
    result = lockstep(
        LoopSystem(lambda: plain_loop(Trace())),
        TrainerSystem(
            lambda: fit(Trace(), callbacks=[witness], logger=CSVLogger(tmp_path, name="log"))
        ),
        name_map=NameMap(patterns=((r"(\d.*)", r"network.\1"),)),
        modes=["natural"],
        updates=UPDATES,
    )
    assert result.verdict == "pass"
    assert [hook for hook, count in witness.calls.items() if count == 0] == []
    assert witness.calls["on_before_optimizer_step"] == UPDATES
    assert witness.calls["on_validation_end"] == UPDATES // PER_EPOCH
    assert witness.thread == "traingen-package"
    assert {"fit", "_fit_impl", "_run_stage", "optimizer_step"} <= set(witness.stack)
    assert "val_loss" in (tmp_path / "log" / "version_0" / "metrics.csv").read_text()

"""What a trainer gathers from all ranks when it is read is never read by what records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.callbacks.small import Small, make_loader, make_trainer, record_everything
from tests.callbacks.trainings import Keeps
from traingen import CadenceGuard
from traingen.records import read_recording

GATHERED = ("callback_metrics", "logged_metrics", "progress_bar_metrics", "log_dir")


class Validates(Small):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("valid", self.loss(batch), sync_dist=True)


class Reads(pl.Callback):
    """Reads one of them, as a careless recorder would."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_train_epoch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        getattr(trainer, self.name)


def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is read from here on, by this package or by `Reads`."""
    read: list[str] = []

    def watched(name: str) -> property:
        original = getattr(pl.Trainer, name)

        def get(trainer: pl.Trainer) -> Any:
            frame = sys._getframe(1)
            own = isinstance(frame.f_locals.get("self"), Reads)
            if own or frame.f_globals["__name__"].startswith("traingen"):
                read.append(name)
            return original.fget(trainer)

        return property(get)

    for name in GATHERED:
        monkeypatch.setattr(pl.Trainer, name, watched(name))
    return read


def train(path: Path, *callbacks: pl.Callback) -> None:
    saves = ModelCheckpoint(path / "saved", every_n_train_steps=2, save_top_k=-1)
    recorder = record_everything(str(path / "run"))
    trainer = make_trainer(
        [recorder, CadenceGuard(on_violation="warn"), EMAWeightAveraging(), saves, *callbacks],
        logger=Keeps(),
        enable_checkpointing=True,
        val_check_interval=3,
        default_root_dir=path,
    )
    trainer.fit(Validates(), make_loader(), make_loader())


def test_a_training_is_recorded_without_reading_any_of_them(tmp_path, monkeypatch):
    read = readers(monkeypatch)
    train(tmp_path)
    events = {event.event for event in read_recording(tmp_path / "run").events}
    assert {"checkpoint", "validation"} <= events
    assert read == []


@pytest.mark.parametrize("name", GATHERED)
def test_one_that_is_read_would_be_noticed(tmp_path, monkeypatch, name):
    read = readers(monkeypatch)
    train(tmp_path, Reads(name))
    assert read == [name] * 2

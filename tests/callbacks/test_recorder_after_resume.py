"""After a resume: averages that do not go on, and epochs longer than the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
)

from tests.callbacks import lasting
from tests.callbacks.lasting import GoesOn, Saves, recorder
from tests.callbacks.small import BATCHES, Small, make_loader, make_trainer
from traingen.judge import judge_recording
from traingen.records import iter_records, read_recording

pytestmark = [
    pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch"),
]
forgets_its_saver = pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")


def found(path: Path) -> dict[str, str]:
    """What the recording shows by itself: severities by id."""
    return {one.id: one.severity for one in judge_recording(iter_records(path))}


# Averaged weights after a resume ----------------------------------------------------------------


class Migrates(Small):
    """Changes the weights of a checkpoint as it is loaded; Lightning has put the average there."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["state_dict"]
        checkpoint["state_dict"] = {name: value * self.factor for name, value in state.items()}


@pytest.mark.parametrize("factor", [0.5, 3.0])
@pytest.mark.parametrize("save", [3, 6])
def test_a_migration_that_reaches_only_the_averaged_weights_is_found(tmp_path, factor, save):
    path = tmp_path / "run"
    lasting.train(recorder(path), EMAWeightAveraging(decay=0.5), Saves(tmp_path, save))
    resume = {"resume": tmp_path / f"{save}.ckpt"}
    lasting.train(recorder(path), EMAWeightAveraging(decay=0.5), model=Migrates(factor), **resume)
    assert "TG-RECORD-NOT-REPEATED" in found(path)


def test_a_migration_that_changes_nothing_is_silent(tmp_path):
    path = tmp_path / "run"
    lasting.train(recorder(path), EMAWeightAveraging(decay=0.5), Saves(tmp_path, 3))
    lasting.train(
        recorder(path),
        EMAWeightAveraging(decay=0.5),
        model=Migrates(1.0),
        resume=tmp_path / "3.ckpt",
    )
    assert found(path) == {}


@pytest.mark.parametrize("start", [2, 3])
def test_an_averaging_that_a_resume_leaves_out_is_found(tmp_path, start):
    path, epochs = tmp_path / "run", {"max_epochs": 4}
    average = StochasticWeightAveraging(0.05, start)
    lasting.train(recorder(path), average, Saves(tmp_path, 15), **epochs)
    before = read_recording(path).updates[-1].ema["updates"]
    average = StochasticWeightAveraging(0.05, start)
    lasting.train(recorder(path), average, resume=tmp_path / "15.ckpt", **epochs)
    assert read_recording(path).updates[-1].ema["updates"] == before - 1
    assert "TG-RECORD-NOT-REPEATED" in found(path)


# Epochs that have more batches than the data ----------------------------------------------------


def interrupted_at_the_end(folder: Path, make: Any, *, steps: int, inside: bool) -> Path:
    """Train to so many steps, which end an epoch, and go on from a checkpoint of its end.

    Lightning saves it after its counters were advanced for the last batch and before the epoch is
    over: the resumed epoch begins with an index that it does not have.
    """
    path = folder / "run"
    if inside:
        saves: Any = Saves(folder, steps)
        checkpoint = folder / f"{steps}.ckpt"
    else:
        saves = ModelCheckpoint(folder / "saved", save_last=True)
        checkpoint = folder / "saved" / "last.ckpt"
    limits = {"max_epochs": -1, "enable_checkpointing": not inside}
    make_trainer([recorder(path), saves], max_steps=steps, **limits).fit(Small(), make())
    trainer = make_trainer([recorder(path)], max_steps=steps + BATCHES + 2, max_epochs=-1)
    trainer.fit(Small(), make(), ckpt_path=checkpoint, weights_only=True)
    return path


@forgets_its_saver
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("make", [GoesOn, make_loader])
def test_an_epoch_that_a_resume_makes_longer_than_the_data_is_found(tmp_path, make, epochs):
    steps = epochs * BATCHES
    path = interrupted_at_the_end(tmp_path, make, steps=steps, inside=False)
    recording = read_recording(path)
    one = recording.updates[steps]
    assert (one.epoch, one.batch_idx, recording.run.loader["batches"]) == (
        epochs - 1, BATCHES, BATCHES,
    )  # fmt: skip
    first = recording.updates[steps - BATCHES]
    assert (one.batch, one.epoch) == (first.batch, first.epoch)
    assert "warning" in found(path).values()


@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("make", [GoesOn, make_loader])
def test_an_epoch_that_is_as_long_as_the_data_is_silent(tmp_path, make, epochs):
    path = interrupted_at_the_end(tmp_path, make, steps=epochs * BATCHES, inside=True)
    assert max(u.batch_idx for u in read_recording(path).updates) == BATCHES - 1
    assert found(path) == {}

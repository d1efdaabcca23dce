"""A batch that is left out where several ranks train: Lightning refuses, the recordings say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.callbacks.recorded import judged
from tests.callbacks.small import Small, make_trainer
from tests.ranks import BATCHES, WORLD, dealt_loader, on_ranks
from traingen import StepRecorder
from traingen.records import read_ranks

REFUSED = "Skipping the `training_step` by returning None"


class LeavesOut(Small):
    def __init__(self, batch: int) -> None:
        super().__init__(interval=None)
        self.batch = batch
        self.net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == self.batch else self.loss(batch)


def train(rank: int, folder: str, batch: int) -> str:
    """The error that ends it, if one does."""
    torch.manual_seed(3)
    trainer = make_trainer([StepRecorder(folder)], strategy="ddp", devices=WORLD, max_epochs=1)
    try:
        trainer.fit(LeavesOut(batch), dealt_loader())
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("batch", [1, 3])
def test_a_batch_that_several_ranks_may_not_leave_out_ends_every_recording(tmp_path, batch):
    errors = on_ranks(train, str(tmp_path), batch)
    assert all(REFUSED in error for error in errors)
    for recording in read_ranks(tmp_path):
        assert [update.batch_idx for update in recording.updates] == list(range(batch))
        assert (recording.end.reason, recording.end.updates) == ("exception", batch)
        assert REFUSED in recording.end.message


def test_ranks_that_leave_nothing_out_finish(tmp_path: Path):
    assert on_ranks(train, str(tmp_path), -1) == [""] * WORLD
    for recording in read_ranks(tmp_path):
        assert (recording.end.reason, len(recording.updates)) == ("finished", BATCHES)
    assert judged(tmp_path, make_trainer([])).found == {}

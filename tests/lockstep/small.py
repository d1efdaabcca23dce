"""Two small trainings of one method: a hand-written loop and a Lightning module."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset

from traingen.lockstep import FitCall

ROWS, FEATURES, BATCH, EPOCHS = 24, 5, 4, 2
PER_EPOCH = ROWS // BATCH
UPDATES = PER_EPOCH * EPOCHS


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Rows whose augmentation draws from all three generators."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        row = torch.arange(FEATURES, dtype=torch.float32) * 0.1 + index * 0.05
        noise = torch.rand(FEATURES) + float(np.random.rand()) + random.random()
        return row + 0.01 * noise, torch.tensor([float(index % 3)])


def make_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.25), nn.Linear(8, 1)
    )


def make_schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.OneCycleLR:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=UPDATES + 1)


@dataclass
class Trace:
    """What a training leaves behind for a test to compare."""

    models: list[nn.Module] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """The last run's weights, buffers and optimizer state."""
        return {
            "model": {k: v.clone() for k, v in self.models[-1].state_dict().items()},
            "optimizer": self.optimizers[-1].state_dict()["state"],
        }


def plain_loop(
    trace: Trace,
    *,
    epochs: int = EPOCHS,
    raise_at: int | None = None,
    evaluate: bool = True,
    accumulate: int = 1,
    on_update: Callable[[int], None] | None = None,
) -> None:
    """A loop as people write it: shuffled loader, clipping, schedule per batch, evaluation."""
    model = make_network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    schedule = make_schedule(optimizer)
    train, held_out = DataLoader(Noisy(), BATCH, shuffle=True), DataLoader(Noisy(), BATCH)
    trace.models.append(model)
    trace.optimizers.append(optimizer)
    update = 0
    for _ in range(epochs):
        model.train()
        for x, y in train:
            update += 1
            if update == raise_at:
                raise ValueError("the loop broke")
            loss = nn.functional.mse_loss(model(x), y)
            if (update - 1) % accumulate == 0:
                optimizer.zero_grad()
            (loss / accumulate).backward()
            trace.losses.append(loss.item())
            if update % accumulate:
                continue
            clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            if on_update is not None:
                on_update(update)
        if evaluate:
            model.eval()
            with torch.no_grad():
                sum(float(nn.functional.mse_loss(model(x), y)) for x, y in held_out)


class Module(pl.LightningModule):
    """The same method on Lightning."""

    def __init__(self, trace: Trace, *, raise_at: int | None = None, eps: float = 1e-8) -> None:
        super().__init__()
        self.network = make_network()
        self.trace = trace
        self.raise_at = raise_at
        self.eps = eps

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.raise_at is not None and self.trainer.global_step + 1 == self.raise_at:
            raise ValueError("the module broke")
        x, y = batch
        loss = nn.functional.mse_loss(self.network(x), y)
        self.trace.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.network(x), y))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.1, eps=self.eps)
        self.trace.optimizers.append(optimizer)
        schedule = {"scheduler": make_schedule(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def fit(
    trace: Trace,
    *,
    epochs: int = EPOCHS,
    raise_at: int | None = None,
    eps: float = 1e-8,
    callbacks: list[pl.Callback] | None = None,
    accumulate: int = 1,
    clip: float | None = 0.5,
    logger: Any = False,
) -> FitCall:
    """What `trainer.fit` is called with."""
    module = Module(trace, raise_at=raise_at, eps=eps)
    trace.models.append(module)
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=logger, callbacks=callbacks or [],
        gradient_clip_val=clip, accumulate_grad_batches=accumulate, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        log_every_n_steps=1,
    )  # fmt: skip
    return FitCall(
        trainer=trainer,
        model=module,
        train_dataloaders=DataLoader(Noisy(), BATCH, shuffle=True),
        val_dataloaders=DataLoader(Noisy(), BATCH),
    )


def iter_tensors(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a nested state with its path."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from iter_tensors(item, f"{path}.{key}")


def assert_same_state(a: Any, b: Any) -> None:
    """The same tensors, bit for bit, and at least one."""
    mine, theirs = dict(iter_tensors(a)), dict(iter_tensors(b))
    assert mine
    assert mine.keys() == theirs.keys()
    for path, tensor in mine.items():
        assert torch.equal(tensor, theirs[path]), path


def pair_original(*, epochs: int = EPOCHS) -> None:
    """The loop as a pair file names it."""
    plain_loop(Trace(), epochs=epochs)


def pair_package(*, eps: float = 1e-8, width: int | None = None) -> FitCall:
    """The fit as a pair file names it; another `width` makes shapes differ."""
    call = fit(Trace(), eps=eps)
    if width is not None:
        call.model.network[0] = nn.Linear(FEATURES, width)
    return call


def make_noise() -> Tensor:
    """Nobody calls it."""
    return torch.rand(1)

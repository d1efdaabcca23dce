"""A small Lightning training for the tests of callbacks, and its updates computed by hand."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from traingen import StepRecorder
from traingen.observe.rng import GENERATORS
from traingen.records import Recording, read_recording

BATCHES, BATCH = 5, 4  # per epoch; samples in each
RATE, MOMENTUM = 0.1, 0.9

Step = Callable[[pl.LightningModule, int], None]


def fall(ticks: int) -> float:
    """The factor on the rate after `ticks` of the scheduler."""
    return 1 / (1 + ticks)


class Small(pl.LightningModule):
    """A linear model with SGD; the scheduler falls by `fall`; `in_step` runs in training_step."""

    def __init__(
        self,
        *,
        interval: str | None = "step",
        frequency: int = 1,
        dropout: float = 0.0,
        in_step: Step | None = None,
    ) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 1))
        self.interval = interval
        self.frequency = frequency
        self.in_step = in_step

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        value: Tensor = (self.net(batch[0]) - batch[1]).square().mean()
        return value

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        if self.in_step is not None:
            self.in_step(self, batch_idx)
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE, momentum=MOMENTUM)
        if self.interval is None:
            return optimizer
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, fall)
        config = {"scheduler": scheduler, "interval": self.interval, "frequency": self.frequency}
        return {"optimizer": optimizer, "lr_scheduler": config}


def make_loader() -> DataLoader[tuple[Tensor, ...]]:
    """The same batches at every call, in order."""
    drawn = torch.randn(BATCHES * BATCH, 4, generator=torch.Generator().manual_seed(5))
    return DataLoader(TensorDataset(drawn[:, :3] * 3, drawn[:, 3:]), batch_size=BATCH)


def make_trainer(callbacks: Iterable[pl.Callback], **options: Any) -> pl.Trainer:
    return pl.Trainer(
        **{
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": 2,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            **options,
        },
        callbacks=list(callbacks),
    )


def fit(
    callbacks: Iterable[pl.Callback], *, model: pl.LightningModule | None = None, **options: Any
) -> pl.Trainer:
    """Train on `make_loader` and return the trainer."""
    trainer = make_trainer(callbacks, **options)
    trainer.fit(model or Small(), make_loader())
    return trainer


def record_everything(path: str, **options: Any) -> StepRecorder:
    """A recorder with all that can be asked for but probes."""
    return StepRecorder(
        path,
        rng=GENERATORS,
        mirror=True,
        layer_norms=True,
        update_ratios=True,
        moment_norms=True,
        digest_parameters=True,
        **options,
    )


def record(
    path: Path,
    *,
    model: pl.LightningModule | None = None,
    rng: Sequence[str] = ("torch",),
    **options: Any,
) -> Recording:
    """Train with a recorder on `path` and read the recording back."""
    fit([StepRecorder(str(path), rng=rng)], model=model, **options)
    return read_recording(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One update as a plain torch loop computes it."""

    epoch: int
    batch_idx: int
    micro_batches: int
    losses: list[float]  # one per micro-batch, as the model returned them
    roots: list[float]  # what was differentiated
    grad_norm: float
    grad_norm_clipped: float
    lr: float


def replay(
    model: Small,
    *,
    accumulate: int = 1,
    epochs: int = 2,
    clip: Callable[[list[Tensor]], None] = lambda gradients: None,
) -> list[Expected]:
    """Train a copy of `model` (scheduler ticked at each update) by hand."""
    net = copy.deepcopy(model)
    parameters = list(net.parameters())
    momenta = [torch.zeros_like(p) for p in parameters]
    expected: list[Expected] = []
    for epoch in range(epochs):
        losses: list[float] = []
        roots: list[float] = []
        for batch_idx, batch in enumerate(make_loader()):
            loss = net.loss(batch)
            root = loss / accumulate
            root.backward()
            losses.append(loss.item())
            roots.append(root.item())
            if (batch_idx + 1) % accumulate and batch_idx + 1 < BATCHES:
                continue
            gradients = [p.grad for p in parameters if p.grad is not None]
            before = norm_of(gradients)
            clip(gradients)
            rate = RATE * fall(len(expected))
            expected.append(
                Expected(
                    epoch=epoch,
                    batch_idx=batch_idx,
                    micro_batches=len(losses),
                    losses=losses,
                    roots=roots,
                    grad_norm=before,
                    grad_norm_clipped=norm_of(gradients),
                    lr=rate,
                )
            )
            losses, roots = [], []
            with torch.no_grad():
                for p, gradient, momentum in zip(parameters, gradients, momenta, strict=True):
                    momentum.mul_(MOMENTUM).add_(gradient)
                    p.sub_(momentum, alpha=rate)
                    p.grad = None
    return expected


def norm_of(tensors: Iterable[Tensor]) -> float:
    return float(torch.cat([t.detach().double().flatten() for t in tensors]).square().sum().sqrt())

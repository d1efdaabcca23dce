"""Train with a recorder and keep what tests ask for: trainer, recording and findings."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from tests.callbacks.small import Small, make_loader, make_trainer
from traingen import StepRecorder
from traingen.compare.findings import Finding
from traingen.judge import judge_recording
from traingen.records import Recording, UpdateRecord, iter_records, read_recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One training and what was recorded and found of it."""

    trainer: pl.Trainer
    recording: Recording
    findings: list[Finding]

    @property
    def updates(self) -> tuple[UpdateRecord, ...]:
        return tuple(self.recording.updates)

    def of(self, optimizer: int) -> list[UpdateRecord]:
        """The updates of one optimizer."""
        return [update for update in self.updates if update.optimizer == optimizer]

    @property
    def found(self) -> dict[str, str]:
        """Severity by id of what was found, each id without its common beginning."""
        return {one.id.removeprefix("TG-RECORD-"): one.severity for one in self.findings}

    def measured(self, name: str) -> str:
        """What was measured for one finding."""
        (one,) = (one for one in self.findings if one.id == f"TG-RECORD-{name}")
        return one.measured

    def events(self, name: str) -> list[dict[str, Any]]:
        """The details of every event of one name."""
        return [one.details or {} for one in self.recording.events if one.event == name]


def train(
    path: Path,
    model: pl.LightningModule,
    *,
    callbacks: Iterable[pl.Callback] = (),
    data: Any = None,
    recorder: dict[str, Any] | None = None,
    **options: Any,
) -> Recorded:
    """Train `model` for one epoch, unless `options` say otherwise, with a recorder on `path`."""
    trainer = make_trainer(
        [StepRecorder(str(path), **(recorder or {})), *callbacks], **{"max_epochs": 1, **options}
    )
    trainer.fit(model, make_loader() if data is None else data)
    return judged(path, trainer)


def judged(path: Path, trainer: pl.Trainer) -> Recorded:
    """What is on `path` after a training that has ended in any way."""
    return Recorded(
        trainer=trainer,
        recording=read_recording(path),
        findings=judge_recording(iter_records(path)),
    )


class Manual(Small):
    """Optimized by hand, without a scheduler: `training_step` is to be overridden."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__(interval=None)


class Gan(Manual):
    """A generator that is updated at every n-th batch, and a discriminator at each.

    The generator's loss also reaches the discriminator, whose gradients are cleared before its two
    backwards.
    """

    RATES = 0.1, 0.01

    def __init__(self, *, every: int = 1) -> None:
        super().__init__()
        self.judge = nn.Linear(1, 1)
        self.every = every

    def generator_loss(self, batch: Any) -> torch.Tensor:
        value: torch.Tensor = (1 - self.judge(self.net(batch[0]))).square().mean()
        return value

    def discriminator_losses(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        real = (1 - self.judge(batch[1])).square().mean()
        return real, self.judge(self.net(batch[0]).detach()).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> None:
        generator, discriminator = self.optimizers()
        if batch_idx % self.every == 0:
            generator.zero_grad()
            self.manual_backward(self.generator_loss(batch))
            generator.step()
        discriminator.zero_grad()
        for loss in self.discriminator_losses(batch):
            self.manual_backward(loss)
        discriminator.step()

    def configure_optimizers(self) -> Any:
        one, other = self.RATES
        return [
            torch.optim.SGD(self.net.parameters(), lr=one),
            torch.optim.Adam(self.judge.parameters(), lr=other),
        ]

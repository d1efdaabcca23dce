"""The same training on Lightning, in three tries; the first two forget something."""

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from examples.first_port.original import EPOCHS, make_loader, make_network
from traingen.lockstep import FitCall


class Port(LightningModule):
    """The original's network and loss; the schedule in Lightning's shortest form."""

    def __init__(self) -> None:
        super().__init__()
        self.network = make_network()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels, label_smoothing=0.1)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.01)

    def make_schedule(self, optimizer: torch.optim.Optimizer) -> OneCycleLR:
        return OneCycleLR(optimizer, max_lr=0.03, total_steps=EPOCHS * len(make_loader()))

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer()
        return [optimizer], [self.make_schedule(optimizer)]


class SteppedPort(Port):
    """The same with the schedule ticked at every update."""

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer()
        schedule = {"scheduler": self.make_schedule(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def first_try() -> FitCall:
    return make_fit(Port())


def second_try() -> FitCall:
    return make_fit(SteppedPort())


def third_try() -> FitCall:
    return make_fit(SteppedPort(), gradient_clip_val=0.5)


def make_fit(model: LightningModule, **trainer_args: Any) -> FitCall:
    """What `trainer.fit` is called with."""
    trainer = Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **trainer_args,
    )
    return FitCall(trainer=trainer, model=model, train_dataloaders=make_loader())

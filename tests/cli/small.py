"""A small training for the tests of `traingen fit`, and the command run on it in this process."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import yaml
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from traingen.cli.main import main

EPOCHS, BATCHES, BATCH = 2, 5, 4
UPDATES = EPOCHS * BATCHES

CONFIG: dict[str, Any] = {
    "seed_everything": 11,
    "trainer": {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": EPOCHS,
        "num_sanity_val_steps": 0,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    },
    "model": {"class_path": "tests.cli.small.Net"},
    "data": {"class_path": "tests.cli.small.Data"},
    "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1, "momentum": 0.9}},
    "lr_scheduler": {
        "class_path": "torch.optim.lr_scheduler.CosineAnnealingLR",
        "init_args": {"T_max": UPDATES},
    },
    "lr_scheduler_config": {"interval": "step"},
}

fitted: list["Net"] = []  # every model whose fit has ended, oldest first


class Net(pl.LightningModule):
    """A linear model with dropout, without optimizers of its own."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, width), nn.Dropout(0.5), nn.Linear(width, 1))

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        value: Tensor = (self.net(batch[0]) - 1).square().mean()
        return value

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        loss = self.loss(batch)
        self.log_dict({"val_loss": loss, "val_again": loss})

    def test_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        self.loss(batch)

    def predict_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        value: Tensor = self.net(batch[0])
        return value

    def on_fit_end(self) -> None:
        fitted.append(self)


class OwnOptimizers(Net):
    """Ticks at every update, or wherever `interval` says."""

    def __init__(self, interval: str = "step") -> None:
        super().__init__()
        self.interval = interval

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=UPDATES)
        config = {"scheduler": scheduler, "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": config}


class Data(pl.LightningDataModule):
    """Shuffled, so that the order depends on the seed."""

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.samples(), batch_size=BATCH, shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.samples(), batch_size=BATCH)

    test_dataloader = predict_dataloader = val_dataloader

    def samples(self) -> TensorDataset:
        return TensorDataset(torch.linspace(-1, 1, 3 * BATCHES * BATCH).reshape(-1, 3))


def configure(**changes: Any) -> dict[str, Any]:
    """`CONFIG` with whole top-level keys replaced; None leaves one out."""
    config = copy.deepcopy(CONFIG) | changes
    return {key: value for key, value in config.items() if value is not None}


def run(*arguments: str, command: str = "fit", **changes: Any) -> int:
    """Run the command on `configure(**changes)`, written into the current folder."""
    Path("fit.yaml").write_text(yaml.safe_dump(configure(**changes)))
    return traingen(command, "--config=fit.yaml", *arguments)


def traingen(*arguments: str) -> int:
    """Run the command line in this process."""
    return main(arguments)

"""The first law as a helper: training with and without a callback ends in the same bits.

`train` runs one small Lightning training that has everything a careless callback could disturb:
dropout, BatchNorm, clipping, accumulation with a partial last window, a scheduler ticked by step, a
validation loop, and a worker process that augments by drawing. `end_of` says of any training all
that must be equal, by name.
"""

import functools
import os
import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch import seed_everything
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, EPOCHS, ACCUMULATION = 10, 2, 2, 2  # 5 batches, thus 3 updates, per epoch
UPDATES = 6

Training = dict[str, Any]  # name -> tensor or plain value


def train(callbacks: Iterable[pl.Callback], *, logger: Any = False) -> Training:
    """Train from a fixed seed and return everything that must be equal, by name.

    Seeds and environment of the caller are put back.
    """
    with outside_untouched():
        seed_everything(7, workers=True, verbose=False)
        model = _Model()
        loader = DataLoader(_Augmented(), batch_size=BATCH, shuffle=True, num_workers=1)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=EPOCHS,
            accumulate_grad_batches=ACCUMULATION,
            gradient_clip_val=0.1,
            callbacks=list(callbacks),
            logger=logger,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, loader, DataLoader(_Plain(), batch_size=BATCH))
        return end_of(trainer, model) | {
            "data.order": model.order,
            **flatten("data.augmented", model.seen),
            **flatten("losses", model.losses),
        }


@functools.cache
def trained_without() -> Training:
    """What `train` returns without any callback; trained once per process."""
    return train([])


def end_of(trainer: pl.Trainer, model: pl.LightningModule) -> Training:
    """What a training ends with, whatever its loop: all that it computed, and where it stands."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    averaged = [vars(one)["_average_model"] for one in trainer.callbacks if _averages(one)]
    epoch_loop = trainer.fit_loop.epoch_loop
    counters = {
        "global_step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "batch": epoch_loop.total_batch_idx,
        "batches_that_stepped": epoch_loop._batches_that_stepped,
    }
    loader_generator = getattr(trainer.train_dataloader, "generator", None)
    return {
        **flatten("parameters", dict(model.named_parameters())),
        **flatten("gradients", {name: p.grad for name, p in model.named_parameters()}),
        **flatten("buffers", dict(model.named_buffers())),
        **flatten("optimizer", [one.state_dict() for one in trainer.optimizers]),
        **flatten(
            "scheduler", [one.scheduler.state_dict() for one in trainer.lr_scheduler_configs]
        ),
        **flatten("scaler", {} if scaler is None else scaler.state_dict()),
        **flatten("averaged", [one.state_dict() for one in averaged]),
        "rng.python": random.getstate(),
        "rng.numpy": repr(np.random.get_state()[2:]) + np.random.get_state()[1].tobytes().hex(),
        "rng.torch": torch.get_rng_state(),
        "rng.loader": None if loader_generator is None else loader_generator.get_state(),
        **flatten("metrics", dict(trainer.callback_metrics)),
        **flatten("counters", counters),
    }


def _averages(callback: pl.Callback) -> bool:
    return vars(callback).get("_average_model") is not None


def differing_names(a: Training, b: Training) -> list[str]:
    """What is not equal bit for bit in both, or present in only one; sorted."""
    return sorted(name for name in a.keys() | b.keys() if not _same_bits(a, b, name))


def assert_same_training(a: Training, b: Training) -> None:
    """Raise AssertionError naming whatever differs between two results of `train`."""
    assert a, "nothing to compare"
    different = differing_names(a, b)
    assert not different, f"{len(different)} of {len(a)} differ: {', '.join(different)}"


class _Augmented(Dataset[tuple[int, Tensor]]):
    """Samples with noise that is drawn where the sample is made: in the worker."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        noise = torch.rand(4) + random.random() + np.random.rand()
        return index, (noise + torch.linspace(-1, 1, 4) * index).float()


class _Plain(Dataset[tuple[int, Tensor]]):
    def __len__(self) -> int:
        return 2 * BATCH

    def __getitem__(self, index: int) -> tuple[int, Tensor]:
        return index, torch.linspace(-1, 1, 4) * index


class _Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1)
        )
        self.order: list[int] = []
        self.seen: list[Tensor] = []
        self.losses: list[Tensor] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        index, x = batch
        loss: Tensor = (self.net(x).squeeze(1) - x.sum(1)).square().mean()
        self.order += index.tolist()
        self.seen.append(x.clone())
        self.losses.append(loss.detach().clone())
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        drawn = torch.rand(1)  # a validation that draws, as samplers do
        self.losses.append((self.net(batch[1]).mean() + drawn).detach())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.05, total_steps=UPDATES + 1
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def flatten(name: str, value: Any) -> Training:
    """Every leaf of nested mappings and sequences, copied, under its dotted path."""
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = enumerate(value)
    else:
        return {name: _local(value).clone() if isinstance(value, Tensor) else value}
    flat: Training = {}
    for key, part in parts:
        flat |= flatten(f"{name}.{key}", part)
    return flat


def _local(tensor: Tensor) -> Tensor:
    """This rank's part of a distributed tensor; another tensor itself."""
    part: Tensor = getattr(tensor, "_local_tensor", tensor)
    return part.detach()


def _same_bits(a: Training, b: Training, name: str) -> bool:
    if name not in a or name not in b:
        return False
    return _bits(a[name]) == _bits(b[name])


def _bits(value: Any) -> Any:
    """A value that is equal exactly for equal bits: no -0.0 == 0.0, and NaN equals itself."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, float):
        return value.hex()
    return type(value), value


@contextmanager
def outside_untouched() -> Iterator[None]:
    environment = dict(os.environ)
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch.set_rng_state(streams[2])
        for name in set(os.environ) - set(environment):
            del os.environ[name]
        os.environ.update(environment)

"""Small trainings of every kind that Lightning knows, each with all that a callback could disturb.

`KINDS` has those of one process, `SHARED` those that several ranks do together. Each is given what
makes the callbacks, anew for every fit, and returns all that must be equal with and without them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

from tests.callbacks.small import make_trainer
from tests.first_law import Training, end_of, flatten, outside_untouched

SAMPLES, BATCH, EPOCHS = 12, 2, 2
BATCHES = SAMPLES // BATCH  # per epoch, in one process
INFINITE = 1  # the batch, counted over all epochs, whose loss AMP cannot use

Callbacks = Callable[[], list[pl.Callback]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One way to train."""

    train: Callable[[Callbacks], Training]
    updates: int  # of all optimizers together, in one process or on each rank


class Samples(Dataset[Tensor]):
    """Counts what is read of it, so that nobody reads unseen."""

    def __init__(self) -> None:
        self.reads = 0

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Tensor:
        self.reads += 1
        return torch.linspace(-1, 1, 4) * index + torch.rand(4)


class Model(pl.LightningModule):
    """Dropout, BatchNorm, noise of its own generator, a schedule, terms; keeps its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1)
        )
        self.noise = torch.Generator().manual_seed(11)
        self.losses: list[Tensor] = []
        self.inputs: list[Tensor] = []

    def loss(self, x: Tensor) -> Tensor:
        wanted = x.sum(1) + torch.randn(len(x), generator=self.noise)
        value: Tensor = (self.net(x).squeeze(1) - wanted).square().mean()
        self.inputs.append(x.clone())
        self.losses.append(value.detach().clone())
        return value

    def training_step(self, x: Tensor, batch_idx: int) -> Any:
        loss = self.loss(x)
        self.log("loss", loss)
        return {"loss": loss, "half": loss.detach() / 2}

    def validation_step(self, x: Tensor, batch_idx: int) -> None:
        self.losses.append(self.net(x).mean().detach() + torch.rand(()))  # as samplers draw

    def configure_optimizers(self) -> Any:
        return scheduled(torch.optim.AdamW(self.parameters(), lr=0.01))


class Overflowing(Model):
    def training_step(self, x: Tensor, batch_idx: int) -> Any:
        out = super().training_step(x, batch_idx)
        factor = torch.inf if len(self.inputs) == INFINITE + 1 else 1.0
        return {**out, "loss": out["loss"] * factor}


class Adversaries(Model):
    """Two optimizers by hand; the second one steps every other batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.critic = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))

    def training_step(self, x: Tensor, batch_idx: int) -> None:
        one, two = self.optimizers()  # type: ignore[misc]
        one.zero_grad()
        self.manual_backward(self.loss(x) + self.critic(x).mean())
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        one.step()
        if batch_idx % 2 == 0:
            two.zero_grad()
            for part in x.split(1):
                self.manual_backward(self.critic(part).square().mean())
            two.step()
        for scheduler in self.lr_schedulers():  # type: ignore[union-attr]
            scheduler.step()

    def configure_optimizers(self) -> Any:
        parts = self.net.parameters(), self.critic.parameters()
        optimizers = [torch.optim.Adam(parts[0], lr=0.01), torch.optim.SGD(parts[1], lr=0.1)]
        return optimizers, [torch.optim.lr_scheduler.ExponentialLR(o, 0.9) for o in optimizers]


class Closures(Model):
    def configure_optimizers(self) -> Any:
        return scheduled(torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3))


class Sharded(Model):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 1))

    def configure_model(self) -> None:
        assert self.device_mesh is not None
        mesh = self.device_mesh["data_parallel"]
        fully_shard(self.net[0], mesh=mesh)
        fully_shard(self.net, mesh=mesh)


class ByEpoch(Model):
    def configure_optimizers(self) -> Any:
        return scheduled(torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9), "epoch")


def scheduled(optimizer: torch.optim.Optimizer, interval: str = "step") -> Any:
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": interval}}


class Keeps(Logger):
    """A logger that keeps nothing but must be there to be sent to."""

    name = version = "keeps"

    def log_hyperparams(self, params: Any, *rest: Any, **options: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        pass


def fit(
    build: Callable[[], Model],
    callbacks: Iterable[pl.Callback],
    *,
    theirs: Sequence[pl.Callback] = (),
    ckpt_path: str | None = None,
    **options: Any,
) -> Training:
    """Train with `callbacks`, which are not there in the training compared with, and `theirs`."""
    with outside_untouched(), TemporaryDirectory() as folder:
        seed_everything(7, verbose=False)
        model = build()
        samples = Samples()
        loader = DataLoader(
            samples, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(5)
        )
        trainer = make_trainer(
            [*theirs, *callbacks],
            **{
                "max_epochs": EPOCHS,
                "logger": Keeps(),
                "enable_checkpointing": True,  # a checkpoint is an event, with digests
                "default_root_dir": folder,
                **options,
            },
        )
        resumed = {} if ckpt_path is None else {"ckpt_path": ckpt_path, "weights_only": False}
        trainer.fit(model, loader, DataLoader(Samples(), batch_size=BATCH), **resumed)
        return end_of(trainer, model) | {
            "data.reads": samples.reads,
            "rng.own": model.noise.get_state(),
            **flatten("data.inputs", model.inputs),
            **flatten("losses", model.losses),
        }


def train_plainly(make: Callbacks) -> Training:
    return fit(Model, make())


def train_accumulating(make: Callbacks) -> Training:
    return fit(Model, make(), accumulate_grad_batches=4, gradient_clip_val=0.1)


def train_with_amp(make: Callbacks) -> Training:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    plugin = MixedPrecision("16-mixed", device="cpu", scaler=scaler)
    return fit(Overflowing, make(), plugins=[plugin], gradient_clip_val=0.1)


def train_adversaries(make: Callbacks) -> Training:
    return fit(Adversaries, make())


def train_by_closures(make: Callbacks) -> Training:
    return fit(Closures, make())


def train_averaging(make: Callbacks) -> Training:
    return fit(Model, make(), theirs=[EMAWeightAveraging(decay=0.8, update_every_n_steps=2)])


def train_swa(make: Callbacks) -> Training:
    return fit(ByEpoch, make(), theirs=[StochasticWeightAveraging(0.02, swa_epoch_start=1)])


def train_resuming(make: Callbacks) -> Training:
    """Stop inside of the first epoch, and go on from the checkpoint in a second trainer."""
    with TemporaryDirectory() as folder:
        saves = functools.partial(ModelCheckpoint, every_n_train_steps=4)
        fit(Model, make(), theirs=[saves(f"{folder}/1")], max_steps=4)
        checkpoint = f"{folder}/1/epoch=0-step=4.ckpt"
        saved = torch.load(checkpoint, weights_only=False)
        end = fit(Model, make(), theirs=[saves(f"{folder}/2")], ckpt_path=checkpoint)
    kept = {name: value for name, value in saved.items() if name != "callbacks"}
    return end | flatten("checkpoint", kept)


def train_in_parallel(make: Callbacks) -> Training:
    return fit(
        Model,
        make(),
        strategy="ddp",
        devices=2,
        accumulate_grad_batches=2,
        gradient_clip_val=0.1,
    )


def train_sharded(make: Callbacks) -> Training:
    strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    return fit(Sharded, make(), strategy=strategy, devices=2, gradient_clip_val=0.1)


KINDS = {
    "single process": Kind(train=train_plainly, updates=12),
    "accumulation and clipping": Kind(train=train_accumulating, updates=4),
    "AMP": Kind(train=train_with_amp, updates=11),
    "several optimizers by hand": Kind(train=train_adversaries, updates=18),
    "LBFGS": Kind(train=train_by_closures, updates=12),
    "averaged weights": Kind(train=train_averaging, updates=12),
    "SWA": Kind(train=train_swa, updates=13),  # its epoch for BatchNorm ends in an empty step
    "resumed inside an epoch": Kind(train=train_resuming, updates=12),
}
SHARED = {  # 3 batches per epoch on each rank
    "DDP": Kind(train=train_in_parallel, updates=4),
    "FSDP2": Kind(train=train_sharded, updates=6),
}

"""What the tests of resumed and broken recordings share: loaders and trainings that can go on."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import msgspec
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.callbacks.small import BATCHES, Small, make_loader, make_trainer
from traingen import StepRecorder
from traingen.records import UpdateRecord


class GoesOn:
    """A loader that a checkpoint restores: the epoch goes on with the batch that comes next."""

    def __init__(self, loader: DataLoader[Any] | None = None) -> None:
        self.loader = loader or make_loader()
        self.next = 0  # of the epoch that is under way
        self.begin = 0  # of the next one

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        begin, self.begin = self.begin, 0
        for index, batch in enumerate(self.loader):
            if index >= begin:
                self.next = (index + 1) % len(self.loader)
                yield batch

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = self.begin = state["next"]


class Saves(pl.Callback):
    """Saves a checkpoint each time so many batches were done: `<folder>/<batches>.ckpt`."""

    def __init__(self, folder: Path, *batches: int) -> None:
        self.folder = folder
        self.batches = batches
        self.done = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        self.done += 1
        if self.done in self.batches:
            trainer.save_checkpoint(self.folder / f"{self.done}.ckpt")


class Does(pl.Callback):
    """Calls `act` when training has done so many batches, before or after callbacks behind it."""

    def __init__(self, batches: int, act: Callable[[], None]) -> None:
        self.batches = batches
        self.act = act
        self.done = 0

    def on_train_batch_end(self, *rest: Any) -> None:
        self.done += 1
        if self.done == self.batches:
            self.act()


class Critic(Small):
    """Two optimizers stepped by hand, the second one on every other batch only."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.critic = nn.Linear(1, 1)

    def training_step(self, batch: Sequence[torch.Tensor], batch_idx: int) -> None:
        first, second = self.optimizers()
        loss = self.loss(batch)
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        if batch_idx % 2 == 0:
            second.zero_grad()
            self.manual_backward((self.critic(batch[1]) - 1).square().mean())
            second.step()

    def configure_optimizers(self) -> Any:
        networks = (self.net.parameters(), self.critic.parameters())
        return [torch.optim.SGD(networks[0], 0.1), torch.optim.Adam(networks[1], 0.01)], []


class Hidden(Small):
    """Steps a second optimizer that Lightning was never given."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.head = nn.Linear(1, 1)
        self.own = torch.optim.SGD(self.head.parameters(), 0.1)

    def training_step(self, batch: Sequence[torch.Tensor], batch_idx: int) -> None:
        known = self.optimizers()
        known.zero_grad()
        self.manual_backward(self.loss(batch))
        known.step()
        if batch_idx % 3 == 0:
            self.own.zero_grad()
            self.manual_backward(self.head(batch[1]).square().mean())
            self.own.step()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), 0.1)


def recorder(path: Path, **options: Any) -> StepRecorder:
    """A recorder of what a resume repeats: Lightning does not restore random generators."""
    return StepRecorder(str(path), **{"rng": (), **options})


def train(
    *callbacks: pl.Callback,
    model: pl.LightningModule | None = None,
    resume: Path | None = None,
    **options: Any,
) -> pl.Trainer:
    """Two epochs, from a checkpoint if there is one."""
    trainer = make_trainer(callbacks, **options)
    trainer.fit(model or Small(), GoesOn(), ckpt_path=resume, weights_only=True)
    return trainer


def comparable(updates: Sequence[UpdateRecord]) -> list[UpdateRecord]:
    """Updates without what counts from the construction of an object: ticks of schedulers."""
    return [
        msgspec.structs.replace(
            one,
            scheduler=one.scheduler
            and [msgspec.structs.replace(state, ticks=0) for state in one.scheduler],
        )
        for one in updates
    ]


def fail_at(batch: int) -> Callable[[pl.LightningModule, int], None]:
    """For `Small(in_step=…)`: training raises in its batch number `batch`, counted from 0."""

    def step(model: pl.LightningModule, batch_idx: int) -> None:
        if model.trainer.current_epoch * BATCHES + batch_idx == batch:
            raise RuntimeError("the power went out")

    return step


def weights_of(trainer: pl.Trainer) -> dict[str, Any]:
    """Copies of parameters, buffers and optimizer state, and the counter of steps, by name."""
    module = trainer.lightning_module
    found: dict[str, Any] = {name: value.clone() for name, value in module.state_dict().items()}
    for number, optimizer in enumerate(trainer.optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                kept = value.clone() if isinstance(value, torch.Tensor) else value
                found[f"optimizer.{number}.{index}.{name}"] = kept
    return found | {"global_step": trainer.global_step}


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """Names of what is not equal bit for bit in both."""

    def same(one: Any, other: Any) -> bool:
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            return torch.equal(one, other)
        return bool(one == other)

    return sorted(
        n for n in a.keys() | b.keys() if n not in a or n not in b or not same(a[n], b[n])
    )

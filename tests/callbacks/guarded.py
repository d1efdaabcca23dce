"""A small Lightning training under a CadenceGuard, and what the guard found."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tests.callbacks.small import make_trainer
from traingen import CadenceGuard
from traingen.errors import CadenceWarning

RATE = 0.1

Configure = Callable[["Model", torch.optim.Optimizer], Any]  # what configure_optimizers returns


class Model(pl.LightningModule):
    """A linear model with SGD; `configure` gets the module and the optimizer."""

    def __init__(self, configure: Configure) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)
        self.configure = configure

    def loss(self, batch: Any) -> Tensor:
        value: Tensor = self.net(batch[0]).square().mean()
        return value

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return self.configure(self, torch.optim.SGD(self.parameters(), lr=RATE))


class Manual(Model):
    """The same with manual optimization; `after` runs after each update, `epoch_end` after all."""

    def __init__(
        self,
        configure: Configure,
        *,
        accumulate: int = 1,
        after: Callable[[Manual, bool], None] = lambda module, updated: None,
        epoch_end: Callable[[Manual], None] = lambda module: None,
    ) -> None:
        super().__init__(configure)
        self.automatic_optimization = False
        self.accumulate = accumulate
        self.after = after
        self.epoch_end = epoch_end

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(self.loss(batch))
        updated = (batch_idx + 1) % self.accumulate == 0
        if updated:
            optimizer.step()
            optimizer.zero_grad()
        self.after(self, updated)

    def on_train_epoch_end(self) -> None:
        self.epoch_end(self)


class Unsized(IterableDataset[tuple[Tensor, ...]]):
    """Data whose length nobody knows."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return iter([(row,) for row in torch.ones(6, 2).unbind()])


class Custom(LRScheduler):
    """Somebody's own schedule, which does not say how long it is."""

    def get_lr(self) -> list[Any]:
        return [base / (1 + self.last_epoch) for base in self.base_lrs]


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A training that is over."""

    trainer: pl.Trainer
    guard: CadenceGuard
    model: Model
    messages: list[str]  # of its CadenceWarnings

    @property
    def ids(self) -> list[str]:
        return [finding.id for finding in self.guard.findings]

    @property
    def errors(self) -> list[str]:
        return [finding.id for finding in self.guard.findings if finding.severity == "error"]

    def measured(self, id: str) -> str:
        """What was measured, of the only finding of this kind."""
        (finding,) = [finding for finding in self.guard.findings if finding.id == id]
        return finding.measured


def by_step(scheduler: Any, **more: Any) -> dict[str, Any]:
    """A scheduler's dictionary with interval step."""
    return {"scheduler": scheduler, "interval": "step", **more}


def loader(batches: int) -> DataLoader[Any]:
    """`batches` batches of two rows."""
    return DataLoader(TensorDataset(torch.ones(2 * batches, 2)), batch_size=2)


def train(
    model: Model | Configure,
    *,
    batches: int | DataLoader[Any] = 5,
    guard: CadenceGuard | None = None,
    callbacks: Iterable[pl.Callback] = (),
    validation: int = 0,
    ckpt_path: str | None = None,
    **options: Any,
) -> Guarded:
    """Train under a guard that warns, so that everything it finds comes to light."""
    model = model if isinstance(model, Model) else Model(model)
    guard = guard or CadenceGuard(on_violation="warn")
    trainer = make_trainer([guard, *callbacks], **options)
    data = loader(batches) if isinstance(batches, int) else batches
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(
            model,
            data,
            loader(validation) if validation else None,
            ckpt_path=ckpt_path,
            **({} if ckpt_path is None else {"weights_only": False}),
        )
    messages = [str(one.message) for one in caught if one.category is CadenceWarning]
    return Guarded(trainer=trainer, guard=guard, model=model, messages=messages)

"""Train TabNet the Lightning way: one training, and three ways to set up its optimizer."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR, StepLR
from torchmetrics.classification import MulticlassAccuracy

from examples.tabnet.network import TabNet

Batch = tuple[Tensor, Tensor]  # features, (batch, features) float32; classes, (batch,) int64


class TabNetBase(LightningModule):
    """TabNet with cross entropy and a reward for sparse masks; how it is optimized is left open.

    It trains as it is with the optimizer and scheduler that LightningCLI's command line names; the
    subclasses below bring their own.
    """

    def __init__(
        self,
        features: int = 64,
        classes: int = 10,
        decision_width: int = 8,
        attention_width: int = 8,
        steps: int = 3,
        gamma: float = 1.3,
        independent: int = 2,
        shared: int = 2,
        ghost_batch: int = 64,
        bn_momentum: float = 0.02,
        lambda_sparse: float = 1e-3,
    ) -> None:
        super().__init__()
        # The factories of `TabNetInjected` are code, not numbers for a logger or a checkpoint.
        self.save_hyperparameters(ignore=["optimizer", "lr_scheduler"])
        self.network = TabNet(
            features=features,
            classes=classes,
            decision_width=decision_width,
            attention_width=attention_width,
            steps=steps,
            gamma=gamma,
            independent=independent,
            shared=shared,
            ghost_batch=ghost_batch,
            bn_momentum=bn_momentum,
        )
        self.lambda_sparse = lambda_sparse
        self.val_accuracy = MulticlassAccuracy(num_classes=classes, average="micro")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and sparsity of `TabNet`."""
        logits, sparsity = self.network(x)
        return logits, sparsity

    def classification_loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy of the batch, without the sparsity term."""
        return cross_entropy(logits, target)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The scalar that the update differentiates."""
        x, target = batch
        logits, sparsity = self(x)
        reward = self.lambda_sparse * sparsity
        loss: Tensor = self.classification_loss(logits, target) - reward
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Count the correct rows; Lightning logs their share when the epoch ends."""
        x, target = batch
        logits, _ = self(x)
        self.val_accuracy(logits, target)
        self.log("val_accuracy", self.val_accuracy)


class TabNetModule(TabNetBase):
    """Adam under one learning rate cycle that peaks at `learning_rate`.

    `total_steps` is the length of the cycle in optimizer steps and `scheduler_interval` the
    moment it advances: "step", as the original does, or "epoch", the slip that we show.
    """

    def __init__(
        self,
        *,
        learning_rate: float = 2e-2,
        adam_eps: float = 1e-8,
        total_steps: int = 308,
        scheduler_interval: str = "step",
        **tabnet: Any,
    ) -> None:
        super().__init__(**tabnet)
        self.learning_rate = learning_rate
        self.adam_eps = adam_eps
        self.total_steps = total_steps
        self.scheduler_interval = scheduler_interval

    def configure_optimizers(self) -> Any:
        """The cycle advances at every update because `interval` says so: the default is "epoch"."""
        optimizer = torch.optim.Adam(self.parameters(), lr=self.learning_rate, eps=self.adam_eps)
        scheduler = OneCycleLR(optimizer, max_lr=self.learning_rate, total_steps=self.total_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": self.scheduler_interval,
                "frequency": 1,
            },
        }


class TabNetHalving(TabNetBase):
    """Adam at a rate that is halved every `halve_every` epochs, if the original would do so.

    The original's scheduler callback waits for the result of an evaluation at the end of the epoch.
    Where nothing is evaluated it waits in vain, and the rate never moves
    (`pytorch_tabnet.callbacks.LRSchedulerCallback.on_epoch_end`, 4.1.0). Who reproduces the
    original's training reproduces that; `only_if_evaluated=False` mends it, the slip that we show.
    """

    def __init__(
        self,
        *,
        learning_rate: float = 2e-2,
        adam_eps: float = 1e-8,
        halve_every: int = 2,
        only_if_evaluated: bool = True,
        **tabnet: Any,
    ) -> None:
        super().__init__(**tabnet)
        self.learning_rate = learning_rate
        self.adam_eps = adam_eps
        self.halve_every = halve_every
        self.only_if_evaluated = only_if_evaluated

    def configure_optimizers(self) -> Any:
        """A schedule in epochs, with the original's condition in Lightning's own words.

        Lightning ticks an epoch's schedulers before the validation, except for those that wait for
        a metric: they tick after it, which is the original's moment, and with `strict: False` not
        at all (but with a warning) where the metric is missing.
        """
        optimizer = torch.optim.Adam(self.parameters(), lr=self.learning_rate, eps=self.adam_eps)
        scheduler = StepLR(optimizer, step_size=self.halve_every, gamma=0.5)
        waits = {"reduce_on_plateau": True, "monitor": "val_accuracy", "strict": False}
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": scheduler,
                "interval": "epoch",
                "frequency": 1,
                **(waits if self.only_if_evaluated else {}),
            },
        }

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Tick without the metric: it decides whether the rate moves, not where to.

        Lightning would call `scheduler.step(metric)`, and a `StepLR` takes that for an epoch.
        """
        scheduler.step()


class TabNetInjected(TabNetBase):
    """Optimizer and scheduler come from outside: in YAML under `model.init_args`.

    The scheduler ticks at every update.
    """

    def __init__(
        self, *, optimizer: OptimizerCallable, lr_scheduler: LRSchedulerCallable, **tabnet: Any
    ) -> None:
        super().__init__(**tabnet)
        self.make_optimizer = optimizer
        self.make_lr_scheduler = lr_scheduler

    def configure_optimizers(self) -> Any:
        """Call both factories; the interval is said here, because no factory can say it."""
        optimizer = self.make_optimizer(self.parameters())
        scheduler = self.make_lr_scheduler(optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

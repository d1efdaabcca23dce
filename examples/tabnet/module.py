"""Train TabNet the Lightning way."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR
from torchmetrics.classification import MulticlassAccuracy

from examples.tabnet.network import TabNet

Batch = tuple[Tensor, Tensor]  # features, (batch, features) float32; classes, (batch,) int64


class TabNetModule(LightningModule):
    """TabNet with cross entropy, a reward for sparse masks, Adam and one learning rate cycle.

    `total_steps` is the length of the cycle in optimizer steps and `scheduler_interval` the
    moment it advances: "step", as the original does, or "epoch", the slip that we show.
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
        learning_rate: float = 2e-2,
        adam_eps: float = 1e-8,
        total_steps: int = 308,
        scheduler_interval: str = "step",
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
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
        self.learning_rate = learning_rate
        self.adam_eps = adam_eps
        self.total_steps = total_steps
        self.scheduler_interval = scheduler_interval
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

    def configure_optimizers(self) -> Any:
        """Adam under one learning rate cycle that peaks at `learning_rate`."""
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

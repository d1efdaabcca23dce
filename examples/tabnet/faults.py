"""Break our fit on purpose, one known fault at a time."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor


class ExtraDraw(Callback):
    """Draw one number too many per step.

    Used by the broken twin that shows what an extra draw looks like: nothing differs in the
    step itself, only the generator, and with it whatever is drawn next.
    """

    def on_before_backward(
        self, trainer: Trainer, pl_module: LightningModule, loss: Tensor
    ) -> None:
        """Advance torch's global generator and discard the number."""
        torch.rand(1)

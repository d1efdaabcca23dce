"""Notice that a module is about to clip its gradients in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch

from traingen.observe.hooking import Remove, overlay


def watch_own_clip(
    trainer: pl.Trainer,
    pl_module: pl.LightningModule,
    entered: Callable[[torch.optim.Optimizer], None],
) -> Remove:
    """Tell `entered` of each optimizer before the module's `configure_gradient_clipping`.

    Only of one that the module defines itself: it may clip by hand, which nothing else can hear.
    Lightning calls it from its precision plugin (`Precision._clip_gradients`), after the module's
    `on_before_optimizer_step`, and in automatic optimization only.
    """
    base = pl.LightningModule.configure_gradient_clipping
    own = getattr(type(pl_module), "configure_gradient_clipping", base)
    if not pl_module.automatic_optimization or own.__module__ == base.__module__:
        return lambda: None

    def watch(clip: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(model: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            entered(optimizer)
            return clip(model, optimizer, *args, **kwargs)

        return wrapper

    return overlay(trainer.precision_plugin, "_clip_gradients", watch)

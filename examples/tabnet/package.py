"""Assemble our fit on the digits: the module, its data and the Trainer that runs them."""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger

from examples.tabnet.data import DigitsData, updates_per_epoch
from examples.tabnet.module import TabNetModule
from traingen.lockstep import FitCall


def digits_fit(
    *,
    max_epochs: int = 28,
    gradient_clip_val: float | None = 1.0,
    callbacks: Sequence[Callback] | None = None,
    logger: Logger | bool = False,
    **model_args: Any,
) -> FitCall:
    """What to call `trainer.fit` with; nothing runs yet.

    `model_args` go to `TabNetModule`; unless they say so, its learning rate cycle lasts
    `max_epochs`.
    """
    data = DigitsData()
    total_steps = max_epochs * updates_per_epoch(data.batch_size)
    model = TabNetModule(**{"total_steps": total_steps, **model_args})
    trainer = Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        devices=1,
        **clipping(gradient_clip_val),
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        logger=logger,
        callbacks=list(callbacks or []),
    )
    return FitCall(trainer=trainer, model=model, datamodule=data)


def clipping(gradient_clip_val: float | None) -> dict[str, Any]:
    """Trainer arguments that clip by total norm, or none at all."""
    if gradient_clip_val is None:
        return {}
    return {"gradient_clip_val": gradient_clip_val, "gradient_clip_algorithm": "norm"}

"""Assemble our fit on the digits: the module, its data and the Trainer that runs them."""

from collections.abc import Sequence
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger

from examples.tabnet.data import DigitsData, updates_per_epoch
from examples.tabnet.module import TabNetHalving, TabNetModule
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
    trainer = make_trainer(
        max_epochs=max_epochs,
        **clipping(gradient_clip_val),
        logger=logger,
        callbacks=list(callbacks or []),
    )
    return FitCall(trainer=trainer, model=model, datamodule=data)


def digits_halving_fit(
    *,
    max_epochs: int = 6,
    gradient_clip_val: float | None = 1.0,
    evaluate: bool = False,
    **model_args: Any,
) -> FitCall:
    """The same at a rate that is halved every few epochs; without `evaluate`, no validation.

    `model_args` go to `TabNetHalving`.
    """
    trainer = make_trainer(
        max_epochs=max_epochs,
        **clipping(gradient_clip_val),
        limit_val_batches=1.0 if evaluate else 0,
        logger=False,
    )
    return FitCall(trainer=trainer, model=TabNetHalving(**model_args), datamodule=DigitsData())


def make_trainer(**trainer_args: Any) -> Trainer:
    """A quiet Trainer on one CPU that logs every update and writes no checkpoint."""
    return Trainer(
        accelerator="cpu",
        devices=1,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        **trainer_args,
    )


def clipping(gradient_clip_val: float | None) -> dict[str, Any]:
    """Trainer arguments that clip by total norm, or none at all."""
    if gradient_clip_val is None:
        return {}
    return {"gradient_clip_val": gradient_clip_val, "gradient_clip_algorithm": "norm"}

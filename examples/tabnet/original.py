"""Run pytorch-tabnet's own, unmodified fit on the digits."""

import warnings
from typing import Any

import torch

from examples.tabnet.data import load_digits_split, updates_per_epoch


def fit_original(
    *,
    max_epochs: int = 28,
    batch_size: int = 128,
    virtual_batch_size: int = 64,
    clip_value: float | None = 1.0,
    lambda_sparse: float = 1e-3,
    learning_rate: float = 2e-2,
    momentum: float = 0.02,
    adam_eps: float = 1e-8,
    seed: int = 0,
) -> Any:
    """The fitted `TabNetClassifier`, after `max_epochs` epochs of one learning rate cycle.

    Every call is a run of its own. The classifier seeds torch's global generator with `seed`.
    """
    # Imported here so that the rest of the example works without pytorch-tabnet.
    from pytorch_tabnet.tab_model import TabNetClassifier

    train_x, train_y, valid_x, valid_y = load_digits_split()
    # All dicts are built anew: the classifier pops entries of `scheduler_params`.
    classifier = TabNetClassifier(
        clip_value=clip_value,
        lambda_sparse=lambda_sparse,
        momentum=momentum,
        seed=seed,
        optimizer_fn=torch.optim.Adam,
        optimizer_params={"lr": learning_rate, "eps": adam_eps},
        scheduler_fn=torch.optim.lr_scheduler.OneCycleLR,
        scheduler_params={
            "max_lr": learning_rate,
            "total_steps": max_epochs * updates_per_epoch(batch_size),
            "is_batch_level": True,
        },
        verbose=0,
        device_name="cpu",
    )
    with warnings.catch_warnings():
        # Said of every fit with patience 0, which is what we want.
        warnings.filterwarnings("ignore", message="No early stopping will be performed")
        classifier.fit(
            train_x,
            train_y,
            eval_set=[(valid_x, valid_y)],
            eval_metric=["accuracy"],
            max_epochs=max_epochs,
            patience=0,
            batch_size=batch_size,
            virtual_batch_size=virtual_batch_size,
            drop_last=True,
            compute_importance=False,
        )
    return classifier

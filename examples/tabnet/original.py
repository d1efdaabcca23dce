"""Run pytorch-tabnet's own, unmodified fit on the digits."""

import warnings
from typing import Any

import torch
from torch.optim.lr_scheduler import OneCycleLR, StepLR

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
    halve_every: int | None = None,
    evaluate: bool = True,
) -> Any:
    """The fitted `TabNetClassifier`, after `max_epochs` epochs of one learning rate cycle.

    With `halve_every` the rate is to be halved every so many epochs instead. Without `evaluate` the
    fit gets no evaluation set; its rate is then never halved, and no word is said about it.

    Every call is a run of its own. The classifier seeds torch's global generator with `seed`.
    """
    # Imported here so that the rest of the example works without pytorch-tabnet.
    from pytorch_tabnet.tab_model import TabNetClassifier

    updates = max_epochs * updates_per_epoch(batch_size)
    cycle = one_cycle(learning_rate, updates)
    classifier = TabNetClassifier(
        clip_value=clip_value,
        lambda_sparse=lambda_sparse,
        momentum=momentum,
        seed=seed,
        optimizer_fn=torch.optim.Adam,
        optimizer_params={"lr": learning_rate, "eps": adam_eps},
        **(cycle if halve_every is None else halving(halve_every)),
        verbose=0,
        device_name="cpu",
    )
    _fit_digits(
        classifier,
        evaluate=evaluate,
        max_epochs=max_epochs,
        batch_size=batch_size,
        virtual_batch_size=virtual_batch_size,
    )
    return classifier


def one_cycle(learning_rate: float, updates: int) -> dict[str, Any]:
    """Classifier arguments for one cycle that peaks at `learning_rate`, a tick per batch.

    Built anew for each classifier, which pops `is_batch_level`.
    """
    params = {"max_lr": learning_rate, "total_steps": updates, "is_batch_level": True}
    return {"scheduler_fn": OneCycleLR, "scheduler_params": params}


def halving(epochs: int) -> dict[str, Any]:
    """Classifier arguments that are to halve the rate every `epochs` epochs."""
    params = {"step_size": epochs, "gamma": 0.5, "is_batch_level": False}
    return {"scheduler_fn": StepLR, "scheduler_params": params}


def _fit_digits(classifier: Any, *, evaluate: bool, **fit_args: Any) -> None:
    """Call the classifier's own fit; with `evaluate` it gets the validation rows too."""
    train_x, train_y, valid_x, valid_y = load_digits_split()
    with warnings.catch_warnings():
        # Said of every fit with patience 0, which is what we want.
        warnings.filterwarnings("ignore", message="No early stopping will be performed")
        classifier.fit(
            train_x,
            train_y,
            eval_set=[(valid_x, valid_y)] if evaluate else None,
            eval_metric=["accuracy"],
            patience=0,
            drop_last=True,
            compute_importance=False,
            **fit_args,
        )

"""One training, three ways to set up its optimizer: what the modules share and where they part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch.optim import SGD
from torch.optim.lr_scheduler import OneCycleLR, StepLR

from examples.tabnet.module import TabNetBase, TabNetHalving, TabNetInjected, TabNetModule

SHAPE = {"features", "classes", "decision_width", "attention_width", "steps", "gamma"}
SHAPE |= {"independent", "shared", "ghost_batch", "bn_momentum", "lambda_sparse"}


def make_sgd(parameters: Any) -> SGD:
    return SGD(parameters, lr=0.5)


def make_step_lr(optimizer: torch.optim.Optimizer) -> StepLR:
    return StepLR(optimizer, step_size=1)


def make_injected() -> TabNetInjected:
    return TabNetInjected(optimizer=make_sgd, lr_scheduler=make_step_lr, steps=1)


def test_the_base_leaves_its_optimizer_to_the_command_line() -> None:
    assert TabNetBase.configure_optimizers is LightningModule.configure_optimizers
    assert TabNetModule.configure_optimizers is not LightningModule.configure_optimizers


@pytest.mark.parametrize("kind", [TabNetModule, TabNetHalving])
def test_every_argument_is_a_hyper_parameter(kind: type[TabNetBase]) -> None:
    module = kind(learning_rate=0.1, steps=1)

    assert module.hparams.keys() >= {*SHAPE, "learning_rate", "adam_eps"}
    assert (module.hparams["learning_rate"], module.hparams["steps"]) == (0.1, 1)


def test_factories_are_no_hyper_parameters() -> None:
    assert make_injected().hparams.keys() == SHAPE


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="depth"):
        TabNetModule(depth=3)


def test_injected_factories_are_called_and_tick_at_every_update() -> None:
    module = make_injected()

    found = module.configure_optimizers()

    assert isinstance(found["optimizer"], SGD)
    assert len(found["optimizer"].param_groups[0]["params"]) == len(list(module.parameters()))
    assert found["lr_scheduler"]["scheduler"].optimizer is found["optimizer"]
    assert found["lr_scheduler"]["interval"] == "step"


def test_the_cycle_ticks_at_every_update_unless_told_otherwise() -> None:
    right, slip = TabNetModule(steps=1), TabNetModule(steps=1, scheduler_interval="epoch")

    config = right.configure_optimizers()["lr_scheduler"]

    assert isinstance(config["scheduler"], OneCycleLR)
    assert config["interval"] == "step"
    assert slip.configure_optimizers()["lr_scheduler"]["interval"] == "epoch"


def test_halving_waits_for_an_evaluation_unless_it_is_mended() -> None:
    faithful, mended = TabNetHalving(steps=1), TabNetHalving(steps=1, only_if_evaluated=False)

    config = faithful.configure_optimizers()["lr_scheduler"]

    assert (config["interval"], config["monitor"], config["strict"]) == (
        "epoch",
        "val_accuracy",
        False,
    )
    assert "monitor" not in mended.configure_optimizers()["lr_scheduler"]


def test_halving_takes_the_metric_for_a_signal_and_not_for_an_epoch() -> None:
    module = TabNetHalving(steps=1, halve_every=1, learning_rate=1.0)
    scheduler = module.configure_optimizers()["lr_scheduler"]["scheduler"]
    scheduler.optimizer.step()

    module.lr_scheduler_step(scheduler, torch.tensor(0.9))

    assert scheduler.last_epoch == 1
    assert scheduler.get_last_lr() == [0.5]

"""Training with the guard and without it ends in the same bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import seed_everything
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from tests import first_law
from tests.callbacks.guarded import Manual, Model, by_step, loader
from tests.callbacks.small import make_trainer
from traingen import CadenceGuard

pytestmark = pytest.mark.filterwarnings(
    "ignore:You defined a `validation_step` but have no",
    "ignore::traingen.errors.CadenceWarning",
)


@pytest.mark.parametrize("expected", ["auto", "step", {"0": "epoch"}])
def test_the_guard_changes_no_bit_of_a_whole_training(expected):
    guard = CadenceGuard(expected=expected, on_violation="warn")
    first_law.assert_same_training(first_law.trained_without(), first_law.train([guard]))


def drawing(ticks: int) -> float:
    """A schedule that draws: it must be called exactly as often as without the guard."""
    return 1.0 + float(torch.rand(()))


def counting() -> Callable[[int], float]:
    calls: list[int] = []

    def factor(ticks: int) -> float:
        calls.append(ticks)
        return 1.0 / len(calls)

    return factor


CONFIGURATIONS = {
    "cosine": lambda m, o: [by_step(CosineAnnealingLR(o, 10))],
    "one cycle": lambda m, o: [by_step(OneCycleLR(o, 0.1, total_steps=10))],
    "one cycle by epoch": lambda m, o: [OneCycleLR(o, 0.1, total_steps=10)],
    "drawing": lambda m, o: [by_step(LambdaLR(o, drawing))],
    "counting": lambda m, o: [by_step(LambdaLR(o, counting()))],
    "sequential": lambda m, o: [
        by_step(
            SequentialLR(o, [LinearLR(o, total_iters=3), CosineAnnealingLR(o, 7)], milestones=[3])
        )
    ],
    "chained": lambda m, o: [
        by_step(ChainedScheduler([LinearLR(o, total_iters=3), ExponentialLR(o, 0.9)], optimizer=o))
    ],
    "plateau": lambda m, o: [
        {"scheduler": ReduceLROnPlateau(o, patience=0), "monitor": "val_loss"}
    ],
}


def end_of(model: Model, callbacks: list[Any], *, validation: bool) -> dict[str, Any]:
    """Everything the training ends with, copied."""
    seed_everything(1, verbose=False)
    trainer = make_trainer(callbacks)
    trainer.fit(model, loader(5), loader(1) if validation else None)
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return copy.deepcopy(
        {
            "model": model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
            "schedulers": [
                {k: v for k, v in vars(one).items() if k != "optimizer" and not callable(v)}
                for one in schedulers
                if not hasattr(one, "_schedulers")
            ],
            "rates": [group["lr"] for one in trainer.optimizers for group in one.param_groups],
            "torch": torch.get_rng_state(),
        }
    )


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, in nested containers."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (callable(a) or bool(a == b))


def run(name: str, callbacks: list[Any]) -> dict[str, Any]:
    torch.manual_seed(2)
    model = Model(lambda m, o: ([o], CONFIGURATIONS[name](m, o)))
    return end_of(model, callbacks, validation=name == "plateau")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_schedule_notices_the_guard(name):
    assert same(run(name, []), run(name, [CadenceGuard(on_violation="warn")]))


def test_manual_optimization_does_not_notice_the_guard():
    def manual(callbacks: list[Any]) -> dict[str, Any]:
        torch.manual_seed(2)
        model = Manual(
            lambda m, o: ([o], [by_step(LambdaLR(o, drawing))]),
            after=lambda m, updated: m.lr_schedulers().step(),
        )
        return end_of(model, callbacks, validation=False)

    assert same(manual([]), manual([CadenceGuard(expected="step")]))


def test_a_schedule_called_once_more_would_be_noticed():
    class Meddles(CadenceGuard):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            drawing(0)

    assert not same(run("drawing", []), run("drawing", [Meddles()]))

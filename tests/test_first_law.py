"""The guard of the first law is silent on equal trainings and raises on broken ones."""

import functools
import random

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from tests import first_law
from tests.first_law import trained_without


def test_training_repeats_bit_for_bit():
    first_law.assert_same_training(trained_without(), first_law.train([]))


class Disturb(pl.Callback):
    """Break the first law once, in the first update."""

    def __init__(self, how: str) -> None:
        self.how = how

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.how == "torch":
            torch.rand(1)
        elif self.how == "numpy":
            np.random.rand()
        elif self.how == "python":
            random.random()

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if self.how == "gradient" and trainer.global_step == 0:
            for p in pl_module.parameters():
                p.grad.copy_(torch.nextafter(p.grad, torch.tensor(torch.inf)))


@functools.cache
def disturbed(how: str) -> set[str]:
    """The names the first law finds different, without what follows the first dot."""
    names = first_law.differing_names(trained_without(), first_law.train([Disturb(how)]))
    return {name if name.startswith(("rng", "data")) else name.split(".")[0] for name in names}


@pytest.mark.parametrize("how", ["torch", "gradient", "numpy", "python"])
def test_a_callback_that_breaks_the_first_law_is_caught(how):
    with pytest.raises(AssertionError, match=r"^\d+ of \d+ differ: "):
        first_law.assert_same_training(trained_without(), first_law.train([Disturb(how)]))


@pytest.mark.parametrize("stream", ["numpy", "python"])
def test_a_draw_the_model_never_feels_is_caught_by_its_stream_alone(stream):
    assert disturbed(stream) == {f"rng.{stream}"}


def test_a_draw_from_torch_is_caught_in_stream_weights_and_data():
    assert {"rng.torch", "parameters", "buffers", "optimizer", "data.order"} < disturbed("torch")
    # Workers of the first epoch were seeded before the draw, those of the second after it.
    assert "data.augmented.0" not in disturbed("torch")
    assert "data.augmented.5" in disturbed("torch")
    assert not {"rng.numpy", "rng.python", "scheduler", "counters"} & disturbed("torch")


def test_a_gradient_moved_by_one_ulp_is_caught_in_weights_and_never_in_data():
    assert {"parameters", "optimizer"} <= disturbed("gradient")
    assert not {n for n in disturbed("gradient") if n.startswith(("rng", "data", "scheduler"))}


@pytest.mark.parametrize(
    ("a", "b"), [({"x": 0.0}, {"x": -0.0}), ({"x": 1}, {}), ({"x": torch.zeros(1)}, {"x": 0.0})]
)
def test_equal_is_bit_for_bit_and_complete(a, b):
    first_law.assert_same_training(a, dict(a))
    with pytest.raises(AssertionError, match="1 of 1 differ: x"):
        first_law.assert_same_training(a, b)

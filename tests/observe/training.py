"""Small plain-torch trainings that have everything a careless listener could disturb."""

import hashlib
import math
import random
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from traingen.observe.events import Listener
from traingen.observe.listening import listening

SAMPLES, BATCH, EPOCHS = 12, 4, 2
UPDATES = EPOCHS * SAMPLES // BATCH


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs).squeeze(1)


Ended = dict[str, Any]  # what a training ended in, by name


def train(
    listeners: Iterable[Listener] = (), *, loop: Callable[[], Ended] | None = None
) -> dict[str, str]:
    """Train from a fixed seed while `listeners` listen; return digests of all it ended in.

    Without a `loop` of its own: dropout, BatchNorm, clipping, a scheduler ticked per update, a
    shuffled loader, a validation.
    """
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    with ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listening(listener))
        ended = (loop or _plain_loop)()
    generators = {
        "rng.python": random.getstate(),
        "rng.numpy": np.random.get_state(),
        "rng.torch": torch.get_rng_state(),
    }
    return {name: _digest(value) for name, value in (ended | generators).items()}


def make_training() -> tuple[Model, DataLoader[Any]]:
    data = TensorDataset(torch.arange(SAMPLES), torch.randn(SAMPLES, 4))
    return Model(), DataLoader(data, batch_size=BATCH, shuffle=True)


def loss_of(model: Model, inputs: torch.Tensor) -> torch.Tensor:
    return (model(inputs) - inputs.sum(1)).square().mean()


def _plain_loop() -> Ended:
    model, loader = make_training()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=UPDATES + 1)
    order: list[int] = []
    for _ in range(EPOCHS):
        model.train()
        for index, inputs in loader:
            order += index.tolist()
            optimizer.zero_grad()
            loss_of(model, inputs).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
        _validate(model, loader)
    return _state(model) | {
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "order": order,
    }


def loop_with_everything() -> Ended:
    """Also AMP with a step that is left out, a second optimizer with a closure, two roots at once.

    The body steps under a scaler, all but once; the last layer steps by LBFGS, every second batch.
    """
    model, loader = make_training()
    body, head = model.layers[:-1], model.layers[-1]
    first = torch.optim.AdamW(body.parameters(), lr=0.01)
    second = torch.optim.LBFGS(head.parameters(), lr=0.05, max_iter=3)
    scheduler = torch.optim.lr_scheduler.StepLR(first, 2, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    order: list[int] = []
    for epoch in range(EPOCHS):
        model.train()
        for number, (index, inputs) in enumerate(loader):
            order += index.tolist()
            first.zero_grad()
            bad = (epoch, number) == (0, 1)
            losses = [loss_of(model, inputs) * (math.inf if bad else 1.0), body(inputs).mean()]
            torch.autograd.backward(scaler.scale(losses))
            scaler.unscale_(first)
            nn.utils.clip_grad_norm_(body.parameters(), 0.5)
            nn.utils.clip_grad_value_(body.parameters(), 0.1)
            scaler.step(first)
            scaler.update()
            if number % 2:

                def closure(inputs: torch.Tensor = inputs) -> torch.Tensor:
                    model.zero_grad(set_to_none=False)
                    loss = loss_of(model, inputs)
                    loss.backward()
                    return loss

                second.step(closure)
            scheduler.step()
        _validate(model, loader)
    return _state(model) | {
        "first": first.state_dict(),
        "second": second.state_dict(),
        "scaler": scaler.state_dict(),
        "scheduler": scheduler.state_dict(),
        "order": order,
    }


def _validate(model: Model, loader: DataLoader[Any]) -> None:
    model.eval()
    with torch.no_grad():
        model(loader.dataset.tensors[1])


def _state(model: Model) -> Ended:
    return {
        **{f"model.{name}": value for name, value in model.state_dict().items()},
        **{f"gradient.{name}": p.grad for name, p in model.named_parameters()},
    }


def _digest(value: Any) -> str:
    """SHA-256 of all bits of `value`, tensors and arrays included."""
    digest = hashlib.sha256()
    _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor | np.ndarray):
        digest.update(f"{value.dtype} {tuple(value.shape)} {np.asarray(value).tobytes()}".encode())
    elif isinstance(value, dict):
        for key in value:
            digest.update(f"{key}:".encode())
            _update(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _update(digest, item)
            digest.update(b",")
    else:
        digest.update(repr(value).encode())

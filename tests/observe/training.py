"""A small plain-torch training that has everything a careless listener could disturb."""

import hashlib
import random
from collections.abc import Iterable
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


def train(listeners: Iterable[Listener] = ()) -> dict[str, str]:
    """Train from a fixed seed while `listeners` listen; return digests of all it ended in.

    Dropout, BatchNorm, clipping, a scheduler ticked per update, a shuffled loader, a validation.
    """
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    with ExitStack() as stack:
        for listener in listeners:
            stack.enter_context(listening(listener))
        return _train()


def _train() -> dict[str, str]:
    data = TensorDataset(torch.arange(SAMPLES), torch.randn(SAMPLES, 4))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=UPDATES + 1)
    order: list[int] = []
    for _ in range(EPOCHS):
        model.train()
        for index, inputs in loader:
            order += index.tolist()
            optimizer.zero_grad()
            loss = (model(inputs) - inputs.sum(1)).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            model(data.tensors[1])
    return {
        **{f"model.{name}": _digest(value) for name, value in model.state_dict().items()},
        **{f"gradient.{name}": _digest(p.grad) for name, p in model.named_parameters()},
        "optimizer": _digest(optimizer.state_dict()),
        "scheduler": _digest(scheduler.state_dict()),
        "order": _digest(order),
        "rng.python": _digest(random.getstate()),
        "rng.numpy": _digest(np.random.get_state()),
        "rng.torch": _digest(torch.get_rng_state()),
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

"""The tensors of a system that stands still, by name: parameters, gradients, state, buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """Views of a parked system; the tensors are its own, so they are read and never kept."""

    parameters: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]  # as the optimizer used them; absent where `grad` is None
    buffers: dict[str, torch.Tensor]
    optimizer_state: dict[str, dict[str, Any]]  # parameter name -> state of that parameter
    clip_coefficient: float | None  # the gradients were multiplied by it; None: not by one factor


def read_live_state(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    clip_coefficient: float | None,
) -> LiveState:
    """Collect the tensors of `module` and `optimizer` without copying them.

    A tensor that is registered under several names is listed once, under its first.
    """
    parameters = dict(module.named_parameters())
    return LiveState(
        parameters={name: p.detach() for name, p in parameters.items()},
        gradients={name: p.grad for name, p in parameters.items() if p.grad is not None},
        buffers=dict(module.named_buffers()),
        optimizer_state={
            name: dict(optimizer.state[p]) for name, p in parameters.items() if p in optimizer.state
        },
        clip_coefficient=clip_coefficient,
    )

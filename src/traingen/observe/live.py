"""The tensors of a system that stands still, by name: parameters, gradients, state, buffers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from traingen.observe.optimizers import hyper_parameters_of, rates_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """Views of a parked system; the tensors are its own, so they are read and never kept."""

    parameters: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]  # as the optimizer used them; absent where `grad` is None
    buffers: dict[str, torch.Tensor]
    optimizer_state: dict[str, dict[str, Any]]  # parameter name -> state of that parameter
    clip_coefficient: float | None  # the gradients were multiplied by it; None: not by one factor
    clip_limit: float | None = None  # max_norm of the clip that did it; None: there was not one
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # parameter -> its group's


def read_live_state(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    clip_coefficient: float | None,
    clip_limit: float | None = None,
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
        clip_limit=clip_limit,
        options=_read_options(parameters, optimizer),
    )


def _read_options(
    parameters: dict[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> dict[str, dict[str, Any]]:
    """Rate and hyper-parameters of each parameter that the optimizer holds, one dict per group."""
    rates, hyper_parameters = rates_of(optimizer), hyper_parameters_of(optimizer)
    held: dict[int, dict[str, Any]] = {}
    for group, rate, options in zip(optimizer.param_groups, rates, hyper_parameters, strict=True):
        held |= dict.fromkeys(map(id, group["params"]), {"lr": rate} | options)
    return {name: held[id(p)] for name, p in parameters.items() if id(p) in held}

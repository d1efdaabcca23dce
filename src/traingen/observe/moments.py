"""How large an optimizer's state is and how far an update moved the parameters, as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch

from traingen.observe.digests import digest_batch
from traingen.observe.norms import is_sharded, local_part, measure_norm, norm_by_name, subtract

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def moment_norms(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """The norm over all parameters of each kind of state: `exp_avg`, `momentum_buffer`, ….

    Counters and scalars (`step`, NAdam's `mu_product`), integers, what is no plain tensor and what
    is sharded are left out. Names are sorted; empty before the first update.
    """
    states = [(p, state) for p, state in optimizer.state.items() if isinstance(p, torch.Tensor)]
    scalars = {"step"} | {
        name
        for parameter, state in states
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and value.ndim == 0 < parameter.ndim
    }
    by_name: dict[str, list[torch.Tensor]] = {}
    for _, state in states:
        for name, value in state.items():
            if name not in scalars and _is_measured(value):
                by_name.setdefault(name, []).append(value)
    return {
        name: measure_norm(by_name[name])
        for name in sorted(by_name)
        if not is_sharded(by_name[name])
    }


def update_ratios(
    before: Sequence[torch.Tensor], named: Mapping[str, torch.Tensor]
) -> dict[str, float]:
    """Norm of the change of each parameter, divided by its norm before.

    `before` holds copies in the order of `named`, taken before the update; parameters that were
    added behind them since then and those that are sharded are left out. One that was zero has an
    infinite ratio if it moved, and 0.0 if not.
    """
    pairs = {
        name: (parameter, old)
        for (name, parameter), old in zip(named.items(), before, strict=False)
        if not is_sharded([parameter])
    }
    now = [local_part(parameter) for parameter, _ in pairs.values()]
    then = [local_part(old) for _, old in pairs.values()]
    moved = norm_by_name(dict(zip(pairs, subtract(now, then), strict=True)))
    stood = norm_by_name(dict(zip(pairs, then, strict=True)))
    return {name: _ratio(moved[name], stood[name]) for name in pairs}


def digest_parameters(tensors: Iterable[torch.Tensor]) -> str:
    """SHA-256, hex, of dtypes, shapes and bytes in the given order; of shards, of this rank's own.

    Read on the CPU: on an accelerator this waits for the device.
    """
    return digest_batch([local_part(tensor) for tensor in tensors])


def _ratio(moved: float, stood: float) -> float:
    if stood == 0.0:
        return moved * math.inf if moved else 0.0  # NaN stays NaN
    return moved / stood


def _is_measured(value: object) -> bool:
    """Whether `value` holds numbers to take a norm of: a plain tensor or a DTensor of floats."""
    if not isinstance(value, torch.Tensor):
        return False
    plain = type(local_part(value)) in _PLAIN
    return plain and (value.is_floating_point() or value.is_complex())

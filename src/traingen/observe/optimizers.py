"""What an optimizer is and the hyper-parameters it uses, as recorded values."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parameter import is_lazy

from traingen.records import OptimizerIdentity

# Written into the groups by schedulers for their own use; no optimizer reads them.
_BOOKKEEPING = {
    "params", "lr", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum",
    "param_names", "swa_lr",
}  # fmt: skip

LARGEST = 16  # elements of a tensor among the options that is written out


def class_path(value: object) -> str:
    """The dotted path of the class of `value`."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def identify_optimizer(optimizer: torch.optim.Optimizer, *, index: int) -> OptimizerIdentity:
    """Name the optimizer by class and size."""
    return OptimizerIdentity(
        index=index,
        class_path=class_path(optimizer),
        groups=len(optimizer.param_groups),
        parameters=sum(p.numel() for p in parameters_of(optimizer) if not is_lazy(p)),
    )


def rewrites_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Whether torch's own step may leave something else in `p.grad` than it was given.

    SGD with Nesterov's momentum does, where it takes many parameters at a time.
    """
    return isinstance(optimizer, torch.optim.SGD) and any(
        group.get("nesterov")
        and not group.get("weight_decay")
        and not group.get("fused")
        and group.get("foreach") is not False
        for group in optimizer.param_groups
    )


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The optimizer's own parameters, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """The rate of each parameter group now."""
    return [float(group["lr"]) for group in optimizer.param_groups]


def hyper_parameters_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Every other option of each group: betas, eps, weight decay …; tensors as numbers."""
    return [
        {key: _plain(group[key]) for key in sorted(group) if key not in _BOOKKEEPING}
        for group in optimizer.param_groups
    ]


def _plain(value: Any) -> Any:
    """`value` as JSON, the same in every run: no address, no order of a set."""
    if isinstance(value, torch.Tensor):
        return value.tolist() if value.numel() <= LARGEST else f"tensor {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=repr)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return class_path(value) if " at 0x" in text else text

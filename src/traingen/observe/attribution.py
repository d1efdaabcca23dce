"""Tell which gradients a backward has changed, without a hook in autograd."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

Signature = list[tuple[torch.Tensor | None, int]]


def sign_gradients(parameters: Sequence[torch.Tensor]) -> Signature:
    """What tells whether a gradient is still the same: the tensor itself and its version.

    The tensors are held, so that a new one cannot have the address of one that is gone.
    """
    return [(gradient, _version(gradient)) for gradient in _gradients(parameters)]


def have_changed(before: Signature, parameters: Sequence[torch.Tensor]) -> bool:
    """Whether any gradient is new or was changed in place since `before`."""
    present = _gradients(parameters)
    return len(present) != len(before) or any(
        now is not gradient or _version(now) != version
        for now, (gradient, version) in zip(present, before, strict=True)
    )


def were_replaced(before: Signature, parameters: Sequence[torch.Tensor]) -> bool:
    """Whether another tensor has taken the place of any gradient since `before`.

    What the new one was made of cannot be known.
    """
    signed = {id(gradient) for gradient, _ in before if gradient is not None}
    return any(p.grad is not None and id(p.grad) not in signed for p in parameters)


def are_absent(signature: Signature) -> bool:
    """Whether there was no gradient at all."""
    return all(gradient is None for gradient, _ in signature)


def _gradients(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """The gradient of each parameter, and what is yet to become it."""
    return [*(p.grad for p in parameters), *_held_back(parameters)]


def _held_back(parameters: Sequence[torch.Tensor]) -> Iterator[torch.Tensor | None]:
    """Gradients that FSDP keeps to itself until a backward that synchronizes ranks.

    After `set_requires_gradient_sync(False)` a backward leaves `p.grad` of a sharded parameter
    alone: its gradient waits, whole, at the unsharded parameter (`accumulate_unsharded_grad_...`
    in torch/distributed/fsdp/_fully_shard/_fsdp_param.py) or in another type beside it.
    """
    if "torch.distributed.fsdp._fully_shard._fsdp_state" not in sys.modules:
        return  # nothing is sharded
    mine = {id(p) for p in parameters if hasattr(p, "_local_tensor")}
    for held in _iter_fsdp_parameters() if mine else ():
        if id(getattr(held, "sharded_param", None)) in mine:
            unsharded = getattr(held, "_unsharded_param", None)  # made by the first forward
            yield None if unsharded is None else unsharded.grad
            yield getattr(held, "unsharded_accumulated_grad", None)


def _iter_fsdp_parameters() -> Iterator[Any]:
    """Torch's books on every parameter that `fully_shard` has sharded in this process.

    They are private: under other names they are not found, and the training goes on all the same.
    """
    from torch.distributed import _composable_state

    for reference in list(getattr(_composable_state, "_module_state_mapping", {}).values()):
        state: Any = reference()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # older versions of torch: one group per module
            groups = [getattr(state, "_fsdp_param_group", None)]
        for group in groups:
            yield from getattr(group, "fsdp_params", ())


def _version(gradient: torch.Tensor | None) -> int:
    """Of a distributed tensor that of its local part, which is what a sharded backward changes."""
    if gradient is None:
        return 0
    return int(getattr(gradient, "_local_tensor", gradient)._version)

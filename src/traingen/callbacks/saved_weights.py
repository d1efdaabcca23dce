"""Say which weights a checkpoint of Lightning holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from traingen.callbacks.lightning_run import is_a
from traingen.observe.moments import digest_parameters
from traingen.observe.optimizers import parameters_of

State = Mapping[str, Any]


def saved_weights(
    checkpoint: Mapping[str, Any], callbacks: Iterable[object]
) -> tuple[State, State | None]:
    """The live weights that `checkpoint` will hold, and the averaged ones if it will hold both.

    Lightning's `WeightAveraging` puts the averaged weights in the place of the live ones
    (`state_dict`) and the live ones aside (`current_model_state`), before or after the callback
    that asks here, whichever of the two comes first in the trainer's list.
    """
    if "current_model_state" in checkpoint:
        return checkpoint["current_model_state"], checkpoint["state_dict"]
    for callback in callbacks:
        average = getattr(callback, "_average_model", None)
        if is_a(callback, "WeightAveraging") and isinstance(average, AveragedModel):
            return checkpoint["state_dict"], average.module.state_dict()
    return checkpoint["state_dict"], None


def digest_saved(
    state: State, module: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> list[str] | None:
    """Of the parameters of each optimizer, as `state` holds them.

    None if it does not hold them all by name: ranks other than 0 save nothing of a sharded model,
    and a module may leave out what it can load from elsewhere.
    """
    names = {id(p): name for name, p in module.named_parameters()}
    digests = []
    for optimizer in optimizers:
        mine = [names[id(p)] for p in parameters_of(optimizer) if id(p) in names]
        if any(name not in state for name in mine):
            return None
        digests.append(digest_parameters(state[name] for name in mine))
    return digests

"""Listeners that keep what they hear, and what torch looks like while they are installed."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as torch_module
from torch.nn.utils import clip_grad
from torch.optim import optimizer as torch_optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from traingen.observe.events import Listener

EVENTS = tuple(name for name in vars(Listener) if not name.startswith("_"))


class Log(Listener):
    """Keeps every event it hears as (name, *arguments), in order."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    @property
    def names(self) -> list[str]:
        return [event[0] for event in self.heard]

    def of(self, name: str) -> list[Any]:
        """What was heard under `name`: its first argument each time."""
        return [event[1] for event in self.heard if event[0] == name]


def _note(name: str) -> Callable[..., None]:
    def method(self: Log, *arguments: Any) -> None:
        self.heard.append((name, *arguments))

    return method


for _name in EVENTS:
    setattr(Log, _name, _note(_name))


def hear(**methods: Callable[..., None]) -> Listener:
    """A listener of just these events; each method is called with the event's arguments."""
    unknown = set(methods) - set(EVENTS)
    assert not unknown, f"no such event: {unknown}"
    functions = {
        name: lambda self, *arguments, _method=method: _method(*arguments)
        for name, method in methods.items()
    }
    return type("Heard", (Listener,), functions)()


def hooks_on_torch() -> list[Any]:
    """Everything on torch that events may replace or add to; functions compare by identity."""
    return [
        torch.autograd.backward,
        DataLoader.__iter__,
        torch.optim.Optimizer.__init__,
        clip_grad._clip_grads_with_norm_,
        clip_grad._group_tensors_by_device_and_dtype,
        _own(LRScheduler, "step", "__init__", "__init_subclass__", "__new__"),
        _own(torch.optim.Optimizer, "zero_grad"),
        _own(torch.nn.Module, "zero_grad"),
        _own(torch.amp.GradScaler, "scale", "unscale_", "step", "update"),
        dict(torch_module._global_forward_pre_hooks),
        dict(torch_module._global_forward_hooks),
        dict(torch_optimizer._global_optimizer_pre_hooks),
        dict(torch_optimizer._global_optimizer_post_hooks),
    ]


def _own(base: type[Any], *names: str) -> list[tuple[Any, ...]]:
    """What each class defines itself under `names`, of `base` and all that derive from it."""
    classes = [base]
    for cls in classes:
        classes += [child for child in cls.__subclasses__() if child not in classes]
    return [(cls, name, vars(cls)[name]) for cls in classes for name in names if name in vars(cls)]

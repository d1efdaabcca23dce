"""Read a named value, such as one term of the loss, out of an unmodified training."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from traingen.errors import ConfigError, SystemFailed

Deliver = Callable[[str, torch.Tensor], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tap:
    """Where the value `name` is found: what a module or a function returns in a training step.

    Only what is returned in training, with gradients on, is taken.
    """

    name: str
    module: str | None = None  # path within the model, e.g. `encoder.mask`
    function: str | None = None  # dotted path of a function or method
    output: int | str | None = None  # which item of what is returned; None: all of it

    def __post_init__(self) -> None:
        if (self.module is None) == (self.function is None):
            raise ConfigError(f"taps.{self.name}: expected either 'module' or 'function'.")


@contextmanager
def tap_functions(taps: Sequence[Tap], deliver: Deliver) -> Iterator[None]:
    """Hear the function taps of this thread within the block; the functions are put back after."""
    with ExitStack() as stack:
        for tap in taps:
            if tap.function is not None:
                stack.callback(_wrap_function(tap, deliver))
        yield


def tap_modules(taps: Sequence[Tap], module: torch.nn.Module, deliver: Deliver) -> None:
    """Hear the module taps of `module` for as long as it exists.

    Raises:
        ConfigError: the model has no such module.
    """
    for tap in taps:
        if tap.module is None:
            continue
        try:
            target = module.get_submodule(tap.module)
        except AttributeError as error:
            raise ConfigError(
                f"taps.{tap.name}: {type(module).__name__} has no module {tap.module!r}; its "
                f"children are {', '.join(n for n, _ in module.named_children())}."
            ) from error
        target.register_forward_hook(functools.partial(_from_module, tap, deliver))


def _from_module(
    tap: Tap, deliver: Deliver, module: torch.nn.Module, inputs: Any, output: Any
) -> None:
    if module.training and torch.is_grad_enabled():
        deliver(tap.name, _select(tap, output))


def _wrap_function(tap: Tap, deliver: Deliver) -> Callable[[], None]:
    assert tap.function is not None
    owner, name = _find(tap.function, tap.name)
    original = getattr(owner, name)
    raw = vars(owner).get(name, original)
    thread = threading.get_ident()

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if threading.get_ident() == thread and torch.is_grad_enabled():
            deliver(tap.name, _select(tap, result))
        return result

    setattr(owner, name, staticmethod(wrapper) if isinstance(raw, staticmethod) else wrapper)
    return lambda: setattr(owner, name, raw)


def _find(path: str, tap: str) -> tuple[Any, str]:
    """The object that holds the last name of `path`: a module or a class."""
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue  # the rest of the path names classes, not modules
        for part in parts[split:-1]:
            owner = getattr(owner, part, None)
        if hasattr(owner, parts[-1]):
            return owner, parts[-1]
        break
    raise ConfigError(f"taps.{tap}: no function {path!r} can be imported; check its dotted path.")


def _select(tap: Tap, value: Any) -> torch.Tensor:
    if tap.output is not None:
        value = value[tap.output]
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise SystemFailed(
            f"taps.{tap.name}: expected a tensor of one element, got {_kind(value)}: choose one "
            "with 'output'."
        )
    return value.detach().reshape(())


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}"

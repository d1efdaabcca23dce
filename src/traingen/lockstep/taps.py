"""Read a named value, such as one term of the loss, out of an unmodified training."""

from __future__ import annotations

import functools
import importlib
import inspect
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ear:
    tap: Tap
    deliver: Deliver
    thread: int


class _Tapped:
    """A function with ears; it is put back when the last one leaves, in whatever order."""

    def __init__(self, owner: Any, name: str) -> None:
        self.ears: list[_Ear] = []
        self._owner = owner
        self._name = name
        self._own = name in vars(owner)  # else inherited: nothing may stay behind
        self._raw = inspect.getattr_static(owner, name, None) or getattr(owner, name)
        setattr(owner, name, self._wrap(self._raw))

    def put_back(self) -> None:
        if self._own:
            setattr(self._owner, self._name, self._raw)
        else:
            delattr(self._owner, self._name)

    def _wrap(self, raw: Any) -> Any:
        if isinstance(raw, staticmethod | classmethod):
            return type(raw)(self._wrap(raw.__func__))

        @functools.wraps(raw)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = raw(*args, **kwargs)
            if torch.is_grad_enabled():
                for ear in self.ears:
                    if ear.thread == threading.get_ident():
                        ear.deliver(ear.tap.name, _select(ear.tap, result))
            return result

        return wrapper


_tapped: dict[tuple[int, str], _Tapped] = {}  # (id of the owner, name): two systems may share one


def _wrap_function(tap: Tap, deliver: Deliver) -> Callable[[], None]:
    assert tap.function is not None
    owner, name = _find(tap.function, tap.name)
    key = (id(owner), name)
    tapped = _tapped.get(key) or _tapped.setdefault(key, _Tapped(owner, name))
    ear = _Ear(tap=tap, deliver=deliver, thread=threading.get_ident())
    tapped.ears.append(ear)

    def leave() -> None:
        tapped.ears.remove(ear)
        if not tapped.ears:
            _tapped.pop(key).put_back()

    return leave


def _find(path: str, tap: str) -> tuple[Any, str]:
    """The object that holds the last name of `path`: a module or a class."""
    parts = path.split(".")
    for split in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:split])
        try:
            owner: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if split > 1 and error.name is not None and f"{module}.".startswith(f"{error.name}."):
                continue  # the rest of the path names classes, not modules
            raise ConfigError(
                f"taps.{tap}: {path!r} cannot be imported: {error}. Is its package installed?"
            ) from error
        for part in parts[split:-1]:
            owner = getattr(owner, part, None)
        if hasattr(owner, parts[-1]):
            return owner, parts[-1]
        break
    raise ConfigError(f"taps.{tap}: there is no function {path!r}; check its dotted path.")


def _select(tap: Tap, value: Any) -> torch.Tensor:
    if tap.output is not None:
        try:
            value = value[tap.output]
        except (TypeError, LookupError, RuntimeError) as error:
            raise SystemFailed(
                f"taps.{tap.name}: {_kind(value)} was returned, which has no item {tap.output!r}: "
                "correct 'output'."
            ) from error
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

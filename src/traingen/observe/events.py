"""Tell listeners what the training code of their own thread does, as it does it.

One place holds every hook on torch: optimizer steps, backward roots, clipping, schedulers, data
loaders and module calls. A hook is installed while somebody listens for it and taken out with the
last listener, and it only watches: arguments and results pass through untouched. Calls are routed
by thread, so that two trainings in one process never hear each other.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

Remove = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One clip, at the moment torch is about to change the gradients."""

    parameters: list[torch.Tensor]  # those whose gradients it scales; none for a clip by value
    max_norm: float  # infinite for a clip by value
    total_norm: torch.Tensor  # as torch computed it for this clip, 0-dim; NaN for a clip by value
    norm_type: float | None  # the p of the norm; None where there is none or it is not said

    def covers(self, parameters: list[torch.Tensor]) -> bool:
        """Whether it scales exactly the gradients that `parameters` hold."""
        mine = {id(p) for p in self.parameters if p.grad is not None}
        return mine == {id(p) for p in parameters if p.grad is not None}

    def coefficient(self) -> float:
        """The factor of a clip by norm as torch applies it: min(1, max_norm / (norm + 1e-6))."""
        return float(torch.clamp(self.max_norm / (self.total_norm + 1e-6), max=1.0))


class Listener:
    """What may be heard; override what is wanted (only that is hooked)."""

    def optimizer_built(self, optimizer: torch.optim.Optimizer) -> None:
        """The base constructor of `optimizer` has returned."""

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        """The outermost `optimizer.step()` has updated its parameters (its post-hook runs).

        An optimizer whose `step` calls `super().step()` or wraps another is heard once.
        """

    def backward_entered(self, roots: tuple[torch.Tensor, ...]) -> None:
        """`backward()` was called on `roots`; no gradient has changed yet."""

    def clip_entered(self, clip: Clip) -> None:
        """Gradients are about to be clipped, by norm or by value; none has changed yet."""

    def scheduler_built(self, scheduler: LRScheduler) -> None:
        """The outermost constructor of `scheduler` has returned."""

    def scheduler_ticked(self, scheduler: LRScheduler) -> None:
        """An outermost `scheduler.step()` after construction has returned."""

    def loader_entered(self, loader: DataLoader[Any]) -> None:
        """`iter(loader)` was called and has drawn nothing yet."""

    def fetch_entered(self, loader: DataLoader[Any]) -> None:
        """The next batch of `loader` was asked for and has drawn nothing yet."""

    def batch_fetched(self, loader: DataLoader[Any], iteration: int, batch: Any) -> None:
        """A batch is about to reach the loop; `iteration` numbers the `iter()` calls from 0."""

    def loader_exhausted(self, loader: DataLoader[Any], iteration: int) -> None:
        """This iteration over `loader` has no further batch."""

    def module_entered(self, module: torch.nn.Module) -> None:
        """`module(...)` was called and its forward has not begun."""

    def module_left(self, module: torch.nn.Module, output: Any) -> None:
        """The forward of `module` has returned `output`."""


_lock = threading.RLock()
_listeners: dict[int, list[Listener]] = {}  # thread id -> its listeners, in order of arrival
_hearing: dict[tuple[int, str], list[Listener]] = {}  # thread id, group of hooks -> who hears it
_installed: dict[str, Remove] = {}
_local = threading.local()  # nesting depth of steps and ticks in this thread

# A forked data-loading worker keeps the hooks of its parent but is not the thread they watch.
os.register_at_fork(after_in_child=lambda: _hearing.clear())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have `listener` hear what this thread does until the block is left, also by an error."""
    _add(listener, threading.get_ident())
    try:
        yield
    finally:
        _remove(listener)


def start_listening(listener: Listener) -> Remove:
    """The same without a block: returns the function that ends it (safe to call twice)."""
    stack = ExitStack()
    stack.enter_context(listening(listener))
    return stack.close


def _add(listener: Listener, thread: int) -> None:
    with _lock:
        if thread not in _listeners:
            forget_unfinished_step()
        _listeners.setdefault(thread, []).append(listener)
        _install_what_is_heard()


def _remove(listener: Listener) -> None:
    with _lock:
        for thread, those in list(_listeners.items()):
            those[:] = [one for one in those if one is not listener]
            if not those:
                del _listeners[thread]
        _install_what_is_heard()


def _heard_by(listener: Listener) -> set[str]:
    """The groups of hooks that `listener` needs: those with a method it overrides."""
    return {
        group
        for group, (methods, _) in _GROUPS.items()
        if any(getattr(type(listener), name) is not getattr(Listener, name) for name in methods)
    }


def _install_what_is_heard() -> None:
    """Bring routing and hooks in line with the listeners."""
    global _hearing
    wanted = {
        group
        for those in _listeners.values()
        for listener in those
        for group in _heard_by(listener)
    }
    hearing: dict[tuple[int, str], list[Listener]] = {}
    for thread, those in _listeners.items():
        for listener in those:
            for group in _heard_by(listener):
                hearing.setdefault((thread, group), []).append(listener)
    _hearing = hearing  # at once: other threads look into it meanwhile
    for group in list(_installed):
        if group not in wanted:
            _installed.pop(group)()
    for group in wanted - set(_installed):
        _installed[group] = _GROUPS[group][1]()


def _here(group: str) -> Sequence[Listener]:
    """Those who listen to `group` in this thread."""
    return _hearing.get((threading.get_ident(), group), ())


def _replace(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Remove:
    """Replace the attribute `name` that `owner` itself defines by `make(original)`."""
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    return lambda: setattr(owner, name, original)


def _all_of(removes: list[Remove]) -> Remove:
    def remove() -> None:
        for one in reversed(removes):
            one()

    return remove


def _hook_optimizers() -> Remove:
    def watch(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapper(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            for listener in _here("optimizers"):
                listener.optimizer_built(self)

        return wrapper

    return _replace(torch.optim.Optimizer, "__init__", watch)


def _hook_steps() -> Remove:
    """Count the outermost post-hook: torch calls the global hooks once per nested `step`."""

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        _local.steps = getattr(_local, "steps", 0) + 1

    def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        _local.steps = max(getattr(_local, "steps", 1) - 1, 0)
        if _local.steps == 0:
            for listener in _here("steps"):
                listener.step_applied(optimizer)

    pre = register_optimizer_step_pre_hook(before)
    post = register_optimizer_step_post_hook(after)
    return _all_of([pre.remove, post.remove])


def forget_unfinished_step() -> None:
    """Say that no `step` of this thread is running: one that raised never left its hooks."""
    _local.steps = 0


def _hook_backward() -> Remove:
    """`Tensor.backward` looks `torch.autograd.backward` up when called: one wrapper hears both."""

    def watch(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapper(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            here = _here("backward")
            if here:
                if not isinstance(tensors, torch.Tensor | GradientEdge):
                    tensors = tuple(tensors)  # it may be an iterator, which gives them once
                several = tensors if type(tensors) is tuple else (tensors,)
                roots = tuple(one for one in several if isinstance(one, torch.Tensor))
                for listener in here:
                    listener.backward_entered(roots)
            return backward(tensors, *args, **kwargs)

        return wrapper

    return _replace(torch.autograd, "backward", watch)


def _hook_clips() -> Remove:
    """The inner functions also hear clips that were imported by name."""
    from torch.nn.utils import clip_grad

    def watch_groups(group: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(group)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            here = _here("clips")  # what a clip by value calls first; clips by norm call it too
            if here and sys._getframe(1).f_code.co_name == "clip_grad_value_":
                heard = Clip(
                    parameters=[],
                    max_norm=math.inf,
                    total_norm=torch.tensor(math.nan),
                    norm_type=None,
                )
                for listener in here:
                    listener.clip_entered(heard)
            return group(*args, **kwargs)

        return wrapper

    def watch(clip: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(clip)
        def wrapper(
            parameters: Any, max_norm: float, total_norm: torch.Tensor, *rest: Any, **kwargs: Any
        ) -> Any:
            here = _here("clips")
            if here:
                parameters = (
                    [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
                )
                caller = sys._getframe(1)  # clip_grad_norm_ knows the p of its norm, we do not
                heard = Clip(
                    parameters=parameters,
                    max_norm=float(max_norm),
                    total_norm=total_norm,
                    norm_type=caller.f_locals.get("norm_type"),
                )
                for listener in here:
                    listener.clip_entered(heard)
            return clip(parameters, max_norm, total_norm, *rest, **kwargs)

        return wrapper

    return _all_of(
        [
            _replace(clip_grad, "_clip_grads_with_norm_", watch),
            _replace(clip_grad, "_group_tensors_by_device_and_dtype", watch_groups),
        ]
    )


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _subclasses(child)


class _SchedulerHooks:
    """Wrap `__init__` and `step` wherever a scheduler class defines its own."""

    def __init__(self) -> None:
        self.removes: list[Remove] = []
        self.wrapped: set[type] = set()
        for cls in dict.fromkeys(_subclasses(LRScheduler)):
            self.wrap(cls)
        self.removes.append(self.watch_definitions())

    def watch_definitions(self) -> Remove:
        """Wrap classes that are defined from now on, before anything is made of them."""

        def defined(cls: Any, /, **kwargs: Any) -> None:
            super(LRScheduler, cls).__init_subclass__(**kwargs)  # type: ignore[misc]
            self.wrap(cls)

        LRScheduler.__init_subclass__ = classmethod(defined)  # type: ignore[assignment]
        return lambda: delattr(LRScheduler, "__init_subclass__")

    def wrap(self, cls: type) -> None:
        if cls in self.wrapped:
            return
        self.wrapped.add(cls)
        if "step" in vars(cls):
            self.removes.append(_replace(cls, "step", self.watch_step))
        if "__init__" in vars(cls):
            self.removes.append(_replace(cls, "__init__", self.watch_init))

    def watch_init(self, init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapper(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> None:
            for cls in type(scheduler).__mro__:
                if issubclass(cls, LRScheduler):  # a class made after the hooks were installed
                    self.wrap(cls)
            _local.schedulers = getattr(_local, "schedulers", 0) + 1
            try:
                init(scheduler, *args, **kwargs)
            finally:
                _local.schedulers -= 1
            if _local.schedulers == 0:
                for listener in _here("schedulers"):
                    listener.scheduler_built(scheduler)

        return wrapper

    def watch_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def wrapper(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:
            _local.schedulers = getattr(_local, "schedulers", 0) + 1
            try:
                result = step(scheduler, *args, **kwargs)
            finally:
                _local.schedulers -= 1
            if _local.schedulers == 0:
                for listener in _here("schedulers"):
                    listener.scheduler_ticked(scheduler)
            return result

        return wrapper

    def remove(self) -> None:
        _all_of(self.removes)()


def _hook_schedulers() -> Remove:
    return _SchedulerHooks().remove


class _WatchedIterator:
    """The iterator of a loader; hands on each batch and says so."""

    def __init__(self, inner: Any, loader: DataLoader[Any], iteration: int) -> None:
        self._inner = inner
        self._loader = loader
        self._iteration = iteration

    def __iter__(self) -> _WatchedIterator:
        return self

    def __next__(self) -> Any:
        here = _here("loaders")
        for listener in here:
            listener.fetch_entered(self._loader)
        try:
            batch = next(self._inner)
        except StopIteration:
            for listener in here:
                listener.loader_exhausted(self._loader, self._iteration)
            raise
        for listener in here:
            listener.batch_fetched(self._loader, self._iteration, batch)
        return batch

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _hook_loaders() -> Remove:
    def watch(iterate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(iterate)
        def wrapper(loader: DataLoader[Any]) -> Any:
            here = _here("loaders")
            if not here:
                return iterate(loader)
            for listener in here:
                listener.loader_entered(loader)
            counts = getattr(_local, "iterations", None)
            if counts is None:
                counts = _local.iterations = weakref.WeakKeyDictionary()
            iteration = counts[loader] = counts.get(loader, -1) + 1
            return _WatchedIterator(iterate(loader), loader, iteration)

        return wrapper

    return _replace(DataLoader, "__iter__", watch)


def _hook_entries() -> Remove:
    def before(module: torch.nn.Module, args: Any) -> None:
        for listener in _here("entries"):
            listener.module_entered(module)

    return torch.nn.modules.module.register_module_forward_pre_hook(before).remove


def _hook_exits() -> Remove:
    def after(module: torch.nn.Module, args: Any, output: Any) -> None:
        for listener in _here("exits"):
            listener.module_left(module, output)

    return torch.nn.modules.module.register_module_forward_hook(after).remove


_GROUPS: dict[str, tuple[tuple[str, ...], Callable[[], Remove]]] = {
    "optimizers": (("optimizer_built",), _hook_optimizers),
    "steps": (("step_applied",), _hook_steps),
    "backward": (("backward_entered",), _hook_backward),
    "clips": (("clip_entered",), _hook_clips),
    "schedulers": (("scheduler_built", "scheduler_ticked"), _hook_schedulers),
    "loaders": (
        ("loader_entered", "fetch_entered", "batch_fetched", "loader_exhausted"),
        _hook_loaders,
    ),
    "entries": (("module_entered",), _hook_entries),
    "exits": (("module_left",), _hook_exits),
}

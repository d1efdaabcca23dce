"""Install the hooks on torch that a listener needs, and take them out again.

They only watch: arguments and results pass through untouched. Each installer is given a function
that returns who listens in the calling thread, and returns the function that takes its hook out.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import GradientEdge
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from traingen.observe.events import Clip, Listener

Remove = Callable[[], None]
Here = Callable[[], Sequence[Listener]]  # those who listen in the calling thread

_local = threading.local()  # nesting depth of steps and ticks, iterations of loaders, by thread


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


def hook_optimizers(here: Here) -> Remove:
    """Hear the base constructor of every optimizer."""

    def watch(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapper(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            for listener in here():
                listener.optimizer_built(self)

        return wrapper

    return _replace(torch.optim.Optimizer, "__init__", watch)


def hook_steps(here: Here) -> Remove:
    """Count the outermost post-hook: torch calls the global hooks once per nested `step`."""

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        _local.steps = getattr(_local, "steps", 0) + 1

    def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        _local.steps = max(getattr(_local, "steps", 1) - 1, 0)
        if _local.steps == 0:
            for listener in here():
                listener.step_applied(optimizer)

    pre = register_optimizer_step_pre_hook(before)
    post = register_optimizer_step_post_hook(after)
    return _all_of([pre.remove, post.remove])


def forget_unfinished_step() -> None:
    """Say that no `step` of this thread is running: one that raised never left its hooks."""
    _local.steps = 0


def hook_backward(here: Here) -> Remove:
    """`Tensor.backward` looks `torch.autograd.backward` up when called: one wrapper hears both."""

    def watch(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapper(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            those = here()
            if those:
                if not isinstance(tensors, torch.Tensor | GradientEdge):
                    tensors = tuple(tensors)  # it may be an iterator, which gives them once
                several = tensors if type(tensors) is tuple else (tensors,)
                roots = tuple(one for one in several if isinstance(one, torch.Tensor))
                for listener in those:
                    listener.backward_entered(roots)
            return backward(tensors, *args, **kwargs)

        return wrapper

    return _replace(torch.autograd, "backward", watch)


def hook_clips(here: Here) -> Remove:
    """Hear clips by norm and by value; the inner functions also hear those imported by name."""
    from torch.nn.utils import clip_grad

    return _all_of(
        [
            _replace(clip_grad, "_clip_grads_with_norm_", functools.partial(_by_norm, here)),
            _replace(
                clip_grad, "_group_tensors_by_device_and_dtype", functools.partial(_by_value, here)
            ),
        ]
    )


def _by_norm(here: Here, clip: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(clip)
    def wrapper(
        parameters: Any, max_norm: float, total_norm: torch.Tensor, *rest: Any, **kwargs: Any
    ) -> Any:
        those = here()
        if those:
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            caller = sys._getframe(1)  # clip_grad_norm_ knows the p of its norm, we do not
            heard = Clip(
                parameters=parameters,
                max_norm=float(max_norm),
                total_norm=total_norm,
                norm_type=caller.f_locals.get("norm_type"),
            )
            for listener in those:
                listener.clip_entered(heard)
        return clip(parameters, max_norm, total_norm, *rest, **kwargs)

    return wrapper


def _by_value(here: Here, group: Callable[..., Any]) -> Callable[..., Any]:
    """`group` is what a clip by value calls first; clips by norm call it too."""

    @functools.wraps(group)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        those = here()
        if those and sys._getframe(1).f_code.co_name == "clip_grad_value_":
            unknown = torch.tensor(math.nan)
            heard = Clip(parameters=[], max_norm=math.inf, total_norm=unknown, norm_type=None)
            for listener in those:
                listener.clip_entered(heard)
        return group(*args, **kwargs)

    return wrapper


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _subclasses(child)


class _SchedulerHooks:
    """Wrap `__init__` and `step` wherever a scheduler class defines its own."""

    def __init__(self, here: Here) -> None:
        self.here = here
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
                for listener in self.here():
                    listener.scheduler_built(scheduler)

        return wrapper

    def watch_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def wrapper(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:
            if getattr(_local, "schedulers", 0) == 0:
                for listener in self.here():
                    listener.tick_entered(scheduler)
            _local.schedulers = getattr(_local, "schedulers", 0) + 1
            try:
                result = step(scheduler, *args, **kwargs)
            finally:
                _local.schedulers -= 1
            if _local.schedulers == 0:
                for listener in self.here():
                    listener.scheduler_ticked(scheduler)
            return result

        return wrapper

    def remove(self) -> None:
        _all_of(self.removes)()


def hook_schedulers(here: Here) -> Remove:
    """Hear every scheduler being built and ticking."""
    return _SchedulerHooks(here).remove


class _WatchedIterator:
    """The iterator of a loader; hands on each batch and says so."""

    def __init__(self, inner: Any, loader: DataLoader[Any], iteration: int, here: Here) -> None:
        self._here = here
        self._inner = inner
        self._loader = loader
        self._iteration = iteration

    def __iter__(self) -> _WatchedIterator:
        return self

    def __next__(self) -> Any:
        those = self._here()
        for listener in those:
            listener.fetch_entered(self._loader)
        try:
            batch = next(self._inner)
        except StopIteration:
            for listener in those:
                listener.loader_exhausted(self._loader, self._iteration)
            raise
        for listener in those:
            listener.batch_fetched(self._loader, self._iteration, batch)
        return batch

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def hook_loaders(here: Here) -> Remove:
    """Hear every `iter()` of a DataLoader and what it fetches."""

    def watch(iterate: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(iterate)
        def wrapper(loader: DataLoader[Any]) -> Any:
            those = here()
            if not those:
                return iterate(loader)
            for listener in those:
                listener.loader_entered(loader)
            counts = getattr(_local, "iterations", None)
            if counts is None:
                counts = _local.iterations = weakref.WeakKeyDictionary()
            iteration = counts[loader] = counts.get(loader, -1) + 1
            return _WatchedIterator(iterate(loader), loader, iteration, here)

        return wrapper

    return _replace(DataLoader, "__iter__", watch)


def hook_entries(here: Here) -> Remove:
    """Hear every module call before its forward."""

    def before(module: torch.nn.Module, args: Any) -> None:
        for listener in here():
            listener.module_entered(module)

    return torch.nn.modules.module.register_module_forward_pre_hook(before).remove


def hook_exits(here: Here) -> Remove:
    """Hear every module call after its forward."""

    def after(module: torch.nn.Module, args: Any, output: Any) -> None:
        for listener in here():
            listener.module_left(module, output)

    return torch.nn.modules.module.register_module_forward_hook(after).remove


# group of hooks -> the listener's methods that need it, and its installer
GROUPS: dict[str, tuple[tuple[str, ...], Callable[[Here], Remove]]] = {
    "optimizers": (("optimizer_built",), hook_optimizers),
    "steps": (("step_applied",), hook_steps),
    "backward": (("backward_entered",), hook_backward),
    "clips": (("clip_entered",), hook_clips),
    "schedulers": (("scheduler_built", "tick_entered", "scheduler_ticked"), hook_schedulers),
    "loaders": (
        ("loader_entered", "fetch_entered", "batch_fetched", "loader_exhausted"),
        hook_loaders,
    ),
    "entries": (("module_entered",), hook_entries),
    "exits": (("module_left",), hook_exits),
}

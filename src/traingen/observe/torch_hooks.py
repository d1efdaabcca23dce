"""Install the hooks on torch that a listener needs, and take them out again.

They only watch: arguments and results pass through untouched. Each installer is given a function
that returns who listens in the calling thread, and returns the function that takes its hook out.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from traingen.observe.events import Listener
from traingen.observe.gradient_hooks import (
    hook_backward,
    hook_clearing,
    hook_clips,
    hook_scalers,
)
from traingen.observe.hooking import Here, Remove, all_of, local, replace, subclasses


def hook_optimizers(here: Here) -> Remove:
    """Hear the base constructor of every optimizer."""

    def watch(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapper(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            for listener in here():
                listener.optimizer_built(self)

        return wrapper

    return replace(torch.optim.Optimizer, "__init__", watch)


def hook_steps(here: Here) -> Remove:
    """Hear the outermost step: torch calls the global hooks once per nested one.

    A closure that is given to it is replaced by one that calls it, and says so before and after.
    """

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        local.steps = getattr(local, "steps", 0) + 1
        those = here() if local.steps == 1 else ()
        for listener in those:
            listener.step_entered(optimizer)
        return _announcing_closure(those, optimizer, args, kwargs) if those else None

    def after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        local.steps = max(getattr(local, "steps", 1) - 1, 0)
        if local.steps == 0:
            for listener in here():
                listener.step_applied(optimizer)

    pre = register_optimizer_step_pre_hook(before)
    post = register_optimizer_step_post_hook(after)
    return all_of([pre.remove, post.remove])


def _announcing_closure(
    those: Sequence[Listener], optimizer: torch.optim.Optimizer, args: Any, kwargs: Any
) -> Any:
    """The arguments of `step` with such a closure; None, to leave them alone, without one."""
    given = args[1] if len(args) > 1 else kwargs.get("closure")
    if not callable(given):
        return None

    @functools.wraps(given, updated=())
    def closure(*inner: Any, **options: Any) -> Any:
        for listener in those:
            listener.closure_entered(optimizer)
        depth, local.steps = local.steps, 0  # an optimizer that steps in it is no part of this one
        try:
            result = given(*inner, **options)
        finally:
            local.steps = depth
        for listener in those:
            listener.closure_left(optimizer)
        return result

    if len(args) > 1:
        return (args[0], closure, *args[2:]), kwargs
    return args, kwargs | {"closure": closure}


def forget_unfinished_step() -> None:
    """Say that no `step` of this thread is running: one that raised never left its hooks."""
    local.steps = 0


class _SchedulerHooks:
    """Wrap `__init__` and `step` wherever a scheduler class defines its own."""

    def __init__(self, here: Here) -> None:
        self.here = here
        self.removes: list[Remove] = []
        self.wrapped: set[type] = set()
        for cls in dict.fromkeys(subclasses(LRScheduler)):
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
            self.removes.append(replace(cls, "step", self.watch_step))
        if "__init__" in vars(cls):
            self.removes.append(replace(cls, "__init__", self.watch_init))

    def watch_init(self, init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapper(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> None:
            for cls in type(scheduler).__mro__:
                if issubclass(cls, LRScheduler):  # a class made after the hooks were installed
                    self.wrap(cls)
            local.schedulers = getattr(local, "schedulers", 0) + 1
            try:
                init(scheduler, *args, **kwargs)
            finally:
                local.schedulers -= 1
            if local.schedulers == 0:
                for listener in self.here():
                    listener.scheduler_built(scheduler)

        return wrapper

    def watch_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def wrapper(scheduler: LRScheduler, *args: Any, **kwargs: Any) -> Any:
            if getattr(local, "schedulers", 0) == 0:
                for listener in self.here():
                    listener.tick_entered(scheduler)
            local.schedulers = getattr(local, "schedulers", 0) + 1
            try:
                result = step(scheduler, *args, **kwargs)
            finally:
                local.schedulers -= 1
            if local.schedulers == 0:
                for listener in self.here():
                    listener.scheduler_ticked(scheduler)
            return result

        return wrapper

    def remove(self) -> None:
        all_of(self.removes)()


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
            counts = getattr(local, "iterations", None)
            if counts is None:
                counts = local.iterations = weakref.WeakKeyDictionary()
            iteration = counts[loader] = counts.get(loader, -1) + 1
            return _WatchedIterator(iterate(loader), loader, iteration, here)

        return wrapper

    return replace(DataLoader, "__iter__", watch)


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
    "steps": (("step_entered", "closure_entered", "closure_left", "step_applied"), hook_steps),
    "backward": (("backward_entered", "backward_left"), hook_backward),
    "clearing": (("gradients_cleared",), hook_clearing),
    "scalers": (
        (
            "loss_scaled",
            "gradients_unscaled",
            "scaler_step_entered",
            "scaler_step_left",
            "scaler_updated",
        ),
        hook_scalers,
    ),
    "clips": (("clip_entered", "clip_left"), hook_clips),
    "schedulers": (("scheduler_built", "tick_entered", "scheduler_ticked"), hook_schedulers),
    "loaders": (
        ("loader_entered", "fetch_entered", "batch_fetched", "loader_exhausted"),
        hook_loaders,
    ),
    "entries": (("module_entered",), hook_entries),
    "exits": (("module_left",), hook_exits),
}

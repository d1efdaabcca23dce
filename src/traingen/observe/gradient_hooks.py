"""Hear what happens to gradients: backward, clearing, clipping, and the scaling of AMP."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from traingen.observe.events import Clip
from traingen.observe.hooking import Depth, Here, Remove, all_of, replace, subclasses

_backwards = Depth("backwards")
_clearings = Depth("clearings")
_scalings = Depth("scalings")
_unscalings = Depth("unscalings")
_scaler_steps = Depth("scaler_steps")
_scaler_updates = Depth("scaler_updates")
_clips = Depth("clips")


def hook_backward(here: Here) -> Remove:
    """`Tensor.backward` looks `torch.autograd.backward` up when called: one wrapper hears both.

    A backward within a backward (reentrant checkpointing) is a part of it.
    """

    def watch(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def wrapper(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            those = here() if int(_backwards) == 0 else ()
            if those:
                tensors, grad_tensors = _reusable(tensors), _reusable(grad_tensors)
                roots = _roots(tensors, grad_tensors)
                for listener in those:
                    listener.backward_entered(roots)
            with _backwards:
                result = backward(tensors, grad_tensors, *args, **kwargs)
            for listener in those:
                listener.backward_left()
            return result

        return wrapper

    return replace(torch.autograd, "backward", watch)


def _reusable(tensors: Any) -> Any:
    """`tensors` as they are, or as a tuple if they may be an iterator, which gives them once."""
    if tensors is None or isinstance(tensors, torch.Tensor | GradientEdge):
        return tensors
    return tuple(tensors)


def _roots(tensors: Any, gradients: Any) -> tuple[torch.Tensor, ...]:
    """The scalar that each root contributes: its elements weighed by the gradient it is given."""
    several = tensors if type(tensors) is tuple else (tensors,)
    weights = gradients if type(gradients) is tuple else (gradients,) * len(several)
    roots = []
    for tensor, weight in zip(several, weights, strict=False):
        if isinstance(tensor, torch.Tensor):
            roots.append(tensor if weight is None else _weighed(tensor, weight))
    return tuple(roots)


@torch.enable_grad()
def _weighed(tensor: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """With the graph of `tensor`: what it was computed from may be asked of any root."""
    return tensor if tensor.shape != weight.shape else (tensor * weight.detach()).sum()


def hook_clearing(here: Here) -> Remove:
    """Hear `zero_grad` of optimizers and of modules."""

    def watch(zero_grad: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(zero_grad)
        def wrapper(owner: Any, *args: Any, **kwargs: Any) -> None:
            with _clearings:
                zero_grad(owner, *args, **kwargs)
            if int(_clearings) == 0:
                for listener in here():
                    listener.gradients_cleared(owner)

        return wrapper

    owners = (torch.optim.Optimizer, torch.nn.Module)
    classes = dict.fromkeys(c for owner in owners for c in subclasses(owner))
    return all_of([replace(c, "zero_grad", watch) for c in classes if "zero_grad" in vars(c)])


def hook_clips(here: Here) -> Remove:
    """Hear clips by norm and by value; the inner functions also hear those imported by name."""
    from torch.nn.utils import clip_grad

    return all_of(
        [
            replace(clip_grad, "_clip_grads_with_norm_", functools.partial(_by_norm, here)),
            replace(
                clip_grad, "_group_tensors_by_device_and_dtype", functools.partial(_inside, here)
            ),
        ]
    )


def _by_norm(here: Here, clip: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(clip)
    def wrapper(
        parameters: Any, max_norm: float, total_norm: torch.Tensor, *rest: Any, **kwargs: Any
    ) -> Any:
        those = here()
        heard = None
        if those:
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            caller = sys._getframe(1)  # clip_grad_norm_ knows the p of its norm, we do not
            heard = Clip(
                gradients=[p.grad for p in parameters if p.grad is not None],
                parameters=parameters,
                max_norm=float(max_norm),
                total_norm=total_norm,
                norm_type=caller.f_locals.get("norm_type"),
            )
            for listener in those:
                listener.clip_entered(heard)
        with _clips:
            result = clip(parameters, max_norm, total_norm, *rest, **kwargs)
        if heard is not None:
            for listener in those:
                listener.clip_left(heard)
        return result

    return wrapper


def _inside(here: Here, group: Callable[..., Any]) -> Callable[..., Any]:
    """`group` is what a clip by value calls first, and one by norm that was imported by name.

    Others call it as well: only the frame tells who does.
    """

    @functools.wraps(group)
    def wrapper(lists: Any, *args: Any, **kwargs: Any) -> Any:
        those = here() if int(_clips) == 0 else ()
        caller = sys._getframe(1) if those else None
        if caller is not None and caller.f_code.co_name in _CLIPPERS:
            heard = _CLIPPERS[caller.f_code.co_name](lists[0], caller.f_locals)
            for listener in those:
                listener.clip_entered(heard)
        return group(lists, *args, **kwargs)

    return wrapper


def _heard_by_value(gradients: list[torch.Tensor], known: Any) -> Clip:
    return Clip(
        gradients=list(gradients),
        parameters=[],
        max_norm=None,
        total_norm=torch.tensor(math.nan),
        norm_type=None,
    )


def _heard_by_norm(gradients: list[torch.Tensor], known: Any) -> Clip:
    return Clip(
        gradients=list(gradients),
        parameters=[],
        max_norm=float(known["max_norm"]),
        total_norm=known["total_norm"],
        norm_type=None,
    )


_CLIPPERS = {"clip_grad_value_": _heard_by_value, "_clip_grads_with_norm_": _heard_by_norm}


def hook_scalers(here: Here) -> Remove:
    """Hear GradScaler scale, unscale, step and update; of nested calls the outermost."""
    removes = []
    for cls in dict.fromkeys(subclasses(torch.amp.GradScaler)):
        for name, watch in _SCALER_METHODS.items():
            if name in vars(cls):
                removes.append(replace(cls, name, functools.partial(watch, here)))
    return all_of(removes)


def _watch_scale(here: Here, scale: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(scale)
    def wrapper(scaler: Any, outputs: Any) -> Any:
        with _scalings:
            result = scale(scaler, outputs)
        if int(_scalings) == 0 and scaler.is_enabled():
            for listener in here():
                listener.loss_scaled(scaler, result)
        return result

    return wrapper


def _watch_unscale(here: Here, unscale: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(unscale)
    def wrapper(scaler: Any, optimizer: Any) -> Any:
        with _unscalings:
            result = unscale(scaler, optimizer)
        # heard also within `step`, which does it if nobody has
        if int(_unscalings) == 0 and scaler.is_enabled():
            for listener in here():
                listener.gradients_unscaled(scaler, optimizer)
        return result

    return wrapper


def _watch_step(here: Here, step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def wrapper(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        those = here() if int(_scaler_steps) == 0 and scaler.is_enabled() else ()
        for listener in those:
            listener.scaler_step_entered(scaler, optimizer)
        with _scaler_steps:
            result = step(scaler, optimizer, *args, **kwargs)
        for listener in those:
            listener.scaler_step_left(scaler, optimizer)
        return result

    return wrapper


def _watch_update(here: Here, update: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(update)
    def wrapper(scaler: Any, *args: Any, **kwargs: Any) -> Any:
        with _scaler_updates:
            result = update(scaler, *args, **kwargs)
        if int(_scaler_updates) == 0 and scaler.is_enabled():
            for listener in here():
                listener.scaler_updated(scaler)
        return result

    return wrapper


_SCALER_METHODS = {
    "scale": _watch_scale,
    "unscale_": _watch_unscale,
    "step": _watch_step,
    "update": _watch_update,
}

"""Averaged weights (EMA, SWA): find them, and say how far they are from the live ones.

Known by what they hold, so that no library has to be imported: torch's `AveragedModel`, Lightning's
`WeightAveraging` and `StochasticWeightAveraging` callbacks (`_average_model`), and wrappers in the
style of timm's `ModelEmaV2` (`module`, `decay`) and ema-pytorch's `EMA` (`ema_model`, `beta`).
Attributes are read as they lie in the object: no property of anybody's is run.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel

from traingen.observe.norms import LARGE, is_sharded, measure_norm, subtract
from traingen.observe.optimizers import class_path

_EMA_CLASS = re.compile(r"EMA|Ema(?![a-z])|Averag")
_WRAPPED = re.compile(r"(^|\.)(_orig_mod|_fsdp_wrapped_module)(?=\.)")  # by compile, by FSDP
_DDP = "module."

Pair = tuple[list[nn.Parameter], list[nn.Parameter]]  # averaged, live
Place = tuple[tuple[str, ...], str]  # path of a module, name of a parameter in it


@dataclass(slots=True, eq=False)
class Averaged:
    """Averaged weights, by what updates them: a callback, an `AveragedModel`, an EMA wrapper."""

    owner: object
    _match: _Match | None = field(default=None, repr=False)

    @property
    def copy(self) -> nn.Module | None:
        """The module that holds the averaged weights now."""
        return _copy_of(self.owner)

    def pairs(self, live: nn.Module) -> Pair | None:
        """Averaged and live parameters of the same name; None where they cannot be matched.

        Names are matched once for each pair of modules, parameters looked up anew at each call.
        """
        copy, match = self.copy, self._match
        if copy is None:
            return None
        if match is not None and match.copy is copy and match.live is live:
            found = match.look_up()
            if found is not None or not match.places:
                return found
        self._match = _match(copy, live)
        return self._match.look_up()


def find_averaged(candidates: Iterable[object]) -> Averaged | None:
    """The first averaged weights among `candidates` and what lies directly in them.

    Candidates are callbacks and modules, of nested modules each (`module.modules()`).
    """
    for candidate in candidates:
        for one in (candidate, *_attributes(candidate)):
            if _copy_of(one) is not None:
                return Averaged(one)
    return None


def read_averaging(averaged: Averaged, live: nn.Module) -> dict[str, Any]:
    """Who averages, its decay, its updates so far, and the distance from the weights of `live`.

    `distance` is the L2 norm of averaged minus live parameters, taken on the averaged copy's
    device. None: the owner keeps no count or no fixed decay, or the two cannot be matched (by
    name and shape, to `live` or to exactly one module in it) or are sharded.
    """
    return {
        "class_path": class_path(averaged.owner),
        "decay": _decay_of(averaged.owner),
        "updates": _updates_of(averaged.owner),
        "distance": _distance(averaged.pairs(live)),
    }


def describe_averaging(averaged: Averaged, live: nn.Module) -> dict[str, Any]:
    """Who averages, how, and where: what holds for a whole run.

    `every` and `starts` are in the owner's own steps, None where it does not say.
    """
    owner = averaged.owner
    return {
        "class_path": class_path(owner),
        "decay": _decay_of(owner),
        "every": _every_of(owner),
        "starts": _first_int(owner, "update_starting_at_step", "update_after_step"),
        "device": _device_of(averaged.copy),
        "model_device": _device_of(live),
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Match:
    """Where the parameters of the same name stand in both; nowhere if they cannot be matched."""

    copy: nn.Module
    live: nn.Module
    places: list[tuple[Place, Place]]

    def look_up(self) -> Pair | None:
        """Both sides' parameters; None if there are none, or one is not at its place any more."""
        averaged = _look_up(self.copy, [place for place, _ in self.places])
        current = _look_up(self.live, [place for _, place in self.places])
        return (averaged, current) if averaged and current else None


def _look_up(root: nn.Module, places: list[Place]) -> list[nn.Parameter] | None:
    found: list[nn.Parameter] = []
    modules: dict[tuple[str, ...], nn.Module | None] = {}
    for path, name in places:
        if path not in modules:
            modules[path] = _walk(root, path)
        module = modules[path]
        parameter = None if module is None else module._parameters.get(name)
        if parameter is None:
            return None
        found.append(parameter)
    return found


def _walk(module: nn.Module | None, path: tuple[str, ...]) -> nn.Module | None:
    for name in path:
        if module is None:
            return None
        module = module._modules.get(name)
    return module


def _match(copy: nn.Module, live: nn.Module) -> _Match:
    """Pair the copy's parameters with those of `live`, or of the one module in it that fits."""
    averaged = _named(copy)
    fits = [
        (path, current)
        for path, module in live.named_modules()
        if _fits(current := _named(module), averaged)
    ]
    if fits and fits[0][0] == "":
        del fits[1:]
    # Modules around one another (a compiled one around its own) are no two answers.
    answers = {tuple(id(current[name][1]) for name in averaged) for _, current in fits}
    if not averaged or len(answers) != 1:
        return _Match(copy, live, [])
    path, current = fits[0]
    prefix = f"{path}." if path else ""
    places = [
        (_place(full), _place(prefix + current[name][0])) for name, (full, _) in averaged.items()
    ]
    return _Match(copy, live, places)


Named = dict[str, tuple[str, nn.Parameter]]  # name without wrappers: full name, parameter


def _named(module: nn.Module) -> Named:
    """The parameters by the names they have without what compile, DDP and FSDP put around them."""
    named = {
        _WRAPPED.sub("", name).lstrip("."): (name, parameter)
        for name, parameter in module.named_parameters()
        if not is_lazy(parameter)
    }
    while named and all(name.startswith(_DDP) for name in named):
        named = {name.removeprefix(_DDP): found for name, found in named.items()}
    return named


def _fits(current: Named, averaged: Named) -> bool:
    """Whether `current` has another parameter of the same name and shape for each averaged one."""
    return all(
        name in current
        and current[name][1] is not parameter
        and current[name][1].shape == parameter.shape
        for name, (_, parameter) in averaged.items()
    )


def _place(name: str) -> Place:
    *path, last = name.split(".")
    return tuple(path), last


def _distance(pairs: Pair | None) -> float | None:
    if pairs is None or is_sharded(pairs[0]) or is_sharded(pairs[1]):
        return None
    return measure_norm(_differences(*pairs))


def _differences(averaged: list[nn.Parameter], live: list[nn.Parameter]) -> Iterator[torch.Tensor]:
    """Small ones all at once, large ones one after the other: a model's worth of them is much."""
    small = [(a, b) for a, b in zip(averaged, live, strict=True) if a.numel() <= LARGE]
    yield from subtract([a for a, _ in small], [b for _, b in small])
    for a, b in zip(averaged, live, strict=True):
        if a.numel() > LARGE:
            yield from subtract([a], [b])


def _attributes(owner: object) -> tuple[object, ...]:
    return tuple(getattr(owner, "__dict__", {}).values())


def _attribute(owner: object, name: str) -> Any:
    """What `owner` itself holds under `name`, also as module or buffer; None if nothing."""
    own = getattr(owner, "__dict__", {})
    for holder in (own, own.get("_modules"), own.get("_buffers")):
        if isinstance(holder, dict) and name in holder:
            return holder[name]
    return None


def _copy_of(owner: object) -> nn.Module | None:
    """The module that holds the averaged weights of `owner`; None if it is no owner of any."""
    inner = _attribute(owner, "_average_model")
    if isinstance(inner, AveragedModel):
        return inner.module
    if isinstance(inner, nn.Module):
        return inner
    name = "module" if isinstance(owner, AveragedModel) else _wrapper_attribute(owner)
    copy = None if name is None else _attribute(owner, name)
    return copy if isinstance(copy, nn.Module) else None


def _wrapper_attribute(owner: object) -> str | None:
    """Where a wrapper that is known by its looks holds the averaged weights."""
    looks = _EMA_CLASS.search(type(owner).__name__) and callable(
        getattr(type(owner), "update", None)
    )
    if not looks or _own_decay(owner) is None:
        return None
    return "ema_model" if _attribute(owner, "ema_model") is not None else "module"


def _own_decay(owner: object) -> float | None:
    for name in ("decay", "beta"):
        value = _attribute(owner, name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
    return None


def _decay_of(owner: object) -> float | None:
    """The fixed decay, from the owner or out of the averaging function; None for a plain mean."""
    inner = _attribute(owner, "_average_model")
    model = inner if isinstance(inner, AveragedModel) else owner
    for name in ("multi_avg_fn", "avg_fn", "_avg_fn"):
        decay = _decay_in(_attribute(model, name))
        if decay is not None:
            return decay
    return _own_decay(owner)


def _decay_in(function: Any) -> float | None:
    """The number that `function` closes over, or was given by `partial`, as `decay`."""
    if isinstance(function, functools.partial):
        given = function.keywords
    else:
        plain = inspect.unwrap(function) if callable(function) else None
        if not inspect.isfunction(plain):
            return None
        cells = zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False)
        given = {name: cell.cell_contents for name, cell in cells if name == "decay"}
    decay = given.get("decay")
    return float(decay) if isinstance(decay, int | float) else None


def _updates_of(owner: object) -> int | None:
    """How often the average was updated, as its owner counts; None if it does not."""
    inner = _attribute(owner, "_average_model")
    counter = inner if isinstance(inner, AveragedModel) else owner
    count = _attribute(counter, "n_averaged")
    if count is None:  # Lightning's SWA makes its counter when it starts
        count = _attribute(counter, "_init_n_averaged")
    return None if count is None else int(count)


def _every_of(owner: object) -> int | None:
    every = _first_int(owner, "update_every_n_steps", "update_every")
    if every is None:
        decides = getattr(type(owner), "should_update", None)
        if getattr(decides, "__qualname__", None) == "WeightAveraging.should_update":
            return 1  # Lightning's default: after every counted step
    return every


def _first_int(owner: object, *names: str) -> int | None:
    values = (_attribute(owner, name) for name in names)
    return next((value for value in values if type(value) is int), None)


def _device_of(module: nn.Module | None) -> str | None:
    parameter = None if module is None else next(module.parameters(), None)
    return None if parameter is None else str(parameter.device)

"""Copy training state from the original into the package, in place and never aliased."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from traingen.errors import ConfigError, SystemFailed
from traingen.lockstep.name_map import ResolvedMap
from traingen.lockstep.system import System
from traingen.observe.live import LiveState


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers of `module`, each under its first name."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


@torch.no_grad()
def copy_weights(
    original: dict[str, torch.Tensor], package: dict[str, torch.Tensor], names: ResolvedMap
) -> None:
    """Copy parameters and buffers by name map.

    Raises:
        ConfigError: a shape or dtype differs; nothing has been copied then.
    """
    for mine, theirs in names.pairs:
        a, b = original[mine], package[theirs]
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ConfigError(
                f"name_map: {mine!r} is {a.dtype} {tuple(a.shape)}, but {theirs!r} of the package "
                f"is {b.dtype} {tuple(b.shape)}: these cannot be the same tensor."
            )
    for mine, theirs in names.pairs:
        package[theirs].copy_(original[mine])


class Synchronizer:
    """Make the package's moving state equal to the original's after each compared update.

    Parameters, buffers and optimizer state are copied in place; state without tensors is copied
    deeply. Of a scheduler (and of the rate it has set) only what has moved since the first update
    is copied: what never moves is configuration, and a difference in it must stay visible. What
    lies outside of these, such as EMA copies, is not synchronized.
    """

    def __init__(self, original: System, package: System, names: ResolvedMap) -> None:
        self._original = original
        self._package = package
        self._names = names
        self._first_states: dict[str, dict[str, Any]] = {}  # by scheduler
        self._moving: dict[str, set[str]] = {}
        self.not_synchronized: dict[str, str] = {}  # what -> why

    def synchronize(self, original: LiveState, package: LiveState) -> None:
        """Copy now; both systems must be parked."""
        copy_weights(
            original.parameters | original.buffers,
            package.parameters | package.buffers,
            self._names,
        )
        self._copy_optimizer_state(original, package)
        self._copy_schedulers()

    @torch.no_grad()
    def _copy_optimizer_state(self, original: LiveState, package: LiveState) -> None:
        module, optimizer = self._package.module, self._package.optimizer
        assert module is not None and optimizer is not None
        parameters = dict(module.named_parameters())
        for mine, theirs in self._names.pairs:
            source = original.optimizer_state.get(mine)
            if source is None or theirs not in parameters:
                continue
            target = optimizer.state[parameters[theirs]]
            for key, value in source.items():
                _copy_value(value, target, key)

    def _copy_schedulers(self) -> None:
        count, other = len(self._original.schedulers), len(self._package.schedulers)
        if count != other:
            self.not_synchronized["schedulers"] = f"the original has {count}, the package {other}"
        theirs = _with_parts(self._package.schedulers)
        for name, source in _with_parts(self._original.schedulers).items():
            moved = self._moved(name, _plain_state(source))
            if count == other and name in theirs:
                self._copy_scheduler(name, source, theirs[name], moved)

    def _moved(self, name: str, state: dict[str, Any]) -> dict[str, Any]:
        """What of `state` has ever differed from its first value; it may have returned to it."""
        first = self._first_states.setdefault(name, state)
        moving = self._moving.setdefault(name, set())
        moving |= {key for key, value in state.items() if key not in first or first[key] != value}
        return {key: value for key, value in state.items() if key in moving}

    def _copy_scheduler(
        self, name: str, source: LRScheduler, target: LRScheduler, moved: dict[str, Any]
    ) -> None:
        if type(source) is not type(target):
            moved = {k: v for k, v in moved.items() if k in ("last_epoch", "_step_count")}
            self.not_synchronized[name] = (
                f"{type(source).__name__} and {type(target).__name__} have only rate and "
                "counters in common"
            )
        target.__dict__.update(copy.deepcopy(moved))
        if moved:
            self._copy_rates()

    def _copy_rates(self) -> None:
        mine, theirs = self._original.optimizer, self._package.optimizer
        assert mine is not None and theirs is not None
        for source, target in zip(mine.param_groups, theirs.param_groups, strict=False):
            if isinstance(target["lr"], torch.Tensor):
                target["lr"].fill_(float(source["lr"]))
            else:
                target["lr"] = float(source["lr"])


def check_independent(original: LiveState, package: LiveState) -> None:
    """Assert that no tensor of one system shares storage with one of the other.

    Raises:
        SystemFailed: two do; their comparison would prove nothing.
    """
    mine = {t.untyped_storage().data_ptr(): name for name, t in _all_tensors(original)}
    for name, tensor in _all_tensors(package):
        pointer = tensor.untyped_storage().data_ptr()
        if pointer and pointer in mine:
            raise SystemFailed(
                f"{name} of the package shares its storage with {mine[pointer]} of the original: "
                "copy it, their comparison proves nothing."
            )


def _all_tensors(live: LiveState) -> list[tuple[str, torch.Tensor]]:
    named = [*live.parameters.items(), *live.buffers.items()]
    for name, state in live.optimizer_state.items():
        named += [(f"{key} of {name}", v) for key, v in state.items() if torch.is_tensor(v)]
    return named


def _copy_value(value: Any, target: dict[Any, Any], key: str) -> None:
    current = target.get(key)
    if isinstance(value, torch.Tensor):
        if isinstance(current, torch.Tensor) and current.shape == value.shape:
            current.copy_(value)
        else:
            target[key] = value.detach().clone()
    else:
        target[key] = copy.deepcopy(value)


def _with_parts(schedulers: Sequence[LRScheduler], at: str = "scheduler") -> dict[str, LRScheduler]:
    """Every scheduler by its place, with those that a composed one consists of."""
    found = {}
    for index, scheduler in enumerate(schedulers):
        found[f"{at}[{index}]"] = scheduler
        found |= _with_parts(getattr(scheduler, "_schedulers", ()), f"{at}[{index}].part")
    return found


def _plain_state(scheduler: LRScheduler) -> dict[str, Any]:
    """A copy of the scheduler's counters and numbers; parts and functions are its structure."""
    simple = (int, float, bool, list, tuple, str)
    return {
        key: copy.deepcopy(value)
        for key, value in vars(scheduler).items()
        if isinstance(value, simple) and not key.startswith("_schedul")
    }

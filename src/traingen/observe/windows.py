"""The next update of each optimizer of a loop, and which one an optimizer that steps belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from traingen.observe.optimizers import identify_optimizer, parameters_of
from traingen.observe.window import Batch, Window

SayEvent = Callable[[str, dict[str, Any]], None]


class Windows:
    """One `Window` per optimizer, by its number.

    Args:
        optimizers: those that the loop is known to have, in its order.
        names: id of a parameter: its name.
        updates: completed by each before now; more of them than optimizers belong to those that
            were found earlier, by number, and are still to be met again.
    """

    def __init__(
        self,
        optimizers: Iterable[torch.optim.Optimizer],
        *,
        names: Mapping[int, str],
        updates: Sequence[int],
    ) -> None:
        self._names = names
        self._windows = [Window(index, one, names) for index, one in enumerate(optimizers)]
        for window, count in zip(self._windows, updates, strict=False):
            window.updates = count
        self._unmet = list(updates[len(self._windows) :])

    def __iter__(self) -> Iterator[Window]:
        return iter(self._windows)

    def __getitem__(self, index: int) -> Window:
        return self._windows[index]

    @property
    def updates(self) -> list[int]:
        """Updates completed by each optimizer."""
        return [*(window.updates for window in self._windows), *self._unmet]

    def find(self, optimizer: torch.optim.Optimizer) -> Window | None:
        """The window of `optimizer`, or of the one whose parameters it shares."""
        for window in self._windows:
            if window.optimizer is optimizer or (
                window.optimizer.param_groups is optimizer.param_groups
            ):
                return window
        mine = {id(p) for p in parameters_of(optimizer)}
        for window in self._windows:
            if mine and mine <= {id(p) for p in window.parameters}:
                return window
        return None

    def cleared_by(self, owner: torch.optim.Optimizer | torch.nn.Module) -> Iterator[Window]:
        """Those all of whose gradients `owner.zero_grad()` clears."""
        held = owner.parameters() if isinstance(owner, torch.nn.Module) else parameters_of(owner)
        cleared = {id(p) for p in held}
        return (window for window in self._windows if {id(p) for p in window.parameters} <= cleared)

    def add(
        self, optimizer: torch.optim.Optimizer, *, current: Batch | None, say: SayEvent
    ) -> Window:
        """Number an optimizer that the loop was not known to have, and say so."""
        window = Window(len(self._windows), optimizer, self._names)
        if self._unmet:  # by a checkpoint, or by the fit before: its updates go on
            window.updates = self._unmet.pop(0)
        self._windows.append(window)
        identity = identify_optimizer(optimizer, index=window.index)
        say(
            "optimizer_found",
            {
                "optimizer": window.index,
                "class_path": identity.class_path,
                "groups": identity.groups,
                "parameters": identity.parameters,
            },
        )
        if current is not None:
            window.begin(current)
        return window

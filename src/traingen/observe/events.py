"""What may be heard of a training: the moments at which a listener is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader


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

    def tick_entered(self, scheduler: LRScheduler) -> None:
        """An outermost `scheduler.step()` after construction was called; no rate has moved yet."""

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

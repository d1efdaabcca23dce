"""What may be heard of a training: the moments at which a listener is called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """One clip, at the moment torch is about to change the gradients."""

    gradients: list[torch.Tensor]  # those it changes
    parameters: list[torch.Tensor]  # theirs and others without gradient; none if it is not said
    max_norm: float | None  # None for a clip by value
    total_norm: torch.Tensor  # as torch computed it for this clip, 0-dim; NaN for a clip by value
    norm_type: float | None  # the p of the norm; None where there is none or it is not said

    def covers(self, parameters: list[torch.Tensor]) -> bool:
        """Whether it changes exactly the gradients that `parameters` hold."""
        mine = {id(gradient) for gradient in self.gradients}
        return mine == {id(p.grad) for p in parameters if p.grad is not None}

    def spans(self, parameters: list[torch.Tensor]) -> bool:
        """Whether it changes all gradients that `parameters` hold, and maybe others."""
        mine = {id(gradient) for gradient in self.gradients}
        return {id(p.grad) for p in parameters if p.grad is not None} <= mine

    def touches(self, parameters: list[torch.Tensor]) -> bool:
        """Whether it changes, or was called for, any of them."""
        mine = {id(one) for one in (*self.gradients, *self.parameters)}
        return any(id(p) in mine or (p.grad is not None and id(p.grad) in mine) for p in parameters)

    @property
    def only_measures(self) -> bool:
        """Whether it was called for the norm alone, as it is with an infinite limit."""
        return self.max_norm == math.inf

    def coefficient(self) -> float | None:
        """The factor of a clip by norm as torch applies it: min(1, max_norm / (norm + 1e-6))."""
        if self.max_norm is None:
            return None
        return float(torch.clamp(self.max_norm / (self.total_norm + 1e-6), max=1.0))


class Listener:
    """What may be heard; override what is wanted (only that is hooked)."""

    def optimizer_built(self, optimizer: torch.optim.Optimizer) -> None:
        """The base constructor of `optimizer` has returned."""

    def step_entered(self, optimizer: torch.optim.Optimizer) -> None:
        """An outermost `optimizer.step()` was called; with a closure, before that runs."""

    def closure_entered(self, optimizer: torch.optim.Optimizer) -> None:
        """The closure that was given to `optimizer.step()` is about to be evaluated."""

    def closure_left(self, optimizer: torch.optim.Optimizer) -> None:
        """That closure has returned: the optimizer goes on with the gradients as they are now."""

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        """The outermost `optimizer.step()` has updated its parameters (its post-hook runs).

        An optimizer whose `step` calls `super().step()` or wraps another is heard once; one that
        steps within the closure of another is heard for itself.
        """

    def backward_entered(self, roots: tuple[torch.Tensor, ...]) -> None:
        """`backward()` was called on `roots`; no gradient has changed yet.

        A root that was given a gradient is the sum of its elements weighed by it.
        """

    def backward_left(self) -> None:
        """The backward has returned: its gradients have been added."""

    def gradients_cleared(self, owner: torch.optim.Optimizer | torch.nn.Module) -> None:
        """`owner.zero_grad()` has returned."""

    def loss_scaled(self, scaler: torch.amp.GradScaler, scaled: Any) -> None:
        """`scaler.scale(...)` has returned `scaled`: a tensor or several."""

    def gradients_unscaled(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        """The gradients of `optimizer` have been divided by the scale."""

    def scaler_step_entered(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        """`scaler.step(optimizer)` was called; it may yet leave the step out."""

    def scaler_step_left(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        """`scaler.step(optimizer)` has returned."""

    def scaler_updated(self, scaler: torch.amp.GradScaler) -> None:
        """`scaler.update()` has returned: the scale is that of the next step."""

    def clip_entered(self, clip: Clip) -> None:
        """Gradients are about to be clipped, by norm or by value; none has changed yet."""

    def clip_left(self, clip: Clip) -> None:
        """That clip has returned; not heard of one by value or in functions imported by name."""

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

"""Tell an observer of updates what torch is heard to do."""

from __future__ import annotations

from typing import Any

import torch

from traingen.observe.events import Clip, Listener
from traingen.observe.update import UpdateObserver


class ObserverListener(Listener):
    """Hands on what changes gradients, and how steps go; who derives from it says `applied`."""

    observer: UpdateObserver | None = None  # nothing is handed on before there is one

    def backward_entered(self, roots: tuple[torch.Tensor, ...]) -> None:
        if self.observer is not None:
            self.observer.backward_entered(roots)

    def backward_left(self) -> None:
        if self.observer is not None:
            self.observer.backward_left()

    def gradients_cleared(self, owner: torch.optim.Optimizer | torch.nn.Module) -> None:
        if self.observer is not None:
            self.observer.gradients_cleared(owner)

    def clip_entered(self, clip: Clip) -> None:
        if self.observer is not None:
            self.observer.before_clip(clip)

    def clip_left(self, clip: Clip) -> None:
        if self.observer is not None:
            self.observer.after_clip(clip)

    def step_entered(self, optimizer: torch.optim.Optimizer) -> None:
        if self.observer is not None:
            self.observer.step_entered(optimizer)

    def closure_entered(self, optimizer: torch.optim.Optimizer) -> None:
        if self.observer is not None:
            self.observer.closure_entered(optimizer)

    def closure_left(self, optimizer: torch.optim.Optimizer) -> None:
        if self.observer is not None:
            self.observer.closure_left(optimizer)

    def loss_scaled(self, scaler: torch.amp.GradScaler, scaled: Any) -> None:
        if self.observer is not None:
            self.observer.loss_scaled(scaler, scaled)

    def gradients_unscaled(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        if self.observer is not None:
            self.observer.gradients_unscaled(optimizer)

    def scaler_step_entered(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        if self.observer is not None:
            self.observer.scaler_step_entered(optimizer)

    def scaler_step_left(
        self, scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer
    ) -> None:
        if self.observer is not None:
            self.observer.scaler_step_left(optimizer, global_step=None)

    def scaler_updated(self, scaler: torch.amp.GradScaler) -> None:
        if self.observer is not None:
            self.observer.scaler_updated(scaler)

"""Tell the steps that AMP's gradient scaler leaves out from those that it lets through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from traingen.observe.scaling import read_scaler
from traingen.observe.window import Window

SayEvent = Callable[[str, dict[str, Any]], None]


class SkipWatch:
    """Watches one scaler, and says which steps it has left out once their new scale is known."""

    def __init__(self, say: SayEvent) -> None:
        self._say = say
        self._stepping: dict[int, int] = {}  # window under scaler.step: its updates before
        self._skips: list[dict[str, Any]] = []  # their scale is still to be updated
        self.scaler: torch.amp.GradScaler | None = None  # the loop's, once it is known

    def entered(self, window: Window) -> None:
        """`scaler.step` was called for the optimizer of `window`; it may leave the step out."""
        self._stepping[window.index] = window.updates

    def is_left_out(self, window: Window) -> bool:
        """Whether that call, which has returned, has left the step out."""
        return self._stepping.pop(window.index, -1) == window.updates

    def skipped(self, window: Window, *, reason: str, global_step: int | None) -> None:
        """Note that the step of `window` was left out: what was begun for it is in no update."""
        scale = window.batches[0].amp_scale if window.batches else None
        window.empty()
        self._skips.append(
            {
                "optimizer": window.index,
                "reason": reason,
                "amp_scale": read_scaler(self.scaler)[0] if scale is None else scale,
                "amp_scale_after": None,
                "global_step": global_step,
            }
        )

    def updated(self, scaler: torch.amp.GradScaler) -> None:
        """The scale is that of the next step."""
        for details in self._skips:
            details["amp_scale_after"] = read_scaler(scaler)[0]
        self.flush()

    def flush(self) -> None:
        """Say what was left out, also where no update of the scale has followed."""
        skips, self._skips = self._skips, []
        for details in skips:
            self._say("skipped_step", details)


def was_left_out(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a fused step found infinities: it is called then and changes nothing."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and float(found) > 0

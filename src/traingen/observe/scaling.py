"""Read the state of AMP's gradient scaler, and tell which losses have its scale in them."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

_MARK = "traingen: AMP scale"
_NEAR = 256  # nodes of autograd's graph, from a root on, that are searched for a scaled loss


def read_scaler(scaler: torch.amp.GradScaler | None) -> tuple[float | None, int | None]:
    """The scale, and the clean steps since it last moved; None of both without an active scaler."""
    if scaler is None or not scaler.is_enabled():
        return None, None
    state = scaler.state_dict()
    return float(state["scale"]), int(state["_growth_tracker"])


def mark_scaled(losses: Any, scale: float) -> None:
    """Note at `losses`, a tensor or (nested) several, that they were multiplied by `scale`.

    The note stands at their nodes in autograd's graph (in its `metadata`, which autograd leaves
    alone), so that it is found where a loop goes on to compute with them and drops them.
    """
    if not isinstance(losses, torch.Tensor):
        for one in losses:
            mark_scaled(one, scale)
    elif losses.grad_fn is not None:
        _notes_at(losses.grad_fn)[_MARK] = scale


def scale_in(root: torch.Tensor) -> float | None:
    """The scale that `root`, or what it was computed from, was multiplied by; None for none.

    Only what is near the root is searched, the nearest first: a loss is scaled last.
    """
    waiting, seen = deque([root.grad_fn]), set[Any]()
    while waiting and len(seen) < _NEAR:
        node = waiting.popleft()
        if node is None or node in seen:
            continue
        if _MARK in _notes_at(node):
            return float(_notes_at(node)[_MARK])
        seen.add(node)
        waiting.extend(parent for parent, _ in node.next_functions)
    return None


def _notes_at(node: Any) -> dict[str, Any]:
    notes: dict[str, Any] = node.metadata
    return notes

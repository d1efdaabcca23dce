"""The L2 norm of many tensors, accurate at any size.

torch's float32 norm loses 1e-4 of its value at 100M elements, and how much depends on the layout:
two systems with equal gradients in differently split tensors would seem to differ. Small tensors
are taken in float64. Large ones are taken by short rows with a float64 total, which stays within
1e-6 and is as fast as one float32 norm; their squares must lie in float32's range.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

ROW = 64  # elements per row: too few for a float32 sum to lose small ones to a large one
LARGE = 65536  # elements from which a tensor is taken row by row


@torch.no_grad()
def measure_norm(tensors: Iterable[torch.Tensor]) -> float:
    """Return the L2 norm over all elements of `tensors`, 0.0 for none."""
    small, squares = [], []
    for tensor in tensors:
        value = tensor.detach()
        if value.is_complex():
            value = torch.view_as_real(value.resolve_conj())
        if value.numel() <= LARGE:
            small.append(value)
        else:
            squares.append(_squared_by_rows(value))
    if small:
        norms = torch._foreach_norm(small, 2, dtype=torch.float64)
        squares.append(torch.stack(norms).square().sum())
    if not squares:
        return 0.0
    return math.sqrt(float(torch.stack(squares).sum()))


def _squared_by_rows(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.float()  # a half type's own range is left by a norm
    whole = flat.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1).double().square().sum()
    rest = flat[whole:].double().square().sum()
    total: torch.Tensor = rows + rest
    return total

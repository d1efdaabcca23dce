"""The L2 norm of many tensors, accurate at any size.

torch's float32 norm loses 1e-4 of its value at 100M elements, and how much depends on the layout:
two systems with equal gradients in differently split tensors would seem to differ. Rows of a few
thousand elements with a float64 total stay within 1e-6 and are faster besides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

ROW = 4096  # elements per row; a float32 sum of this length is accurate to about 1e-7
LARGE = 65536  # elements from which a tensor is taken row by row


@torch.no_grad()
def measure_norm(tensors: Iterable[torch.Tensor]) -> float:
    """Return the L2 norm over all elements of `tensors`, 0.0 for none."""
    small, squares = [], []
    for tensor in tensors:
        value = tensor.detach()
        if value.numel() <= LARGE or not value.is_contiguous():
            small.append(value)
        else:
            squares.append(_squared_by_rows(value))
    if small:
        norms = torch._foreach_norm(small, 2, dtype=_wide(small))
        squares.append(torch.stack([n.double() for n in norms]).square().sum())
    if not squares:
        return 0.0
    return math.sqrt(float(torch.stack(squares).sum()))


def _wide(tensors: list[torch.Tensor]) -> torch.dtype | None:
    """float32 for half types, whose own range a norm leaves; None keeps the tensors' own."""
    narrow = any(t.dtype in (torch.float16, torch.bfloat16) for t in tensors)
    return torch.float32 if narrow else None


def _squared_by_rows(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.float()
    whole = flat.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1).double().square().sum()
    rest = flat[whole:].double().square().sum()
    total: torch.Tensor = rows + rest
    return total

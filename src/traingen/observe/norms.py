"""The L2 norm of many tensors, accurate at any size; of shards, what this rank adds to it.

torch's float32 norm loses 1e-4 of its value at 100M elements, and how much depends on the layout:
two systems with equal gradients in differently split tensors would seem to differ. Small tensors
are taken in float64. Large ones are taken by short rows with a float64 total, which stays within
1e-6 and is as fast as one float32 norm; their squares must lie in float32's range.

Nothing here speaks to another rank: a norm over shards is the reader's to add up.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

ROW = 64  # elements per row: too few for a float32 sum to lose small ones to a large one
LARGE = 65536  # elements from which a tensor is taken row by row
_HALVES = frozenset({torch.float16, torch.bfloat16})
_FLOATS = _HALVES | {torch.float32, torch.float64}  # those that torch measures


def measure_norm(tensors: Iterable[torch.Tensor]) -> float:
    """Return the L2 norm over all elements of `tensors`, 0.0 for none.

    A sparse tensor counts as the optimizer will read it: entries at the same place are summed
    first, in a copy. Integers and 8-bit floats count by their value; packed and quantized types,
    which torch cannot read as numbers, give NaN.

    Raises:
        TypeError: this rank holds only a part of one (see `is_sharded` and `shard_share`).
    """
    return math.sqrt(_squared(_wholes(tensors)))


@torch.no_grad()
def norm_by_name(named: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """The norm of each tensor, with one wait for each device; the sharded ones are left out."""
    known = {name: one for name, one in named.items() if not is_sharded([one])}
    squares = {name: _square(_strided(local_part(one))) for name, one in known.items()}
    by_device: dict[torch.device, list[str]] = {}
    for name, square in squares.items():
        by_device.setdefault(square.device, []).append(name)
    norms: dict[str, float] = {}
    for names in by_device.values():
        values = torch.stack([squares[name] for name in names]).sqrt().tolist()
        norms.update(zip(names, values, strict=True))
    return {name: norms[name] for name in known}


def is_sharded(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether this rank holds only a part of any of them: a DTensor that is split or not reduced.

    A DTensor that lies whole on this rank (replicated, or on a mesh of this rank alone) is not
    sharded.
    """
    kind = _dtensor()
    if kind is None:
        return False
    return any(isinstance(one, kind) and not _lies_whole(one) for one in tensors)


def shard_share(tensors: Iterable[torch.Tensor], *, world_size: int | None = None) -> float | None:
    """This rank's share of the squared norm of `tensors`; over all ranks the shares sum up to it.

    What several ranks hold alike is divided by their number: for a DTensor those along the mesh
    dimensions over which it is replicated, for a plain tensor all `world_size` of them (as
    `torch.distributed` has it, if not given). None where a DTensor still awaits its reduction
    (`Partial`), whose norm no rank can know alone.
    """
    if world_size is None:
        world_size = _world_size()
    by_holders: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        holders = _count_holders(tensor, world_size=world_size)
        if holders is None:
            return None
        by_holders.setdefault(holders, []).append(local_part(tensor))
    return math.fsum(_squared(own) / holders for holders, own in by_holders.items())


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of `tensor`, without a copy: a plain tensor itself."""
    kind = _dtensor()
    if kind is None or not isinstance(tensor, kind):
        return tensor
    with torch.no_grad():  # else it would be the output of an autograd function
        part: torch.Tensor = tensor.to_local()
    return part


@torch.no_grad()
def subtract(
    minuends: Sequence[torch.Tensor], subtrahends: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The differences, pair by pair, each rounded once; halves are taken in float32.

    Where a pair lies on two devices the subtrahend is copied to the minuend's.
    """
    left = [_widened(one) for one in minuends]
    right = [
        other if other.device == one.device else other.to(one.device)
        for one, other in zip(left, subtrahends, strict=True)
    ]
    if len({one.device for one in left}) > 1:
        return [one - other for one, other in zip(left, right, strict=True)]
    return list(torch._foreach_sub(left, right)) if left else []


def _dtensor() -> type[Any] | None:
    """The class DTensor; None while nothing has imported it, so that there can be none."""
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def _world_size() -> int:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size()


def _lies_whole(tensor: Any) -> bool:
    mesh = tensor.device_mesh
    if mesh.get_coordinate() is None:  # this rank is none of those that share it
        return False
    return all(
        place.is_replicate() or size == 1
        for place, size in zip(tensor.placements, mesh.shape, strict=True)
    )


def _wholes(tensors: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    kind = _dtensor()
    return tensors if kind is None else (_whole(one, kind) for one in tensors)


def _whole(tensor: torch.Tensor, kind: type[Any]) -> torch.Tensor:
    if not isinstance(tensor, kind):
        return tensor
    if not _lies_whole(tensor):
        raise TypeError(
            "measure_norm was given a DTensor of which this rank holds a part: the norm of the "
            "whole is not known here, take shard_share and add up the ranks."
        )
    return local_part(tensor)


def _count_holders(tensor: torch.Tensor, *, world_size: int) -> int | None:
    """How many ranks hold the same part of `tensor`; None if parts are yet to be summed."""
    kind = _dtensor()
    if kind is None or not isinstance(tensor, kind):
        return world_size
    holders = 1
    for place, size in zip(tensor.placements, tensor.device_mesh.shape, strict=True):
        if place.is_partial() and size > 1:
            return None
        if place.is_replicate():
            holders *= size
    return holders


@torch.no_grad()
def _squared(tensors: Iterable[torch.Tensor]) -> float:
    """The sum of the squares of all elements, with one wait for each device."""
    small: dict[torch.device, list[torch.Tensor]] = {}
    squares: dict[torch.device, list[torch.Tensor]] = {}
    for tensor in tensors:
        value = _strided(tensor)
        device = value.device
        if value.numel() <= LARGE:
            small.setdefault(device, []).append(value)
        else:
            squares.setdefault(device, []).append(_square_by_rows(value))
    for device, values in small.items():
        norms = torch._foreach_norm(values, 2, dtype=torch.float64)
        squares.setdefault(device, []).append(torch.stack(norms).square().sum())
    totals = [float(torch.stack(several).sum()) for several in squares.values()]
    return totals[0] if len(totals) == 1 else math.fsum(totals)


def _square(value: torch.Tensor) -> torch.Tensor:
    if value.numel() > LARGE:
        return _square_by_rows(value)
    norm: torch.Tensor = torch.linalg.vector_norm(value, dtype=torch.float64)
    return norm.square()


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of `tensor` as a dense tensor of a type that torch measures."""
    value = tensor.detach()
    if value.layout is not torch.strided:
        value = _dense(value)
    if value.dtype in _FLOATS:
        return value
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    try:
        return value.float() if value.is_floating_point() else value.double()
    except RuntimeError:  # a packed or quantized type, of which torch reads no numbers
        return torch.full((), math.nan, dtype=torch.float64, device=value.device)


def _dense(value: torch.Tensor) -> torch.Tensor:
    """The stored elements of a sparse tensor; the zeros between them change no norm."""
    if value.layout is torch.sparse_coo:
        return value.coalesce().values()
    if value.layout is torch._mkldnn:  # type: ignore[attr-defined]
        return value.to_dense()
    stored: torch.Tensor = value.values()
    return stored


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _square_by_rows(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if flat.dtype in _HALVES:
        flat = flat.float()  # a half type's own range is left by a norm
    whole = flat.numel() // ROW * ROW
    rows = torch.linalg.vector_norm(flat[:whole].view(-1, ROW), dim=1).double().square().sum()
    rest = flat[whole:].double().square().sum()
    total: torch.Tensor = rows + rest
    return total

"""Compare live tensors of two systems, name by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from traingen.compare.differences import Comparison, Difference
from traingen.compare.gates import Tolerance

CHUNK = 1 << 20  # elements compared at once, which bounds the extra memory

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Named = tuple[str, Any, Any]  # path, original, package; None where a system has none


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorComparison:
    """One quantity over all its tensors at one update."""

    quantity: str
    compared: int  # tensors and plain values of which both systems have one
    equal: int  # those with equal bits
    max_absolute: float  # largest difference of any element, 0.0 if none
    max_path: str | None  # the tensor that holds it
    differences: tuple[Difference, ...]


def compare_tensors(
    update: int, quantity: str, named: Iterable[Named], tolerance: Tolerance
) -> TensorComparison:
    """Compare each pair of `named`; the tensors are only read.

    dtype and shape must agree; a device may differ. A name that one system has and the other has
    not is a difference; one that neither has is not counted.
    """
    compared = equal = 0
    worst, worst_path = 0.0, None
    differences = []
    for name, original, package in named:
        if original is None and package is None:
            continue
        compared += 1
        found = _compare_one(update, quantity, f"{quantity}.{name}", original, package, tolerance)
        if found is None:
            equal += 1
            continue
        differences.append(found)
        size = found.absolute if found.absolute is not None else float("inf")
        if worst_path is None or size > worst:
            worst, worst_path = size, found.path
    return TensorComparison(
        quantity=quantity,
        compared=compared,
        equal=equal,
        max_absolute=worst,
        max_path=worst_path,
        differences=tuple(differences),
    )


def per_quantity(comparisons: Sequence[TensorComparison], base: Comparison) -> Comparison:
    """Join the comparison of records and of tensors of one update."""
    differences = [*base.differences, *(d for c in comparisons for d in c.differences)]
    compared = dict(base.compared)
    for comparison in comparisons:
        before = compared.get(comparison.quantity, 0)
        compared[comparison.quantity] = before + comparison.compared
    return replace(
        base,
        compared=compared,
        differences=tuple(sorted(differences, key=lambda d: d.rank)),
    )


def _compare_one(
    update: int, quantity: str, path: str, original: Any, package: Any, tolerance: Tolerance
) -> Difference | None:
    def difference(a: Any, b: Any, **sizes: Any) -> Difference:
        return Difference(
            update=update, quantity=quantity, path=path, original=a, package=b,
            limit=tolerance.limit, **sizes,
        )  # fmt: skip

    gated = not tolerance.report_only
    if not (isinstance(original, torch.Tensor) and isinstance(package, torch.Tensor)):
        if _same_value(original, package):
            return None
        return difference(_kind(original), _kind(package), left=gated)
    if original.shape != package.shape or original.dtype != package.dtype:
        return difference(_kind(original), _kind(package), left=gated)
    if original.layout != torch.strided or package.layout != torch.strided:
        original, package = original.to_dense(), package.to_dense()
    if original.is_complex():
        original = torch.view_as_real(original.resolve_conj())
        package = torch.view_as_real(package.resolve_conj())
    if same_bits(original, package):
        return None
    sizes = _measure(original, package, tolerance)
    if sizes.ndim_zero:
        a, b = original.item(), package.item()
    else:
        a, b = f"max |.| {sizes.largest:g}", f"max |difference| {sizes.absolute:g}"
    return difference(
        a, b, absolute=sizes.absolute, relative=sizes.relative, left=gated and sizes.outside > 0
    )


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits (NaN included)."""
    if a.device != b.device:
        b = b.to(a.device)
    if a.is_floating_point():
        integers = _INTEGERS[a.element_size()]
        a, b = a.contiguous().view(integers), b.contiguous().view(integers)
    return torch.equal(a, b)


@dataclass(frozen=True, slots=True)
class _Sizes:
    absolute: float
    largest: float  # largest |original|
    outside: int  # elements beyond the tolerance
    ndim_zero: bool

    @property
    def relative(self) -> float | None:
        if math.isinf(self.absolute):
            return math.inf
        return self.absolute / self.largest if self.largest else None


@torch.no_grad()
def _measure(original: torch.Tensor, package: torch.Tensor, tolerance: Tolerance) -> _Sizes:
    absolute = largest = 0.0
    outside = 0
    a_flat, b_flat = original.reshape(-1), package.to(original.device).reshape(-1)
    for start in range(0, a_flat.numel(), CHUNK):
        a32, b32 = a_flat[start : start + CHUNK], b_flat[start : start + CHUNK]
        a, b = a32.double(), b32.double()
        gap = (a - b).abs()
        equal = a == b if a32.is_floating_point() else a32 == b32  # float64 rounds large integers
        same = equal | (a.isnan() & b.isnan())
        gap[same] = 0.0  # two infinities of one sign have no difference either
        gap[~same & (gap == 0)] = 1.0  # such integers, rounded to the same number
        inside = gap <= tolerance.atol + tolerance.rtol * a.abs()
        if tolerance.max_ulps is not None and a32.is_floating_point():
            inside |= count_ulps(a32, b32) <= tolerance.max_ulps
        inside &= a.isfinite() & b.isfinite()
        outside += int((~(inside | same)).sum())
        absolute = max(absolute, float(gap.nan_to_num(nan=math.inf, posinf=math.inf).max()))
        largest = max(largest, float(a.abs().nan_to_num(nan=0.0, posinf=math.inf).max()))
    return _Sizes(absolute, largest, outside, original.ndim == 0)


def count_ulps(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many representable numbers apart each pair of finite elements is; -0.0 equals 0.0."""
    integers = _INTEGERS[a.element_size()]

    def ordered(tensor: torch.Tensor) -> torch.Tensor:
        bits = tensor.contiguous().view(integers).to(torch.int64)
        lowest = torch.iinfo(integers).min
        return torch.where(bits < 0, lowest - bits, bits)

    x, y = ordered(a), ordered(b)
    apart = (x - y).abs()
    # float64 of opposite signs can be further apart than an int64 holds
    too_far = ((x < 0) != (y < 0)) & (x.abs() > torch.iinfo(torch.int64).max - y.abs())
    return torch.where(too_far, torch.iinfo(torch.int64).max, apart)


def _same_value(a: Any, b: Any) -> bool:
    """Whether two values of optimizer state are equal, NaN and nested tensors included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and same_bits(a, b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same_value(a[key], b[key]) for key in a)
    both_nan = isinstance(a, float) and math.isnan(a) and math.isnan(b)
    return both_nan or bool(a == b)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return "absent" if value is None else repr(value)

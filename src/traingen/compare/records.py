"""Compare two update records, one of each system, quantity by quantity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from traingen.compare.differences import Comparison, Difference
from traingen.compare.gates import CLIP_NORM_RTOL, Gates, Tolerance
from traingen.records import UpdateRecord

ABSENT = "absent"
Value = tuple[str, str, Any, Any]  # quantity, path, original, package


def compare_updates(original: UpdateRecord, package: UpdateRecord, gates: Gates) -> Comparison:
    """Return what differs between the records of one update and how much was compared.

    A field that neither system can see is not compared; one that a single system has is a
    difference, except for loss terms, which only a system with taps for them has.
    """
    compared: dict[str, int] = {}
    differences: list[Difference] = []
    for quantity, path, mine, theirs in _values(original, package):
        compared[quantity] = compared.get(quantity, 0) + 1
        tolerance = _tolerance(quantity, original, package, gates)
        found = _difference(original.update, quantity, path, mine, theirs, tolerance)
        if found is not None:
            differences.append(found)
    return Comparison(
        update=original.update,
        compared=compared,
        differences=tuple(sorted(differences, key=lambda d: d.rank)),
        loss_relative=_relative_loss(original, package),
        nonfinite=tuple(
            name
            for name, record in (("original", original), ("package", package))
            if not _is_finite(record)
        ),
    )


def relative_difference(original: float | None, package: float | None) -> float | None:
    """|original - package| / |original|; infinite if only one is finite, None if unknown."""
    if original is None or package is None:
        return None
    if original == package or (math.isnan(original) and math.isnan(package)):
        return 0.0
    if not (math.isfinite(original) and math.isfinite(package)) or original == 0.0:
        return math.inf
    return abs(original - package) / abs(original)


def _relative_loss(a: UpdateRecord, b: UpdateRecord) -> float | None:
    """Of the loss; of the objective where one of the loops does not tell its loss."""
    if a.loss is None or b.loss is None:
        return relative_difference(a.objective, b.objective)
    return relative_difference(a.loss, b.loss)


def _is_finite(record: UpdateRecord) -> bool:
    """Whether the numbers that training computes are; a hyper-parameter may well be infinite."""
    return all(
        value is None or math.isfinite(value)
        for value in (record.loss, record.objective, record.grad_norm)
    )


def _values(a: UpdateRecord, b: UpdateRecord) -> Iterator[Value]:
    """Every value that both or one of the records has, in causal order."""
    if (a.micro_batches == 0) != (b.micro_batches == 0):  # an update without a batch of its own
        yield "batch", "batch.micro_batches", a.micro_batches, b.micro_batches
        return
    yield from _schedulers(a, b)
    for field, quantity in (("ema", "tail.ema"), ("sampler", "tail.sampler")):
        yield from _both(quantity, field, getattr(a, field), getattr(b, field))
    yield from _both("tail.scaler", "amp_scale", a.amp_scale, b.amp_scale)
    yield from _streams("tail.rng", "rng.begin", a.rng, b.rng)
    yield "batch", "batch.micro_batches", a.micro_batches, b.micro_batches
    yield from _both(
        "batch", "batch.digest", a.batch and a.batch.digest, b.batch and b.batch.digest
    )
    yield from _streams("rng", "rng.first_forward", a.rng_forward, b.rng_forward)
    yield from _streams("rng", "rng.after_update", a.rng_after, b.rng_after)
    yield from _mapping("loss_terms", "loss_terms", a.loss_terms, b.loss_terms)
    yield from _both("objective", "objective", a.objective, b.objective)
    if a.loss is not None and b.loss is not None:  # a loop need not tell what it divides by
        yield "objective", "loss", a.loss, b.loss
    yield from _both("grad_norm", "grad_norm", a.grad_norm, b.grad_norm)
    yield from _both("clipping", "clipping.clipped", a.clipped, b.clipped)
    yield from _both(
        "clipping", "clipping.grad_norm_clipped", a.grad_norm_clipped, b.grad_norm_clipped
    )
    yield "optimizer", "optimizer.groups", len(a.lr), len(b.lr)
    if len(a.lr) == len(b.lr):  # else their indices do not mean the same
        yield from _sequence("lr", "lr", a.lr, b.lr)
        yield from _groups(a.hyper_parameters, b.hyper_parameters)


def _both(quantity: str, path: str, a: Any, b: Any) -> Iterator[Value]:
    if a is not None or b is not None:
        yield quantity, path, ABSENT if a is None else a, ABSENT if b is None else b


def _mapping(quantity: str, path: str, a: Any, b: Any) -> Iterator[Value]:
    """Key by key; a mapping that only one system has at all is not comparable and left out."""
    if a is None or b is None:
        return
    for key in dict.fromkeys((*a, *b)):
        yield quantity, f"{path}.{key}", a.get(key, ABSENT), b.get(key, ABSENT)


def _streams(quantity: str, path: str, a: Any, b: Any) -> Iterator[Value]:
    """Generator by generator; digests that only one system has differ in each of them."""
    if a is not None or b is not None:
        yield from _mapping(quantity, path, a or {}, b or {})


def _sequence(quantity: str, path: str, a: list[Any], b: list[Any]) -> Iterator[Value]:
    for index in range(max(len(a), len(b))):
        mine = a[index] if index < len(a) else ABSENT
        theirs = b[index] if index < len(b) else ABSENT
        yield quantity, f"{path}[{index}]", mine, theirs


def _groups(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> Iterator[Value]:
    for _, path, mine, theirs in _sequence("hyper_parameters", "hyper_parameters", a, b):
        if mine == ABSENT or theirs == ABSENT:
            yield "hyper_parameters", path, mine, theirs
            continue
        yield from _mapping("hyper_parameters", path, mine, theirs)


def _schedulers(a: UpdateRecord, b: UpdateRecord) -> Iterator[Value]:
    for _, path, mine, theirs in _sequence(
        "tail.scheduler", "scheduler", a.scheduler or [], b.scheduler or []
    ):
        if mine == ABSENT or theirs == ABSENT:
            yield "tail.scheduler", path, _present(mine), _present(theirs)
            continue
        yield "tail.scheduler", f"{path}.ticks", mine.ticks, theirs.ticks
        yield from _both("tail.scheduler", f"{path}.last_epoch", mine.last_epoch, theirs.last_epoch)


def _present(state: Any) -> str:
    return ABSENT if state == ABSENT else "present"


def _tolerance(quantity: str, a: UpdateRecord, b: UpdateRecord, gates: Gates) -> Tolerance:
    tolerance = gates.of(quantity)
    from_clip = "clip" in (a.grad_norm_source, b.grad_norm_source)
    if from_clip and quantity in ("grad_norm", "clipping"):
        return replace(tolerance, rtol=max(tolerance.rtol, CLIP_NORM_RTOL))
    return tolerance


def _difference(
    update: int, quantity: str, path: str, a: Any, b: Any, tolerance: Tolerance
) -> Difference | None:
    if _equal(a, b):
        return None
    numbers = _is_number(a) and _is_number(b)
    return Difference(
        update=update,
        quantity=quantity,
        path=path,
        original=a,
        package=b,
        absolute=_distance(a, b) if numbers else None,
        relative=relative_difference(a, b) if numbers else None,
        left=not tolerance.report_only and not (numbers and tolerance.admits(a, b)),
        limit=tolerance.limit,
    )


def _equal(a: Any, b: Any) -> bool:
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return both_nan or bool(a == b)


def _distance(a: float, b: float) -> float:
    """|a - b|; infinite for a NaN against a number, so that it counts as the largest."""
    gap = abs(a - b)
    return math.inf if math.isnan(gap) else gap


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

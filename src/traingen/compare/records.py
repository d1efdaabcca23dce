"""Compare two update records, one of each system, quantity by quantity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from traingen.compare.differences import Comparison, Difference
from traingen.compare.gates import CLIP_NORM_RTOL, EXACT, Gates, Tolerance
from traingen.records import UpdateRecord

ABSENT = "absent"
COMPARED_FIELDS = frozenset(
    {
        "scheduler",
        "ema",
        "sampler",
        "amp_scale",
        "amp_growth",
        "rng",
        "batch",
        "rng_forward",
        "rng_after",
        "loss_terms",
        "objective",
        "loss",
        "closure",
        "layer_norms",
        "grad_norm",
        "grad_norm_clipped",
        "clipped",
        "clip_coefficient",
        "shard",
        "lr",
        "hyper_parameters",
        "moment_norms",
        "update_ratios",
        "parameters",
    }
)  # of an UpdateRecord, and beside them `micro_batches`, which every loop knows
DIGEST = "parameters"  # the path of a digest, which can only be equal or not
CLIP_NORMS = frozenset({"grad_norm", "clipping.grad_norm_clipped", "clipping.clip_coefficient"})
Value = tuple[str, str, Any, Any]  # quantity, path, original, package


def compare_updates(
    original: UpdateRecord,
    package: UpdateRecord,
    gates: Gates,
    *,
    seen: frozenset[str] = frozenset(),
    skipped: tuple[int, int] | None = None,
) -> Comparison:
    """Return what differs between the records of one update and how much was compared.

    A field that neither system has is not compared; one that a single system has is a difference.
    Loss terms, norms by parameter, moments and probes are one only if both observers have `seen`
    the field: else a system may lack them because nobody looked. `skipped`: how many steps AMP's
    scaler has left out before this update on either side.
    """
    compared: dict[str, int] = {}
    reported: dict[str, int] = {}
    allowed: dict[str, None] = {}
    differences: list[Difference] = []
    for quantity, path, mine, theirs in _values(original, package, seen, skipped):
        tolerance = gates.of(quantity)
        compared[quantity] = compared.get(quantity, 0) + 1
        if path == DIGEST and tolerance.limit != "exact":  # it cannot tell how far apart they are
            reported[quantity] = reported.get(quantity, 0) + 1
            tolerance = replace(tolerance, report_only=True)
        elif path in CLIP_NORMS and _from_one_clip(original, package):
            allowed[quantity] = None
            tolerance = replace(tolerance, rtol=max(tolerance.rtol, CLIP_NORM_RTOL))
        if not _equal(mine, theirs):
            found = _difference(original.update, quantity, path, mine, theirs, tolerance)
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
        reported=reported,
        allowed=tuple(allowed),
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


def _values(
    a: UpdateRecord, b: UpdateRecord, seen: frozenset[str], skipped: tuple[int, int] | None
) -> Iterator[Value]:
    """Every value that both or one of the records has."""
    if (a.micro_batches == 0) != (b.micro_batches == 0):  # an update without a batch of its own
        yield "batch", "batch.micro_batches", a.micro_batches, b.micro_batches
        return
    yield from _schedulers(a, b)
    yield from _averaging(a.ema, b.ema)
    yield from _nested("tail.sampler", "sampler", a.sampler, b.sampler)
    yield from _probes(a.user, b.user, both_look="user" in seen)
    yield from _both("tail.scaler", "amp_scale", a.amp_scale, b.amp_scale)
    yield from _both("tail.scaler", "amp_growth", a.amp_growth, b.amp_growth)
    if skipped is not None:
        yield "tail.scaler", "skipped_steps", *skipped
    yield from _streams("tail.rng", "rng.begin", a.rng, b.rng)
    yield "batch", "batch.micro_batches", a.micro_batches, b.micro_batches
    yield from _both(
        "batch", "batch.digest", a.batch and a.batch.digest, b.batch and b.batch.digest
    )
    yield from _streams("rng", "rng.first_forward", a.rng_forward, b.rng_forward)
    yield from _streams("rng", "rng.after_update", a.rng_after, b.rng_after)
    yield from _looked_for("loss_terms", "loss_terms", a, b, seen)
    yield from _both("objective", "objective", a.objective, b.objective)
    if a.loss is not None and b.loss is not None:  # a loop need not tell what it divides by
        yield "objective", "loss", a.loss, b.loss
    yield from _by_parameter("gradients", "layer_norms", a, b, seen)
    yield from _norms(a, b)
    yield "optimizer", "optimizer.groups", len(a.lr), len(b.lr)
    if len(a.lr) == len(b.lr):  # else their indices do not mean the same
        yield from _sequence("lr", "lr", a.lr, b.lr)
        yield from _groups(a.hyper_parameters, b.hyper_parameters)
    yield from _applied(a, b, seen)


def _norms(a: UpdateRecord, b: UpdateRecord) -> Iterator[Value]:
    """Gradient norms and what clipping made of them; a share of a norm says nothing of a whole."""
    mine, theirs = a.shard, b.shard
    if mine is None and theirs is None:
        yield from _both("grad_norm", "grad_norm", a.grad_norm, b.grad_norm)
    elif mine is not None and theirs is not None:
        share = "shard.grad_norm_squared"
        yield "grad_norm", share, mine.grad_norm_squared, theirs.grad_norm_squared
    # the first of clipping, so that one left out is called what it is, and no number
    yield from _both("clipping", "clipping.clipped", a.clipped, b.clipped)
    if mine is None and theirs is None:
        yield from _both(
            "clipping", "clipping.grad_norm_clipped", a.grad_norm_clipped, b.grad_norm_clipped
        )
    elif mine is not None and theirs is not None:
        share = "shard.grad_norm_clipped_squared"
        yield "clipping", share, mine.grad_norm_clipped_squared, theirs.grad_norm_clipped_squared
    yield from _both(
        "clipping", "clipping.clip_coefficient", a.clip_coefficient, b.clip_coefficient
    )


def _applied(a: UpdateRecord, b: UpdateRecord, seen: frozenset[str]) -> Iterator[Value]:
    """What the optimizer's step has left: how often it called a closure, state, parameters."""
    if (a.closure is None) != (b.closure is None):
        yield (
            "optimizer_state",
            "closure.evaluations",
            ABSENT if a.closure is None else a.closure.evaluations,
            ABSENT if b.closure is None else b.closure.evaluations,
        )
    if a.closure is not None and b.closure is not None:
        mine, theirs = a.closure, b.closure
        yield from _both(
            "objective", "closure.first_objective", mine.first_objective, theirs.first_objective
        )
        yield "optimizer_state", "closure.evaluations", mine.evaluations, theirs.evaluations
        yield from _both(
            "optimizer_state", "closure.last_objective", mine.last_objective, theirs.last_objective
        )
    yield from _looked_for("optimizer_state", "moment_norms", a, b, seen)
    yield from _by_parameter("parameters", "update_ratios", a, b, seen)
    yield from _both("parameters", DIGEST, a.parameters, b.parameters)


def _averaging(a: dict[str, Any] | None, b: dict[str, Any] | None) -> Iterator[Value]:
    """Averaged weights but for who averages them, and without what either does not tell."""
    if a is None or b is None:
        yield from _both("tail.ema", "ema", a, b)
        return
    told = [key for key in dict.fromkeys((*a, *b)) if key != "class_path"]
    told = [
        key for key in told if a.get(key, ABSENT) is not None and b.get(key, ABSENT) is not None
    ]
    mine, theirs = ({key: ema[key] for key in told if key in ema} for ema in (a, b))
    yield from _nested("tail.ema", "ema", mine, theirs)


def _probes(
    a: dict[str, Any] | None, b: dict[str, Any] | None, *, both_look: bool
) -> Iterator[Value]:
    """Probe by probe, each down to the member that differs."""
    if not both_look and (a is None or b is None):
        return
    mine, theirs = a or {}, b or {}
    for name in dict.fromkeys((*mine, *theirs)):
        path = f"user.{name}"
        yield from _nested("tail.user", path, mine.get(name, ABSENT), theirs.get(name, ABSENT))


def _looked_for(
    quantity: str, field: str, a: UpdateRecord, b: UpdateRecord, seen: frozenset[str]
) -> Iterator[Value]:
    """A mapping key by key; one that a single system has counts if both have looked for it."""
    mine, theirs = getattr(a, field), getattr(b, field)
    if field in seen:
        mine, theirs = mine or {}, theirs or {}
    yield from _mapping(quantity, field, mine, theirs)


def _by_parameter(
    quantity: str, field: str, a: UpdateRecord, b: UpdateRecord, seen: frozenset[str]
) -> Iterator[Value]:
    """Name by name where both systems use the same names; others cannot be paired here."""
    mine, theirs = getattr(a, field), getattr(b, field)
    if mine is not None and theirs is not None:
        if mine.keys() == theirs.keys():
            yield from _mapping(quantity, field, mine, theirs)
    elif field in seen and mine is not theirs:
        yield quantity, field, _present(mine), _present(theirs)


def _nested(quantity: str, path: str, a: Any, b: Any) -> Iterator[Value]:
    """Equal values as one; else each member that differs, so that numbers meet their limit."""
    if a is None and b is None:
        return
    if isinstance(a, dict) and isinstance(b, dict) and a != b:
        for key in dict.fromkeys((*a, *b)):
            yield from _nested(quantity, f"{path}.{key}", a.get(key, ABSENT), b.get(key, ABSENT))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and a != b:
        for index, (mine, theirs) in enumerate(zip(a, b, strict=True)):
            yield from _nested(quantity, f"{path}[{index}]", mine, theirs)
    else:
        yield from _both(quantity, path, a, b)


def _both(quantity: str, path: str, a: Any, b: Any) -> Iterator[Value]:
    if a is not None or b is not None:
        yield quantity, path, ABSENT if a is None else a, ABSENT if b is None else b


def _mapping(quantity: str, path: str, a: Any, b: Any) -> Iterator[Value]:
    """Key by key; a mapping that only one system has at all is left out."""
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
    return ABSENT if state is None or state == ABSENT else "present"


def _from_one_clip(a: UpdateRecord, b: UpdateRecord) -> bool:
    """Whether one side's norm is that of its clip, and the other's was measured otherwise."""
    return (a.grad_norm_source == "clip") != (b.grad_norm_source == "clip")


def _difference(
    update: int, quantity: str, path: str, a: Any, b: Any, tolerance: Tolerance
) -> Difference:
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
        limit=tolerance.limit if numbers or tolerance.report_only else EXACT.limit,
    )


def _equal(a: Any, b: Any) -> bool:
    if a == b:
        return True
    return isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)


def _distance(a: float, b: float) -> float:
    """|a - b|; infinite for a NaN against a number, so that it counts as the largest."""
    gap = abs(a - b)
    return math.inf if math.isnan(gap) else gap


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

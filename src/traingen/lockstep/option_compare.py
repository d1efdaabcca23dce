"""Compare, parameter by parameter, what each optimizer holds and with which options.

By name: two optimizers may divide the same parameters into groups differently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traingen.compare.differences import Comparison, Difference
from traingen.compare.gates import Gates
from traingen.lockstep.name_map import ResolvedMap
from traingen.observe.live import LiveState

ABSENT = "absent"
Value = tuple[str, str, Any, Any]  # quantity, path, original, package


def compare_options(
    update: int, original: LiveState, package: LiveState, names: ResolvedMap, gates: Gates
) -> Comparison:
    """Return where the optimizers of two parked systems differ in more than their tensors.

    Of every pair of groups whose options differ, the first parameter is named.
    """
    pairs = [(a, b) for a, b in names.pairs if a in original.parameters]
    values = [*_options(original, package, pairs), *_clip_limits(original, package)]
    return Comparison(
        update=update,
        compared={"optimizer": len(pairs)},
        differences=tuple(_difference(update, value, gates) for value in values),
    )


def _options(
    original: LiveState, package: LiveState, pairs: list[tuple[str, str]]
) -> Iterator[Value]:
    """The options that differ; the parameters of a group share theirs, so each pair is met once."""
    met: set[tuple[int, int]] = set()
    for mine, theirs in pairs:
        a, b = original.options.get(mine), package.options.get(theirs)
        if a is None and b is None:
            continue
        if a is None or b is None:
            yield "optimizer", f"optimizer.{theirs}", _held(a), _held(b)
        elif (id(a), id(b)) not in met:
            met.add((id(a), id(b)))
            yield from _differing(theirs, a, b)


def _differing(name: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[Value]:
    for key in dict.fromkeys((*a, *b)):
        mine, theirs = a.get(key, ABSENT), b.get(key, ABSENT)
        if mine != theirs and key == "lr":
            yield "lr", f"lr.{name}", mine, theirs
        elif mine != theirs:
            yield "hyper_parameters", f"hyper_parameters.{key}.{name}", mine, theirs


def _clip_limits(original: LiveState, package: LiveState) -> Iterator[Value]:
    """The limits themselves: the norms that clips compute are compared with a tolerance."""
    a, b = original.clip_limit, package.clip_limit
    if a is not None and b is not None and a != b:
        yield "clipping", "clipping.max_norm", a, b


def _held(options: dict[str, Any] | None) -> str:
    return ABSENT if options is None else "held"


def _difference(update: int, value: Value, gates: Gates) -> Difference:
    quantity, path, original, package = value
    tolerance = gates.of(quantity)
    numbers = isinstance(original, float) and isinstance(package, float)
    inside = tolerance.report_only or (numbers and tolerance.admits(original, package))
    return Difference(
        update=update,
        quantity=quantity,
        path=path,
        original=original,
        package=package,
        left=not inside,
        limit=tolerance.limit,
    )

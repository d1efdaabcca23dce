"""Compare the tensors of two parked systems by name map."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from traingen.compare.gates import Gates, Tolerance
from traingen.compare.tensors import TensorComparison, compare_tensors
from traingen.lockstep.name_map import ResolvedMap
from traingen.observe.live import LiveState

Named = tuple[str, Any, Any]


def compare_live(
    update: int, original: LiveState, package: LiveState, names: ResolvedMap, gates: Gates
) -> list[TensorComparison]:
    """Compare gradients, optimizer state, parameters and buffers after one update.

    Paths carry the package's names. Gradients are compared as they were before clipping: where
    the two systems clipped by different factors, each is divided by its own. Where a clip was not
    by one factor (by value, say), what it has left is compared, as part of `clipping`.
    """
    parameters = [(a, b) for a, b in names.pairs if a in original.parameters]
    buffers = [(a, b) for a, b in names.pairs if a in original.buffers]
    return [
        _compare_gradients(update, original, package, parameters, gates.of("gradients")),
        compare_tensors(
            update,
            "optimizer_state",
            _optimizer_state(original, package, parameters),
            gates.of("optimizer_state"),
        ),
        compare_tensors(
            update,
            "parameters",
            ((b, original.parameters[a], package.parameters.get(b)) for a, b in parameters),
            gates.of("parameters"),
        ),
        compare_tensors(
            update,
            "buffers",
            ((b, original.buffers[a], package.buffers.get(b)) for a, b in buffers),
            gates.of("buffers"),
        ),
    ]


def _compare_gradients(
    update: int,
    original: LiveState,
    package: LiveState,
    parameters: list[tuple[str, str]],
    tolerance: Tolerance,
) -> TensorComparison:
    """Gradients before clipping; where they cannot be told any more, what clipping has left."""
    mine, theirs = original.clip_coefficient, package.clip_coefficient
    held = [(b, original.gradients.get(a), package.gradients.get(b)) for a, b in parameters]
    if mine is None or theirs is None:
        return compare_tensors(update, "clipping", held, tolerance)
    if mine == theirs:
        return compare_tensors(update, "gradients", held, tolerance)
    whole = [(name, _divide(a, mine), _divide(b, theirs)) for name, a, b in held]
    apart = compare_tensors(update, "gradients", whole, Tolerance(rtol=_rounding(whole)))
    beyond = {d.path.removeprefix("gradients.") for d in apart.differences if d.left}
    found = compare_tensors(
        update, "gradients", (named for named in whole if named[0] in beyond), tolerance
    )
    return replace(found, compared=apart.compared, equal=apart.compared - len(beyond))


def _rounding(named: list[Named]) -> float:
    """What multiplying a gradient by a clip coefficient and dividing by it again may round off."""
    kinds = {g.dtype for _, a, b in named for g in (a, b) if isinstance(g, torch.Tensor)}
    return 2 * max((torch.finfo(kind).eps for kind in kinds), default=0.0)


def _divide(gradient: torch.Tensor | None, coefficient: float) -> torch.Tensor | None:
    if gradient is None or coefficient == 1.0:
        return gradient
    return gradient / coefficient


def _optimizer_state(
    original: LiveState, package: LiveState, parameters: list[tuple[str, str]]
) -> Iterator[Named]:
    for a, b in parameters:
        mine = original.optimizer_state.get(a, {})
        theirs = package.optimizer_state.get(b, {})
        for key in dict.fromkeys((*mine, *theirs)):
            yield f"{key}.{b}", mine.get(key), theirs.get(key)

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

UNCLIPPED_RTOL = 2.0**-22  # dividing a float32 gradient by its clip coefficient rounds twice


def compare_live(
    update: int, original: LiveState, package: LiveState, names: ResolvedMap, gates: Gates
) -> list[TensorComparison]:
    """Compare gradients, optimizer state, parameters and buffers after one update.

    Paths carry the package's names. Gradients are compared as they were before clipping: where
    the two systems clipped by different factors, each is divided by its own.
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
    mine, theirs = original.clip_coefficient, package.clip_coefficient
    if mine == theirs or mine is None or theirs is None:
        held = ((b, original.gradients.get(a), package.gradients.get(b)) for a, b in parameters)
        return compare_tensors(update, "gradients", held, tolerance)
    whole = [
        (b, _divide(original.gradients.get(a), mine), _divide(package.gradients.get(b), theirs))
        for a, b in parameters
    ]
    rounding = Tolerance(rtol=UNCLIPPED_RTOL)
    apart = compare_tensors(update, "gradients", whole, rounding)
    beyond = {d.path.removeprefix("gradients.") for d in apart.differences if d.left}
    found = compare_tensors(
        update, "gradients", (named for named in whole if named[0] in beyond), tolerance
    )
    return replace(found, compared=apart.compared, equal=apart.compared - len(beyond))


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

"""What a comparison found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from traingen.compare.order import causal_rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One named quantity that differs at one update."""

    update: int
    quantity: str  # a name of `order.CAUSAL_ORDER`
    path: str  # where exactly, e.g. `gradients.encoder.weight`
    original: Any  # the value, or the tensor's summary
    package: Any
    absolute: float | None = None  # largest over the elements
    relative: float | None = None  # largest |difference| over largest |original|
    left: bool = True  # whether it leaves its gate
    limit: str = "exact"

    @property
    def rank(self) -> tuple[int, int]:
        """Earliest update first, then the causal order of a step."""
        return (self.update, causal_rank(self.quantity))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that was compared at one update."""

    update: int
    compared: dict[str, int]  # quantity -> how many values or tensors were compared
    differences: tuple[Difference, ...] = ()  # in causal order
    loss_relative: float | None = None  # |difference| / |original|
    nonfinite: tuple[str, ...] = field(
        default=()
    )  # systems whose loss or gradient norm is not finite
    reported: Mapping[str, int] = field(
        default_factory=dict
    )  # of `compared`: values that no limit can judge
    allowed: tuple[str, ...] = ()  # quantities that one side's clip computed less accurately

    @property
    def left(self) -> tuple[Difference, ...]:
        """Those that leave their gates."""
        return tuple(d for d in self.differences if d.left)


def combine_comparisons(first: Comparison, second: Comparison) -> Comparison:
    """Join two comparisons of the same update."""
    differences = sorted((*first.differences, *second.differences), key=lambda d: d.rank)
    return replace(
        first,
        compared=add_counts(first.compared, second.compared),
        differences=tuple(differences),
        reported=add_counts(first.reported, second.reported),
        allowed=tuple(dict.fromkeys((*first.allowed, *second.allowed))),
    )


def add_counts(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """How many of each name both hold together."""
    return {
        name: first.get(name, 0) + second.get(name, 0) for name in dict.fromkeys((*first, *second))
    }

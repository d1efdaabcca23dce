"""What a comparison found, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
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

    @property
    def left(self) -> tuple[Difference, ...]:
        """Those that leave their gates."""
        return tuple(d for d in self.differences if d.left)


def combine_comparisons(first: Comparison, second: Comparison) -> Comparison:
    """Join two comparisons of the same update."""
    differences = sorted((*first.differences, *second.differences), key=lambda d: d.rank)
    return Comparison(
        update=first.update,
        compared={
            quantity: first.compared.get(quantity, 0) + second.compared.get(quantity, 0)
            for quantity in dict.fromkeys((*first.compared, *second.compared))
        },
        differences=tuple(differences),
        loss_relative=first.loss_relative,
        nonfinite=first.nonfinite,
    )

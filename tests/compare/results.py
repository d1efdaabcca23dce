"""Sample comparisons and results, for the tests of what is concluded and shown."""

from typing import Any

from traingen.compare.differences import Comparison, Difference
from traingen.compare.summary import ModeResult, Summary


def make_difference(quantity: str = "gradients", update: int = 1, **changes: Any) -> Difference:
    fields = {"path": f"{quantity}.w", "original": 1.0, "package": 2.0, "absolute": 1.0}
    return Difference(update=update, quantity=quantity, **(fields | changes))


def make_comparison(update: int, *differences: Difference, **changes: Any) -> Comparison:
    fields: dict[str, Any] = {"compared": {"gradients": 2, "parameters": 3}, "loss_relative": 0.0}
    return Comparison(update=update, differences=differences, **(fields | changes))


def make_summary(*comparisons: Comparison, asked: int = 2, **changes: Any) -> Summary:
    summary = Summary(**({"mode": "natural", "asked": asked, "horizon": {}} | changes))
    for comparison in comparisons:
        summary.add(comparison)
    return summary


def make_mode(
    *comparisons: Comparison,
    mode: str = "natural",
    not_exercised: tuple[str, ...] = (),
    not_synchronized: dict[str, str] | None = None,
    excused: dict[str, str] | None = None,
    excused_trained: tuple[str, ...] = (),
    **changes: Any,
) -> ModeResult:
    """One mode; two equal updates unless said otherwise."""
    found = comparisons or (make_comparison(1), make_comparison(2))
    return make_summary(*found, mode=mode, **changes).result(
        not_exercised=not_exercised,
        not_synchronized=not_synchronized or {},
        excused=excused or {},
        excused_trained=excused_trained,
    )

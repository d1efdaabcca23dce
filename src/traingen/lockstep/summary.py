"""What one mode of a lockstep run found, gathered update by update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from traingen.compare.differences import Comparison, Difference
from traingen.compare.order import gate_name
from traingen.compare.tensors import TensorComparison, same_bits
from traingen.observe.live import LiveState
from traingen.records import UpdateRecord

LOSS_DEPARTURE = 1e-3  # relative; the protocol's "Real-Scale Lockstep Probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """One mode, from its first update to its last."""

    mode: str
    verdict: str  # pass, fail or inconclusive
    reason: str | None  # why it is not a pass
    updates: int  # compared
    asked: int
    horizon: dict[str, int]  # gate -> last update at which it is asserted; others: at all
    first_divergence: Difference | None  # the first asserted gate left, earliest in causal order
    report_only_divergence: Difference | None  # the first gate left at or after the horizon
    earliest_difference: Difference | None  # the first bit that differed, gate or not
    loss_departure: tuple[int, float] | None  # first update beyond LOSS_DEPARTURE, and its size
    largest_loss_relative: float | None
    compared: dict[str, int]  # quantity -> values or tensors compared, over all updates
    equal_updates: int  # updates at which every compared bit was equal
    largest: dict[str, float]  # quantity -> largest absolute difference of a tensor or number
    not_exercised: tuple[str, ...]
    not_synchronized: dict[str, str]
    notes: tuple[str, ...] = ()  # what happened besides, e.g. an error while a system was ended


@dataclass(slots=True)
class Summary:
    """Builds a `ModeResult`."""

    mode: str
    asked: int
    horizon: dict[str, int]
    updates: int = 0
    equal_updates: int = 0
    first_divergence: Difference | None = None
    report_only_divergence: Difference | None = None
    earliest_difference: Difference | None = None
    loss_departure: tuple[int, float] | None = None
    largest_loss: float | None = None
    compared: dict[str, int] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    doubt: str | None = None  # why nothing can be concluded
    failure: str | None = None  # what failed without being a difference of values
    notes: list[str] = field(default_factory=list)

    def asserts(self, quantity: str, update: int) -> bool:
        """Whether the gate of `quantity` is asserted at `update`, or report-only.

        Rounding that the package adds in its first update shows from the second on, where the run
        that measured the horizon had it from the start: the horizon itself is still asserted.
        """
        horizon = self.horizon.get(gate_name(quantity))
        return horizon is None or update <= horizon

    def add(self, comparison: Comparison) -> None:
        """Take one update's comparison in."""
        self.updates = comparison.update
        self.equal_updates += not comparison.differences
        for quantity, count in comparison.compared.items():
            self.compared[quantity] = self.compared.get(quantity, 0) + count
        self._note_sizes(comparison)
        if comparison.differences and self.earliest_difference is None:
            self.earliest_difference = comparison.differences[0]
        if comparison.left:
            self._note_left(comparison)

    def _note_left(self, comparison: Comparison) -> None:
        for difference in comparison.left:  # in causal order: the first is the cause
            if not self.asserts(difference.quantity, comparison.update):
                self.report_only_divergence = self.report_only_divergence or difference
            elif self.first_divergence is None:
                self.first_divergence = difference

    def _note_sizes(self, comparison: Comparison) -> None:
        loss = comparison.loss_relative
        if loss is not None:
            self.largest_loss = max(loss, self.largest_loss or 0.0)
            if loss > LOSS_DEPARTURE and self.loss_departure is None:
                self.loss_departure = (comparison.update, loss)
        for difference in comparison.differences:
            if difference.absolute is not None:
                largest = self.largest.get(difference.quantity, 0.0)
                self.largest[difference.quantity] = max(difference.absolute, largest)

    def result(
        self, *, not_exercised: Sequence[str], not_synchronized: dict[str, str]
    ) -> ModeResult:
        """Conclude."""
        verdict, reason = self._conclude()
        return ModeResult(
            mode=self.mode,
            verdict=verdict,
            reason=reason,
            updates=self.updates,
            asked=self.asked,
            horizon=dict(self.horizon),
            first_divergence=self.first_divergence,
            report_only_divergence=self.report_only_divergence,
            earliest_difference=self.earliest_difference,
            loss_departure=self.loss_departure,
            largest_loss_relative=self.largest_loss,
            compared=dict(self.compared),
            equal_updates=self.equal_updates,
            largest=dict(self.largest),
            not_exercised=tuple(not_exercised),
            not_synchronized=dict(not_synchronized),
            notes=tuple(self.notes),
        )

    def _conclude(self) -> tuple[str, str | None]:
        if self.first_divergence is not None:
            return "fail", f"a gate was left at update {self.first_divergence.update}"
        if self.failure is not None:
            return "fail", self.failure
        if self.doubt is not None:
            return "inconclusive", self.doubt
        if self.updates == 0 or not self.compared.get("parameters"):
            return "inconclusive", "nothing was compared"
        if self.updates < self.asked:
            return "inconclusive", f"{self.updates} of {self.asked} updates were compared"
        return "pass", None


def per_quantity(comparisons: Sequence[TensorComparison], base: Comparison) -> Comparison:
    """Join the comparison of records and of tensors of one update."""
    differences = [*base.differences, *(d for c in comparisons for d in c.differences)]
    compared = dict(base.compared)
    for comparison in comparisons:
        before = compared.get(comparison.quantity, 0)
        compared[comparison.quantity] = before + comparison.compared
    return Comparison(
        update=base.update,
        compared=compared,
        differences=tuple(sorted(differences, key=lambda d: d.rank)),
        loss_relative=base.loss_relative,
        nonfinite=base.nonfinite,
    )


class Exercise:
    """Keeps what a run has not put to the test: a pass does not speak for it."""

    def __init__(self, live: LiveState) -> None:
        self._idle_parameters = set(live.parameters)
        self._still_buffers = {name: b.detach().clone() for name, b in live.buffers.items()}
        self._clip_fired = False
        self._ticked = False
        self._schedulers = False
        self._rng_moved = False

    def add(self, record: UpdateRecord, live: LiveState) -> None:
        """Look at what one update of the package has moved."""
        for name in list(self._idle_parameters):
            gradient = live.gradients.get(name)
            if gradient is not None and bool(torch.any(gradient != 0)):
                self._idle_parameters.discard(name)
        for name, first in list(self._still_buffers.items()):
            if not same_bits(first, live.buffers[name]):
                del self._still_buffers[name]
        self._clip_fired |= bool(record.clipped)
        self._rng_moved |= record.rng_after != record.rng_forward
        if record.scheduler:
            self._schedulers = True
            self._ticked |= any(state.ticks > 0 for state in record.scheduler)

    def missing(self) -> list[str]:
        """What was not exercised, one line each."""
        lines = [
            f"parameter {name}: its gradient was zero throughout"
            for name in sorted(self._idle_parameters)
        ]
        lines += [f"buffer {name}: it never moved" for name in sorted(self._still_buffers)]
        if not self._clip_fired:
            lines.append("clipping: it never changed a gradient")
        if not self._schedulers:
            lines.append("scheduler: the package has none")
        elif not self._ticked:
            lines.append("scheduler: it never ticked")
        if not self._rng_moved:
            lines.append("random draws within a step: there were none")
        return lines


def plain_difference(difference: Difference | None) -> dict[str, Any] | None:
    """A difference as JSON values."""
    if difference is None:
        return None
    return {
        "update": difference.update,
        "quantity": difference.quantity,
        "path": difference.path,
        "original": difference.original,
        "package": difference.package,
        "absolute": difference.absolute,
        "relative": difference.relative,
        "left": difference.left,
        "limit": difference.limit,
    }

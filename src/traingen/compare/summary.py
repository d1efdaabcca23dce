"""What a comparison found and concludes, gathered update by update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from traingen.compare.differences import Comparison, Difference, add_counts
from traingen.compare.order import gate_name

COMPUTED = ("objective", "gradients", "parameters")  # what a training computes
LOSS_DEPARTURE = 1e-3  # relative; the protocol's "Real-Scale Lockstep Probe"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """What was found of one mode of a lockstep run, or of two recordings."""

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
    excused: dict[str, str]  # name that only one system has, with its side -> reason
    excused_trained: tuple[str, ...]  # parameters among them that had a gradient
    not_asserted: tuple[str, ...]  # gates of what was compared that are report-only throughout
    notes: tuple[str, ...] = ()  # what happened besides, e.g. an error while a system was ended
    allowed: tuple[str, ...] = ()  # quantities that one side's clip computed, with CLIP_NORM_RTOL


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
    reported: dict[str, int] = field(default_factory=dict)  # of `compared`: no limit judges them
    allowed: dict[str, None] = field(default_factory=dict)
    doubt: str | None = None  # why nothing can be concluded
    failure: str | None = None  # what failed without being a difference of values
    notes: list[str] = field(default_factory=list)
    report_only: frozenset[str] = frozenset()  # gates that assert nothing at all
    needed: tuple[str, ...] = ("parameters",)  # all must be compared, or nothing was
    computed: tuple[str, ...] = COMPUTED  # a pass must have asserted one of them

    def asserts(self, quantity: str, update: int) -> bool:
        """Whether the gate of `quantity` is asserted at `update`, or report-only.

        Rounding that the package adds in its first update shows from the second on, where the run
        that measured the horizon had it from the start: the horizon itself is still asserted.
        """
        gate = gate_name(quantity)
        horizon = self.horizon.get(gate)
        return gate not in self.report_only and (horizon is None or update <= horizon)

    def add(self, comparison: Comparison) -> None:
        """Take one update's comparison in."""
        self.updates += 1
        self.equal_updates += not comparison.differences
        self.compared = add_counts(self.compared, comparison.compared)
        self.reported = add_counts(self.reported, comparison.reported)
        self.allowed |= dict.fromkeys(comparison.allowed)
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
        self,
        *,
        not_exercised: Sequence[str],
        not_synchronized: Mapping[str, str],
        excused: Mapping[str, str] | None = None,
        excused_trained: Sequence[str] = (),
    ) -> ModeResult:
        """Conclude."""
        if excused_trained and self.doubt is None:
            self.doubt = f"{excused_trained[0]} trains, but is excused from comparison"
        verdict, reason = self._conclude()
        if self.doubt is not None and self.doubt != reason:
            self.notes.append(self.doubt)  # a failure found before it stands
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
            excused=dict(excused or {}),
            excused_trained=tuple(excused_trained),
            not_asserted=self._not_asserted(),
            notes=tuple(self.notes),
            allowed=tuple(self.allowed),
        )

    def _not_asserted(self) -> tuple[str, ...]:
        """Gates of quantities that were compared, but at no update with an asserted limit."""
        compared, judged = self._by_gate(self.compared), self._by_gate(self._judged())
        lines = []
        for gate in compared:
            if not self.asserts(gate, 1) or gate not in judged:
                lines.append(gate)
            elif judged[gate] < compared[gate]:
                lines.append(f"{gate} (digests)")
        return tuple(lines)

    def _judged(self) -> dict[str, int]:
        """What was compared and is not only reported, whatever its gate says."""
        return {q: count - self.reported.get(q, 0) for q, count in self.compared.items()}

    def _by_gate(self, counts: Mapping[str, int]) -> dict[str, int]:
        gates: dict[str, int] = {}
        for quantity, count in counts.items():
            if count:
                gates[gate_name(quantity)] = gates.get(gate_name(quantity), 0) + count
        return gates

    def _conclude(self) -> tuple[str, str | None]:
        if self.first_divergence is not None:
            return "fail", f"a gate was left at update {self.first_divergence.update}"
        if self.failure is not None:
            return "fail", self.failure
        if self.doubt is not None:
            return "inconclusive", self.doubt
        if self.updates == 0 or not all(self.compared.get(q) for q in self.needed):
            return "inconclusive", "nothing was compared"
        judged = self._judged()
        if not any(judged.get(q) and self.asserts(q, 1) for q in self.computed):
            return "inconclusive", f"nothing of {', '.join(self.computed)} was asserted"
        if self.updates < self.asked:
            return "inconclusive", f"{self.updates} of {self.asked} updates were compared"
        return "pass", None


def plain_place(difference: Difference | None) -> dict[str, Any] | None:
    """Where a difference is, as JSON values."""
    if difference is None:
        return None
    return {
        "update": difference.update,
        "quantity": difference.quantity,
        "path": difference.path,
    }


def plain_difference(difference: Difference | None) -> dict[str, Any] | None:
    """All of a difference as JSON values."""
    place = plain_place(difference)
    if difference is None or place is None:
        return None
    return place | {
        "original": difference.original,
        "package": difference.package,
        "absolute": difference.absolute,
        "relative": difference.relative,
        "left": difference.left,
        "limit": difference.limit,
    }

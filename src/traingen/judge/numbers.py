"""Whether the weights are still numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.watch import Watch
from traingen.records import UpdateRecord


class NumbersWatch(Watch):
    """Look for updates with non-finite gradients, which make the weights non-finite."""

    def updated(self, record: UpdateRecord) -> None:
        """Judge the numbers of one update."""
        if _looks_finite(record):
            return
        wrong = [
            f"{name} is {value}"
            for name, value in _numbers(record).items()
            if value is not None and not math.isfinite(value)
        ]
        if not wrong:
            return
        gradient = _applied_gradient(record)
        harmless = math.isfinite(gradient) if gradient is not None else self._had_none(record)
        kind = kinds.NONFINITE_LOSS if harmless else kinds.NONFINITE
        name = self.place.name(record.update, record.optimizer)
        told = f"{name}: {', '.join(wrong)}{_culprits(record)}"
        self.note(kind, told, of=record.optimizer)

    def _had_none(self, record: UpdateRecord) -> bool:
        """Whether gradients were cleared before the step, as a guard against NaN does."""
        observes = [] if self.place.run is None else self.place.run.observes
        return record.objective is None and {"grad_norm", "objective"} <= set(observes)

    def findings(self) -> Iterator[Finding]:
        """One per optimizer and kind."""
        for kind in (kinds.NONFINITE, kinds.NONFINITE_LOSS):
            for optimizer, tally in self.noted(kind):
                updates = self.place.seen_of(optimizer or 0)
                yield kind.found(f"{tally.told}; {tally.count} of {updates} updates are such")


def _looks_finite(record: UpdateRecord) -> bool:
    """Whether one sum shows what usually holds: that there is nothing to look at."""
    if record.shard is not None:
        return False
    total = (record.loss or 0.0) + (record.objective or 0.0)
    return math.isfinite(total + (record.grad_norm or 0.0) + (record.grad_norm_clipped or 0.0))


def _numbers(record: UpdateRecord) -> dict[str, float | None]:
    shard = record.shard
    return {
        "loss": record.loss,
        "objective": record.objective,
        "grad_norm": record.grad_norm,
        "grad_norm_clipped": record.grad_norm_clipped,
        "the share of the squared norm": shard.grad_norm_clipped_squared if shard else None,
    }


def _applied_gradient(record: UpdateRecord) -> float | None:
    """A number that is finite exactly if the gradients were as the optimizer used them."""
    if record.grad_norm_clipped is not None:
        return record.grad_norm_clipped
    return record.shard.grad_norm_clipped_squared if record.shard else record.grad_norm


def _culprits(record: UpdateRecord) -> str:
    """The parameters whose gradient is not finite, where the recording tells them apart."""
    names = [name for name, norm in (record.layer_norms or {}).items() if not math.isfinite(norm)]
    if not names:
        return ""
    return f" (first in {names[0]}, {len(names)} of {len(record.layer_norms or {})} parameters)"

"""Whether gradients were clipped as declared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.place import Place
from traingen.judge.watch import Watch, index, number, times
from traingen.records import EventRecord, UpdateRecord

SLACK = 1e-3  # relative: torch's own float32 norm, by which it clips, is good to 1e-4
BEYOND = -1  # in place of an optimizer: norms that were too large, or may have been
PARTS = -2  # in place of an optimizer: norms that were clipped in parts
IN_PARTS = " in parts, by another norm, or before something else changed it"
SLACK_OF_HALVES = 1e-2  # gradients in 16 bits are rounded once more when they are scaled


class LimitWatch(Watch):
    """Hold the norm after clipping against the limit that the run declares."""

    def updated(self, record: UpdateRecord) -> None:
        """Judge the norm with which an update was made."""
        limit, norm = self._limit(record.optimizer), record.grad_norm_clipped
        if limit is None or norm is None or not math.isfinite(norm):
            return
        if norm > limit * (1 + self._slack()):
            name = self.place.name(record.update, record.optimizer)
            in_parts = self._is_clipped_in_parts(record)
            how = "after clipping" if record.clipped else "and nothing was clipped"
            self.note(
                kinds.CLIP_LIMIT,
                f"{name}: the gradient norm is {norm:.6g} {how}{IN_PARTS if in_parts else ''}, the "
                f"run declares a clip by {self._declared['algorithm']} at "
                f"{self._declared['value']}",
                of=PARTS if in_parts else None,
            )

    def findings(self) -> Iterator[Finding]:
        """One over all updates; where all were clipped in parts, nothing need be wrong."""
        noted = dict(self.noted(kinds.CLIP_LIMIT))
        if noted:
            beyond = noted.get(None)
            told = beyond or noted[PARTS]
            yield kinds.CLIP_LIMIT.found(
                f"{told.told}; {told.count} of {self.place.seen} updates exceed it",
                severity=None if beyond else "info",
            )

    def _is_clipped_in_parts(self, record: UpdateRecord) -> bool:
        """Whether no one factor tells how: each parameter, or each group, by a norm of its own."""
        by_norm = self._declared.get("algorithm") == "norm"
        return by_norm and bool(record.clipped) and record.clip_coefficient is None

    @property
    def _declared(self) -> dict[str, Any]:
        return (self.place.run.clipping or {}) if self.place.run is not None else {}

    def _limit(self, optimizer: int) -> float | None:
        """The largest norm that the declared clip leaves."""
        value, algorithm = number(self._declared, "value"), self._declared.get("algorithm")
        if value is None or value <= 0:
            return None
        if algorithm == "norm":
            return value
        identity = self.place.optimizers.get(optimizer)
        if algorithm != "value" or identity is None:
            return None
        return value * math.sqrt(identity.parameters)

    def _slack(self) -> float:
        precision = self.place.run.precision if self.place.run is not None else None
        return SLACK_OF_HALVES if (precision or "").endswith("16-true") else SLACK


class EarlyClipWatch(Watch):
    """Look for clips that came before the backward whose gradients they were meant for."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._waiting: dict[int | None, float | None] = {}  # by optimizer, its limit
        self._clipped: set[int] = set()  # optimizers whose gradients a clip has reached

    def began(self) -> None:
        """Nothing waits."""
        self._waiting.clear()

    restarted = began

    def happened(self, event: EventRecord) -> None:
        """A clip found no gradients: whether any were on their way is seen at the next update."""
        if event.event == "clip_without_gradients":
            self._waiting[index(event.details)] = number(event.details, "max_norm")
        elif event.event == "counted_without_update":
            self._waiting.clear()  # no step was made with what was clipped

    def updated(self, record: UpdateRecord) -> None:
        """The update that the clips were before: had it gradients, and were they too large?"""
        if record.clipped:
            self._clipped.add(record.optimizer)
        for optimizer in (None, record.optimizer):
            if optimizer in self._waiting:
                limit = self._waiting.pop(optimizer)
                if record.objective is not None:  # a backward came after the clip
                    self._say(record, limit)

    def _say(self, record: UpdateRecord, limit: float | None) -> None:
        norm = record.grad_norm_clipped
        held = norm is not None and limit is not None and norm <= limit * (1 + SLACK)
        name = self.place.name(record.update, record.optimizer)
        asked = "gradients were clipped" if limit is None else f"a clip at {limit:g} was called"
        used = "" if norm is None else f" and a norm of {norm:.6g} was used"
        self.note(
            kinds.CLIP_BEFORE_BACKWARD,
            f"{name}: {asked} before the backward{used}",
            of=record.optimizer if held else BEYOND,
        )

    def findings(self) -> Iterator[Finding]:
        """One; a warning as long as every norm was within the limit by itself."""
        noted = dict(self.noted(kinds.CLIP_BEFORE_BACKWARD))
        # an optimizer that another clip reaches lost nothing by the early one
        found = [tally for of, tally in noted.items() if of not in self._clipped]
        beyond = noted.get(BEYOND)
        if found:
            steps = sum(tally.count for tally in found)
            yield kinds.CLIP_BEFORE_BACKWARD.found(
                f"{(beyond or found[0]).told}; so it was at {times(steps, 'step')}",
                severity="error" if beyond else "warning",
            )


class ScaledClipWatch(Watch):
    """Look for clips of gradients that still had the AMP scale in them."""

    def happened(self, event: EventRecord) -> None:
        """A clip; a scale of 1 does no harm."""
        scale = number(event.details, "amp_scale")
        if event.event == "clip_on_scaled_gradients" and scale != 1.0:
            limit = number(event.details, "max_norm")
            at = "" if limit is None else f" at {limit:g}"
            by = "" if scale is None else f" {scale:g}"
            self.note(
                kinds.CLIP_SCALED,
                f"{self.place.now()}: gradients were clipped{at} with the scale{by} in them",
            )

    def findings(self) -> Iterator[Finding]:
        """One over all clips."""
        for _, tally in self.noted(kinds.CLIP_SCALED):
            yield kinds.CLIP_SCALED.found(f"{tally.told}; {times(tally.count, 'such clip')}")

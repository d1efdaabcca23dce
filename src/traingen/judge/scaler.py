"""Which steps a gradient scaler left out, and whether its scale holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.place import Place
from traingen.judge.watch import Watch, index, number
from traingen.records import EventRecord, UpdateRecord
from traingen.records.attempts import Moment, is_beyond

LONG = 20  # steps in a row: torch's first scale, halved so often, is far below 1
FEW = 5  # the same, where the run ends without any update: more than a first scale usually costs


@dataclass(slots=True)
class _Streak:
    """Steps skipped one after the other."""

    at: Moment  # the last of them
    when: str
    steps: int = 0
    before: float | None = None  # the scale at the first
    after: float | None = None  # the scale it came down to

    def add(self, before: float | None, after: float | None) -> None:
        """Count one more."""
        self.before = before if self.steps == 0 else self.before
        self.after = after if after is not None else before
        self.steps += 1

    def scales(self) -> str:
        """From which scale to which."""
        if self.before is None:
            return ""
        return f", the scale went from {self.before:g} to {self.after:g}"

    @property
    def collapsed(self) -> bool:
        """Whether it is no longer a scale that finds its level."""
        fell = self.before is not None and self.after is not None and self.after < self.before
        return self.steps >= LONG or (fell and self.after is not None and self.after < 1.0)


class ScalerWatch(Watch):
    """Count skipped steps, all of them and in a row."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._open: dict[int | None, _Streak] = {}
        self._worst: _Streak | None = None

    def began(self) -> None:
        """A streak does not reach over a resume."""
        self._open.clear()

    restarted = began

    def rewind(self, to: Moment) -> None:
        """Forget a streak that is superseded, be it in part: of its scale in between none knows."""
        super().rewind(to)
        if self._worst is not None and is_beyond(self._worst.at, to):
            self._worst = None

    def happened(self, event: EventRecord) -> None:
        """A step was skipped."""
        if event.event != "skipped_step":
            return
        optimizer = index(event.details)
        streak = self._open.get(optimizer)
        if streak is None:
            streak = self._open[optimizer] = _Streak(self.place.moment, self.place.now())
        streak.at = self.place.moment
        before, after = number(event.details, "amp_scale"), number(event.details, "amp_scale_after")
        streak.add(before, after)
        scale = "" if before is None else f" at scale {before:g}"
        self.note(kinds.SKIPPED, f"first {self.place.now()}{scale}")
        if streak.collapsed and (self._worst is None or streak.steps >= self._worst.steps):
            self._worst = streak

    def updated(self, record: UpdateRecord) -> None:
        """A step was applied: the row is broken."""
        self._open.pop(record.optimizer, None)
        self._open.pop(None, None)

    def findings(self) -> Iterator[Finding]:
        """How many were skipped, and the longest row if it is too long."""
        for _, tally in self.noted(kinds.SKIPPED):
            steps = tally.count + self.place.seen
            yield kinds.SKIPPED.found(f"{tally.count} of {steps} steps were skipped, {tally.told}")
        least = FEW if self.place.fruitless else LONG
        lasting = next((one for one in self._open.values() if one.steps >= least), None)
        worst = lasting or self._worst
        if worst is not None:
            last = "; no update followed" if lasting else ""
            yield kinds.SCALE_COLLAPSED.found(
                f"{worst.when}: {worst.steps} skipped in a row{worst.scales()}{last}",
                severity="error" if lasting else None,
            )

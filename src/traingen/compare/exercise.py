"""What the package's records show to have happened, and what a pass does not speak for."""

from __future__ import annotations

from traingen.records import UpdateRecord


class RecordExercise:
    """Keeps what a training has not done by its records: a pass does not speak for it."""

    def __init__(self) -> None:
        self._clip_fired = False
        self._ticked = False
        self._schedulers = False
        self._rng_unknown = False  # in some update
        self._rng_moved = False

    def add(self, record: UpdateRecord) -> None:
        """Look at what one update of the package has moved."""
        self._clip_fired |= bool(record.clipped)
        before, after = record.rng_forward or record.rng, record.rng_after
        if before is None or after is None:
            self._rng_unknown = True
        else:
            self._rng_moved |= before != after
        if record.scheduler:
            self._schedulers = True
            self._ticked |= any(state.ticks > 0 for state in record.scheduler)

    def missing(self) -> list[str]:
        """What was not exercised, one line each."""
        lines = []
        if not self._clip_fired:
            lines.append("clipping: it never changed a gradient in the package")
        if not self._schedulers:
            lines.append("scheduler: the package has none")
        elif not self._ticked:
            lines.append("scheduler: it never ticked")
        if not self._rng_moved:
            seen = "they were not observed" if self._rng_unknown else "there were none"
            lines.append(f"random draws within a step: {seen}")
        return lines

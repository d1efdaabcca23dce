"""How long the updates of a recording took, and how much of that was waiting for data."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from statistics import median

from traingen.records.paths import times_path
from traingen.records.times import iter_times


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The times of all updates that were timed."""

    updates: int
    median_seconds: float  # from the end of one update to the end of the next
    total_seconds: float
    wait_share: float | None  # of the total, spent waiting for data; None of no time at all


def measure_pace(file: str | os.PathLike[str]) -> Pace | None:
    """The pace of the recording `file`, None if nothing of it was timed.

    Raises:
        RecordingError: the times beside it cannot be read.
    """
    if not times_path(file).is_file():
        return None
    seconds, waited = array("d"), 0.0
    for time in iter_times(file):
        seconds.append(time.step_seconds)
        waited += time.wait_seconds
    if not seconds:
        return None
    total = sum(seconds)
    return Pace(
        updates=len(seconds),
        median_seconds=median(seconds),
        total_seconds=total,
        wait_share=waited / total if total > 0 else None,
    )

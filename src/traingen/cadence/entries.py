"""What a module's configure_optimizers returned for each scheduler, before Lightning reads it.

Lightning drops keys that it does not know: in effect is then a default, and the mistake is visible
only here. The forms are those of `core/optimizer.py` in Lightning 2.6.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from traingen.cadence import kinds
from traingen.cadence.schedule import Schedule
from traingen.compare.findings import Finding

PACE = ("interval", "frequency")
BESIDE = {"optimizer", "lr_scheduler", "monitor"}  # what the optimizer's dictionary may hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One scheduler as it was returned."""

    scheduler: Any
    given: Mapping[str, Any] = field(default_factory=dict)  # its dictionary; empty if it came bare
    beside: Mapping[str, Any] = field(default_factory=dict)  # unknown keys next to it

    def lost(self) -> dict[str, tuple[str, Any]]:
        """Pace that was asked for where nothing reads it: key → (where it stands, its value)."""
        found = {
            key: ("beside lr_scheduler", self.beside[key])
            for key in PACE
            if key in self.beside and key not in self.given
        }
        for keys in (self.given, self.beside):
            for key in keys:
                meant = _meant(key, keys[key])
                if meant is not None and meant not in self.given and meant not in found:
                    found[meant] = (f"spelt {key!r}", keys[key])
        return found


def _meant(key: object, value: object) -> str | None:
    """Which of PACE a misspelt key stands for, if one; an interval is a word, a frequency not."""
    if not isinstance(key, str) or key in PACE:
        return None
    close = difflib.get_close_matches(key.lower(), PACE, n=1, cutoff=0.75)
    meant = "frequency" if key.lower().startswith("freq") else close[0] if close else None
    return meant if isinstance(value, str) == (meant == "interval") else None


def iter_entries(returned: Any) -> Iterator[Entry]:
    """The schedulers in what configure_optimizers returned, in Lightning's order."""
    match returned:
        case {"optimizer": _}:
            yield from _from_dictionary(returned)
        case [[*_], [*schedulers]]:
            yield from map(_from_one, schedulers)
        case [[*_], scheduler]:
            yield _from_one(scheduler)
        case [*several] if all(isinstance(one, Mapping) for one in several):
            for one in several:
                yield from _from_dictionary(one)


def _from_dictionary(optimizer: Mapping[str, Any]) -> Iterator[Entry]:
    if "lr_scheduler" in optimizer:
        entry = _from_one(optimizer["lr_scheduler"])
        beside = {key: value for key, value in optimizer.items() if key not in BESIDE}
        yield Entry(scheduler=entry.scheduler, given=entry.given, beside=beside)


def _from_one(scheduler: Any) -> Entry:
    if isinstance(scheduler, Mapping):
        return Entry(scheduler=scheduler.get("scheduler"), given=dict(scheduler))
    return Entry(scheduler=scheduler)


def check_dropped(returned: Any) -> list[Finding]:
    """A finding for each scheduler that stands where nothing reads it."""
    dictionaries = [returned] if isinstance(returned, Mapping) else returned
    if not isinstance(dictionaries, list | tuple):
        return []
    return [
        kinds.MISPLACED_KEY.found(
            f"the scheduler under {key!r} in the optimizer's dictionary is dropped: Lightning "
            "reads lr_scheduler there",
            fix="Call the key lr_scheduler.",
        )
        for optimizer in dictionaries
        if isinstance(optimizer, Mapping)
        for key, value in optimizer.items()
        if key not in BESIDE and _holds_scheduler(value)
    ]


def _holds_scheduler(value: object) -> bool:
    if isinstance(value, Mapping):
        return "scheduler" in value
    if isinstance(value, list | tuple):
        return any(_holds_scheduler(one) for one in value)
    return hasattr(value, "step") and hasattr(value, "optimizer")


def check_entry(entry: Entry, schedule: Schedule, *, write_step: str) -> list[Finding]:
    """A finding for each key that was meant to set the pace and does not."""
    findings = []
    for key, (where, value) in entry.lost().items():
        effective = getattr(schedule, key)
        if value != effective:
            findings.append(
                kinds.MISPLACED_KEY.found(
                    f"{schedule.label}: {key} {value!r} is {where} and dropped; in effect is "
                    f"{key} {effective!r}",
                    fix=write_step if value == "step" else None,
                )
            )
    return findings

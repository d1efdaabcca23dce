"""What a watch over one recording is told, and how it counts what it found in bounded memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from traingen.compare.findings import Finding, FindingKind
from traingen.judge.place import Place
from traingen.records import EndRecord, EventRecord, UpdateRecord
from traingen.records.attempts import Moment, is_beyond

RECENT = 1000  # occurrences that a resume can take back one by one


@dataclass(slots=True)
class Tally:
    """How often one thing occurred, and what was said of it the first time."""

    count: int = 0
    told: str = ""  # where and what the first was
    at: Moment = (0, None)
    recent: deque[tuple[Moment, int]] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, at: Moment, told: str, times: int = 1) -> None:
        """Count an occurrence."""
        if not self.count:
            self.at, self.told = at, told
        self.count += times
        self.recent.append((at, times))

    def rewind(self, to: Moment) -> None:
        """Take back what occurred after `to`: it is superseded."""
        if is_beyond(self.at, to):
            self.count = 0
            self.recent.clear()
        while self.recent and is_beyond(self.recent[-1][0], to):
            self.count -= self.recent.pop()[1]


class Watch:
    """One question put to a recording; override what is wanted.

    `place` has moved on to a record when it is told, so that it counts the update in question.
    """

    of_history = False  # it judges all attempts, also those that a later one does not go on from

    def __init__(self, place: Place) -> None:
        self.place = place
        self._tallies: dict[tuple[str, int | None], Tally] = {}

    def began(self) -> None:
        """An attempt begins: what was known of the moment before does not hold any more."""

    def restarted(self) -> None:
        """Another `fit` begins, with optimizers and schedulers of its own."""

    def updated(self, record: UpdateRecord) -> None:
        """An update was completed."""

    def happened(self, event: EventRecord) -> None:
        """An event, other than the beginning of another `fit`."""

    def ended(self, record: EndRecord) -> None:
        """The attempt is over."""

    def findings(self) -> Iterator[Finding]:
        """What there is to say of the records so far."""
        yield from ()

    def rewind(self, to: Moment) -> None:
        """Forget what was found after `to`: a resume supersedes it."""
        for tally in self._tallies.values():
            tally.rewind(to)

    def note(
        self,
        kind: FindingKind,
        told: str,
        *,
        of: int | None = None,
        times: int = 1,
        at: int | None = None,
    ) -> None:
        """Count an occurrence of `kind`, kept apart by `of` (an optimizer, a scheduler).

        `at` counts the updates of all optimizers when it occurred, if that is not now.
        """
        tally = self._tallies.setdefault((kind.id, of), Tally())
        tally.add(self.place.moment if at is None else (at, None), told, times)

    def noted(self, kind: FindingKind) -> Iterator[tuple[int | None, Tally]]:
        """What was counted of `kind` and still stands."""
        for (name, of), tally in self._tallies.items():
            if name == kind.id and tally.count > 0:
                yield of, tally


def number(details: dict[str, Any] | None, name: str) -> float | None:
    """The number `name` of an event, non-finite ones included; None if there is none."""
    value = (details or {}).get(name)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known else None  # type: ignore[arg-type]


def count(details: dict[str, Any] | None, name: str, *, default: int = 0) -> int:
    """The whole number `name` of an event or a field."""
    value = number(details, name)
    return default if value is None or not math.isfinite(value) else int(value)


def index(details: dict[str, Any] | None, name: str = "optimizer") -> int | None:
    """The index `name` of an event; None if it does not say."""
    value = (details or {}).get(name)
    return value if isinstance(value, int) else None


def text(details: dict[str, Any] | None, name: str) -> str | None:
    """The text `name` of an event; None if there is none."""
    value = (details or {}).get(name)
    return value if isinstance(value, str) else None


def times(n: int, what: str, ending: str = "s") -> str:
    """`n` of `what`, in words that fit the number."""
    return f"{n} {what}" if n == 1 else f"{n} {what}{ending}"

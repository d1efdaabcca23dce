"""What each of two recordings holds, known once it has been read through."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from traingen.reading.opening import Fit, RunReader, open_run
from traingen.reading.outline import Outline
from traingen.records import EventRecord, RunRecord, UpdateRecord
from traingen.records.attempts import Ledger, MissingUpdates, SupersededUpdates


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What one of the two recordings holds."""

    name: str  # original or package
    path: str  # as given
    runs: tuple[RunRecord, ...]
    updates: Mapping[int, int]  # optimizer: updates that stand
    last: Mapping[int, int]  # optimizer: the number of its last one
    events: Mapping[str, int]  # those that stand, counted by name
    ended: str | None  # the reason on the end line; None without one
    superseded: tuple[SupersededUpdates, ...]
    missing: tuple[MissingUpdates, ...]
    fragments: int
    torn: int  # bytes
    fit: Fit | None = None  # of all ranks, where they were merged

    def describe(self) -> dict[str, Any]:
        """The side as JSON values."""
        run = self.runs[-1]
        return {
            "path": self.path,
            "run_id": run.run_id,
            "system": run.system,
            "attempts": [one.attempt for one in self.runs],
            "updates": {str(index): count for index, count in sorted(self.updates.items())},
            "events": dict(self.events),
            "end": self.ended,
            "superseded": [msgspec.to_builtins(span) for span in self.superseded],
            "missing": [msgspec.to_builtins(span) for span in self.missing],
            "fragments": self.fragments,
            "torn_bytes": self.torn,
            "ranks": None if self.fit is None else self.fit.to_json(),
        }


class SideReader:
    """Reads one recording, a line at a time; several ranks as one.

    Args:
        name: original or package.
        path: the file or RUN folder.
        rank: read this rank alone.

    Raises:
        RecordingError: there is no recording, or a rank of it is missing.
    """

    outline: Outline

    def __init__(self, name: str, path: str | os.PathLike[str], *, rank: int | None = None) -> None:
        self._reader: RunReader = open_run(path, rank=rank)
        self.outline = self._reader.outline
        self._name = name
        self._path = os.fspath(path)
        self._ledger = Ledger(self.outline.runs)
        self._updates: Counter[int] = Counter()
        self._events: Counter[str] = Counter()
        self._last: dict[int, int] = {}  # optimizer: its last update
        self._skips: Counter[int] = Counter()  # by optimizer, since its last update
        self._skipped: dict[tuple[int, int], int | None] = {}  # by optimizer and update, not 0

    def updates(self) -> Iterator[UpdateRecord]:
        """Those that stand."""
        for record in self._reader.records():
            if not self._ledger.take(record):
                continue
            if isinstance(record, UpdateRecord):
                self._updates[record.optimizer] += 1
                self._note_skips(record)
                yield record
            elif isinstance(record, EventRecord):
                self._events[record.event] += 1
                if record.event == "skipped_step":
                    self._skips[(record.details or {}).get("optimizer", 0)] += 1

    def take_skips(self, record: UpdateRecord) -> int | None:
        """How many steps were left out since the update before; None if that one is missing.

        To be asked once for each of `updates`, in any order.
        """
        return self._skipped.pop((record.optimizer, record.update), 0)

    def _note_skips(self, record: UpdateRecord) -> None:
        optimizer, update = record.optimizer, record.update
        skips = self._skips.pop(optimizer, 0)
        if update != self._last.get(optimizer, 0) + 1:
            self._skipped[optimizer, update] = None
        elif skips:
            self._skipped[optimizer, update] = skips
        self._last[optimizer] = update

    def side(self) -> Side:
        """What was read so far."""
        ledger = self._ledger
        return Side(
            name=self._name,
            path=self._path,
            runs=self.outline.runs,
            updates=dict(self._updates),
            last=dict(ledger.updates),
            events=dict(self._events),
            ended=None if ledger.end is None else ledger.end.reason,
            superseded=ledger.superseded,
            missing=ledger.missing,
            fragments=self.outline.fragments,
            torn=self.outline.torn,
            fit=self._reader.fit,
        )

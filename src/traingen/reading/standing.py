"""Which records of a recording stand, told one by one: a later attempt may do updates over."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from traingen.errors import RecordingError
from traingen.records import (
    EndRecord,
    EventRecord,
    Record,
    RunRecord,
    UpdateRecord,
    decode_line,
    iter_records,
    recording_path,
)
from traingen.records.attempts import MissingUpdates, SupersededUpdates, lies_beyond
from traingen.records.codec import ends_like_line
from traingen.records.order import completed_at

_RUN = b'{"kind":"run"'  # how a run line begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What a recording's file shows before it is read in earnest."""

    file: Path
    runs: tuple[RunRecord, ...]  # of every attempt
    fragments: int  # lines whose writing never ended, parted from the next by a resume
    torn: int  # bytes after the last newline

    @property
    def run(self) -> RunRecord:
        """Of the last attempt in the file."""
        return self.runs[-1]


def outline_recording(path: str | os.PathLike[str], *, rank: int = 0) -> Outline:
    """Find the run lines of the file or RUN folder `path`, of `rank`; no other line is decoded.

    They must be known before the first update is: what an attempt has recorded beyond the
    checkpoint of a later one does not stand.

    Raises:
        RecordingError: there is no recording, or no run line in it yet.
    """
    iter_records(path, rank=rank)  # says what is wrong with a path that names no recording
    file = find_file(path, rank=rank)
    runs: list[RunRecord] = []
    fragments = torn = whole = 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    torn = len(line)
                    continue
                whole += 1
                if not ends_like_line(line):
                    fragments += 1  # or damage, which the reader will refuse
                elif line.startswith(_RUN):
                    record = decode_line(line, where=f"{file}:{number}")
                    assert isinstance(record, RunRecord)
                    runs.append(record)
    except OSError as error:
        raise RecordingError(f"{file}: cannot be read: {error.strerror}.") from error
    if not runs:
        found = "found none: no recording yet?"
        if whole:
            found = f"found none in {whole} lines: no recording, name a RUN folder or its file."
        raise RecordingError(f"{file}: expected a run line first, {found}")
    return Outline(file=file, runs=tuple(runs), fragments=fragments, torn=torn)


def find_file(path: str | os.PathLike[str], *, rank: int = 0) -> Path:
    """The file of `rank` in the RUN folder `path` or beside the file `path`: of rank 0, itself."""
    file = Path(path)
    if file.is_dir():
        return file / recording_path("", rank=rank).name  # it may itself be called x.jsonl
    return file if rank == 0 else recording_path(file, rank=rank)


def iter_outlined(outline: Outline) -> Iterator[Record]:
    """All records of a recording in file order, up to an attempt that was opened since."""
    runs = 0
    for record in iter_records(outline.file):
        runs += isinstance(record, RunRecord)
        if runs > len(outline.runs):
            return
        yield record


class Ledger:
    """Takes all records of a file in turn and says of each whether it stands.

    Args:
        runs: the run lines of the whole file.
    """

    updates: dict[int, int]  # optimizer: its last update that stands
    end: EndRecord | None  # None unless it is the last record
    run: RunRecord | None  # of the attempt that was taken last

    def __init__(self, runs: Iterable[RunRecord]) -> None:
        self.updates = {}
        self.end = None
        self.run = None
        self._runs = tuple(runs)
        self._later = self._runs  # those that are still to come
        self._superseded: dict[tuple[int, int], tuple[int, int]] = {}
        self._gaps: list[MissingUpdates] = []

    @property
    def in_last_attempt(self) -> bool:
        """Whether no further attempt is to come."""
        return not self._later

    @property
    def superseded(self) -> tuple[SupersededUpdates, ...]:
        """What was recorded, and done over by a later attempt."""
        return tuple(
            SupersededUpdates(attempt=attempt, optimizer=optimizer, first=first, last=last)
            for (attempt, optimizer), (first, last) in sorted(self._superseded.items())
        )

    @property
    def missing(self) -> tuple[MissingUpdates, ...]:
        """What was completed before the last attempt, and is not in this file."""
        resumed = completed_at(self.run.resumed) if self.run else {}
        after = [
            MissingUpdates(optimizer=optimizer, first=last + 1, last=completed)
            for optimizer, completed in resumed.items()
            if completed > (last := self.updates.get(optimizer, 0))
        ]
        return (*self._gaps, *after)

    def take(self, record: Record) -> bool:
        """Take the next record of the file; whether it stands."""
        self.end = record if isinstance(record, EndRecord) else None
        if isinstance(record, RunRecord):
            self.run, self._later = record, self._later[1:]
        elif isinstance(record, UpdateRecord):
            return self._take_update(record)
        elif isinstance(record, EventRecord):
            return not any(lies_beyond(record, run.resumed) for run in self._later)
        return True

    def _take_update(self, record: UpdateRecord) -> bool:
        if not _stands(record, self._later):
            assert self.run is not None
            key = (self.run.attempt, record.optimizer)
            first, _ = self._superseded.get(key, (record.update, 0))
            self._superseded[key] = (first, record.update)
            return False
        last = self.updates.get(record.optimizer, 0)
        if record.update > last + 1:
            self._gaps.append(
                MissingUpdates(optimizer=record.optimizer, first=last + 1, last=record.update - 1)
            )
        self.updates[record.optimizer] = record.update
        return True


def _stands(record: UpdateRecord, later: Sequence[RunRecord]) -> bool:
    """Whether every later attempt began after `record`."""
    return all(record.update <= completed_at(run.resumed).get(record.optimizer, 0) for run in later)

"""Bring a recording back from its file, whole or record by record."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traingen.errors import RecordingError
from traingen.records.codec import decode_line
from traingen.records.paths import recording_path
from traingen.records.schema import EndRecord, EventRecord, Record, RunRecord, UpdateRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """Bytes after the last newline: a line whose writing never ended."""

    line: int  # its number, from 1
    offset: int  # bytes before it
    length: int  # bytes of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One system's recording as read from one file."""

    path: Path  # the file
    run: RunRecord  # the first; `iter_records` also gives those of later attempts
    updates: tuple[UpdateRecord, ...]  # in file order, over all attempts and optimizers
    events: tuple[EventRecord, ...]  # in file order
    end: EndRecord | None  # None unless it is the last record
    torn: TornTail | None


def iter_records(path: str | os.PathLike[str]) -> Iterator[Record]:
    """The records of the file or RUN folder `path` one by one, checked as `read_recording` does.

    Ends before a torn tail, as for a file that is still being written; `read_recording` reports
    it. Raises RecordingError at the call for a missing file, at the line for a bad line.
    """
    file = _find_file(path)
    return (item for item in _iter_items(file) if not isinstance(item, TornTail))


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """The recording in the file `path`, or of rank 0 in the RUN folder `path`.

    A last line without newline is reported as `torn` and never a record, even if it parses.
    Raises RecordingError for a missing or empty file, a damaged line, a first record that is not
    a run line, a run line of another run or of no later attempt, and updates of an optimizer that
    do not follow one another within an attempt.
    """
    file = _find_file(path)
    items = list(_iter_items(file))
    records = [item for item in items if not isinstance(item, TornTail)]
    runs = [record for record in records if isinstance(record, RunRecord)]
    if not runs:
        raise RecordingError(f"{file}: expected a run line first, got only a torn one: {items[0]}.")
    last = records[-1]
    return Recording(
        path=file,
        run=runs[0],
        updates=tuple(record for record in records if isinstance(record, UpdateRecord)),
        events=tuple(record for record in records if isinstance(record, EventRecord)),
        end=last if isinstance(last, EndRecord) else None,
        torn=items[-1] if isinstance(items[-1], TornTail) else None,
    )


def _find_file(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if file.is_dir():
        file = file / recording_path("").name  # a folder may itself be called x.jsonl
    if not file.is_file():
        raise RecordingError(
            f"{file}: no such recording: name a RUN folder or its .jsonl file, as given to --out."
        )
    return file


def _iter_items(file: Path) -> Iterator[Record | TornTail]:
    """Every checked record, then the torn tail if there is one."""
    order = _Order()
    offset = 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    yield TornTail(line=number, offset=offset, length=len(line))
                    return
                where = f"{file}:{number}"
                record = decode_line(line, where=where)
                order.check(record, where=where)
                yield record
                offset += len(line)
    except OSError as error:
        raise RecordingError(f"{file}: cannot be read: {error.strerror}.") from error
    if offset == 0:
        raise RecordingError(f"{file}: expected a run line first, got an empty file.")


class _Order:
    """Raises at the first record that cannot follow those before it."""

    def __init__(self) -> None:
        self._run: RunRecord | None = None
        self._last: dict[int, int] = {}  # optimizer: its latest update in this attempt

    def check(self, record: Record, *, where: str) -> None:
        if isinstance(record, RunRecord):
            self._check_run(record, where=where)
            self._run, self._last = record, {}
        elif self._run is None:
            kind = type(record).__struct_config__.tag
            raise RecordingError(
                f"{where}: the first record must be a run line, got {kind}: is the file cut?"
            )
        elif isinstance(record, UpdateRecord):
            self._check_update(record, where=where)
            self._last[record.optimizer] = record.update

    def _check_run(self, record: RunRecord, *, where: str) -> None:
        if self._run is None:
            return
        if record.run_id != self._run.run_id:
            raise RecordingError(
                f"{where}: 'run_id' must be {self._run.run_id} as before, got {record.run_id}: "
                f"two runs in one file."
            )
        if record.attempt <= self._run.attempt:
            raise RecordingError(
                f"{where}: 'attempt' must be above {self._run.attempt}, got {record.attempt}: "
                f"a resume opens the next attempt."
            )

    def _check_update(self, record: UpdateRecord, *, where: str) -> None:
        last = self._last.get(record.optimizer)
        if last is not None and record.update != last + 1:
            raise RecordingError(
                f"{where}: 'update' of optimizer {record.optimizer} must be {last + 1}, got "
                f"{record.update}: lines are missing, doubled or out of order."
            )

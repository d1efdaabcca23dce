"""Bring a recording back from its file, whole or record by record."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traingen.errors import RecordingError
from traingen.records.attempts import Ledger, MissingUpdates, SupersededUpdates
from traingen.records.codec import decode_line, ends_like_line
from traingen.records.order import Order, opens_anew
from traingen.records.paths import recording_path
from traingen.records.schema import EndRecord, EventRecord, Record, RunRecord, UpdateRecord

_OPENINGS = (b'{"kind":"run"', b'{"kind":"event"')  # of the records that open a file anew


@dataclass(frozen=True, slots=True, kw_only=True)
class TornTail:
    """Bytes after the last newline: a line whose writing never ended."""

    line: int  # its number, from 1
    offset: int  # bytes before it
    length: int  # bytes of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A line whose writing never ended, parted from the next by who opened the file again."""

    line: int  # its number, from 1
    offset: int  # bytes before it
    length: int  # bytes of it, newline included


_NO_RECORDS = (TornTail, Fragment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One rank's recording as read from one file, over all its attempts."""

    path: Path  # the file
    run: RunRecord  # of the first attempt in the file
    runs: tuple[RunRecord, ...]  # of every attempt
    updates: tuple[UpdateRecord, ...]  # each once, in file order, over all optimizers
    superseded: tuple[SupersededUpdates, ...]  # recorded, and given up
    missing: tuple[MissingUpdates, ...]  # completed, and not in this file
    events: tuple[EventRecord, ...]  # in file order, without superseded ones
    end: EndRecord | None  # None unless it is the last record
    torn: TornTail | None
    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a run stands by the last line of its file."""

    run: RunRecord  # of the last attempt
    reached: dict[int, dict[int, int]]  # attempt: optimizer: its last update


def iter_records(path: str | os.PathLike[str], *, rank: int = 0) -> Iterator[Record]:
    """All records of the file or RUN folder `path` one by one, in file order.

    Checked as `read_recording` does, with memory for one line. Superseded updates are given too:
    a run line with attempt > 1 says by `resumed` what it supersedes. Fragments are passed over.
    Ends before a torn tail, as for a file that is still being written; `read_recording` reports
    both. Raises RecordingError at the call for a missing file, at the line for a bad line.
    """
    file = _find_file(path, rank=rank)
    items = _iter_items(file, Order())
    return (item for item in items if not isinstance(item, _NO_RECORDS))


def read_recording(path: str | os.PathLike[str], *, rank: int = 0) -> Recording:
    """The recording of `rank` in the RUN folder `path`, or in its file.

    Each update is given once, as the training did it that the last attempt has ended. A last line
    without newline is reported as `torn` and never a record, even if it parses; one that a resume
    has ended with a newline is reported as a fragment, or is a record if the newline was all it
    lacked.

    Raises RecordingError for a missing or empty file, a damaged line, a first record that is not
    a run line, a run line of another run or of no later attempt, a record after an end,
    updates of an optimizer that do not follow one another within an attempt, from its checkpoint,
    and events or an end that count other updates than stand before them.
    """
    file = _find_file(path, rank=rank)
    records: list[Record] = []
    fragments: list[Fragment] = []
    torn = None
    for item in _iter_items(file, Order()):
        if isinstance(item, TornTail):
            torn = item
        elif isinstance(item, Fragment):
            fragments.append(item)
        else:
            records.append(item)
    runs = tuple(record for record in records if isinstance(record, RunRecord))
    if not runs:
        raise RecordingError(f"{file}: expected a run line first, got only a torn one: {torn}.")
    ledger = Ledger(runs)
    standing = [record for record in records if ledger.take(record)]
    return Recording(
        path=file,
        run=runs[0],
        runs=runs,
        updates=tuple(record for record in standing if isinstance(record, UpdateRecord)),
        superseded=ledger.superseded,
        missing=ledger.missing,
        events=tuple(record for record in standing if isinstance(record, EventRecord)),
        end=ledger.end,
        torn=torn,
        fragments=tuple(fragments),
    )


def find_standing(file: Path) -> Standing:
    """Where the run in `file` stands, for who appends to it; memory for one line.

    A torn tail that lacks only its newline counts, because the next line will give it one.
    Raises RecordingError as `read_recording` does, and for a torn tail that would then be a
    damaged line.
    """
    order = Order()
    tail = None
    reached = {}
    for item in _iter_items(_find_file(file, rank=0), order):
        tail = item if isinstance(item, TornTail) else None
        if isinstance(item, RunRecord):
            reached[item.attempt] = order.updates  # filled as it goes on
    if tail is not None:
        _take_whole_tail(file, tail, order)
    if order.run is None:
        raise RecordingError(
            f"{file}: expected a run line first, got only a torn one: nothing to resume, move it "
            f"aside with --overwrite."
        )
    return Standing(run=order.run, reached=reached)


def _take_whole_tail(file: Path, tail: TornTail, order: Order) -> None:
    with file.open("rb") as lines:
        lines.seek(tail.offset)
        line = lines.read(tail.length)
    if ends_like_line(line):
        where = f"{file}:{tail.line}"
        order.check(decode_line(line, where=where), where=where)


def _find_file(path: str | os.PathLike[str], *, rank: int) -> Path:
    file = Path(path)
    try:
        if file.is_dir():
            file = file / recording_path("", rank=rank).name  # it may itself be called x.jsonl
        elif rank != 0:
            file = recording_path(file, rank=rank)
        found = file.is_file()
    except OSError as error:
        raise RecordingError(f"{file}: cannot be read: {error.strerror}.") from error
    if not found:
        raise RecordingError(
            f"{file}: no such recording: name a RUN folder or its .jsonl file, as given "
            f"to the recorder (path) or to --out."
        )
    return file


def _iter_items(file: Path, order: Order) -> Iterator[Record | TornTail | Fragment]:
    """Every checked record and fragment, then the torn tail if there is one."""
    pending = _Pending()
    offset = 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                place = (number, offset, len(line))
                offset += len(line)
                if not line.endswith(b"\n"):
                    yield from pending.settle(accept=_may_open_anew(line))
                    yield TornTail(line=number, offset=place[1], length=len(line))
                    return
                where = f"{file}:{number}"
                try:
                    record = decode_line(line, where=where)
                except RecordingError as error:
                    pending.add(error, place, torn=order.begun and not ends_like_line(line))
                    continue
                if pending.holds:
                    yield from pending.settle(accept=opens_anew(record))
                order.check(record, where=where)
                yield record
    except OSError as error:
        raise RecordingError(f"{file}: cannot be read: {error.strerror}.") from error
    yield from pending.settle(accept=False)
    order.finish()
    if offset == 0:
        raise RecordingError(f"{file}: expected a run line first, got an empty file.")


class _Pending:
    """Bad lines that are fragments if the next good one opens the file anew, damage if not."""

    def __init__(self) -> None:
        self._fragments: list[Fragment] = []
        self._error: RecordingError | None = None  # of the first

    @property
    def holds(self) -> bool:
        """Whether there is any."""
        return self._error is not None

    def add(self, error: RecordingError, place: tuple[int, int, int], *, torn: bool) -> None:
        """Hold a bad line back; raises at once if it cannot be torn."""
        self._error = self._error or error
        if not torn:
            raise self._error
        line, offset, length = place
        self._fragments.append(Fragment(line=line, offset=offset, length=length))

    def settle(self, *, accept: bool) -> list[Fragment]:
        """The fragments held back so far; raises for the first of them unless `accept`."""
        if self._error is not None and not accept:
            raise self._error
        fragments, self._fragments, self._error = self._fragments, [], None
        return fragments


def _may_open_anew(tail: bytes) -> bool:
    """Whether a torn tail may be the begin of the record that opened the file anew."""
    return any(tail.startswith(opening[: len(tail)]) for opening in _OPENINGS)

"""What a recording's file shows at a first glance: which attempts are in it, what is torn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from traingen.errors import RecordingError
from traingen.records import Record, RunRecord, decode_line, iter_records, recording_path
from traingen.records.codec import ends_like_line

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

    They must be known before the first update is: they tell what of it stands.

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

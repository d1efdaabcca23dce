"""How long each update took, in a file of its own: equal runs have equal recordings that way.

One strict JSON object per line, one line per update:

    {"attempt":1,"update":1,"optimizer":0,"step_seconds":0.0123,"wait_seconds":0.0004}

Times are no evidence, so that a line has no crc and the file no run line.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from traingen.errors import RecordingError
from traingen.records.appending import AppendedFile, Closing
from traingen.records.paths import times_path
from traingen.records.schema import Count, Ordinal


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """What one update took, by the wall clock."""

    attempt: Ordinal  # of the recording
    update: Ordinal  # counted per optimizer, as in the recording
    optimizer: Count
    step_seconds: float  # from the hand-over of the first micro-batch to the end of the step
    wait_seconds: float  # for the data of its micro-batches; for the first one before the step


_DECODER = msgspec.json.Decoder(StepTime)


class TimesSink(Closing):
    """Appends the times of updates to the file beside a recording, as `JsonlSink` does to it.

    `path` and `rank` are the recording's. A file that exists is refused, or with `overwrite`
    moved aside; `TimesSink.resume` appends to it. All trouble is raised as RecordingError.
    """

    path: Path

    def __init__(
        self, path: str | os.PathLike[str], *, rank: int = 0, overwrite: bool = False
    ) -> None:
        self.path = times_path(path, rank=rank)
        self._file = AppendedFile.create(self.path, overwrite=overwrite)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], *, rank: int = 0) -> Self:
        """Open the file of a run that goes on, or make it where there is none."""
        if not os.path.lexists(times_path(path, rank=rank)):
            return cls(path, rank=rank)
        sink = cls.__new__(cls)
        sink.path = times_path(path, rank=rank)
        sink._file = AppendedFile.reopen(sink.path)
        sink._file.part_from_torn_tail()
        return sink

    def write(self, time: StepTime) -> None:
        """Append the line of one update."""
        if not (math.isfinite(time.step_seconds) and math.isfinite(time.wait_seconds)):
            raise RecordingError(
                f"{self.path}: times of update {time.update} must be finite, got "
                f"{time.step_seconds} and {time.wait_seconds} seconds."
            )
        self._file.append(msgspec.json.encode(time) + b"\n")

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


def iter_times(path: str | os.PathLike[str], *, rank: int = 0) -> Iterator[StepTime]:
    """All times beside the recording `path`, in file order, those of superseded updates too.

    `path` is the RUN, its recording or the file of times itself. Lines whose writing never ended
    are passed over: times are no evidence. Raises RecordingError at the call for a missing file,
    at the line for a line that is whole and not one of times.
    """
    file = _find_file(path, rank=rank)
    return _iter_lines(file)


def _find_file(path: str | os.PathLike[str], *, rank: int) -> Path:
    given = Path(path)
    if given.is_dir():
        file = given / times_path("", rank=rank).name  # a folder may itself be called x.jsonl
    elif _names_times(given) and rank == 0:
        file = given
    else:
        file = times_path(given, rank=rank)
    if not file.is_file():
        raise RecordingError(f"{file}: no such file of times: name a RUN that was timed.")
    return file


def _names_times(path: Path) -> bool:
    return path.name.startswith("times.") or path.name.endswith(".times.jsonl")


def _iter_lines(file: Path) -> Iterator[StepTime]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"}\n"):  # its writing never ended
                    continue
                try:
                    yield _DECODER.decode(line)
                except msgspec.DecodeError as error:
                    raise RecordingError(
                        f"{file}:{number}: must be the times of one update: {error}."
                    ) from error
    except OSError as error:
        raise RecordingError(f"{file}: cannot be read: {error.strerror}.") from error

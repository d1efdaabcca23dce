"""Where records go: to a file, to memory, to several sinks at once."""

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from traingen.errors import RecordingError
from traingen.records.codec import encode_line
from traingen.records.paths import recording_path
from traingen.records.schema import Record


class Sink(Protocol):
    """Takes records in order until it is closed. Who makes a sink closes it."""

    def write(self, record: Record) -> None:
        """Take `record`; once this returns, the record is handed over."""

    def close(self) -> None:
        """Let go of what the sink holds; a second call does nothing."""


class JsonlSink:
    """Appends records to the recording file of one rank, one `os.write` per line.

    The file is made at construction, its folder too. A path that exists is refused with
    RecordingError; with `overwrite` the old file is moved aside to `<name>.old-1`, `-2`, … and
    never deleted. A line that could only be written in part (a full disk) is taken back before
    the next one, so that no two lines are ever glued together.
    """

    path: Path

    def __init__(
        self, path: str | os.PathLike[str], *, rank: int = 0, overwrite: bool = False
    ) -> None:
        self.path = recording_path(path, rank=rank)
        self._fd: int | None = None
        self._complete = 0  # bytes of whole lines
        self._in_doubt = False  # a write was begun and not seen to end
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if overwrite:
                _move_aside(self.path)
            self._fd = _create(self.path)
        except FileExistsError as error:
            raise RecordingError(
                f"{self.path}: a recording needs a new path, and this one exists: choose another, "
                f"or move it aside with --overwrite (overwrite=True)."
            ) from error
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be created: {error.strerror}.") from error

    def write(self, record: Record) -> None:
        """Append the line of `record`. Raises RecordingError when closed or out of space."""
        if self._fd is None:
            raise RecordingError(f"{self.path}: the sink is closed: write before close().")
        line = encode_line(record)
        try:
            if self._in_doubt:
                self._drop_partial(self._fd)
            self._in_doubt = True
            _write_all(self._fd, line)
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be written: {error.strerror}.") from error
        self._complete += len(line)
        self._in_doubt = False

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _drop_partial(self, fd: int) -> None:
        """Cut off what an interrupted write left, unless the line had made it whole."""
        size = os.fstat(fd).st_size
        if size > self._complete and os.pread(fd, 1, size - 1) != b"\n":
            os.ftruncate(fd, self._complete)
            size = self._complete
        self._complete = size


class MemorySink:
    """Keeps records in the list `records`, the very objects that were written."""

    records: list[Record]

    def __init__(self) -> None:
        self.records = []
        self._closed = False

    def write(self, record: Record) -> None:
        """Append `record`. Raises RecordingError when closed."""
        if self._closed:
            raise RecordingError("MemorySink: the sink is closed: write before close().")
        self.records.append(record)

    def close(self) -> None:
        """Take no more records; `records` stays."""
        self._closed = True


class TeeSink:
    """Hands every record to each of `sinks`, in their order, and closes them all."""

    def __init__(self, *sinks: Sink) -> None:
        self.sinks = sinks

    def write(self, record: Record) -> None:
        """Write to each sink; the first that raises ends it."""
        for sink in self.sinks:
            sink.write(record)

    def close(self) -> None:
        """Close each sink, also after one raised; the last error is raised, naming the others."""
        with ExitStack() as stack:
            for sink in reversed(self.sinks):
                stack.callback(sink.close)


def _create(path: Path) -> int:
    # O_EXCL: of two processes on one path, one is refused. Readable, to look at the last byte.
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)


def _move_aside(path: Path) -> None:
    """Rename `path`, if it exists, to the first free `<name>.old-<n>`."""
    number = 1
    while os.path.lexists(path):
        aside = path.with_name(f"{path.name}.old-{number}")
        try:
            os.close(_create(aside))  # reserve the name: a rename would replace a file silently
        except FileExistsError:
            number += 1
            continue
        os.replace(path, aside)


def _write_all(fd: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:
        rest = rest[os.write(fd, rest) :]

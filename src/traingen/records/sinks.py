"""Where records go: to a file, to memory, to several sinks at once."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, Self

from traingen.errors import RecordingError
from traingen.records.appending import AppendedFile, Closing
from traingen.records.codec import encode_line
from traingen.records.paths import recording_path
from traingen.records.reader import find_standing
from traingen.records.schema import Record


class Sink(Protocol):
    """Takes records in order until it is closed. Who makes a sink closes it."""

    def write(self, record: Record) -> None:
        """Take `record`; once this returns, the record is handed over."""

    def close(self) -> None:
        """Let go of what the sink holds; a second call does nothing."""


class JsonlSink(Closing):
    """Appends records to the recording file of one rank, one `os.write` per line.

    The file is made at construction, its folder too. A path that exists is refused with
    RecordingError; with `overwrite` the old file is moved aside to `<name>.old-1`, `-2`, … and
    never deleted. `JsonlSink.resume` opens the file of a run that goes on. While a sink is open,
    no other can open or move its file, in this process or another one.

    A line that could only be written in part (a full disk) is taken back before the next one, so
    that no two lines are ever glued together. A file that was removed meanwhile is noticed at the
    next write. Forked children, such as data-loader workers, let go of the file at once.
    """

    path: Path
    attempt: int  # the last attempt in a resumed file; 0 in a new one
    reached: Mapping[int, Mapping[int, int]]  # of each attempt in it; optimizer: its last update

    def __init__(
        self, path: str | os.PathLike[str], *, rank: int = 0, overwrite: bool = False
    ) -> None:
        self.path = recording_path(path, rank=rank)
        self.attempt = 0
        self.reached = MappingProxyType({})
        self._file = AppendedFile.create(self.path, overwrite=overwrite)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], *, rank: int = 0, run_id: str) -> Self:
        """Open the existing file of the run `run_id`, to append to it; nothing in it is changed.

        What comes next is either the `run` line of attempt `attempt + 1` (a checkpoint was
        loaded), or the event "segment" (a second `fit()` of one Trainer). A torn tail is parted
        from it by a newline and stays as a line of its own, a fragment.

        Raises RecordingError for a missing or damaged file, one of another run, and one that is
        being written.
        """
        sink = cls.__new__(cls)
        sink.path = recording_path(path, rank=rank)
        sink._file = AppendedFile.reopen(sink.path)
        try:
            standing = find_standing(sink.path)
            if standing.run.run_id != run_id:
                raise RecordingError(
                    f"{sink.path}: 'run_id' must be {run_id} to go on with this run, got "
                    f"{standing.run.run_id}: choose another path, or --overwrite to move it aside."
                )
            sink._file.part_from_torn_tail()
        except BaseException:
            sink._file.close()
            raise
        sink.attempt = standing.run.attempt
        sink.reached = MappingProxyType(standing.reached)
        return sink

    def write(self, record: Record) -> None:
        """Append the line of `record`.

        Raises RecordingError when closed or out of space, and if the file is no longer there.
        """
        self._file.append(encode_line(record))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()


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

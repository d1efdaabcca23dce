"""Write a recording such that a file that fails never harms the training."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from traingen.errors import RecordingError
from traingen.records.schema import Record, UpdateRecord
from traingen.records.sinks import Sink
from traingen.records.times import StepTime, TimesSink


class GuardedSink:
    """A sink that keeps what a write has raised instead of raising it, and writes no more.

    A record is written inside of `optimizer.step()`: raising there would leave the loop's counters
    behind its weights. Who holds this sink asks for `error` where the loop is whole again.

    Args:
        sink: where records go.
        times: where the times of each update go, if they are kept.
        attempt: which is being recorded.
        held: of each optimizer, the last update that the recording holds already.
        files: those that these two write; one that is empty at the end is removed.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        times: TimesSink | None = None,
        attempt: int = 1,
        held: Iterable[int] = (),
        files: Iterable[Path] = (),
    ) -> None:
        self._sink = sink
        self._times = times
        self._attempt = attempt
        self._files = [(path, _identify(path)) for path in files]
        self.held = dict(enumerate(held))  # optimizer: its last update that was written
        self.error: RecordingError | None = None
        self.times_error: RecordingError | None = None  # times are no evidence: the rest goes on

    def write(self, record: Record) -> None:
        """Write `record`, unless an earlier one has failed."""
        if self.error is not None:
            return
        try:
            self._sink.write(record)
        except RecordingError as error:
            self.error = error
            return
        if isinstance(record, UpdateRecord):
            self.held[record.optimizer] = record.update

    def write_times(self, update: int, optimizer: int, step: float, wait: float) -> None:
        """Write the times of an update, in seconds, unless they or a record have failed."""
        if self.error is not None or self.times_error is not None or self._times is None:
            return
        try:
            self._times.write(
                StepTime(
                    attempt=self._attempt,
                    update=update,
                    optimizer=optimizer,
                    step_seconds=step,
                    wait_seconds=wait,
                )
            )
        except RecordingError as error:
            self.times_error = error

    def close(self) -> None:
        """Close both files; the second call does nothing.

        Files in which nothing was written are removed: the training ended before it began, and its
        path is free for the next try.
        """
        try:
            self._sink.close()
        except RecordingError as error:
            self.error = self.error or error
        try:
            if self._times is not None:
                self._times.close()
        except RecordingError as error:
            self.times_error = self.times_error or error
        files, self._files = self._files, []
        for path, identity in files:
            _remove_empty(path, identity)


def _identify(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _remove_empty(path: Path, identity: tuple[int, int]) -> None:
    """Remove the file if it is empty and still the one it was; one that cannot be removed stays."""
    with contextlib.suppress(OSError):
        if _identify(path) == identity and os.path.getsize(path) == 0:
            os.unlink(path)

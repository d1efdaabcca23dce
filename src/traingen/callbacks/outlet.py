"""Where the records of one recorder go, and why a line of theirs could not be written."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from traingen.callbacks.mirror import Mirror
from traingen.callbacks.place import Place, resumed_place
from traingen.errors import RecordingError
from traingen.records import Record, Sink
from traingen.records.guard import GuardedSink

FINDERS = (".lr_find_", ".scale_batch_size_")  # what the names of their checkpoints begin with


class Outlet:
    """The recording of one recorder, over all its fits, or the sink that it was given instead.

    Args:
        settings: of the recorder: `path`, `overwrite`, `times` and `mirror` are used.
        sink: takes all records; then no file is written, and what it raises passes through.
    """

    place: Place  # the run that is recorded

    def __init__(self, settings: Mapping[str, Any], *, sink: Sink | None = None) -> None:
        self.place = Place()
        self._settings = settings
        self._given = sink
        self._sink: Sink | None = None  # while a fit is being recorded
        self._guard: GuardedSink | None = None  # the files of the last fit, closed or not
        self._mirror: Mirror | None = None
        self._told: list[RecordingError] = []

    @property
    def is_open(self) -> bool:
        """Whether a fit is being recorded."""
        return self._sink is not None

    @property
    def write_times(self) -> Callable[[int, int, float, float], None] | None:
        """What writes the times of an update; None if they are not kept."""
        return self._guard.write_times if self._guard is not None else None

    def prepare(self, trainer: pl.Trainer) -> None:
        """A fit of `trainer` is about to begin: does it go on with what is recorded here?"""
        if not self.place.continues(trainer):
            self.place, self._guard = Place(trainer=weakref.ref(trainer)), None
        self.place.resumed = None

    def resume(self, trainer: pl.Trainer, checkpoint: Mapping[str, Any], *, key: str) -> None:
        """The fit is the next attempt of the run that `checkpoint` belongs to.

        Not if a finder of rates or batch sizes loads what it has saved, to undo what it has tried.
        """
        if Path(str(trainer.ckpt_path)).name.startswith(FINDERS):
            return
        self.place = resumed_place(
            checkpoint, key=key, source=trainer.ckpt_path, path=Path(self._settings["path"])
        )
        self.place.trainer = weakref.ref(trainer)

    def open(self, *, rank: int) -> None:
        """Open the files, or the sink that was given.

        Raises:
            RecordingError: there is a recording of another run, or no file can be written.
        """
        if self._given is None:
            self._sink = self._guard = self.place.open(
                Path(self._settings["path"]),
                rank=rank,
                overwrite=self._settings["overwrite"],
                times=self._settings["times"],
            )
        else:
            self._sink = self._given
        if self._settings["mirror"]:
            self._sink = self._mirror = Mirror(self._sink)

    def write(self, record: Record) -> None:
        """Hand `record` on; a file that fails is kept as `new_error`."""
        assert self._sink is not None
        self._sink.write(record)

    def send(self, loggers: Sequence[Any], *, step: int) -> None:
        """Send what was mirrored since the last time, at `step` of the loggers."""
        if self._mirror is not None:
            self._mirror.send(loggers, step=step)

    def state(self, completed: Sequence[int]) -> dict[str, Any]:
        """What a checkpoint says after so many updates by optimizer: none that no file holds."""
        if self._guard is None:
            return {}
        held = [self._guard.held.get(index, 0) for index in range(len(completed))]
        return {
            "run_id": self.place.run_id, "attempt": self.place.attempt,
            "attempt_id": self.place.attempt_id,
            "updates": held, "completed": list(completed),
        }  # fmt: skip

    def new_error(self) -> RecordingError | None:
        """Why a record could not be written; told once."""
        return self._tell_once(None if self._guard is None else self._guard.error)

    def new_times_error(self) -> RecordingError | None:
        """Why times could not be written; told once."""
        return self._tell_once(None if self._guard is None else self._guard.times_error)

    def _tell_once(self, error: RecordingError | None) -> RecordingError | None:
        if error is None or any(error is told for told in self._told):
            return None
        self._told.append(error)
        return error

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        sink, self._sink, self._mirror = self._sink, None, None
        if sink is not None:
            sink.close()

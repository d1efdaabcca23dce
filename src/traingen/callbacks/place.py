"""Where a recorder writes: a new recording, the next attempt of a run, or its next fit."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from traingen.errors import RecordingError
from traingen.records import (
    JsonlSink,
    ResumeFacts,
    RunRecord,
    iter_records,
    new_run_id,
    recording_path,
)
from traingen.records.guard import GuardedSink
from traingen.records.times import TimesSink

STATE = "StepRecorder"  # what the key of a recorder's state in a checkpoint begins with


@dataclass(slots=True, kw_only=True)
class Place:
    """The run that one recorder has recorded so far, in this process."""

    run_id: str = field(default_factory=new_run_id)
    attempt: int = 1
    attempt_id: str = field(default_factory=new_run_id)
    fits: int = 0  # begun with this trainer
    updates: list[int] = field(default_factory=list)  # completed, by optimizer
    resumed: ResumeFacts | None = None
    trainer: weakref.ref[pl.Trainer] | None = None

    def continues(self, trainer: pl.Trainer) -> bool:
        """Whether a fit of `trainer` goes on with what it has recorded here before."""
        return self.fits > 0 and self.trainer is not None and self.trainer() is trainer

    def open(self, path: Path, *, rank: int, overwrite: bool, times: bool) -> GuardedSink:
        """The files to write to; those of this very run are continued.

        Raises:
            RecordingError: there is a recording of another run, or no file can be written.
        """
        sink = self._open_recording(path, rank=rank, overwrite=overwrite)
        try:
            kept = _open_times(path, rank=rank, new=not sink.attempt) if times else None
        except BaseException:
            GuardedSink(sink, files=[sink.path]).close()
            raise
        self._follow(sink)
        return GuardedSink(
            sink,
            times=kept,
            attempt=self.attempt,
            held=self._held(sink),
            files=[one.path for one in (sink, kept) if one is not None],
        )

    @property
    def resumes(self) -> bool:
        """Whether an earlier attempt of this run was recorded."""
        return self.resumed is not None and self.attempt > 1

    @property
    def goes_on(self) -> bool:
        """Whether another fit of this trainer goes on within the attempt that is recorded."""
        return self.fits > 0 and not self.resumes

    def _open_recording(self, path: Path, *, rank: int, overwrite: bool) -> JsonlSink:
        """Of a resumed run only rank 0 can tell whether a file is its own.

        Ids are made rank by rank, because agreeing on one would take a collective, and a
        checkpoint holds that of rank 0.
        """
        if (self.fits or self.resumes) and os.path.exists(recording_path(path, rank=rank)):
            try:
                if rank > 0:
                    self.run_id = _run_of(path, rank=rank)
                return JsonlSink.resume(path, rank=rank, run_id=self.run_id)
            except RecordingError:
                if not overwrite:
                    raise
        return JsonlSink(path, rank=rank, overwrite=overwrite)

    def _held(self, sink: JsonlSink) -> list[int]:
        """Of each optimizer, the last update of this training that the file of `sink` holds."""
        before = self.attempt if self.resumed is None else self.resumed.attempt
        reached = sink.reached.get(before, {}) if before is not None else {}
        return [min(reached.get(index, 0), count) for index, count in enumerate(self.updates)]

    def _follow(self, sink: JsonlSink) -> None:
        """Number the attempt that goes into `sink`.

        A fit goes on within its attempt only where the file stands exactly where the run does. It
        does not if the file was moved away or failed in the fit before, or if another process has
        resumed the run meanwhile: then this fit is an attempt of its own.
        """
        if self.resumes:
            self.attempt = max(self.attempt, sink.attempt + 1)
            return
        trainer = None if self.trainer is None else self.trainer()
        here = {index: count for index, count in enumerate(self.updates) if count}
        reached = sink.reached.get(sink.attempt, {})
        there = {index: count for index, count in reached.items() if count}
        if not self.fits or trainer is None or (sink.attempt, there) == (self.attempt, here):
            return
        before, self.attempt = self.attempt, max(self.attempt, sink.attempt) + 1
        before_id, self.attempt_id = self.attempt_id, new_run_id()
        self.resumed = ResumeFacts(
            attempt=before,
            attempt_id=before_id,
            updates=list(self.updates),
            global_step=trainer.global_step,
            epoch=trainer.current_epoch,
            batches=None,
            checkpoint=None,
        )


def resumed_place(checkpoint: Mapping[str, Any], *, key: str, source: Any, path: Path) -> Place:
    """The run that `checkpoint` belongs to, to be continued; a new one if it was not recorded."""
    state = _find_state(checkpoint.get("callbacks") or {}, key=key, path=path)
    updates = list(state["completed"]) if state else []
    facts = ResumeFacts(
        attempt=state["attempt"] if state else None,
        attempt_id=state["attempt_id"] if state else None,
        updates=updates,
        global_step=checkpoint.get("global_step"),
        epoch=checkpoint.get("epoch"),
        batches=_batches_of(checkpoint),
        checkpoint=None if source is None else str(source),
    )
    if not state:
        return Place(resumed=facts)
    return Place(
        run_id=state["run_id"], attempt=state["attempt"] + 1, updates=updates, resumed=facts
    )


def _find_state(states: Mapping[str, Any], *, key: str, path: Path) -> Mapping[str, Any] | None:
    """What the recorder on `path` has left among the `states` of callbacks; none is guessed.

    It is looked for under `key`, then under that of any other recorder, because the path may have
    changed: the only one there is, or the one whose run is recorded at `path`.
    """
    recorders = [name for name in states if STATE in name and states[name]]
    mine = [name for name in recorders if key in name] or recorders  # a guest's key is around ours
    if len(mine) > 1 and os.path.exists(recording_path(path)):
        run_id = _run_of(path, rank=0)
        mine = [name for name in mine if states[name]["run_id"] == run_id]
    return states[mine[0]] if len(mine) == 1 else None


def _batches_of(checkpoint: Mapping[str, Any]) -> int | None:
    """Batches of its epoch that were done when `checkpoint` was made.

    In `on_train_batch_end` the batch that ends there is not counted as completed yet.
    """
    loop = (checkpoint.get("loops") or {}).get("fit_loop") or {}
    progress = loop.get("epoch_loop.batch_progress") or {}
    done = (progress.get("current") or {}).get("processed")
    return done if isinstance(done, int) else None


def _run_of(path: Path, *, rank: int) -> str:
    """The id of the run that is recorded there."""
    first = next(iter_records(recording_path(path, rank=rank)))
    assert isinstance(first, RunRecord)  # the reader refuses any other
    return first.run_id


def _open_times(path: Path, *, rank: int, new: bool) -> TimesSink:
    if new:
        return TimesSink(path, rank=rank, overwrite=True)
    return TimesSink.resume(path, rank=rank)

"""Which records of a recording stand: a later attempt may do updates over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from traingen.records.order import completed_at
from traingen.records.schema import (
    EndRecord,
    EventRecord,
    Record,
    ResumeFacts,
    RunRecord,
    UpdateRecord,
)

# updates completed, of all optimizers, and the loop's counter; None: of an update, or not known
Moment = tuple[int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededUpdates:
    """Updates of an attempt that the last one does not go on from."""

    attempt: int
    optimizer: int
    first: int
    last: int  # inclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingUpdates:
    """Updates that the run has completed and that this recording does not hold."""

    optimizer: int
    first: int
    last: int  # inclusive


def find_lineage(runs: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """The attempts that the last of `runs` goes on from, itself last; `runs` are all of one file.

    Each was resumed from a checkpoint of the one before. It ends where a checkpoint was made in an
    attempt that is not known or not in this file.

    A checkpoint has the number and the id that rank 0 gave the attempt. Another rank has given it
    an id of its own, and perhaps a lower number: it may have been killed before it had written a
    line of an attempt that made no checkpoint.
    """
    by_number = {run.attempt: run for run in runs}
    lineage = list(runs[-1:])
    while lineage and (parent := _parent(lineage[0], by_number)) is not None:
        lineage.insert(0, parent)
    return tuple(lineage)


def _parent(run: RunRecord, by_number: Mapping[int, RunRecord]) -> RunRecord | None:
    if run.resumed is None or run.resumed.attempt is None:
        return None
    number = run.resumed.attempt
    if run.rank > 0:
        number = max((known for known in by_number if known <= number), default=number)
        return by_number.get(number)
    found = by_number.get(number)  # of another file, if a run was resumed in two places
    return found if found is not None and found.attempt_id == run.resumed.attempt_id else None


class Ledger:
    """Takes all records of a file in turn and says of each whether it stands.

    What stands is the training that the last attempt ended: its own records, and of each attempt in
    its lineage those up to the checkpoint that the next one was resumed from. Attempts beside that
    line, and what lies beyond its checkpoints, are superseded.

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
        self._cuts = _find_cuts(find_lineage(self._runs))
        self._superseded: dict[tuple[int, int], tuple[int, int]] = {}
        self._gaps: list[MissingUpdates] = []

    @property
    def in_last_attempt(self) -> bool:
        """Whether no further attempt is to come."""
        return self.run is not None and self.run.attempt == self._runs[-1].attempt

    @property
    def superseded(self) -> tuple[SupersededUpdates, ...]:
        """What was recorded, and is no part of what the last attempt has trained."""
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
            self.run = record
        elif isinstance(record, UpdateRecord):
            return self._take_update(record)
        elif isinstance(record, EventRecord):
            cuts = self._cuts_now()
            return cuts is not None and not any(lies_beyond(record, cut) for cut in cuts)
        return True

    def _cuts_now(self) -> tuple[ResumeFacts, ...] | None:
        assert self.run is not None  # the reader refuses any other first record
        return self._cuts.get(self.run.attempt)

    def _take_update(self, record: UpdateRecord) -> bool:
        optimizer, update = record.optimizer, record.update
        cuts = self._cuts_now()
        if cuts is None or any(update > completed_at(cut).get(optimizer, 0) for cut in cuts):
            assert self.run is not None
            key = (self.run.attempt, optimizer)
            first, _ = self._superseded.get(key, (update, 0))
            self._superseded[key] = (first, update)
            return False
        last = self.updates.get(optimizer, 0)
        if update > last + 1:
            self._gaps.append(MissingUpdates(optimizer=optimizer, first=last + 1, last=update - 1))
        self.updates[optimizer] = update
        return True


def _find_cuts(lineage: Sequence[RunRecord]) -> dict[int, tuple[ResumeFacts, ...]]:
    """The checkpoints that cut off what each attempt of `lineage` has recorded beyond them."""
    cuts: tuple[ResumeFacts, ...] = ()
    found = {}
    for run in reversed(lineage):
        found[run.attempt] = cuts
        cuts = cuts if run.resumed is None else (run.resumed, *cuts)
    return found


def lies_beyond(event: EventRecord, resumed: ResumeFacts) -> bool:
    """Whether an attempt that was resumed so leaves `event` behind, which an earlier one recorded.

    It came after more updates than were completed at the checkpoint, or after as many but at a
    later `global_step`: a step that the scaler skipped counts there and completes none.
    """
    at = (event.details or {}).get("global_step")
    here = (event.update, at if isinstance(at, int) else None)
    return is_beyond(here, (sum(resumed.updates), resumed.global_step))


def is_beyond(at: Moment, to: Moment) -> bool:
    """Whether `at` lies after a checkpoint at `to`: a skipped step counts and is no update."""
    if at[0] != to[0] or at[1] is None or to[1] is None:
        return at[0] > to[0]
    return at[1] > to[1]

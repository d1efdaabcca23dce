"""Compare ticks across a resume: the schedulers of an attempt are new and count from 0 again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from traingen.records import RunRecord, UpdateRecord
from traingen.records.order import completed_at


class TickBases:
    """Counts the ticks of both recordings from the last resume of either.

    Before the first resume they are left as they are. What a scheduler itself has counted
    (`last_epoch`) comes back from the checkpoint, and needs no base.

    Args:
        runs: the run lines of both recordings, of the attempts that their updates are of.
    """

    def __init__(self, runs: Iterable[RunRecord]) -> None:
        self._begins: dict[int, set[int]] = {}  # optimizer: first updates of resumed attempts
        for run in runs:
            for optimizer, completed in completed_at(run.resumed).items():
                self._begins.setdefault(optimizer, set()).add(completed + 1)
        self._last: dict[int, int] = {}  # optimizer: its last update here
        self._bases: dict[int, tuple[list[int], list[int]]] = {}  # optimizer: ticks of each side

    def rebase(
        self, original: UpdateRecord, package: UpdateRecord
    ) -> tuple[UpdateRecord, UpdateRecord]:
        """Both records of the next update, with the ticks since the last resume."""
        optimizer, update = original.optimizer, original.update
        last = self._last.get(optimizer, 0)
        self._last[optimizer] = update
        if any(last < begin <= update for begin in self._begins.get(optimizer, ())):
            self._bases[optimizer] = (_ticks(original), _ticks(package))
        if optimizer not in self._bases:
            return original, package
        mine, theirs = self._bases[optimizer]
        return _count_from(original, mine), _count_from(package, theirs)


def _ticks(record: UpdateRecord) -> list[int]:
    return [state.ticks for state in record.scheduler or ()]


def _count_from(record: UpdateRecord, base: list[int]) -> UpdateRecord:
    if record.scheduler is None or len(record.scheduler) != len(base):
        return record
    states = [
        msgspec.structs.replace(state, ticks=state.ticks - ticks)
        for state, ticks in zip(record.scheduler, base, strict=True)
    ]
    return msgspec.structs.replace(record, scheduler=states)

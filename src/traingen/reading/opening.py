"""Open a RUN to be read once, record by record: one rank of it, or all ranks merged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traingen.reading.outline import Outline, iter_outlined, outline_recording
from traingen.records import Record, RunRecord, UpdateRecord
from traingen.records.all_ranks import (
    check_rank,
    check_world,
    clips_by_value,
    find_ranks,
    find_world,
)
from traingen.records.attempts import Ledger
from traingen.records.ranks import RankMerger, Turn

NO_END = "no end line"
MOST_NAMED = 4  # ranks; more are only counted
MOST_SHOWN = 40  # characters of a value
DIGEST_SHOWN = 12  # of a digest
_DIGEST = re.compile("[0-9a-f]{32,}")


@dataclass(slots=True, kw_only=True)
class Fit:
    """How well the ranks that are merged fit together; complete when all records were taken."""

    merger: RankMerger
    attempts: list[list[int]]  # of each rank
    ends: list[str] = field(default_factory=list)  # of each rank: its reason

    @property
    def ranks(self) -> int:
        """How many are merged."""
        return self.merger.ranks

    def tell(self) -> Iterator[str]:
        """What does not fit, one line each: what a reader of the merged recording must know."""
        for one in self.merger.unequal:
            of_optimizer = f" of optimizer {one.optimizer}" if one.optimizer else ""
            counts = by_rank(one.updates)
            yield f"not equally long{of_optimizer}, updates: {counts}; merged {one.merged}"
        for found in self.merger.disagreements:
            of_optimizer = f" of optimizer {found.optimizer}" if found.optimizer else ""
            values = by_rank(found.values)
            yield (
                f"{found.field} differs in {found.count} updates{of_optimizer}, first "
                f"{found.update}: {values}"
            )
        for name, by in (("attempts", self.attempts), ("ends", self.ends)):
            if any(one != by[0] for one in by):
                yield f"{name} differ: {by_rank(by)}"

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        merger = self.merger
        return {
            "merged": self.ranks,
            "attempts": self.attempts,
            "ends": self.ends,
            "spreads": [msgspec.to_builtins(spread) for spread in merger.spreads.values()],
            "disagreements": [msgspec.to_builtins(found) for found in merger.disagreements],
            "unequal": [msgspec.to_builtins(one) for one in merger.unequal],
        }


class RunReader:
    """Gives the records of a RUN in file order, memory for a few of them; read it once.

    Args:
        outline: of the rank that is read, of rank 0 where all are.
        others: of ranks 1, 2, … where all are merged.
    """

    outline: Outline
    fit: Fit | None  # None of a single rank

    def __init__(self, outline: Outline, others: Sequence[Outline] = ()) -> None:
        self.outline = outline
        self.fit = None
        if others:
            outlines = (outline, *others)
            alike = len({_attempts(one) for one in outlines}) == 1
            self._ranks = [_Rank(one, with_superseded=alike) for one in outlines]
            merger = RankMerger(
                [rank.turns() for rank in self._ranks[1:]], by_value=clips_by_value(outline.runs[0])
            )
            self.fit = Fit(
                merger=merger,
                attempts=[[run.attempt for run in one.runs] for one in outlines],
            )

    def records(self) -> Iterator[Record]:
        """All records, up to an attempt that was opened since; of several ranks as rank 0 has them.

        Each update is then one of all ranks; one that a rank lacks is left out. So are superseded
        ones where the ranks have not gone through the same attempts.
        """
        return iter_outlined(self.outline) if self.fit is None else self._merged(self.fit)

    def standing(self) -> Iterator[Record]:
        """Those that stand: each update once."""
        ledger = Ledger(self.outline.runs)
        return (record for record in self.records() if ledger.take(record))

    def _merged(self, fit: Fit) -> Iterator[Record]:
        first = self._ranks[0]
        for record, turn in first.records():
            if turn is None:
                yield record
            elif (merged := fit.merger.take(turn)) is not None:
                yield merged
        fit.merger.finish()
        fit.ends = [rank.end for rank in self._ranks]


class _Rank:
    """One rank as it is read."""

    def __init__(self, outline: Outline, *, with_superseded: bool) -> None:
        self._outline = outline
        self._ledger = Ledger(outline.runs)
        self._with_superseded = with_superseded

    @property
    def end(self) -> str:
        """How it ended, once it is read."""
        end = self._ledger.end
        return NO_END if end is None else end.reason

    def records(self) -> Iterator[tuple[Record, Turn | None]]:
        """Every record, with the turn it is if it is an update."""
        attempt = 0
        for record in iter_outlined(self._outline):
            stands = self._ledger.take(record)
            if isinstance(record, UpdateRecord):
                if self._with_superseded:
                    yield record, Turn(record, attempt, stands)
                elif stands:
                    yield record, Turn(record)
            else:
                attempt += isinstance(record, RunRecord)
                yield record, None

    def turns(self) -> Iterator[Turn]:
        """The updates."""
        return (turn for _, turn in self.records() if turn is not None)


def open_run(path: str | os.PathLike[str], *, rank: int | None = None) -> RunReader:
    """Open the file or RUN folder `path`: all ranks of it, or `rank` alone.

    A file that is another rank's than 0 is that rank alone.

    Raises:
        RecordingError: there is no recording, a rank of it is missing, or is another one by its
            run line.
    """
    outline = outline_recording(path, rank=rank or 0)
    if rank is not None:
        check_rank(outline.file, outline.runs, rank)
        return RunReader(outline)
    world = find_world(outline.runs)
    if world == 1 or outline.run.rank != 0:
        return RunReader(outline)
    files = find_ranks(outline.file, outline.runs)
    outlines = [outline, *map(outline_recording, files[1:])]
    for number, one in enumerate(outlines):
        check_rank(one.file, one.runs, number)
        check_world(one.file, one.runs, ranks=world)
    return RunReader(outline, outlines[1:])


def _attempts(outline: Outline) -> tuple[tuple[int | None, ...] | None, ...]:
    """Where each attempt began: in which one before it, and after how many updates of it."""
    return tuple(
        None if run.resumed is None else (run.resumed.attempt, *run.resumed.updates)
        for run in outline.runs
    )


def by_rank(values: Sequence[Any]) -> str:
    """Each value with the ranks that have it.

    >>> by_rank([3, 4, 3]), by_rank([0.5] * 64)
    ('3 on ranks 0, 2; 4 on rank 1', '0.5 on 64 ranks')
    """
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(_shown(value), []).append(str(rank))
    return "; ".join(f"{value} on {_name_ranks(found)}" for value, found in ranks.items())


def _name_ranks(ranks: Sequence[str]) -> str:
    if len(ranks) > MOST_NAMED:
        return f"{len(ranks)} ranks"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    text = f"{value:.9g}" if isinstance(value, float) else str(value)
    if _DIGEST.fullmatch(text):
        return f"{text[:DIGEST_SHOWN]}…"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"

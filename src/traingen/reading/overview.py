"""What one recording shows in numbers, gathered record by record with memory for a few of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traingen.reading.opening import RunReader
from traingen.records import EventRecord, Record, SchedulerState, UpdateRecord, plain_json
from traingen.records.attempts import Ledger
from traingen.records.order import SEGMENT


@dataclass(slots=True)
class Series:
    """A number over the updates that stand; least and most are those of its finite values."""

    first: float | None = None
    last: float | None = None
    least: float | None = None
    least_at: int | None = None  # update
    most: float | None = None
    most_at: int | None = None
    known: int = 0  # updates that have it
    nonfinite: int = 0  # among them, not a finite number
    nonfinite_at: int | None = None  # the first of these

    def add(self, update: int, value: float | None) -> None:
        """Take the value of the next update in."""
        if value is None:
            return
        self.first = value if self.known == 0 else self.first
        self.last = value
        self.known += 1
        if not math.isfinite(value):
            self.nonfinite += 1
            self.nonfinite_at = self.nonfinite_at or update
            return
        if self.least is None or value < self.least:
            self.least, self.least_at = value, update
        if self.most is None or value > self.most:
            self.most, self.most_at = value, update


@dataclass(slots=True)
class OptimizerOverview:
    """The updates of one optimizer that stand."""

    updates: int = 0
    first: int | None = None  # its first update here
    last: int | None = None
    micro_batches: Counter[int] = field(default_factory=Counter)  # per update: updates
    loss: Series = field(default_factory=Series)
    objective: Series = field(default_factory=Series)
    grad_norm: Series = field(default_factory=Series)
    grad_norm_clipped: Series = field(default_factory=Series)
    clipped: int = 0
    clip_known: int = 0
    amp_scale: Series = field(default_factory=Series)
    lr_first: list[float] = field(default_factory=list)
    lr_last: list[float] = field(default_factory=list)
    ema: dict[str, Any] | None = None  # as the last update found it

    def add(self, record: UpdateRecord) -> None:
        """Take the next update in."""
        if self.updates == 0:
            self.first, self.lr_first = record.update, record.lr
        self.updates += 1
        self.last, self.lr_last = record.update, record.lr
        self.micro_batches[record.micro_batches] += 1
        for name in ("loss", "objective", "grad_norm", "grad_norm_clipped", "amp_scale"):
            getattr(self, name).add(record.update, getattr(record, name))
        self.clip_known += record.clipped is not None
        self.clipped += bool(record.clipped)
        self.ema = record.ema or self.ema


@dataclass(slots=True)
class SchedulerOverview:
    """The ticks of one scheduler, over the updates between which its counter was seen."""

    ticks: int = 0
    updates: int = 0  # of its optimizer
    _seen: int | None = None  # its counter when last seen in this attempt

    def see(self, state: SchedulerState, *, updates: int) -> None:
        """Take a counter in that was read `updates` after the one before."""
        if self._seen is not None and state.ticks >= self._seen:
            self.ticks += state.ticks - self._seen
            self.updates += updates
        self._seen = state.ticks

    def restart(self) -> None:
        """A new attempt: its schedulers are built anew and count from 0 again."""
        self._seen = None


class Overview:
    """Takes all records that `reader` gives; complete when there are no more."""

    def __init__(self, reader: RunReader) -> None:
        outline = reader.outline
        self.outline = outline
        self.fit = reader.fit  # None of a single rank
        self.ledger = Ledger(outline.runs)
        self.optimizers: dict[int, OptimizerOverview] = {}
        self.schedulers: dict[int, SchedulerOverview] = {}
        self.events: Counter[str] = Counter()
        self.fits: list[EventRecord] = []  # that one trainer began after its first
        self._owners = {s.id: s.optimizer for run in outline.runs for s in run.schedulers}
        self._since: dict[int, int] = {}  # scheduler: updates since its counter was seen

    @property
    def updates(self) -> int:
        """Updates that stand, of all optimizers together."""
        return sum(optimizer.updates for optimizer in self.optimizers.values())

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """Pass `records` on, each taken in before."""
        for record in records:
            self.take(record)
            yield record

    def take(self, record: Record) -> None:
        """Take the next record in."""
        run = self.ledger.run
        if not self.ledger.take(record):
            return
        if self.ledger.run is not run:
            self._since.clear()
            for scheduler in self.schedulers.values():
                scheduler.restart()
        if isinstance(record, UpdateRecord):
            self._see_schedulers(record.scheduler, optimizer=record.optimizer)
            self._count_update(record.optimizer)
            self.optimizers.setdefault(record.optimizer, OptimizerOverview()).add(record)
        elif isinstance(record, EventRecord):
            self.events[record.event] += 1
            if record.event == SEGMENT:
                self.fits.append(record)
        elif self.ledger.end is not None and self.ledger.in_last_attempt:
            self._see_schedulers(self.ledger.end.scheduler, optimizer=None)

    def _see_schedulers(
        self, states: list[SchedulerState] | None, *, optimizer: int | None
    ) -> None:
        """Those of `optimizer`, at the begin of its update; all of them at the end."""
        for state in states or ():
            if optimizer in (None, self._owners.get(state.id, 0)):
                scheduler = self.schedulers.setdefault(state.id, SchedulerOverview())
                scheduler.see(state, updates=self._since.pop(state.id, 0))

    def _count_update(self, optimizer: int) -> None:
        for scheduler, owner in self._owners.items():
            if owner == optimizer:
                self._since[scheduler] = self._since.get(scheduler, 0) + 1

    def to_json(self) -> dict[str, Any]:
        """Everything that was gathered, as JSON values."""
        outline, ledger = self.outline, self.ledger
        plain: dict[str, Any] = plain_json(
            {
                "path": str(outline.file),
                "ranks": None if self.fit is None else self.fit.to_json(),
                "run": msgspec.to_builtins(outline.run),
                "attempts": [run.attempt for run in outline.runs],
                "end": None if ledger.end is None else msgspec.to_builtins(ledger.end),
                "superseded": [_plain(span) for span in ledger.superseded],
                "missing": [_plain(span) for span in ledger.missing],
                "fragments": outline.fragments,
                "torn_bytes": outline.torn,
                "events": dict(self.events),
                "fits": [{"update": fit.update} | (fit.details or {}) for fit in self.fits],
                "optimizers": {str(i): _plain(o) for i, o in sorted(self.optimizers.items())},
                "schedulers": {
                    str(i): {"ticks": s.ticks, "updates": s.updates}
                    for i, s in sorted(self.schedulers.items())
                },
            }
        )
        return plain


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)

"""Where in a recording its judge stands: which attempt, which updates, what is known of the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from traingen.records import (
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    RunRecord,
    SchedulerIdentity,
    UpdateRecord,
)
from traingen.records.attempts import find_lineage


@dataclass(slots=True)
class Place:
    """Follows the records of one file; a resume takes back what it supersedes."""

    updates: dict[int, int] = field(default_factory=dict)  # by optimizer, completed
    lacking: dict[int, int] = field(default_factory=dict)  # of them, those not in this file
    global_step: int | None = None  # the loop's counter, as the last record that has it says
    event_step: int | None = None  # the same, where the last record is an event that has it
    step_before: int | None = None  # the same, before the update in question
    runs: list[RunRecord] = field(default_factory=list)  # of every attempt so far
    fresh: bool = True  # nothing of this training was done before this stretch
    over: bool = False  # the attempt came to an end of its own
    optimizers: dict[int, OptimizerIdentity] = field(default_factory=dict)  # as the run names them
    schedulers: dict[int, SchedulerIdentity] = field(default_factory=dict)
    # by attempt that is over: what it had completed, and what of that this file lacks
    _left: dict[int, tuple[dict[int, int], dict[int, int]]] = field(default_factory=dict)

    @property
    def run(self) -> RunRecord | None:
        """Of this attempt."""
        return self.runs[-1] if self.runs else None

    @property
    def lineage(self) -> tuple[RunRecord, ...]:
        """The attempts that this one goes on from, itself last."""
        return find_lineage(self.runs)

    @property
    def total(self) -> int:
        """Updates completed, of all optimizers together."""
        return sum(self.updates.values())

    @property
    def moment(self) -> tuple[int, int | None]:
        """Updates completed and, between updates, the loop's counter."""
        return self.total, self.event_step

    @property
    def missing(self) -> int:
        """Updates of all optimizers that this file does not hold."""
        return sum(self.lacking.values())

    @property
    def seen(self) -> int:
        """Those that it holds."""
        return self.total - self.missing

    def seen_of(self, optimizer: int) -> int:
        """Those of one optimizer."""
        return self.updates.get(optimizer, 0) - self.lacking.get(optimizer, 0)

    def began(self, run: RunRecord) -> None:
        """An attempt begins where its checkpoint stood."""
        resumed, before = run.resumed, self.run
        if before is not None:
            self._left[before.attempt] = (self.updates, self.lacking)
        self.updates = {} if resumed is None else dict(enumerate(resumed.updates))
        self.global_step = 0 if resumed is None else resumed.global_step
        self.fresh = resumed is None
        self.optimizers = {one.index: one for one in run.optimizers}
        self.schedulers = {one.id: one for one in run.schedulers}
        self.runs.append(run)
        self.lacking = self._find_lacking()
        self.event_step = None
        self.over = False

    def _find_lacking(self) -> dict[int, int]:
        """Of the updates up to the checkpoint those that no attempt in this file has made."""
        line = self.lineage
        made, lacking = ({}, {}) if len(line) < 2 else self._left[line[-2].attempt]
        return {
            i: min(n, lacking.get(i, 0)) + max(n - made.get(i, 0), 0)
            for i, n in self.updates.items()
        }

    def restarted(self) -> None:
        """Another `fit` of the same training begins."""
        self.fresh = self.over = False

    def updated(self, record: UpdateRecord) -> None:
        """An update was completed."""
        self.event_step = None
        self.updates[record.optimizer] = record.update
        self.step_before = self.global_step
        if self.step_before is None and record.global_step is not None:
            self.step_before = record.global_step - 1
        if record.global_step is not None:
            self.global_step = record.global_step

    def happened(self, event: EventRecord) -> None:
        """Something happened that may have moved the loop's counter."""
        step = (event.details or {}).get("global_step")
        self.event_step = step if isinstance(step, int) else None
        if isinstance(step, int):
            self.global_step = step

    def ended(self, record: EndRecord) -> None:
        """The attempt is over; one that was cut off might still have made its first update."""
        self.event_step = self.global_step
        self.over = record.reason in ("finished", "stopped")

    @property
    def fruitless(self) -> bool:
        """Whether all is over and no update was ever made."""
        return self.over and not self.total

    @property
    def several(self) -> bool:
        """Whether there are several optimizers."""
        return len(self.optimizers.keys() | self.updates.keys()) > 1

    def name(self, update: int, optimizer: int) -> str:
        """How an update is called: its optimizer only where there are several."""
        return f"update {update} of optimizer {optimizer}" if self.several else f"update {update}"

    def now(self) -> str:
        """How a moment between updates is called."""
        if not self.total:
            return "before the first update"
        return f"after {self.total} updates" if self.several else f"after update {self.total}"

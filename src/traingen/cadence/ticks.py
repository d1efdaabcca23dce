"""Whether schedulers tick where they should, while a training runs.

A watch is told what happens, in the order in which it happens. It counts from where it was made:
what a scheduler did before, in an earlier fit or in its constructor, is nobody's business here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from traingen.cadence import kinds
from traingen.cadence.schedule import Schedule
from traingen.compare.findings import Finding, Severity


@dataclass(slots=True, kw_only=True)
class Count:
    """What one scheduler has done since the watch began."""

    schedule: Schedule
    expected: str  # "step", "epoch", "auto" or "reference"
    judged: bool = True
    last_epoch: int | None = None
    ticks: int = 0
    due: int = 0  # ticks that should have come
    since_tick: int = 0  # updates of its optimizer since its last tick
    in_batch: int = 0  # ticks since the last batch was over
    in_epoch: int = 0  # ticks since the last epoch was over
    idle: bool = False  # the first tick since the last batch was over found no update before it
    forgiven: bool = False  # a plateau's tick that Lightning leaves out after a resume
    skipped: int = 0  # ticks on counted steps that applied nothing
    early: int = 0  # ticks before the first update of all, where none was due
    unheard: int = 0  # ticks before the first update of all, where they were due
    fed_at: int = -1  # validations when a plateau was last fed


@dataclass(slots=True, kw_only=True)
class TickWatch:
    """Judge the ticks of every scheduler.

    Args:
        emit: takes each finding, at the moment it is made; one per scheduler and kind.
        automatic: whether Lightning ticks, and not the user's code.
        scaled: whether a gradient scaler may skip updates.
        resumed: whether a checkpoint was loaded.
        held_back: whether the module decides, in lr_scheduler_step, which due ticks come.
    """

    emit: Callable[[Finding], None]
    automatic: bool = True
    scaled: bool = False
    resumed: bool = False
    held_back: bool = False
    counts: dict[int, Count] = field(default_factory=dict)  # by the scheduler's index
    retired: list[Count] = field(default_factory=list)  # of schedulers that others replaced
    updates: dict[int, int] = field(default_factory=dict)  # by optimizer, since the watch began
    _in_batch: dict[int, int] = field(default_factory=dict)  # updates since the last batch was over
    _validations: int = 0
    _said: set[tuple[str, str, int]] = field(default_factory=set)

    def follow(self, schedule: Schedule, expected: str, *, judged: bool = True) -> None:
        """Count this scheduler from now on, in the place of the one of the same index."""
        if schedule.index in self.counts:
            self.retired.append(self.counts[schedule.index])
        last_epoch = getattr(schedule.scheduler, "last_epoch", None)
        self.counts[schedule.index] = Count(
            schedule=schedule, expected=expected, judged=judged, last_epoch=last_epoch
        )

    def updated(self, optimizer: int) -> None:
        """The optimizer has applied an update."""
        self.updates[optimizer] = self.updates.get(optimizer, 0) + 1
        self._in_batch[optimizer] = self._in_batch.get(optimizer, 0) + 1
        for count in self.counts.values():
            if count.schedule.optimizer == optimizer:
                count.since_tick += 1
                self._check_early(count)
                self._check_late(count)

    def skipped(self, optimizer: int, steps: int) -> None:
        """So many of the updates that were told had in truth been skipped by a scaler."""
        self.updates[optimizer] = self.updates.get(optimizer, 0) - steps
        for count in self.counts.values():
            schedule = count.schedule
            by_epoch = self.automatic and schedule.interval == "epoch"
            if schedule.optimizer == optimizer and not by_epoch:
                count.skipped += min(steps, count.ticks)

    def ticked(self, index: int, *, on_validation: bool = False) -> None:
        """Scheduler `index` has ticked; `on_validation`: a plateau, with a validation metric."""
        count = self.counts[index]
        count.ticks += 1
        count.in_batch += 1
        count.in_epoch += 1
        if count.schedule.plateau:
            self._check_fed(count, on_validation)
        elif count.judged and count.since_tick == 0:
            self._check_idle(count)
        count.since_tick = 0
        self._check_rewound(count)

    def validated(self) -> None:
        """A validation is over: its metrics are new."""
        self._validations += 1

    def batch_over(
        self, due: Mapping[int, bool], *, stepped: bool = True, ended: bool = True
    ) -> None:
        """A batch and all that follows it is over.

        Args:
            due: by the scheduler's index, whether it had to tick.
            stepped: whether the batch called an optimizer, be it only for a scaler to skip it.
            ended: whether the batch was trained on; False: on_train_batch_start left the epoch.
        """
        for index, count in self.counts.items():
            if count.idle:
                is_due = due.get(index, not self.automatic) and stepped
                self._judge_idle(count, due=is_due, ended=ended)
            if count.judged and due.get(index, False):
                self._judge_due(count)
            count.in_batch, count.idle = 0, False
        self._in_batch.clear()

    def epoch_over(self, epoch: int) -> None:
        """An epoch is over; in manual optimization those expected to tick by epoch have."""
        for count in self.counts.values():
            ticks, count.in_epoch = count.in_epoch, 0
            held = count.expected == "epoch" and count.judged and not count.schedule.plateau
            if self.automatic or not held:
                continue
            count.due += 1
            if ticks != 1:
                kind = kinds.STEP if ticks else kinds.UPDATE_WITHOUT_TICK
                told = f"{count.schedule.label}: {ticks} ticks in epoch {epoch}, expected one"
                self._say(count, kind.found(told))

    def end(self) -> None:
        """Training is over: judge what only its end shows."""
        for count in self.counts.values():
            updates = self.updates.get(count.schedule.optimizer, 0)
            by_own_code = not self.automatic or (self.held_back and count.due > 0)
            if count.judged and updates and by_own_code and not count.ticks:
                self._never_stepped(count, updates)
            if (count.early or count.unheard) and not updates:
                count.skipped = 0
                told = f"{count.schedule.label}: {count.ticks} ticks and no update was heard"
                self._say(count, kinds.NOT_HEARD.found(told))
            if count.skipped:
                told = (
                    f"{count.schedule.label}: {count.skipped} of {count.ticks} ticks came on steps "
                    f"that applied nothing; {updates} updates were applied"
                )
                self._say(count, kinds.SKIPPED.found(told))

    def _check_idle(self, count: Count) -> None:
        """A tick found no update before it; the end of the batch may tell why."""
        by_epoch = self.automatic and count.schedule.interval == "epoch"
        if by_epoch and count.in_epoch == 1:
            return  # it was due by the epoch, whatever became of its batches
        if count.in_batch == 1 and (self.automatic or self.scaled):
            count.idle = True
        else:
            self._tick_without_update(count)

    def _judge_idle(self, count: Count, *, due: bool, ended: bool) -> None:
        """Why the first tick of this batch found no update: the batch is over now."""
        updated = self.automatic and self._in_batch.get(count.schedule.optimizer, 0)
        if not ended:
            told = (
                f"{count.schedule.label}: tick {count.ticks} came where on_train_batch_start left "
                "the epoch: Lightning ticks there as well"
            )
            self._say(count, kinds.TICK_WITHOUT_UPDATE.found(told, severity="warning"))
        elif due and not updated:  # as Lightning counts steps; the excess is summed up at the end
            count.skipped += 1
            count.unheard += not (self.scaled or self.updates.get(count.schedule.optimizer, 0))
        else:
            self._tick_without_update(count)

    def _judge_due(self, count: Count) -> None:
        """A tick was due: it has come, or what it waits for was missing."""
        if count.in_batch:
            count.due += 1
        elif not count.schedule.plateau:
            count.due += 1
            self._missing_tick(count)
        elif self.resumed and not count.forgiven:
            count.forgiven = True  # metrics are not in checkpoints: Lightning leaves this one out
        else:
            self._stale(count, "was due and the metric was missing")

    def _check_early(self, count: Count) -> None:
        """Ticks came before the first update; had none been heard ever, we could not tell."""
        if count.early:
            told = f"{count.schedule.label}: {count.early} ticks came before the first update"
            unclear = not self.automatic and count.expected == "auto"
            severity: Severity = "warning" if unclear else "error"
            self._say(count, kinds.TICK_WITHOUT_UPDATE.found(told, severity=severity))
            count.early = 0
        count.unheard = 0

    def _check_late(self, count: Count) -> None:
        """In manual optimization a tick by update may come any time before the next update."""
        step = count.expected == "step" and not count.schedule.plateau
        if self.automatic or not step or not count.judged:
            return
        count.due += 1
        if count.since_tick > 1:
            update = self.updates[count.schedule.optimizer]
            self._say(
                count,
                kinds.UPDATE_WITHOUT_TICK.found(
                    f"{count.schedule.label}: no tick between update {update - 1} and update "
                    f"{update}; expected one per update"
                ),
            )

    def _check_fed(self, count: Count, on_validation: bool) -> None:
        again = on_validation and count.fed_at == self._validations
        count.fed_at = self._validations
        if again:
            self._stale(count, "was fed the same validation result again")

    def _missing_tick(self, count: Count) -> None:
        schedule = count.schedule
        if self._in_batch.get(schedule.optimizer, 0) and count.expected != "reference":
            update = self.updates[schedule.optimizer]
            own_pace = self.held_back and count.expected == "auto"  # its author's, for all we know
            self._say(
                count,
                kinds.UPDATE_WITHOUT_TICK.found(
                    f"{schedule.label}: no tick after update {update}, where one was due; expected "
                    f"{count.due} ticks so far, saw {count.ticks}",
                    severity="warning" if own_pace else "error",
                ),
            )

    def _stale(self, count: Count, what: str) -> None:
        by_step = count.schedule.interval == "step"
        kind = kinds.PLATEAU_STEPS if by_step else kinds.PLATEAU_STALE
        told = f"{count.schedule.label}, monitoring {count.schedule.monitor!r}, {what}"
        self._say(count, kind.found(f"{told} (tick {count.ticks})"))

    def _tick_without_update(self, count: Count) -> None:
        updates = self.updates.get(count.schedule.optimizer, 0)
        if not updates:
            count.early += 1
            return
        self._say(
            count,
            kinds.TICK_WITHOUT_UPDATE.found(
                f"{count.schedule.label}: tick {count.ticks} came after {updates} updates, and its "
                f"optimizer had applied none since the tick before"
            ),
        )

    def _never_stepped(self, count: Count, updates: int) -> None:
        if count.expected != "reference":
            told = f"{count.schedule.label}: 0 ticks in {updates} updates of its optimizer"
            self._say(count, kinds.NEVER_STEPPED.found(told))

    def _check_rewound(self, count: Count) -> None:
        now = getattr(count.schedule.scheduler, "last_epoch", None)
        if count.last_epoch is not None and now is not None and now < count.last_epoch:
            told = f"{count.schedule.label}: last_epoch went from {count.last_epoch} back to {now}"
            self._say(count, kinds.REWOUND.found(told))
        count.last_epoch = now

    def _say(self, count: Count, finding: Finding) -> None:
        what = (finding.id, finding.severity, count.schedule.index)
        if what not in self._said:
            self._said.add(what)
            self.emit(finding)

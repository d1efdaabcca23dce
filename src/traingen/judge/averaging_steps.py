"""Whether averaged weights lie with the model, and leave out the steps that a scaler skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.announced import Announced, is_due, read_announced
from traingen.judge.place import Place
from traingen.judge.watch import Watch, text, times
from traingen.records import EventRecord, UpdateRecord

MOVED_LATER = "StochasticWeightAveraging"  # moves its copy only when it starts


@dataclass(slots=True)
class _Steps:
    """Counted steps, and after how many of them the average is due."""

    all: int = 0
    due: int = 0

    def add(self, step: object, asked: Announced | None) -> None:
        """Count one; `step` is the loop's counter after it."""
        self.all += 1
        self.due += is_due(step, asked)


class SkippedStepsWatch(Watch):
    """Count updates of the average that came on steps which a scaler had skipped.

    Only with one optimizer: with several, another one's update is reason enough for the average.
    """

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._asked: Announced | None = None
        self._averaged: int | None = None  # at the begin of the last update
        self._epoch: int | None = None  # of the last update
        self._applied = _Steps()  # counted since then and applied: the last update itself
        self._skipped = _Steps()  # and those that were skipped
        self._off_phase = False  # the average does not go by (step - 1) % every
        self._extra = 0  # averagings beyond one per update where nothing was skipped

    def began(self) -> None:
        """A training that begins at its beginning has averaged nothing yet."""
        self._averaged = 0 if self.place.fresh else None
        self._epoch = None
        self._applied, self._skipped = _Steps(), _Steps()

    restarted = began

    def happened(self, event: EventRecord) -> None:
        """A step was skipped, or the average is announced."""
        if event.event == "averaging":
            self._asked = read_announced(event.details)
        elif event.event == "skipped_step":
            self._skipped.add((event.details or {}).get("global_step"), self._asked)

    def updated(self, record: UpdateRecord) -> None:
        """Compare what the average has counted since the update before."""
        averaged = (record.ema or {}).get("updates")
        if isinstance(averaged, int) and self._averaged is not None:
            self._compare(averaged - self._averaged, record)
        self._averaged = averaged if isinstance(averaged, int) else None
        self._epoch = record.epoch
        self._applied, self._skipped = _Steps(), _Steps()
        self._applied.add(record.global_step, self._asked)

    def _compare(self, counted: int, record: UpdateRecord) -> None:
        applied, skipped = self._applied, self._skipped
        # at the end of an epoch the average may be due once more
        epochs = 0 if self._epoch is None or record.epoch is None else record.epoch - self._epoch
        if not skipped.all:
            if not epochs:
                self._off_phase |= counted != applied.due
                self._extra = max(self._extra, counted - applied.all)
            return
        # a phase that is not known leaves only what exceeds all updates as certain
        due = applied.all + self._extra if self._off_phase else applied.due
        excess = counted - due
        if epochs < excess <= skipped.due + epochs and not self.place.several:
            name = self.place.name(record.update, record.optimizer)
            of = f"{times(applied.all, 'update')} and {times(skipped.all, 'skipped step')}"
            told = f"before {name}, {times(counted, 'averaging')} after {of}"
            self.note(kinds.EMA_SKIPPED, told, times=min(excess, skipped.due))

    def findings(self) -> Iterator[Finding]:
        """One over the whole recording."""
        for _, tally in self.noted(kinds.EMA_SKIPPED):
            told = f"{times(tally.count, 'averaging')} came on skipped steps, first {tally.told}"
            yield kinds.EMA_SKIPPED.found(told)


class DeviceWatch(Watch):
    """Look for averaged weights that are kept on another device than the model's."""

    def happened(self, event: EventRecord) -> None:
        """The average is announced."""
        own, live = text(event.details, "device"), text(event.details, "model_device")
        if event.event != "averaging" or own is None or live is None:
            return
        asked = read_announced(event.details)
        if asked.name != MOVED_LATER and not _same_device(own, live):
            self.note(kinds.EMA_DEVICE, f"{asked.name} averages on {own}, the model is on {live}")

    def findings(self) -> Iterator[Finding]:
        """One."""
        for _, tally in self.noted(kinds.EMA_DEVICE):
            yield kinds.EMA_DEVICE.found(tally.told)


def _same_device(one: str, other: str) -> bool:
    if ":" in one and ":" in other:
        return one == other
    return one.partition(":")[0] == other.partition(":")[0]

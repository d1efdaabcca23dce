"""What one recording shows by itself: fold over its records and say what was found."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable

from traingen.compare.findings import Finding
from traingen.judge.averaging import CadenceWatch
from traingen.judge.averaging_steps import DeviceWatch, SkippedStepsWatch
from traingen.judge.clipping import EarlyClipWatch, LimitWatch, ScaledClipWatch
from traingen.judge.counting import ClosureWatch, CounterWatch, GradientWatch, WindowWatch
from traingen.judge.numbers import NumbersWatch
from traingen.judge.place import Place
from traingen.judge.resumes import RepeatWatch
from traingen.judge.scaler import ScalerWatch
from traingen.judge.schedulers import SchedulerWatch
from traingen.judge.watch import Watch
from traingen.records import EventRecord, Record, RunRecord, UpdateRecord

_SEVERITIES = ("error", "warning", "info")
_WATCHES = (
    NumbersWatch, LimitWatch, EarlyClipWatch, ScaledClipWatch, GradientWatch, CounterWatch,
    WindowWatch, ScalerWatch, SchedulerWatch, CadenceWatch, SkippedStepsWatch, DeviceWatch,
    RepeatWatch, ClosureWatch,
)  # fmt: skip
_LEFT = 16  # attempts to which a later one can go back


class RecordingJudge:
    """Judge a recording record by record, in the order of its file.

    It keeps counts, not records: its memory does not grow with the number of updates. What a later
    attempt supersedes is taken back, exactly for the last 1000 occurrences of each finding. One
    that goes back to an attempt before the last, within 16, takes up what was found of that.

    Example::

        judge = RecordingJudge()
        for record in iter_records("runs/first"):
            judge.see(record)
        for finding in judge.findings():
            print(finding)
    """

    def __init__(self) -> None:
        self._place = Place()
        self._left: OrderedDict[int, list[Watch]] = OrderedDict()  # as they were, by attempt
        self._take_up([watch(self._place) for watch in _WATCHES])

    def see(self, record: Record) -> None:
        """Take the next record in."""
        if isinstance(record, UpdateRecord):
            self._place.updated(record)
            for see_update in self._see_update:
                see_update(record)
        elif isinstance(record, EventRecord):
            self._see_event(record)
        elif isinstance(record, RunRecord):
            self._see_run(record)
        else:
            self._place.ended(record)
            for watch in self._watches:
                watch.ended(record)

    def findings(self) -> list[Finding]:
        """What is found so far: errors first, then warnings, then the rest."""
        found = [finding for watch in self._watches for finding in watch.findings()]
        return sorted(found, key=lambda finding: _SEVERITIES.index(finding.severity))

    def _take_up(self, watches: list[Watch]) -> None:
        self._watches = watches
        # most records are updates, and not every watch looks at those
        self._see_update = [
            watch.updated for watch in watches if type(watch).updated is not Watch.updated
        ]

    def _see_run(self, run: RunRecord) -> None:
        before = self._place.run
        self._place.began(run)
        if before is not None:
            self._leave(before.attempt)
        for watch in self._watches:
            watch.rewind((self._place.total, self._place.global_step))
            watch.began()

    def _leave(self, attempt: int) -> None:
        """Keep what was found in `attempt`, and take up what the new one goes on from."""
        self._left[attempt] = self._copy(self._watches)
        if len(self._left) > _LEFT:
            self._left.popitem(last=False)
        parents = [run.attempt for run in self._place.lineage[:-1]]
        if not parents:
            history = {type(watch): watch for watch in self._watches if watch.of_history}
            self._take_up([history.get(kind) or kind(self._place) for kind in _WATCHES])
        elif parents[-1] != attempt and parents[-1] in self._left:
            self._take_up(self._copy(self._left[parents[-1]]))

    def _copy(self, watches: list[Watch]) -> list[Watch]:
        """With the same place, and the same watches of history."""
        shared = [self._place, *(watch for watch in watches if watch.of_history)]
        return copy.deepcopy(watches, {id(one): one for one in shared})

    def _see_event(self, event: EventRecord) -> None:
        self._place.happened(event)
        if event.event == "segment":
            self._place.restarted()
        for watch in self._watches:
            if event.event == "segment":
                watch.restarted()
            else:
                watch.happened(event)


def judge_recording(records: Iterable[Record]) -> list[Finding]:
    """What one recording shows by itself, errors first; `records` as `iter_records` yields them."""
    judge = RecordingJudge()
    for record in records:
        judge.see(record)
    return judge.findings()

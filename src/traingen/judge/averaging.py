"""Whether averaged weights are updated as asked.

What a record says of them was found at its begin: it belongs to the tail of the update before. An
average that counts steps counts those of the loop (`global_step`), and looks once per batch; with
several optimizers it may mean the updates of any of them. So what was asked is a range, and only
what lies clearly outside of it is found.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.announced import Announced, read_announced
from traingen.judge.place import Place
from traingen.judge.watch import RECENT, Watch, text, times
from traingen.records import EndRecord, EventRecord, UpdateRecord
from traingen.records.attempts import Moment

MANY = 50  # updates after which an average without a known start is missed within one epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The begin of an update: what had been done by then."""

    averaged: int
    step: int | None  # counted by the loop
    updates: dict[int, int]  # by optimizer
    epoch: int

    @property
    def total(self) -> int:
        """Updates of all optimizers."""
        return sum(self.updates.values())


@dataclass(slots=True)
class _Over:
    """A stretch that is over and shows something."""

    stretch: _Stretch
    asked: Announced | None
    class_path: str
    finished: bool  # it came to the end of the run

    def judge(self) -> Finding | None:
        """What it shows."""
        return _judge(self.stretch, self.asked, self.class_path, finished=self.finished)


@dataclass(slots=True)
class _Stretch:
    """What one average did between two breaks (a resume, another fit), as one optimizer saw it."""

    eligible: _Moment | None = None  # the first at which it may have started
    before: _Moment | None = None  # the last before it first changed
    latest: _Moment | None = None
    moments: int = 0
    recent: deque[_Moment] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, moment: _Moment, *, starts: int) -> None:
        """Take the next moment in."""
        if self.eligible is None and (moment.step is None or moment.step >= starts):
            self.eligible = moment
        if self.before is None or moment.averaged == self.before.averaged:
            self.before = moment
        self.latest = moment
        self.moments += 1
        self.recent.append(moment)

    def rewind(self, to: int) -> bool:
        """Forget moments after `to` updates; whether anything is left."""
        beyond = 0
        while self.recent and self.recent[-1].total > to:
            self.recent.pop()
            beyond += 1
        if not beyond:
            return True
        self.moments -= beyond
        self.latest = self.recent[-1] if self.recent else None
        if self.eligible is not None and self.eligible.total > to:
            self.eligible = None
        if self.before is not None and self.before.total > to:
            self.before = self.latest
        return self.latest is not None

    @property
    def idle(self) -> bool:
        """Whether the average was not updated since it may have started."""
        begin, end = self.eligible, self.latest
        return begin is not None and end is not None and begin.averaged == end.averaged


class CadenceWatch(Watch):
    """Compare how often averaged weights were updated with how often they were meant to be."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._asked: dict[str, Announced] = {}  # by class
        self._stretches: dict[int, _Stretch] = {}  # by optimizer
        self._class: str = ""
        self._over: list[_Over] = []

    def began(self) -> None:
        """A resume: the stretch is over, and counts as far as it is not superseded."""
        self._conclude()

    restarted = began

    def rewind(self, to: Moment) -> None:
        """Forget what the average did beyond the checkpoint."""
        self._conclude()
        for one in self._over:
            moments = one.stretch.moments
            kept = one.stretch.rewind(to[0])
            one.finished &= kept and one.stretch.moments == moments
        self._over = [one for one in self._over if one.judge() is not None]

    def happened(self, event: EventRecord) -> None:
        """The average is announced."""
        if event.event == "averaging":
            asked = read_announced(event.details)
            self._asked[asked.class_path] = asked

    def updated(self, record: UpdateRecord) -> None:
        """The state of the average at the begin of an update."""
        averaged = (record.ema or {}).get("updates")
        if not isinstance(averaged, int):
            return
        self._class = text(record.ema, "class_path") or ""
        asked = self._asked.get(self._class)
        moment = _Moment(
            averaged=averaged,
            step=self.place.step_before,
            updates=self.place.updates | {record.optimizer: record.update - 1},
            epoch=record.epoch or 0,
        )
        stretch = self._stretches.setdefault(record.optimizer, _Stretch())
        stretch.add(moment, starts=0 if asked is None else asked.starts)

    def ended(self, record: EndRecord) -> None:
        """Only a run that came to its end says something of an average that may start late."""
        if record.reason == "finished":
            self._conclude(finished=True)

    def findings(self) -> Iterator[Finding]:
        """At most one of each kind."""
        seen: set[str] = set()
        for one in [*self._over, *self._now(finished=False)]:
            finding = one.judge()
            if finding is not None and finding.id not in seen:
                seen.add(finding.id)
                yield finding

    def _conclude(self, *, finished: bool = False) -> None:
        self._over += [one for one in self._now(finished=finished) if one.judge() is not None]
        self._stretches.clear()

    def _now(self, *, finished: bool) -> list[_Over]:
        """The stretch under way, if there is one."""
        leading = self._leading()
        if leading is None:
            return []
        asked = self._asked.get(self._class)
        return [_Over(leading, asked, self._class, finished)]

    def _leading(self) -> _Stretch | None:
        """What the optimizer saw that updates most often: it sees most of the average."""
        return max(self._stretches.values(), key=lambda one: one.moments, default=None)


def _judge(
    stretch: _Stretch, asked: Announced | None, class_path: str, *, finished: bool
) -> Finding | None:
    if stretch.latest is None:
        return None
    if asked is not None and asked.every is not None:
        return _judge_never(stretch, asked, finished=finished) or _judge_pace(stretch, asked)
    if finished and not (asked is not None and asked.delayed):
        return _judge_idle(stretch, class_path)
    return None


def _slowest(begin: _Moment, end: _Moment) -> int:
    """Updates between two moments of the optimizer that made the fewest, of those that made any."""
    made = [n - begin.updates.get(index, 0) for index, n in end.updates.items()]
    return min((n for n in made if n > 0), default=0)


def _steps(begin: _Moment, end: _Moment) -> int:
    """Steps that the loop counted between two moments, or else updates of all optimizers."""
    if begin.step is not None and end.step is not None:
        return end.step - begin.step
    return sum(end.updates.values()) - sum(begin.updates.values())


def _judge_never(stretch: _Stretch, asked: Announced, *, finished: bool) -> Finding | None:
    """Somebody's own class may start when it likes; one that was given a pace hardly does."""
    begin, end = stretch.eligible, stretch.latest
    if not stretch.idle or begin is None or end is None or asked.every is None:
        return None
    updates = _slowest(begin, end)
    if updates <= asked.every:
        return None
    return kinds.EMA_NEVER.found(
        f"{asked.name} is to average every {times(asked.every, 'step')}: 0 times in "
        f"{_steps(begin, end)} counted steps ({_listed(begin, end)})",
        severity=None if asked.is_known or (finished and asked.every > 1) else "warning",
    )


def _judge_pace(stretch: _Stretch, asked: Announced) -> Finding | None:
    begin, end, every = stretch.before, stretch.latest, asked.every
    if begin is None or end is None or every is None or begin.averaged == end.averaged:
        return None
    averaged, steps = end.averaged - begin.averaged, _steps(begin, end)
    slack = 1 + len(end.updates)
    least = _slowest(begin, end) // every - slack
    most = math.ceil(steps / every) + (end.epoch - begin.epoch) + slack
    if least <= averaged <= most:
        return None
    expected = f"{max(steps // every, 1)} were expected"
    return kinds.EMA_CADENCE.found(
        f"{asked.name} is to average every {times(every, 'step')}: {averaged} times in {steps} "
        f"counted steps ({_listed(begin, end)}), where about {expected}",
        severity="error" if every > 1 else "warning",  # 1 is the default, asked for by nobody
    )


def _judge_idle(stretch: _Stretch, class_path: str) -> Finding | None:
    begin, end = stretch.eligible, stretch.latest
    if not stretch.idle or begin is None or end is None or end.averaged:
        return None
    updates, epochs = _slowest(begin, end), end.epoch - begin.epoch
    if updates < MANY and (updates < 2 or epochs < 2):
        return None
    name = class_path.rpartition(".")[2] or "the average"
    return kinds.EMA_NEVER.found(
        f"{name} has averaged 0 times in the whole run ({_listed(begin, end)}); whether it is to "
        "start later is not recorded",
        severity="warning",
    )


def _listed(begin: _Moment, end: _Moment) -> str:
    made = {index: n - begin.updates.get(index, 0) for index, n in end.updates.items()}
    if len(made) == 1:
        return times(next(iter(made.values())), "update")
    return ", ".join(f"{times(n, 'update')} of optimizer {index}" for index, n in made.items())

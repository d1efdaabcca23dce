"""Whether schedulers keep to the updates, forward and themselves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.place import Place
from traingen.judge.watch import RECENT, Tally, Watch, count, index, text, times
from traingen.records import (
    EndRecord,
    EventRecord,
    SchedulerIdentity,
    SchedulerState,
    UpdateRecord,
)
from traingen.records.attempts import Moment, is_beyond

AT_END = "at the end"
EVEN = 2  # ticks that moved last_epoch by one each, before one that did not says anything


@dataclass(slots=True, kw_only=True)
class _Lag:
    """Last_epoch fell behind its ticks: it was set back, or it stands still from now on."""

    at: int  # updates of all optimizers when it first did
    told: str
    extra: bool  # there were more ticks than steps: somebody ticked once more
    count: int = 1  # how often, without having moved on in between


@dataclass(slots=True, kw_only=True)
class _Seen:
    """One scheduler as the updates of one optimizer find it."""

    state: SchedulerState | None = None  # at the begin of the last update
    at: int = 0  # updates of all optimizers when that was completed
    own_due: int = 0  # ticks that the last update brings by itself
    odd_counter: bool = False  # last_epoch does not rise by one with each tick
    even_ticks: int = 0  # with which it did
    lag: _Lag | None = None  # after those: which it was is seen when it moves on


class SchedulerWatch(Watch):
    """Look for ticks on steps that applied nothing, and for counters that go back."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._seen: dict[tuple[int, int], _Seen] = {}  # by optimizer and scheduler
        self._idle: dict[int, int] = {}  # by optimizer, steps since its last update
        self._ticks: dict[int, Tally] = {}  # by scheduler
        # class paths in effect, from when on
        self._effects: deque[tuple[Moment, list[str]]] = deque(maxlen=RECENT)
        self._uneven: set[int] = set()  # tick for other reasons too: of one tick nothing follows

    def rewind(self, to: Moment) -> None:
        """Forget ticks that are superseded as well."""
        super().rewind(to)
        for tally in self._ticks.values():
            tally.rewind(to)
        while self._effects and is_beyond(self._effects[-1][0], to):
            self._effects.pop()

    def began(self) -> None:
        """Counters start anew with the process."""
        self._seen.clear()
        self._idle.clear()
        if self.place.schedulers:
            names = [identity.class_path for identity in self.place.schedulers.values()]
            self._effects.append((self.place.moment, names))
        for identity in self.place.schedulers.values():
            start = SchedulerState(id=identity.id, last_epoch=None, ticks=0)
            self._seen[identity.optimizer, identity.id] = _Seen(state=start)

    def restarted(self) -> None:
        """Optimizers and schedulers are built anew: where they start is seen at the next update."""
        self._seen.clear()
        self._idle.clear()

    def happened(self, event: EventRecord) -> None:
        """A step without an update, or another scheduler."""
        if event.event == "skipped_step":
            self._skip(index(event.details), 1)
        elif event.event == "counted_without_update":
            self._skip(None, count(event.details, "count", default=1))
        elif event.event == "scheduler_swapped":
            self._swap(event)

    def updated(self, record: UpdateRecord) -> None:
        """The tail of the update before this one."""
        name = self.place.name(record.update, record.optimizer)
        self._compare(record.optimizer, record.scheduler or (), f"before {name}")
        for state in record.scheduler or ():
            identity = self.place.schedulers.get(state.id)
            seen = self._seen[record.optimizer, state.id]
            seen.own_due, seen.at = _due_at(record, identity), self.place.total
        self._idle[record.optimizer] = 0

    def ended(self, record: EndRecord) -> None:
        """The tail of the last update."""
        for optimizer in {key[0] for key in self._seen}:
            known = [one for one in record.scheduler or () if (optimizer, one.id) in self._seen]
            self._compare(optimizer, known, AT_END)
        for (_, number), seen in self._seen.items():
            if seen.lag is not None and seen.lag.extra and seen.lag.count == 1:
                self._confirm(seen, number)

    def findings(self) -> Iterator[Finding]:
        """At most one of each kind per scheduler."""
        for number, tally in self.noted(kinds.TICKED_ON_SKIPPED):
            if number is not None and number not in self._uneven:
                share = f"{tally.count} of {self._ticks[number].count} ticks"
                told = f"{share} came on steps that applied nothing, {tally.told}"
                yield kinds.TICKED_ON_SKIPPED.found(f"{self._name(number)}: {told}")
        for number, tally in self.noted(kinds.REWOUND):
            told = f"{self._name(number or 0)}: {tally.told}"
            more = f"; {tally.count} times in all" if tally.count > 1 else ""
            yield kinds.REWOUND.found(told + more)
        for kind in (kinds.SWAPPED, kinds.REPLACED):
            for _, tally in self.noted(kind):
                yield kind.found(tally.told)

    def _skip(self, optimizer: int | None, steps: int) -> None:
        whose = [optimizer] if optimizer is not None else []
        if not whose and not self.place.several:
            whose = list(self.place.optimizers) or [0]
        for one in whose:
            self._idle[one] = self._idle.get(one, 0) + steps

    def _compare(self, optimizer: int, states: Iterable[SchedulerState], when: str) -> None:
        idle = self._idle.get(optimizer, 0)
        for state in states:
            seen = self._seen.setdefault((optimizer, state.id), _Seen())
            before, seen.state = seen.state, state
            identity = self.place.schedulers.get(state.id)
            if identity is not None and identity.optimizer != optimizer:
                continue  # another optimizer's records judge it
            if before is None:
                self._count_ticks(seen, state.id, state.ticks)
                continue
            if identity is not None and identity.interval != "epoch":
                self._judge_ticks(seen, before, state, idle, when)
            self._judge_counter(seen, before, state, idle, when)

    def _judge_ticks(
        self, seen: _Seen, before: SchedulerState, state: SchedulerState, idle: int, when: str
    ) -> None:
        self._count_ticks(seen, state.id, state.ticks - before.ticks)
        excess = state.ticks - before.ticks - seen.own_due
        if not idle and excess > 0:
            self._uneven.add(state.id)
        elif idle and 0 < excess <= idle:
            first = f"first {when}" if when != AT_END else self._since()
            self.note(kinds.TICKED_ON_SKIPPED, first, of=state.id, times=excess)

    def _count_ticks(self, seen: _Seen, number: int, ticks: int) -> None:
        """Those that an update brings come right after it, all others at any time until now."""
        tally = self._ticks.setdefault(number, Tally())
        own = min(ticks, seen.own_due)
        tally.add((seen.at, None), "", own)
        tally.add((self.place.total, None), "", ticks - own)

    def _since(self) -> str:
        """Where the steps at the end of an attempt lie."""
        return f"first {self.place.now()}" if self.place.total else "before any update"

    def _judge_counter(
        self, seen: _Seen, before: SchedulerState, state: SchedulerState, idle: int, when: str
    ) -> None:
        if before.last_epoch is None or state.last_epoch is None:
            return
        moved, ticks = state.last_epoch - before.last_epoch, state.ticks - before.ticks
        if moved < 0:
            told = f"last_epoch went from {before.last_epoch} back to {state.last_epoch}"
            self.note(kinds.REWOUND, f"{told}, {when}", of=state.id)
        elif moved == ticks:
            seen.even_ticks += ticks
            if ticks:
                self._confirm(seen, state.id)
        elif moved > ticks:
            seen.odd_counter, seen.lag = True, None
        else:
            extra = ticks > seen.own_due + idle
            around = " around a skipped step" if idle else ""
            told = f"last_epoch moved by {moved} in {times(ticks, 'tick')}{around}, {when}"
            lag = _Lag(at=self.place.total, told=told, extra=extra)
            self._judge_lag(seen, lag, number=state.id, idle=idle, moved=moved)

    def _judge_lag(self, seen: _Seen, lag: _Lag, *, number: int, idle: int, moved: float) -> None:
        """A counter that often moves by less than its ticks counts something else, as epochs."""
        kept = seen.even_ticks >= (1 if idle and lag.extra else EVEN) and not seen.odd_counter
        again = seen.lag is not None and moved > 0
        if not idle and (again or not kept):
            seen.odd_counter, seen.lag = True, None
        elif kept and again:
            self._confirm(seen, number)
            seen.lag = lag
        elif kept and seen.lag is not None:
            seen.lag.count += 1
        elif kept:
            seen.lag = lag

    def _confirm(self, seen: _Seen, number: int) -> None:
        """The counter moves on: it had been set back where it fell behind."""
        if seen.lag is not None:
            self.note(kinds.REWOUND, seen.lag.told, of=number, times=seen.lag.count, at=seen.lag.at)
        seen.lag = None

    def _swap(self, event: EventRecord) -> None:
        number, by = index(event.details, "id"), text(event.details, "by")
        before, after = text(event.details, "before"), text(event.details, "after")
        for key in [key for key in self._seen if key[1] == number]:
            del self._seen[key]
        what = f"{_short(before)} gave way to {_short(after)}"
        what = f"{_short(after)} came" if before is None else what
        who = "nobody who is known" if by is None else f"by {_short(by)}"
        told = f"{self.place.now()}: {what}, {who}"
        told += self._tell_effect() if before is None else ""
        effect = list(self._effects[-1][1]) if self._effects and before is not None else []
        if before in effect:
            effect.remove(before)
        self._effects.append((self.place.moment, [*effect, after or ""]))
        self.note(kinds.REPLACED if by is None else kinds.SWAPPED, told, of=number)

    def _tell_effect(self) -> str:
        """What was in effect before a scheduler that took the place of none in this process."""
        if self._effects:
            names = " and ".join(_short(one) for one in self._effects[-1][1])
            return f"; the last in effect before it: {names}"
        resumed = self.place.run is not None and self.place.run.resumed is not None
        return "; what was before it is not known" if resumed else "; there was none before it"

    def _name(self, number: int) -> str:
        identity = self.place.schedulers.get(number)
        name = "scheduler" if identity is None else _short(identity.class_path)
        return f"{name} (scheduler {number})"


def _due_at(record: UpdateRecord, identity: SchedulerIdentity | None) -> int:
    """How many ticks an update brings: by step, Lightning's frequency counts batches."""
    frequency = identity.frequency if identity is not None else None
    if identity is None or identity.interval != "step" or not frequency or frequency == 1:
        return 1
    if record.batch_idx is None:
        return 1
    return int((record.batch_idx + 1) % frequency == 0)


def _short(class_path: str | None) -> str:
    return (class_path or "a scheduler").rpartition(".")[2]

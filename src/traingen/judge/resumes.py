"""Whether a resumed attempt goes on as its training would have done."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.data import SORTS, DataPlace, Key
from traingen.judge.made import QUANTITIES, RATES, Made, keep_made, tell_differences
from traingen.judge.place import Place
from traingen.judge.watch import Watch, index
from traingen.records import EventRecord, UpdateRecord
from traingen.records.order import completed_at

KEPT = 1000  # of the latest updates of an attempt, what is compared when they are made again
MOST = 4 * KEPT  # of all attempts
IDLE = ("skipped_step", "counted_without_update")  # steps without an update


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Where a quantity first differed, and how."""

    attempt: int
    at: int  # updates completed then, of all optimizers
    where: str  # update
    what: str


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One attempt: where it began, what it made, and what of it was not as before."""

    number: int
    parent: _Attempt | None  # that it goes on from; None if that is not known
    completed: dict[int, int]  # at its checkpoint, by optimizer
    made: OrderedDict[Key, Made] = field(default_factory=OrderedDict)
    opening: dict[Key, Made] = field(default_factory=dict)  # of its latest epoch, the first
    epoch: int | None = None  # the latest
    rates: dict[str, _Told] = field(default_factory=dict)  # by quantity
    rest: dict[str, _Told] = field(default_factory=dict)
    data: dict[str, _Told] = field(default_factory=dict)  # by sort

    @property
    def start(self) -> int:
        """Updates completed at its checkpoint, of all optimizers together."""
        return sum(self.completed.values())


class RepeatWatch(Watch):
    """Compare each update that is made again with what it was before, and its data with all before.

    An attempt is compared with the one that it goes on from, with others that went on from the same
    checkpoint or a later one of that, and with the attempts before those; never with one that had
    parted from this training before the checkpoint.
    """

    of_history = True

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._now = _Attempt(number=0, parent=None, completed={})
        self._attempts = {0: self._now}
        self._before: dict[Key, Made] = {}  # what may be made again now
        self._data: DataPlace | None = None  # at the checkpoint, for as long as the fit lasts
        self._swapped: set[int | None] = set()  # optimizers with another scheduler; None: any
        self._kept = 0
        self._again = 0
        self._different = 0

    def began(self) -> None:
        """Find out what is made again from here on, and which data were used until here."""
        run, lineage = self.place.run, self.place.lineage
        assert run is not None
        line = [self._attempts[one.attempt] for one in lineage[:-1]]
        completed = completed_at(run.resumed)
        self._now = self._attempts[run.attempt] = _Attempt(
            number=run.attempt,
            parent=_find_owner(line[-1], sum(completed.values())) if line else None,
            completed=completed,
        )
        self._swapped.clear()
        self._before = self._find_before(line)
        self._data = DataPlace(
            run,
            done=_find_done(line, completed),
            beyond=_find_beyond(self._now.parent, completed),
            again=self._before,
            name=self.place.name,
        )
        for one in list(self._attempts.values())[: -MOST // KEPT]:
            one.opening.clear()

    def restarted(self) -> None:
        """Schedulers are built anew, and the data begin anew."""
        self._swapped.clear()
        self._data = None

    def happened(self, event: EventRecord) -> None:
        """From a swap on, rates are those of another scheduler."""
        if self._data is not None and event.event in IDLE:
            self._data.pass_idle()
        if event.event == "scheduler_swapped":
            number = index(event.details, "id")
            identity = None if number is None else self.place.schedulers.get(number)
            self._swapped.add(None if identity is None else identity.optimizer)

    def updated(self, record: UpdateRecord) -> None:
        """Compare it if it was made before, and keep what it is."""
        key = (record.optimizer, record.update)
        made = keep_made(record, swapped=bool(self._swapped & {None, record.optimizer}))
        before = self._before.pop(key, None)
        told = {} if before is None else self._compare(key, before, made)
        if self._data is not None:
            for sort, what in self._data.look_at(key, made, before):
                self._now.data.setdefault(sort, self._tell(key, what))
                told[sort] = what
        self._keep(key, replace(made, told=told) if told else made)

    def findings(self) -> Iterator[Finding]:
        """At most one of each kind over all resumes; a warning only of what stands."""
        limits = _find_limits(self._now)
        every = list(self._attempts.values())
        rates, old_rates = _part([one.rates for one in every], limits)
        rest, old_rest = _part([one.rest for one in every], limits)
        data, _ = _part([one.data for one in every], limits)
        if rates:
            yield kinds.RATE_MOVED.found(_tell(_first(rates, RATES)))
        if data:
            yield kinds.DATA_PLACE.found(_tell(_first(data, SORTS)))
        others = _first([*rest, *old_rates, *old_rest], QUANTITIES)
        if others.keys() - {"rng"}:  # a checkpoint holds none, and where nothing draws it is none
            counted = f"{self._different} of {self._again} updates that were made again"
            yield kinds.NOT_REPEATED.found(f"{_tell(others)}; {counted}")

    def _tell(self, key: Key, what: str) -> _Told:
        optimizer, update = key
        name = self.place.name(update, optimizer)
        return _Told(attempt=self._now.number, at=self.place.total, where=name, what=what)

    def _keep(self, key: Key, made: Made) -> None:
        """Let go of the oldest where it becomes too much, but not of where the epoch began."""
        if made.epoch != self._now.epoch:
            self._now.epoch = made.epoch
            self._now.opening.clear()
        if len(self._now.opening) < KEPT:
            self._now.opening[key] = made
        self._now.made[key] = made
        self._kept += 1
        if len(self._now.made) > KEPT:
            self._now.made.popitem(last=False)
            self._kept -= 1
        elif self._kept > MOST:
            next(one for one in self._attempts.values() if one.made).made.popitem(last=False)
            self._kept -= 1

    # ---- what comes before ----------------------------------------------------------------------

    def _find_before(self, line: list[_Attempt]) -> dict[Key, Made]:
        """What was made beyond the checkpoint; of what several attempts made, the nearest."""
        owner = self._now.parent
        if owner is None:
            return {}
        beside = [one for one in self._attempts.values() if _passes(one, owner, self._now.start)]
        found: dict[Key, Made] = {}
        for one in (*line, *beside, owner):  # the last has the last word
            found |= _find_beyond(one, self._now.completed)
        return found

    # ---- what is not as before ------------------------------------------------------------------

    def _compare(self, key: Key, before: Made, now: Made) -> dict[str, str]:
        """The rates that are not those first made: one that repeats the wrong ones has them too."""
        self._again += 1
        moved = {name: what for name, what in (before.told or {}).items() if name in RATES}
        differences = tell_differences(before, now)
        self._different += bool(differences)
        for quantity, what in differences.items():
            if quantity in RATES and not before.swapped and not now.swapped:
                moved[quantity] = what
            else:
                self._now.rest.setdefault(quantity, self._tell(key, what))
        for quantity, what in moved.items():
            self._now.rates.setdefault(quantity, self._tell(key, what))
        return moved


def _find_limits(one: _Attempt | None) -> dict[int, float]:
    """Up to how many updates `one` stands, and each attempt that it goes on from."""
    limits: dict[int, float] = {}
    limit = math.inf
    while one is not None:
        limits[one.number] = limit
        limit, one = min(limit, one.start), one.parent
    return limits


def _find_done(line: Sequence[_Attempt], completed: Mapping[int, int]) -> dict[Key, Made]:
    """Updates up to the checkpoint, of what each attempt of `line` has added to the training."""
    found: dict[Key, Made] = {}
    for one in reversed(line):
        for key, made in (one.opening | one.made).items():
            if key[1] <= completed.get(key[0], 0):
                found.setdefault(key, made)
        completed = {i: min(n, completed.get(i, 0)) for i, n in one.completed.items()}
    return found


def _find_beyond(one: _Attempt | None, completed: Mapping[int, int]) -> dict[Key, Made]:
    """What `one` made beyond a checkpoint."""
    made = {} if one is None else one.made
    return {key: what for key, what in made.items() if key[1] > completed.get(key[0], 0)}


def _find_owner(one: _Attempt, completed: int) -> _Attempt:
    """The attempt that made the last update before a checkpoint: not one that only began there."""
    while one.parent is not None and completed <= one.start:
        one = one.parent
    return one


def _passes(one: _Attempt, owner: _Attempt, completed: int) -> bool:
    """Whether `one` is `owner`, or went on from it after so many updates or more."""
    while one is not owner:
        if one.parent is None or one.start < completed:
            return False
        one = one.parent
    return True


def _part(
    books: Iterable[dict[str, _Told]], limits: Mapping[int, float]
) -> tuple[list[tuple[str, _Told]], list[tuple[str, _Told]]]:
    """What stands, and what does not."""
    every = [entry for book in books for entry in book.items()]
    stand = [entry for entry in every if entry[1].at <= limits.get(entry[1].attempt, -1)]
    return stand, [entry for entry in every if entry not in stand]


def _first(entries: Iterable[tuple[str, _Told]], order: Sequence[str]) -> dict[str, _Told]:
    """Of every quantity where it first differed, the most telling first."""
    found: dict[str, _Told] = {}
    for name, told in entries:
        found.setdefault(name, told)
    return {name: found[name] for name in order if name in found}


def _tell(differences: dict[str, _Told]) -> str:
    """Each in turn; where is said once for those that follow each other."""
    parts: list[str] = []
    attempt, where = None, None
    for told in differences.values():
        if told.attempt != attempt:
            parts.append(f"{told.where} in attempt {told.attempt}: {told.what}")
        else:
            parts.append(told.what if told.where == where else f"{told.where}: {told.what}")
        attempt, where = told.attempt, told.where
    return "; ".join(parts)

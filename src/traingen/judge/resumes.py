"""Whether a resumed attempt repeats what was made beyond its checkpoint before."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.made import (
    PLACE,
    QUANTITIES,
    RATES,
    Made,
    has_other_data,
    keep_made,
    tell_differences,
)
from traingen.judge.place import Place
from traingen.judge.watch import Watch, index
from traingen.records import EventRecord, UpdateRecord
from traingen.records.order import completed_at

KEPT = 1000  # of the latest updates of an attempt, what is compared when they are made again
MOST = 4 * KEPT  # of all attempts

Key = tuple[int, int]  # optimizer, update


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Where a quantity first differed, and how."""

    attempt: int
    where: str  # update
    what: str


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """One attempt: where it began, what it made, and what of it was not as before."""

    number: int
    parent: _Attempt | None  # that it goes on from; None if that is not known
    completed: dict[int, int]  # at its checkpoint, by optimizer
    made: OrderedDict[Key, Made] = field(default_factory=OrderedDict)
    rates: dict[str, _Told] = field(default_factory=dict)  # by quantity
    rest: dict[str, _Told] = field(default_factory=dict)
    moved: bool = False  # in the data
    twice: str = ""  # which data were used twice

    @property
    def start(self) -> int:
        """Updates completed at its checkpoint, of all optimizers together."""
        return sum(self.completed.values())


class RepeatWatch(Watch):
    """Compare each update that is made again with what it was when it was made before.

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
        self._begun: set[int | None] = set()  # epochs under way at the checkpoint
        self._used: dict[tuple[int, str], str] = {}  # their batches until there, with the update
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
        self._find_begun(line)

    def restarted(self) -> None:
        """Schedulers are built anew."""
        self._swapped.clear()

    def happened(self, event: EventRecord) -> None:
        """From a swap on, rates are those of another scheduler."""
        if event.event == "scheduler_swapped":
            number = index(event.details, "id")
            identity = None if number is None else self.place.schedulers.get(number)
            self._swapped.add(None if identity is None else identity.optimizer)

    def updated(self, record: UpdateRecord) -> None:
        """Compare it if it was made before, and keep what it is."""
        key = (record.optimizer, record.update)
        made = keep_made(record, swapped=bool(self._swapped & {None, record.optimizer}))
        before = self._before.pop(key, None)
        if before is not None:
            self._compare(key, before, made)
        self._keep(key, made)

    def findings(self) -> Iterator[Finding]:
        """At most one of each kind over all resumes; of attempts that stand a warning."""
        every = self._attempts.values()
        stand = {one.number for one in _iter_line(self._now)}
        standing = [one for one in every if one.number in stand]
        others = [one for one in every if one.number not in stand]
        if rates := _first([one.rates for one in standing]):
            yield kinds.RATE_MOVED.found(_tell(rates))
        rest = _first(
            [*(one.rest for one in standing), *(b for one in others for b in (one.rates, one.rest))]
        )
        if not rest:
            return
        counted = f"{self._different} of {self._again} updates that were made again"
        twice = next((f"; {one.twice}" for one in standing if one.twice), "")
        moved = any(one.moved for one in standing)
        yield kinds.NOT_REPEATED.found(
            f"{_tell(rest)}{twice}; {counted}", severity="warning" if moved else None
        )

    def _keep(self, key: Key, made: Made) -> None:
        """Let go of the oldest where it becomes too much."""
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
            for (optimizer, update), made in one.made.items():
                if update > self._now.completed.get(optimizer, 0):
                    found[optimizer, update] = made
        return found

    def _find_begun(self, line: list[_Attempt]) -> None:
        """Epochs that the checkpoint lies in, and which batches of them were used until there.

        Where the update at the checkpoint is not known, the first one after it tells: its batch is
        the first of its epoch or not.
        """
        completed = self._now.completed
        done = {
            key: made
            for one in line
            for key, made in one.made.items()
            if key[1] <= completed.get(key[0], 0)
        }
        self._begun = {done[key].epoch for key in completed.items() if key in done}
        if not self._begun and self._now.start:
            first = next(iter(self._before.values()), None)
            inside = first is not None and (first.first_batch or 0) > 0
            self._begun = {first.epoch} if first is not None and inside else set()
        self._used = {
            (optimizer, made.batch): self.place.name(update, optimizer)
            for (optimizer, update), made in done.items()
            if made.batch is not None and made.epoch in self._begun
        }

    # ---- what is not as before ------------------------------------------------------------------

    def _compare(self, key: Key, before: Made, now: Made) -> None:
        self._again += 1
        told = tell_differences(before, now)
        if not told:
            return
        self._different += 1
        optimizer, update = key
        name = self.place.name(update, optimizer)
        for quantity, what in told.items():
            excused = before.swapped or now.swapped
            book = self._now.rates if quantity in RATES and not excused else self._now.rest
            found = _Told(attempt=self._now.number, where=name, what=what)
            book.setdefault(quantity, found)
        self._now.moved |= any(quantity in PLACE for quantity in told)
        if now.epoch in self._begun and has_other_data(before, now):
            self._now.moved = True
            used = self._used.get((optimizer, now.batch or ""))
            if used is not None and not self._now.twice:
                self._now.twice = (
                    f"used twice in one epoch: the batch of {used}, again in {name} of attempt "
                    f"{self._now.number}"
                )


def _iter_line(one: _Attempt | None) -> Iterator[_Attempt]:
    """`one` and those that it goes on from."""
    while one is not None:
        yield one
        one = one.parent


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


def _first(books: Iterable[dict[str, _Told]]) -> dict[str, _Told]:
    """Of every quantity where it first differed, the most telling first."""
    found: dict[str, _Told] = {}
    for book in books:
        for quantity, told in book.items():
            found.setdefault(quantity, told)
    return {name: found[name] for name in QUANTITIES if name in found}


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

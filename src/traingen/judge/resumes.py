"""Whether a resumed attempt repeats what it supersedes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.place import Place
from traingen.judge.watch import Watch
from traingen.records import UpdateRecord

KEPT = 1000  # of the latest updates, what is compared when they are made again
PLACE = ("epoch", "batch_idx")

Key = tuple[int, int]  # optimizer, update


class RepeatWatch(Watch):
    """Compare each update that is made again with the one that it supersedes."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._kept: OrderedDict[Key, UpdateRecord] = OrderedDict()
        self._superseded: dict[Key, UpdateRecord] = {}
        self._again = 0
        self._different = 0
        self._told = ""
        self._moved = False  # epoch or batch of an update are others than before

    def began(self) -> None:
        """A resume supersedes what was made beyond its checkpoint."""
        completed = self.place.updates
        self._superseded = {
            (optimizer, update): record
            for (optimizer, update), record in self._kept.items()
            if update > completed.get(optimizer, 0)
        }
        self._kept.clear()

    def updated(self, record: UpdateRecord) -> None:
        """Compare it if it was made before, and keep what it was."""
        key = (record.optimizer, record.update)
        superseded = self._superseded.pop(key, None)
        if superseded is not None:
            self._compare(record, _facts(superseded), _facts(record))
        self._kept[key] = record
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def findings(self) -> Iterator[Finding]:
        """One over all resumes."""
        if self._different:
            told = f"{self._told}; {self._different} of {self._again} updates that were made again"
            yield kinds.NOT_REPEATED.found(told, severity="warning" if self._moved else None)

    def _compare(self, record: UpdateRecord, before: dict[str, Any], now: dict[str, Any]) -> None:
        self._again += 1
        differing = [name for name in now if not _same(before[name], now[name])]
        if not differing:
            return
        self._different += 1
        self._moved |= any(name in PLACE for name in differing)
        if not self._told:
            first = differing[0]
            rest = f" (and {', '.join(differing[1:])})" if differing[1:] else ""
            name = self.place.name(record.update, record.optimizer)
            values = f"{_shown(before[first])}, then {_shown(now[first])}"
            attempt = "" if self.place.run is None else f" in attempt {self.place.run.attempt}"
            self._told = f"{name}{attempt}: {first} {values}{rest}"


def _facts(record: UpdateRecord) -> dict[str, Any]:
    """What is compared, in the order in which a step computes it."""
    return {
        "epoch": record.epoch,
        "batch_idx": record.batch_idx,
        "batch": record.batch.digest if record.batch else None,
        "rng": record.rng,
        "loss": record.loss,
        "objective": record.objective,
        "grad_norm": record.grad_norm,
        "lr": record.lr,
        "parameters": record.parameters,
    }


def _same(one: Any, other: Any) -> bool:
    """Whether both are equal; what one attempt did not record is not known."""
    return one is None or other is None or one == other or repr(one) == repr(other)


def _shown(value: Any) -> str:
    shown = value if isinstance(value, str) else repr(value)
    return shown if len(shown) <= 24 else f"{shown[:12]}…"

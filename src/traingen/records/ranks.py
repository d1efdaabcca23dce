"""Make one update of what several ranks recorded of it, and keep where they did not fit together.

Ranks are read side by side, one update at a time: no rank is ever held as a whole.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from traingen.records.schema import UpdateRecord

RANKS_RTOL = 1e-6  # numbers that all ranks compute alike may differ by this much, relative
AHEAD = 1024  # updates that a rank may be out of step with rank 0; who train together are not
_ALIKE = (
    "global_step", "micro_batches", "grad_norm", "grad_norm_clipped", "clipped", "lr",
    "hyper_parameters", "amp_scale", "parameters",
)  # fmt: skip
_OWN_IF_SHARDED = {"grad_norm", "grad_norm_clipped", "clipped", "parameters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDisagreement:
    """A field that every rank should record alike, and where ranks first differ in it."""

    field: str
    optimizer: int
    update: int  # the first such update
    values: tuple[Any, ...]  # there, by rank
    count: int  # of such updates


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalRanks:
    """Ranks that did not record the same updates of an optimizer; those on all ranks count."""

    optimizer: int
    updates: tuple[int, ...]  # how many each rank has
    merged: int  # how many all of them have


@dataclass(slots=True, kw_only=True)
class LossSpread:
    """How far apart the losses of the ranks lie: each is that of the rank's own data.

    The loss, or the objective where the loop tells none; by rank, over the updates of one optimizer
    at which all of them are finite.
    """

    optimizer: int
    updates: int = 0
    means: list[float] = field(default_factory=list)  # over these updates
    widest: list[float] = field(default_factory=list)  # where they lie furthest apart
    widest_at: int | None = None  # update
    nonfinite: list[int] = field(default_factory=list)  # updates at which it is not finite

    def add(self, update: int, losses: Sequence[float | None]) -> None:
        """Take the next update in; one that a rank has no loss of says nothing."""
        known = [loss for loss in losses if loss is not None]
        if len(known) < len(losses):
            return
        if not self.nonfinite:
            self.nonfinite, self.means = [0] * len(known), [0.0] * len(known)
        if not math.isfinite(sum(known)):
            for rank, loss in enumerate(known):
                self.nonfinite[rank] += not math.isfinite(loss)
            return
        self.updates += 1
        for rank, loss in enumerate(known):
            self.means[rank] += (loss - self.means[rank]) / self.updates
        if self.widest_at is None or _width(known) > _width(self.widest):
            self.widest, self.widest_at = known, update


@dataclass(frozen=True, slots=True)
class Turn:
    """An update of one rank, and where in its recording it belongs."""

    record: UpdateRecord
    attempt: int = 0  # place of its attempt among those of the rank; updates rise within
    stands: bool = True  # no later attempt did it over


class RankMerger:
    """Takes rank 0's updates in the order of its file and merges the others' into each.

    Of every optimizer the updates rise through each rank, within attempts that rise. A rank is read
    on until it comes to the update in question, and at most `AHEAD` updates: memory does not grow
    with the recording. `finish` reads to the end, so that every rank is counted whole.

    Args:
        others: the updates of ranks 1, 2, …, each as they stand in its file.
        by_value: whether the gradients were clipped by value.
    """

    spreads: dict[int, LossSpread]  # by optimizer

    def __init__(self, others: Sequence[Iterable[Turn]], *, by_value: bool = False) -> None:
        self.spreads = {}
        self._others = [_Rank(turns) for turns in others]
        self._by_value = by_value
        self._first: Counter[int] = Counter()  # of rank 0, by optimizer
        self._merged: Counter[int] = Counter()
        self._book: dict[tuple[str, int], RankDisagreement] = {}

    @property
    def ranks(self) -> int:
        """How many are merged."""
        return 1 + len(self._others)

    @property
    def disagreements(self) -> tuple[RankDisagreement, ...]:
        """Fields that all ranks should have alike, and have not."""
        return tuple(self._book.values())

    @property
    def unequal(self) -> tuple[UnequalRanks, ...]:
        """Optimizers of which the ranks have not the same updates; complete when finished."""
        counts = [self._first, *(rank.counted for rank in self._others)]
        found = []
        for optimizer in sorted(set().union(*counts)):
            updates, merged = tuple(c[optimizer] for c in counts), self._merged[optimizer]
            if any(count != merged for count in updates):
                found.append(UnequalRanks(optimizer=optimizer, updates=updates, merged=merged))
        return tuple(found)

    def take(self, turn: Turn) -> UpdateRecord | None:
        """The next update of rank 0 as all ranks did it; None if not all of them have it."""
        optimizer = turn.record.optimizer
        self._first[optimizer] += turn.stands
        found = [rank.find(turn) for rank in self._others]
        records = [turn.record, *(record for record in found if record is not None)]
        if len(records) < self.ranks:
            return None
        if turn.stands:
            self._merged[optimizer] += 1
            _note_disagreements(records, self._book)
            self._note_losses(records)
        return merge_updates(records, by_value=self._by_value)

    def finish(self) -> None:
        """Read what the other ranks have beyond rank 0."""
        for rank in self._others:
            rank.finish()

    def _note_losses(self, records: Sequence[UpdateRecord]) -> None:
        first = records[0]
        spread = self.spreads.get(first.optimizer)
        if spread is None:
            spread = self.spreads[first.optimizer] = LossSpread(optimizer=first.optimizer)
        told = first.loss is not None
        spread.add(first.update, [r.loss if told else r.objective for r in records])


class _Rank:
    """Reads one rank as far as rank 0 has come."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.counted: Counter[int] = Counter()  # updates that stand, by optimizer
        self._turns = iter(turns)
        self._read = 0  # of all optimizers
        self._passed = 0  # how many had been read when the one that rank 0 has passed last was
        self._waiting: dict[int, deque[tuple[int, Turn]]] = {}  # by optimizer, each with `_read`

    def find(self, wanted: Turn) -> UpdateRecord | None:
        """The same update of this rank; what comes before it is passed over for good."""
        queue = self._waiting.setdefault(wanted.record.optimizer, deque())
        place = _place(wanted)
        while queue or self._read_on(queue):
            number, turn = queue[0]
            if _place(turn) > place:
                return None
            queue.popleft()
            self._passed = max(self._passed, number)
            if _place(turn) == place:
                return turn.record
        return None

    def finish(self) -> None:
        """Count what is left."""
        for turn in self._turns:
            self.counted[turn.record.optimizer] += turn.stands

    def _read_on(self, queue: deque[tuple[int, Turn]]) -> bool:
        """Read until there is something in `queue`; whether there is."""
        while not queue and self._read < self._passed + AHEAD:
            turn = next(self._turns, None)
            if turn is None:
                return False
            self._read += 1
            optimizer = turn.record.optimizer
            self.counted[optimizer] += turn.stands
            waiting = self._waiting.setdefault(optimizer, deque())
            waiting.append((self._read, turn))
            if waiting[0][0] < self._passed - AHEAD:  # rank 0 does not have it
                waiting.popleft()
        return bool(queue)


def _place(turn: Turn) -> tuple[int, int]:
    return turn.attempt, turn.record.update


def _width(losses: Sequence[float]) -> float:
    return max(losses) - min(losses)


# ---- what all ranks should have alike -----------------------------------------------------------


def _note_disagreements(
    records: list[UpdateRecord], book: dict[tuple[str, int], RankDisagreement]
) -> None:
    for name, values in _alike_values(records):
        if all(_agree(values[0], value) for value in values[1:]):
            continue
        key = (name, records[0].optimizer)
        known = book.get(key)
        book[key] = RankDisagreement(
            field=name,
            optimizer=records[0].optimizer,
            update=known.update if known else records[0].update,
            values=known.values if known else tuple(values),
            count=known.count + 1 if known else 1,
        )


def _alike_values(records: list[UpdateRecord]) -> Iterator[tuple[str, list[Any]]]:
    sharded = [record.shard is not None for record in records]
    for name in _ALIKE:
        if not (any(sharded) and name in _OWN_IF_SHARDED):
            yield name, [getattr(record, name) for record in records]
    yield "shard", sharded
    yield "loss_terms", [None if r.loss_terms is None else sorted(r.loss_terms) for r in records]
    for name in ("ticks", "last_epoch"):
        yield name, [_of_schedulers(record, name) for record in records]


def _of_schedulers(record: UpdateRecord, name: str) -> list[int | float | None] | None:
    if record.scheduler is None:
        return None
    return [getattr(state, name) for state in record.scheduler]


def _agree(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=RANKS_RTOL)
    return bool(one == other)


# ---- what is put together -----------------------------------------------------------------------


def merge_updates(records: Sequence[UpdateRecord], *, by_value: bool = False) -> UpdateRecord:
    """One update as all ranks did it, `records` by rank; `by_value` if it was clipped so."""
    first = records[0]
    merged: dict[str, Any] = {
        "loss": _mean([record.loss for record in records]),
        "micro_losses": _means([record.micro_losses for record in records]),
        "loss_terms": _mean_terms([record.loss_terms for record in records]),
        "objective": _mean([record.objective for record in records]),
    }
    if first.shard is not None:
        merged |= _merge_shards(records, by_value=by_value)
    return msgspec.structs.replace(first, **merged)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _means(values: Sequence[list[float] | None]) -> list[float] | None:
    """Mean by position, where all ranks had as many micro-batches."""
    known = [value for value in values if value is not None]
    if len(known) != len(values) or len({len(value) for value in known}) != 1:
        return None
    return [sum(same) / len(same) for same in zip(*known, strict=True)]


def _mean_terms(values: Sequence[dict[str, float] | None]) -> dict[str, float] | None:
    """Mean by name, of the terms that all ranks have."""
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    names = [name for name in known[0] if all(name in terms for terms in known)]
    return {name: sum(terms[name] for terms in known) / len(known) for name in names}


def _merge_shards(records: Sequence[UpdateRecord], *, by_value: bool) -> dict[str, Any]:
    """The whole norms from all ranks' shares, and what clipping did to them."""
    shares = [record.shard for record in records if record.shard is not None]
    if len(shares) != len(records):  # said as a disagreement
        return {}
    norm = _root(shares, lambda share: share.grad_norm_squared)
    clipped = _root(shares, lambda share: share.grad_norm_clipped_squared)
    ratio = clipped / norm if norm else 1.0
    return {
        "grad_norm": norm,
        "grad_norm_source": "measured",
        "grad_norm_clipped": clipped,
        "clipped": ratio < 1,
        "clip_coefficient": None if by_value else ratio,
        "shard": None,
    }


def _root(shares: Sequence[Any], take: Callable[[Any], float]) -> float:
    return math.sqrt(sum(map(take, shares)))

"""Pair the updates of two recordings by optimizer and number, as both are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from traingen.records import UpdateRecord

SIDES = ("original", "package")

_Turn = tuple[int, UpdateRecord]  # its place in the recording, and the update
_Waiting = dict[int, deque[_Turn]]  # by optimizer, in rising order


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """An update as both recordings hold it, or as one does."""

    original: UpdateRecord | None
    package: UpdateRecord | None
    places: tuple[int, int] | None = None  # in either recording, counted over all optimizers

    @property
    def one(self) -> UpdateRecord:
        """That of the original, or the only one there is."""
        one = self.original or self.package
        assert one is not None
        return one


def align_updates(
    original: Iterable[UpdateRecord], package: Iterable[UpdateRecord]
) -> Iterator[Pair]:
    """Every update of either recording, paired with that of the same optimizer and number.

    Of each optimizer the updates must rise through both. Memory is for the updates by which one
    recording is ahead of the other: who is behind is read on first.
    """
    sides = (enumerate(original), enumerate(package))
    waiting: tuple[_Waiting, _Waiting] = ({}, {})
    ended = [False, False]
    while not all(ended):
        for side in _next_sides(waiting, ended):
            turn = next(sides[side], None)
            if turn is None:
                ended[side] = True
            else:
                yield from _meet(turn, side, waiting)
    for side in (0, 1):
        for queue in waiting[side].values():
            yield from (_alone(turn, side) for turn in queue)


def _next_sides(waiting: tuple[_Waiting, _Waiting], ended: list[bool]) -> list[int]:
    """Which recordings to read on: who is not ahead, among those that have not ended."""
    ahead = [sum(map(len, queues.values())) for queues in waiting]
    behind = [side for side in (0, 1) if ahead[side] == min(ahead) and not ended[side]]
    return behind or [ended.index(False)]


def _meet(turn: _Turn, side: int, waiting: tuple[_Waiting, _Waiting]) -> Iterator[Pair]:
    """Pair `turn` with the one that waits for it; who can never be met any more is alone."""
    record = turn[1]
    queue = waiting[1 - side].setdefault(record.optimizer, deque())
    while queue and queue[0][1].update < record.update:
        yield _alone(queue.popleft(), 1 - side)
    if not queue:
        waiting[side].setdefault(record.optimizer, deque()).append(turn)
    elif queue[0][1].update == record.update:
        mine, theirs = (turn, queue.popleft()) if side == 0 else (queue.popleft(), turn)
        yield Pair(original=mine[1], package=theirs[1], places=(mine[0], theirs[0]))
    else:
        yield _alone(turn, side)


def _alone(turn: _Turn, side: int) -> Pair:
    if side == 0:
        return Pair(original=turn[1], package=None)
    return Pair(original=None, package=turn[1])


class TurnOrder:
    """Watches over the order in which several optimizers step in two recordings."""

    broken: str | None  # where it first is not the same, in words

    def __init__(self) -> None:
        self.broken = None
        self._last: dict[int, tuple[int, tuple[int, int]]] = {}  # optimizer: update, places

    def add(self, pair: Pair) -> None:
        """Take the next pair in; one that is no pair has no order."""
        if pair.places is None or self.broken is not None:
            return
        optimizer, update = pair.one.optimizer, pair.one.update
        for other, (when, places) in self._last.items():
            after = [place > before for place, before in zip(pair.places, places, strict=True)]
            if other != optimizer and after[0] != after[1]:
                first, second = (side for _, side in sorted(zip(after, SIDES, strict=True)))
                self.broken = (
                    f"update {update} of optimizer {optimizer} comes before update {when} of "
                    f"optimizer {other} in {first}, and after it in {second}"
                )
                return
        self._last[optimizer] = (update, pair.places)

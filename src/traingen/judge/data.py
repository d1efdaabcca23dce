"""Whether a resumed attempt goes on in the data where its checkpoint stood."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from traingen.judge.made import Made, has_other_data, tell_batches
from traingen.records import RunRecord
from traingen.records.order import completed_at

Key = tuple[int, int]  # optimizer, update

SORTS = ("again", "place", "other")  # of what is found, the most telling first


class DataPlace:
    """Where in the data an attempt began, and which batches of its epoch had been used by then.

    Args:
        run: of the attempt.
        done: updates of its training up to the checkpoint, as far as they are known.
        beyond: what the attempt that made the checkpoint went on with.
        again: what any attempt made beyond the checkpoint before.
        name: how an update is called.
    """

    def __init__(
        self,
        run: RunRecord,
        *,
        done: Mapping[Key, Made],
        beyond: Mapping[Key, Made],
        again: Mapping[Key, Made],
        name: Callable[[int, int], str],
    ) -> None:
        self._last = _find_last(done, completed_at(run.resumed))
        self._epoch = None if run.resumed is None else run.resumed.epoch
        self._batches = self._count_batches(run)
        self._begun = self._find_begun(again)
        self._used = _find_used(done, beyond, self._begun, name)
        self._waits = run.resumed is not None  # for the first update
        self._idle = False  # a step without update came before it

    def pass_idle(self) -> None:
        """A step made no update: from where the first one lies nothing follows."""
        self._idle = True

    def look_at(self, key: Key, made: Made, before: Made | None) -> Iterator[tuple[str, str]]:
        """What the next update shows, by sort; `before` is what it was when made before."""
        if self._waits and (told := self._judge_place(made)):
            yield "place", told
        self._waits = False
        if made.epoch is None or made.epoch not in self._begun:
            return
        used = self._used.get((key[0], made.epoch, made.batch or ""))
        if used:
            yield "again", f"the batch of {used} again, in epoch {made.epoch}"
        if before is not None and _same_place(before, made):
            if has_other_data(before, made):
                told = tell_batches(before, made)
                yield "other", f"{told} in epoch {made.epoch}, which was under way"
            elif told := (before.told or {}).get("other", ""):
                yield "other", told  # it repeats what was wrong

    def _judge_place(self, made: Made) -> str:
        """Whether the first update lies before the checkpoint, or beyond a whole epoch."""
        if made.epoch is None:
            return ""
        first, done = made.first_batch, self._batches or 0
        if made.epoch == self._epoch and first is not None and first < done:
            return f"begins at batch {first} of epoch {made.epoch}, of which {done} were completed"
        reached = self._reached
        if reached is None or self._idle or (first or 0) < 0 or made.epoch <= reached + 1:
            return ""
        left = f"epoch {reached + 1} was"
        if made.epoch > reached + 2:
            left = f"epochs {reached + 1} to {made.epoch - 1} were"
        return f"is of epoch {made.epoch}, and {left} left out"

    @property
    def _reached(self) -> int | None:
        """The last epoch that had begun at the checkpoint."""
        last = None if self._last is None else self._last.epoch
        if self._epoch is None or (self._batches is None and last is not None):
            return last
        begun = self._epoch if self._batches != 0 else self._epoch - 1
        return begun if last is None else max(begun, last)

    def _count_batches(self, run: RunRecord) -> int | None:
        """Of the epoch at the checkpoint, completed there; None if that is not known for certain.

        A loop that has not yet begun an epoch still has the count of the one before.
        """
        batches = None if run.resumed is None else run.resumed.batches
        if batches is None or self._epoch is None or not batches:
            return batches
        last = self._last
        if last is None:
            whole = (run.loader or {}).get("batches")
            return batches if isinstance(whole, int) and batches < whole else None
        ended = last.batch_idx is None or last.batch_idx + 1 == batches
        return None if ended and last.epoch != self._epoch else batches

    def _find_begun(self, again: Mapping[Key, Made]) -> set[int]:
        """Epochs that the checkpoint lies in.

        Where neither it nor the update before it tells, the first one after it does: its batch is
        the first of its epoch or not.
        """
        begun = set() if self._last is None else {self._last.epoch}
        if self._batches:
            begun.add(self._epoch)
        if self._last is None and self._batches is None:
            first = next(iter(again.values()), None)
            if first is not None and (first.first_batch or 0) > 0:
                begun.add(first.epoch)
        return {epoch for epoch in begun if epoch is not None}


def _find_last(done: Mapping[Key, Made], completed: Mapping[int, int]) -> Made | None:
    """The last update before the checkpoint, of whichever optimizer."""
    last = [done[key] for key in completed.items() if key in done]
    known = [made for made in last if made.epoch is not None]
    return max(known, key=lambda made: (made.epoch, made.batch_idx or 0), default=None)


def _find_used(
    done: Mapping[Key, Made],
    beyond: Mapping[Key, Made],
    begun: set[int],
    name: Callable[[int, int], str],
) -> dict[tuple[int, int, str], str]:
    """The batches that `begun` epochs have used, each with its update.

    One that came at several places, before the checkpoint or without a break beyond it, shows
    nothing by coming once more.
    """
    used: dict[tuple[int, int, str], str] = {}
    places: dict[tuple[int, int, str], set[int | Key]] = {}
    for (optimizer, update), made in (*done.items(), *beyond.items()):
        if made.epoch is None or made.epoch not in begun or made.batch is None:
            continue
        key = (optimizer, made.epoch, made.batch)
        place = (optimizer, update) if made.batch_idx is None else made.batch_idx
        places.setdefault(key, set()).add(place)
        if (optimizer, update) in done:
            used.setdefault(key, name(update, optimizer))
    return {key: told for key, told in used.items() if len(places[key]) == 1}


def _same_place(before: Made, now: Made) -> bool:
    """Whether both were to be made of the same batches."""
    one, other = ((made.epoch, made.batch_idx, made.micro_batches) for made in (before, now))
    return now.batch_idx is not None and one == other

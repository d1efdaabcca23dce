"""Name what two records of one update do not share in a way that can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traingen.compare.alignment import SIDES
from traingen.records import UpdateRecord

Uncompared = tuple[str, str]  # what, and why
BY_PARAMETER = ("layer_norms", "update_ratios")
STREAMS = ("rng", "rng_forward", "rng_after")


class Uncompareds:
    """Counts at how many updates something was not compared, and from which one on."""

    def __init__(self) -> None:
        self._found: dict[Uncompared, list[int]] = {}  # first update, number of them

    def add(self, original: UpdateRecord, package: UpdateRecord, seen: frozenset[str]) -> None:
        """Look at the next update; fields that are not `seen` by both are told elsewhere."""
        for one in find_uncompared(original, package, seen):
            self._found.setdefault(one, [original.update, 0])[1] += 1

    def lines(self) -> list[str]:
        """One line each."""
        return [
            f"{what}: {why} (in {count} updates, first {first})"
            for (what, why), (first, count) in self._found.items()
        ]


def find_uncompared(
    original: UpdateRecord, package: UpdateRecord, seen: frozenset[str]
) -> Iterator[Uncompared]:
    """What of either record `compare_updates` leaves out although both observers have `seen` it."""
    if (original.micro_batches == 0) != (package.micro_batches == 0):
        yield "all but micro_batches", "on one side the update has no batch of its own"
        return
    if "loss" in seen and (original.loss is None) != (package.loss is None):
        yield "loss", f"{_lacking(original.loss, package.loss)} does not tell it"
    for field in BY_PARAMETER:
        mine, theirs = getattr(original, field), getattr(package, field)
        if (
            field in seen
            and mine is not None
            and theirs is not None
            and mine.keys() != theirs.keys()
        ):
            yield field, "the parameters have other names, or are others"
    if (original.shard is None) != (package.shard is None):
        why = "a share of a norm on one side, a whole one on the other"
        yield "grad_norm, grad_norm_clipped", why
    if "lr" in seen and len(original.lr) != len(package.lr):
        yield "lr, hyper_parameters", "the parameter groups are not as many"
    for field in STREAMS:
        if field in seen:
            yield from _streams(field, getattr(original, field), getattr(package, field))
    if "ema" in seen:
        yield from _averaging(original.ema, package.ema)


def _lacking(mine: Any, theirs: Any) -> str:
    """The side whose value is None."""
    return SIDES[theirs is None and mine is not None]


def _streams(field: str, mine: Any, theirs: Any) -> Iterator[Uncompared]:
    """Generators that one side alone digests, where both digest some."""
    if not mine or not theirs:
        return
    for side, one, other in ((SIDES[0], mine, theirs), (SIDES[1], theirs, mine)):
        for name in one:
            if name not in other:
                yield f"{field}.{name}", f"only {side} digests this generator"


def _averaging(mine: Any, theirs: Any) -> Iterator[Uncompared]:
    """What one owner of averaged weights does not tell, and its class."""
    if mine is None or theirs is None:
        return
    for key in dict.fromkeys((*mine, *theirs)):
        if key == "class_path" and mine.get(key) != theirs.get(key):
            yield "ema.class_path", "who averages is not judged, what is averaged is"
        elif (mine.get(key, 0) is None) != (theirs.get(key, 0) is None):
            yield f"ema.{key}", f"{_lacking(mine.get(key, 0), theirs.get(key, 0))} does not tell it"

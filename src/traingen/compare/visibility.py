"""Leave out of a comparison what one of two observers cannot see: it is unknown, not absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from traingen.compare.alignment import SIDES
from traingen.compare.records import COMPARED_FIELDS
from traingen.records import RunRecord, UpdateRecord

_DIGESTS = frozenset({"rng", "rng_forward", "rng_after", "batch", "parameters"})
OF_A_RANK = ("batch", "rng", "rng_forward", "rng_after", "sampler", "user")  # unlike on all ranks
PROBES = "user"  # observed only where there are probes
# Sums over other parts of a batch end in other bits.
_OF_A_WORLD = frozenset({*OF_A_RANK, "parameters"})
_LISTS = frozenset({"lr", "hyper_parameters"})  # never null
_STREAMS = ("rng", "rng_forward", "rng_after")

Runs = Sequence[RunRecord]


def find_hidden(original: Runs, package: Runs) -> dict[str, str]:
    """Every compared field that is not known throughout, with who does not know it, in words."""
    seen = [_observed(runs) for runs in (original, package)]
    hidden = {}
    for field in sorted({*COMPARED_FIELDS, PROBES}):
        blind = [name for name, fields in zip(SIDES, seen, strict=True) if field not in fields]
        if blind and not (field == PROBES and len(blind) == 2):  # nobody has a probe
            hidden[field] = "neither" if len(blind) == 2 else blind[0]
    if len({run.digest_algorithm for run in (*original, *package)}) > 1:
        hidden |= dict.fromkeys(sorted(_DIGESTS - hidden.keys()), _OTHER_DIGESTS)
    if len({run.world_size for run in (*original, *package)}) > 1:
        hidden |= dict.fromkeys(sorted(_OF_A_WORLD - hidden.keys()), _OTHER_WORLDS)
    return hidden


def find_seen(original: Runs, package: Runs, hidden: dict[str, str]) -> frozenset[str]:
    """The fields that both observers know throughout, but for `hidden` ones."""
    return (_observed(original) & _observed(package)) - hidden.keys()


def explain_hidden(hidden: dict[str, str]) -> list[str]:
    """One line for each reason, with its fields."""
    lines = []
    for reason in dict.fromkeys(hidden.values()):
        fields = ", ".join(field for field, why in hidden.items() if why == reason)
        lines.append(f"{fields}: {_WORDS[reason]}")
    return lines


def hide_unknown(
    original: UpdateRecord, package: UpdateRecord, hidden: dict[str, str]
) -> tuple[UpdateRecord, UpdateRecord]:
    """Both records without the fields `hidden` and without generators that only one digests."""
    nothing: dict[str, Any] = {field: [] if field in _LISTS else None for field in hidden}
    mine, theirs = dict(nothing), dict(nothing)
    for field in _STREAMS:
        a, b = getattr(original, field), getattr(package, field)
        if field not in hidden and a and b and a.keys() != b.keys():
            mine[field] = {key: a[key] for key in a if key in b}
            theirs[field] = {key: b[key] for key in b if key in a}
    if not mine:
        return original, package
    return msgspec.structs.replace(original, **mine), msgspec.structs.replace(package, **theirs)


def _observed(runs: Runs) -> frozenset[str]:
    """What every attempt could see."""
    return frozenset.intersection(*(frozenset(run.observes) for run in runs))


_OTHER_DIGESTS = "digests"
_OTHER_WORLDS = "worlds"
_WORDS = {
    "original": "the original's recorder does not see it",
    "package": "the package's recorder does not see it",
    "neither": "neither recorder sees it",
    _OTHER_DIGESTS: "made by different digest algorithms",
    _OTHER_WORLDS: "one training has more ranks than the other, each with its share of the data",
}

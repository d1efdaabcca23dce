"""Name what two run lines say differently: not judged, but a likely reason for what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from traingen.records import RunRecord

ABSENT = "absent"
FIELDS = (
    "seed", "optimizers", "schedulers", "clipping", "accumulation", "precision", "world_size",
    "loader", "digest_algorithm", "git", "versions", "devices",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDifference:
    """One value that the two run lines do not share."""

    path: str
    original: Any
    package: Any


def compare_runs(original: RunRecord, package: RunRecord) -> tuple[RunDifference, ...]:
    """Everything of `FIELDS` that differs, in that order; of other fields nothing is expected.

    What only one of the two tells (null in the other) is not known to differ, and left out.
    """
    mine, theirs = msgspec.to_builtins(original), msgspec.to_builtins(package)
    return tuple(
        RunDifference(path=path, original=a, package=b)
        for field in FIELDS
        for path, a, b in _differing(field, mine[field], theirs[field])
    )


def _differing(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    if a == b or a is None or b is None:
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in dict.fromkeys((*a, *b)):
            yield from _differing(f"{path}.{key}", a.get(key, ABSENT), b.get(key, ABSENT))
    elif isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            yield f"{path}.number", len(a), len(b)
        for index, (mine, theirs) in enumerate(zip(a, b, strict=False)):
            yield from _differing(f"{path}[{index}]", mine, theirs)
    else:
        yield path, a, b

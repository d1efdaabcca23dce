"""Kinds of findings as plain text of at most 80 columns, without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from traingen.compare.findings import FindingKind

WIDTH = 80


def render_kinds(kinds: Iterable[FindingKind]) -> str:
    """One block for each of `kinds`: severity and id, then what it means and the way out."""
    return "\n\n".join("\n".join(_lines(kind)) for kind in kinds)


def _lines(kind: FindingKind) -> Iterator[str]:
    yield f"{kind.severity.upper()}  {kind.id}"
    for label in ("title", "meaning", "fix", "example"):
        yield from textwrap.wrap(
            getattr(kind, label), WIDTH, initial_indent=f"  {label:<9}",
            subsequent_indent=" " * 11, break_on_hyphens=False,
        )  # fmt: skip

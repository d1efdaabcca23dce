"""Lay out labelled lines in 80 columns, without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from traingen.compare.findings import Finding
from traingen.compare.gates import CLIP_NORM_RTOL, Gates
from traingen.compare.summary import LOSS_DEPARTURE, ModeResult

WIDTH = 80
LABEL = 16  # columns for the label of a line


def wrap(label: str, text: str) -> list[str]:
    """`text` after `label`, over as many lines as it takes."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=label, subsequent_indent=" " * min(len(label), LABEL),
        break_on_hyphens=False,
    )  # fmt: skip


def wrap_each(label: str, lines: Iterable[str]) -> Iterator[str]:
    """Each of `lines`, the first after `label` and the others below it."""
    for index, line in enumerate(lines):
        yield from wrap(label if index == 0 else " " * LABEL, line)


def render_finding(finding: Finding) -> Iterator[str]:
    """Severity and id, what was measured, what it means, and the way out."""
    yield f"{finding.severity.upper()}  {finding.id}"
    for label in ("measured", "meaning", "fix"):
        yield from wrap(f"  {label:<9}", getattr(finding, label))


def render_gates(gates: Gates, allowed: Iterable[str]) -> list[str]:
    """Every limit, and the allowance for norms of which one side alone has its clip's own."""
    limits = [f"{name} {limit.limit}" for name, limit in gates.limits.items()]
    names = ", ".join(allowed)
    if names:
        limits.append(
            f"{names} rtol={CLIP_NORM_RTOL:g} where one side alone has its clip's own norm"
        )
    return wrap("gates           ", "; ".join([*limits, "all else exact"]))


def tell_departure(mode: ModeResult) -> str:
    """Where the relative difference of the losses departs, as the protocol asks."""
    if mode.loss_departure is not None:
        update, size = mode.loss_departure
        return f"first over {LOSS_DEPARTURE:g} at update {update} ({size:.3g})"
    if mode.largest_loss_relative is None:
        return "not compared"
    return f"never over {LOSS_DEPARTURE:g}, at most {mode.largest_loss_relative:.3g}"


def shorten(line: str) -> str:
    """`line`, cut to the width."""
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"

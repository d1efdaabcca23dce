"""Two compared recordings as plain text of at most 80 columns, without colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from traingen.compare.gates import Gates
from traingen.compare.order import causal_rank
from traingen.compare.recordings import RecordingsResult
from traingen.compare.runs import RunDifference
from traingen.compare.sides import Side
from traingen.report.layout import (
    render_finding,
    render_gates,
    tell_departure,
    wrap,
    wrap_each,
)

MOST_RUN_DIFFERENCES = 12  # shown; `--json` has them all


def render_comparison(result: RecordingsResult, gates: Gates) -> str:
    """The verdict, what either recording holds, where they part, and what was not compared."""
    lines = wrap(f"VERDICT  {result.verdict.upper()}  ", _headline(result))
    lines += ["", *_side(result.original), *_side(result.package), *_numbers(result)]
    for finding in result.findings:
        lines += ["", *render_finding(finding)]
    lines += ["", *_scope(result, gates), *_limits(result)]
    return "\n".join(lines)


def _headline(result: RecordingsResult) -> str:
    first = result.mode.first_divergence
    if first is not None:
        return f"first in {first.quantity}, at update {first.update}: {first.path}"
    if result.verdict == "pass":
        return "every asserted gate held at every update that both recordings hold"
    return str(result.mode.reason)


def _side(side: Side) -> list[str]:
    """One recording: how much of a run it holds."""
    return wrap(f"{side.name:<16}", "; ".join([f"{side.path}: {_counts(side)}", *_remarks(side)]))


def _counts(side: Side) -> str:
    counts = [
        f"{count} updates" + (f" of optimizer {index}" if len(side.updates) > 1 else "")
        for index, count in sorted(side.updates.items())
    ]
    ended = "no end line: still running or killed" if side.ended is None else side.ended
    return ", ".join([*(counts or ["no updates"]), ended])


def _remarks(side: Side) -> Iterator[str]:
    if len(side.runs) > 1:
        yield f"attempts {', '.join(str(run.attempt) for run in side.runs)}"
    for old in side.superseded:
        yield f"superseded: updates {old.first} to {old.last} of attempt {old.attempt}"
    for gap in side.missing:
        yield f"missing: updates {gap.first} to {gap.last}"
    if side.fragments:
        yield f"{side.fragments} torn lines within"
    if side.torn:
        yield f"a torn last line of {side.torn} bytes"


def _numbers(result: RecordingsResult) -> Iterator[str]:
    """How many updates are equal, and where the loss departs, as the protocol asks."""
    mode = result.mode
    yield from wrap(
        "updates         ",
        f"{mode.updates} compared, {mode.equal_updates} equal in every compared value",
    )
    text = tell_departure(mode)
    yield from wrap("loss            ", f"relative difference {text}")
    earliest = mode.earliest_difference
    if earliest is not None:
        where = f"update {earliest.update}, {earliest.path}"
        yield from wrap("first value     ", f"that differs: {where} (gate: {earliest.limit})")


def _scope(result: RecordingsResult, gates: Gates) -> Iterator[str]:
    """What was compared, by which limits, and how large the differences were."""
    mode = result.mode
    compared = [
        f"{q} {count}" for q, count in sorted(mode.compared.items(), key=_in_order) if count
    ]
    yield from wrap("compared        ", f"values: {', '.join(compared) or 'none'}")
    yield from render_gates(gates, mode.allowed)
    sizes = [f"{quantity} {size:.3g}" for quantity, size in mode.largest.items() if size]
    if sizes:
        yield from wrap("largest         ", ", ".join(sizes))


def _in_order(item: tuple[str, int]) -> int:
    return causal_rank(item[0])


def _limits(result: RecordingsResult) -> Iterator[str]:
    yield from wrap_each("runs differ     ", _run_differences(result.run_differences))
    yield from wrap_each("notes           ", result.mode.notes)
    yield from wrap_each("not asserted    ", result.mode.not_asserted)
    yield from wrap_each("not compared    ", result.not_compared)
    exercised = result.mode.not_exercised or ("nothing that is watched for",)
    yield from wrap_each("not exercised   ", exercised)


def _run_differences(differences: Iterable[RunDifference]) -> Iterator[str]:
    found = tuple(differences)
    for one in found[:MOST_RUN_DIFFERENCES]:
        yield f"{one.path}: {_shown(one.original)} and {_shown(one.package)}"
    if len(found) > MOST_RUN_DIFFERENCES:
        yield f"and in {len(found) - MOST_RUN_DIFFERENCES} more values"


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"

"""Results as plain text of at most 80 columns, without colour."""

from __future__ import annotations

from collections.abc import Iterator

from traingen.compare.gates import Gates
from traingen.compare.summary import ModeResult
from traingen.lockstep.result import LockstepResult
from traingen.report.layout import (
    render_finding,
    render_gates,
    shorten,
    tell_departure,
    wrap,
    wrap_each,
)


def render_lockstep(
    result: LockstepResult, *, title: str, gates: Gates, horizon_source: str
) -> str:
    """The verdict, one row per mode, the cause, and what was not exercised."""
    lines = [*wrap(f"VERDICT  {result.verdict.upper()}  ", f"{title}: {_headline(result)}"), ""]
    lines += _table(result)
    lines += _losses(result)
    for finding in result.findings:
        lines += ["", *render_finding(finding)]
    lines += ["", *_scope(result, gates), *_limits(result, horizon_source)]
    return "\n".join(lines)


def _headline(result: LockstepResult) -> str:
    decisive = result.decisive
    if decisive is not None and decisive.first_divergence is not None:
        first = decisive.first_divergence
        return f"first in {first.quantity}, at update {first.update}"
    if result.verdict == "pass":
        return "every asserted gate held at every update"
    reasons = [m.reason for m in result.modes.values() if m.reason and m.verdict == result.verdict]
    return reasons[0] if reasons else "nothing was compared"


def _table(result: LockstepResult) -> list[str]:
    rows = [("mode", "updates", "equal bits", "verdict", "first gate left")]
    for mode in result.modes.values():
        rows.append(
            (mode.mode, f"{mode.updates}/{mode.asked}", str(mode.equal_updates), mode.verdict,
             _first_left(mode))
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    table = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        table.append(shorten("  ".join([*cells, row[4]])))
    return table


def _first_left(mode: ModeResult) -> str:
    first, report = mode.first_divergence, mode.report_only_divergence
    if first is not None:
        return f"update {first.update}: {first.path}"
    if report is not None:
        return f"update {report.update}, report-only: {report.path}"
    return "none"


def _losses(result: LockstepResult) -> Iterator[str]:
    """Where the loss departs, as the protocol asks; a fault need not move the loss at all."""
    yield ""
    for mode in result.modes.values():
        text = tell_departure(mode)
        earliest = mode.earliest_difference
        if earliest is not None:
            text += f"; first bit that differed: update {earliest.update}, {earliest.path}"
        yield from wrap(f"{mode.mode}: relative loss difference ", text)


def _scope(result: LockstepResult, gates: Gates) -> Iterator[str]:
    """How much was compared at an update, by which limits, and how large the differences were."""
    modes = [mode for mode in result.modes.values() if mode.updates]
    if modes:
        first = modes[0]
        counts = [
            f"{first.compared.get(quantity, 0) // first.updates} {quantity.replace('_', ' ')}"
            for quantity in ("parameters", "gradients", "buffers", "optimizer_state", "loss_terms")
        ]
        yield from wrap("compared        ", f"per update: {', '.join(counts)}")
    yield from render_gates(gates, dict.fromkeys(name for mode in modes for name in mode.allowed))
    for mode in modes:
        sizes = [f"{quantity} {size:.3g}" for quantity, size in mode.largest.items() if size]
        if sizes:
            yield from wrap("largest         ", f"{mode.mode}: {', '.join(sizes)}")


def _limits(result: LockstepResult, horizon_source: str) -> Iterator[str]:
    yield from wrap("horizon         ", horizon_source)
    for mode in result.modes.values():
        if mode.horizon:
            spans = ", ".join(f"{gate} {update}" for gate, update in sorted(mode.horizon.items()))
            yield from wrap(f"  {mode.mode}: report-only after update ", spans)
        for what, why in mode.not_synchronized.items():
            yield from wrap(f"  {mode.mode}: not synchronized: ", f"{what}: {why}")
        for note in mode.notes:
            yield from wrap(f"  {mode.mode}: ", note)
    yield from wrap_each("excused         ", _grouped(result))
    yield from wrap_each("not asserted    ", result.not_asserted)
    if not result.not_exercised:
        yield "not exercised   nothing that is watched for"
    yield from wrap_each("not exercised   ", result.not_exercised)


def _grouped(result: LockstepResult) -> Iterator[str]:
    """Excused names by their reason: the first of them and how many more."""
    reasons: dict[str, list[str]] = {}
    for mode in result.modes.values():
        for name, reason in mode.excused.items():
            names = reasons.setdefault(reason, [])
            if name not in names:
                names.append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 1} more" if names[1:] else ""
        yield f"{names[0]}{more}: {reason}"

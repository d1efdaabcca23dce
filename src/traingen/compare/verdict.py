"""What follows from what was compared: findings, an exit code, and the values that say it."""

from __future__ import annotations

from typing import Any

import msgspec

from traingen.compare.causes import EXCUSED, LENGTH, explain_difference
from traingen.compare.findings import Finding
from traingen.compare.gates import CLIP_NORM_RTOL
from traingen.compare.summary import ModeResult, plain_difference

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 2}


def explain_mode(mode: ModeResult) -> list[Finding]:
    """The findings of one mode: its cause, or that it is of another length; what is excused."""
    findings = []
    if mode.first_divergence is not None:
        findings.append(explain_difference(mode.first_divergence))
    elif mode.verdict == "fail":
        findings.append(LENGTH.found(f"{mode.mode}: {mode.reason}"))
    if mode.excused_trained:
        findings.append(_excused(mode))
    return findings


def plain_finding(finding: Finding) -> dict[str, str]:
    """A finding as JSON values."""
    plain: dict[str, str] = msgspec.to_builtins(finding)
    return plain


def describe_mode(mode: ModeResult) -> dict[str, Any]:
    """One mode as JSON values."""
    departure = mode.loss_departure
    return {
        "verdict": mode.verdict,
        "reason": mode.reason,
        "updates": mode.updates,
        "asked": mode.asked,
        "equal_updates": mode.equal_updates,
        "compared": mode.compared,
        "horizon": mode.horizon,
        "first_divergence": plain_difference(mode.first_divergence),
        "report_only_divergence": plain_difference(mode.report_only_divergence),
        "earliest_difference": plain_difference(mode.earliest_difference),
        "loss_departure": None
        if departure is None
        else {"update": departure[0], "relative": departure[1]},
        "largest_loss_relative": mode.largest_loss_relative,
        "largest": mode.largest,
        "not_exercised": list(mode.not_exercised),
        "not_synchronized": mode.not_synchronized,
        "excused": mode.excused,
        "excused_trained": list(mode.excused_trained),
        "not_asserted": list(mode.not_asserted),
        "notes": list(mode.notes),
        "allowed": dict.fromkeys(mode.allowed, CLIP_NORM_RTOL),
    }


def _excused(mode: ModeResult) -> Finding:
    names = ", ".join(mode.excused_trained)
    return EXCUSED.found(f"excused from comparison, but with a gradient: {names}")

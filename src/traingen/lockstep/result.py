"""The verdict of a lockstep run, one function of what its modes found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from traingen.compare.causes import EXCUSED, LENGTH, explain_difference
from traingen.compare.findings import Finding
from traingen.lockstep.summary import ModeResult, plain_difference
from traingen.records import plain_json

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepResult:
    """All modes of one lockstep run and what follows from them."""

    verdict: str  # pass, fail or inconclusive
    modes: Mapping[str, ModeResult]  # in the order in which they ran
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 could not judge."""
        return EXIT_CODES[self.verdict]

    @property
    def decisive(self) -> ModeResult | None:
        """The failed mode that names the cause best: synchronized has no accumulated error."""
        failed = [m for m in self.modes.values() if m.verdict == "fail"]
        return max(failed, key=lambda m: m.mode == "synchronized", default=None)

    @property
    def cause(self) -> str | None:
        """Path of the earliest difference in the causal order, if a gate was left."""
        decisive = self.decisive
        if decisive is None or decisive.first_divergence is None:
            return None
        return decisive.first_divergence.path

    @property
    def not_exercised(self) -> tuple[str, ...]:
        """What no mode has put to the test."""
        lists = [mode.not_exercised for mode in self.modes.values() if mode.updates]
        if not lists:
            return ("everything: no update was compared",)
        return tuple(line for line in lists[0] if all(line in other for other in lists))

    @property
    def not_asserted(self) -> tuple[str, ...]:
        """What some mode compared without any asserted limit, one line per mode."""
        return tuple(
            f"{name}: {', '.join(mode.not_asserted)}"
            for name, mode in self.modes.items()
            if mode.not_asserted
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that `--json` prints, as JSON values."""
        decisive = self.decisive
        divergence = decisive.first_divergence if decisive else None
        plain: dict[str, Any] = plain_json(
            {
                "verdict": self.verdict,
                "exit_code": self.exit_code,
                "updates": min((m.updates for m in self.modes.values()), default=0),
                "first_divergence": None
                if divergence is None
                else {
                    "update": divergence.update,
                    "quantity": divergence.quantity,
                    "path": divergence.path,
                },
                "cause": self.cause,
                "findings": [_plain(finding) for finding in self.findings],
                "not_exercised": list(self.not_exercised),
                "modes": {name: describe_mode(mode) for name, mode in self.modes.items()},
            }
        )
        return plain


def judge(modes: Mapping[str, ModeResult]) -> LockstepResult:
    """Conclude: one failed mode fails, one that could not be judged leaves the whole open."""
    verdicts = {mode.verdict for mode in modes.values()}
    verdict = next((v for v in ("fail", "inconclusive", "pass") if v in verdicts), "inconclusive")
    return LockstepResult(verdict=verdict, modes=dict(modes), findings=tuple(_findings(modes)))


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
    }


def _findings(modes: Mapping[str, ModeResult]) -> list[Finding]:
    """One finding per distinct cause over the modes."""
    found: dict[tuple[str, str], Finding] = {}
    for mode in sorted(modes.values(), key=lambda m: m.mode != "synchronized"):
        if mode.first_divergence is not None:
            finding = explain_difference(mode.first_divergence)
            found.setdefault((finding.id, mode.first_divergence.path), finding)
        elif mode.verdict == "fail":
            found[(LENGTH.id, mode.mode)] = LENGTH.found(f"{mode.mode}: {mode.reason}")
        if mode.excused_trained:
            found.setdefault((EXCUSED.id, ""), _excused(mode))
    return list(found.values())


def _excused(mode: ModeResult) -> Finding:
    names = ", ".join(mode.excused_trained)
    return EXCUSED.found(f"excused from comparison, but with a gradient: {names}")


def _plain(finding: Finding) -> dict[str, str]:
    plain: dict[str, str] = msgspec.to_builtins(finding)
    return plain

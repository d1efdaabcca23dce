"""The verdict of a lockstep run, one function of what its modes found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from traingen.compare.causes import EXCUSED
from traingen.compare.findings import Finding
from traingen.compare.summary import ModeResult, plain_place
from traingen.compare.verdict import (
    EXIT_CODES,
    describe_mode,
    explain_mode,
    plain_finding,
)
from traingen.records import plain_json


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
                "first_divergence": plain_place(divergence),
                "cause": self.cause,
                "findings": [plain_finding(finding) for finding in self.findings],
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


def _findings(modes: Mapping[str, ModeResult]) -> list[Finding]:
    """One finding per distinct cause over the modes."""
    found: dict[tuple[str, str], Finding] = {}
    for mode in sorted(modes.values(), key=lambda m: m.mode != "synchronized"):
        for finding in explain_mode(mode):
            found.setdefault((finding.id, _subject(finding, mode)), finding)
    return list(found.values())


def _subject(finding: Finding, mode: ModeResult) -> str:
    """What tells two findings of one kind apart: where it is, or which mode is too short."""
    if finding.id == EXCUSED.id:
        return ""
    return mode.mode if mode.first_divergence is None else mode.first_divergence.path

"""What a finding is, and what is said of every one of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found, with a stable id."""

    id: str
    severity: Severity  # only errors fail
    measured: str
    meaning: str
    fix: str

    def __str__(self) -> str:
        return f"{self.id}: {self.measured}.\n  {self.meaning}\n  Fix: {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingKind:
    """A stable id, and what it means whenever it is found."""

    id: str
    severity: Severity
    title: str  # a few words
    meaning: str
    fix: str  # the way out; a finding may name lines that fit its case better
    example: str  # what brings it about, as short as it goes

    def found(
        self, measured: str, *, fix: str | None = None, severity: Severity | None = None
    ) -> Finding:
        """A finding of this kind: `measured` says where, what was expected and what was seen."""
        return Finding(
            id=self.id,
            severity=severity or self.severity,
            measured=measured,
            meaning=self.meaning,
            fix=fix or self.fix,
        )

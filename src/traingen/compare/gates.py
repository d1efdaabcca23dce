"""How far a quantity may differ before its gate is left; exact unless a limit is stated."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from traingen.compare.order import GATED, gate_name
from traingen.errors import ConfigError

CLIP_NORM_RTOL = 1e-3  # a clip's own norm, in float32, against one that was measured in float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """A value passes when |original - package| <= atol + rtol * |original|, element by element.

    `max_ulps`, if given, lets an element pass as well that lies within so many representable
    numbers. Equal bits always pass, equal NaN included; a NaN against a number never does.
    """

    rtol: float = 0.0
    atol: float = 0.0
    max_ulps: int | None = None
    report_only: bool = False
    why: str | None = None  # what the limit rests on

    def admits(self, original: float, package: float) -> bool:
        """Whether two numbers pass."""
        if original == package or (math.isnan(original) and math.isnan(package)):
            return True
        if not (math.isfinite(original) and math.isfinite(package)):
            return False
        return abs(original - package) <= self.atol + self.rtol * abs(original)

    @property
    def limit(self) -> str:
        """The limit in words, for a report."""
        if self.report_only:
            return "report-only"
        parts = [f"{n}={v:g}" for n, v in (("rtol", self.rtol), ("atol", self.atol)) if v]
        parts += [f"max_ulps={self.max_ulps}"] if self.max_ulps is not None else []
        return ", ".join(parts) or "exact"


EXACT = Tolerance()


@dataclass(frozen=True, slots=True)
class Gates:
    """The limits of one comparison by quantity; what is not named is exact."""

    limits: Mapping[str, Tolerance] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.limits:
            if name not in GATED:
                raise ConfigError(
                    f"gates: unknown quantity {name!r}, expected one of {', '.join(GATED)}."
                )

    def of(self, quantity: str) -> Tolerance:
        """The limit that judges `quantity`."""
        return self.limits.get(gate_name(quantity), EXACT)

    @classmethod
    def of_numbers(cls, **limits: Mapping[str, Any]) -> Gates:
        """Build gates from plain mappings: `Gates.of_numbers(gradients={"rtol": 1e-5})`."""
        return cls({name: Tolerance(**limit) for name, limit in limits.items()})

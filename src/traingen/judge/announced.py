"""How averaged weights were announced: what they are to do, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from traingen.judge.watch import count, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What one average is to do."""

    class_path: str
    every: int | None  # counted steps; None where it is not known or means never
    starts: int  # the first counted step
    delayed: bool  # whether that is known

    @property
    def name(self) -> str:
        """Its class, without the way there."""
        return self.class_path.rpartition(".")[2]

    @property
    def is_known(self) -> bool:
        """Whether it is a class of Lightning itself, which starts when it says."""
        return self.class_path.partition(".")[0] in ("lightning", "pytorch_lightning")


def read_announced(details: dict[str, Any] | None) -> Announced:
    """The details of an "averaging" event."""
    every = count(details, "every")
    starts = (details or {}).get("starts")
    return Announced(
        class_path=text(details, "class_path") or "",
        every=every if every > 0 else None,
        starts=count(details, "starts"),
        delayed=isinstance(starts, int),
    )


def is_due(step: object, asked: Announced | None) -> bool:
    """Whether Lightning's average may be due after a counted step: the 1st, (1 + every)th, …

    Without a known pace it may be due after each.
    """
    if asked is None or asked.every is None or not isinstance(step, int):
        return True
    return step - 1 >= asked.starts and (step - 1) % asked.every == 0

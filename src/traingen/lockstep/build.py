"""Make the two systems that a pair file names."""

from __future__ import annotations

from typing import Literal

import msgspec

from traingen.lockstep.loop_system import LoopSystem
from traingen.lockstep.pair import PairFile, make_factory
from traingen.lockstep.system import System
from traingen.lockstep.taps import Tap
from traingen.lockstep.trainer_system import TrainerSystem

Side = Literal["original", "package"]

_KINDS = {"loop": LoopSystem, "trainer": TrainerSystem}


def make_system(pair: PairFile, side: Side, *, name: str | None = None) -> System:
    """Return the system of one side; nothing of it runs yet.

    Raises:
        ConfigError: something that its part of the pair file names cannot be imported.
    """
    spec = pair.original if side == "original" else pair.package
    factory = make_factory(spec, where=side)
    system = _KINDS[spec.system](factory, name=name or side, stall_seconds=spec.stall_seconds)
    system.taps = tuple(
        Tap(name=term, **msgspec.structs.asdict(getattr(tap, side)))
        for term, tap in pair.taps.items()
    )
    return system

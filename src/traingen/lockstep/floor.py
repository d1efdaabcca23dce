"""Measure what the original differs from itself by, and when one ulp has grown past a gate.

The floor of a comparison is measured twice: the original run again, which should be exactly equal,
and the original with every weight moved to the next representable number. Where that second run
leaves a gate, the gate says nothing about a fault any more: this update is the gate's horizon.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import torch

from traingen.compare.differences import Comparison
from traingen.compare.gates import Gates
from traingen.compare.order import GATED, gate_name
from traingen.errors import ConfigError
from traingen.lockstep.conductor import Conductor, Plan
from traingen.lockstep.name_map import NameMap
from traingen.lockstep.output import ModeOutput, OutputFolder
from traingen.lockstep.pair import Mode, PairFile
from traingen.lockstep.system import System
from traingen.observe.environment import describe_devices, describe_versions
from traingen.records import plain_json

FLOOR = 1  # version of the floor file

MakeSystem = Callable[[str], System]


class ModeFloor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The floor of one mode."""

    updates: int
    again_equal_updates: int  # updates at which the second run had the same bits throughout
    again_largest: dict[str, float]  # quantity -> largest absolute difference; empty: none
    ulp_largest: dict[str, float]  # the same for the run with moved weights
    ulp_loss_departure: int | None  # first update with a relative loss difference over 1e-3
    horizon: dict[str, int]  # gate -> first update at which the moved run left it


class Floor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured floor and what it was measured for."""

    floor: int
    subject: str  # digest of the original, its taps, the gates and the seed
    versions: dict[str, str]
    devices: list[str]
    modes: dict[str, ModeFloor]


def measure_floor(
    make: MakeSystem,
    *,
    gates: Gates,
    modes: list[Mode],
    updates: int,
    seed: int,
    on_update: Callable[[str, int], None] | None = None,
) -> dict[str, ModeFloor]:
    """Run the original against itself in each mode, as it is and moved by one ulp."""
    floors: dict[str, ModeFloor] = {}
    for mode in modes:
        plan = Plan(mode=mode, updates=updates, seed=seed, name_map=NameMap(), gates=gates)
        tick = None if on_update is None else (lambda update, m=mode: on_update(m, update))
        again = _Measure(plan, make, tick).run()
        moved = _Measure(plan, make, tick, moved=True)
        result = moved.run()
        floors[mode] = ModeFloor(
            updates=result.updates,
            again_equal_updates=again.equal_updates,
            again_largest=again.largest,
            ulp_largest=result.largest,
            ulp_loss_departure=result.loss_departure and result.loss_departure[0],
            horizon={} if mode == "synchronized" else moved.horizon,
        )
    return floors


class _Measure(Conductor):
    """A conductor of the original against itself that notes when each gate is first left."""

    def __init__(
        self,
        plan: Plan,
        make: MakeSystem,
        on_update: Callable[[int], None] | None,
        *,
        moved: bool = False,
    ) -> None:
        self.horizon: dict[str, int] = {}
        super().__init__(
            plan, make("original"), make("again"), ModeOutput(OutputFolder(None), mode=plan.mode),
            on_update=on_update, disturb=self._move if moved else None,
        )  # fmt: skip

    def _move(self, update: int, system: System) -> None:
        """Move the weights once, or before every update where they are synchronized after it."""
        if update == 1 or self._plan.mode == "synchronized":
            move_one_ulp(system)

    def _noted(self, comparison: Comparison) -> None:
        for difference in comparison.left:
            self.horizon.setdefault(gate_name(difference.quantity), comparison.update)


@torch.no_grad()
def move_one_ulp(system: System) -> None:
    """Move every floating-point parameter of a parked system to the next larger number."""
    for parameter in system.live().parameters.values():
        if parameter.is_floating_point():
            parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))


def describe_subject(pair: PairFile) -> str:
    """Digest of what a floor depends on; a floor for another subject is not used."""
    parts = {
        "original": msgspec.to_builtins(pair.original),
        "taps": {name: msgspec.to_builtins(tap.original) for name, tap in pair.taps.items()},
        "gates": {n: msgspec.to_builtins(pair.gates[n]) for n in GATED if n in pair.gates},
        "seed": pair.seed,
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def make_floor(pair: PairFile, modes: Mapping[str, ModeFloor]) -> Floor:
    """The floor of a pair with the facts of this machine."""
    return Floor(
        floor=FLOOR,
        subject=describe_subject(pair),
        versions=describe_versions(),
        devices=describe_devices(),
        modes=dict(modes),
    )


def prepare_floor(path: Path) -> None:
    """Make sure, before anything is measured, that `path` can be written.

    Raises:
        ConfigError: it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
        if path.stat().st_size == 0:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written as floor file: {error}.") from error


def save_floor(floor: Floor, path: Path) -> None:
    """Write the floor, replacing an older measurement at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(path.suffix + ".new")
    beside.write_bytes(
        msgspec.json.format(msgspec.json.encode(plain_json(msgspec.to_builtins(floor))), indent=2)
        + b"\n"
    )
    beside.replace(path)


def load_floor(path: Path) -> Floor:
    """Read a floor file.

    Raises:
        ConfigError: it is missing or is none.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Floor)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no such floor file: measure it with --measure-floor, or drop 'floor'."
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: no floor file: {error}.") from error


def horizons_of(pair: PairFile) -> tuple[dict[str, dict[str, int]], str]:
    """The horizons to use for a pair, and where they come from, in words.

    Without a floor that fits, every gate is asserted at every update.
    """
    if pair.floor is None:
        return {}, "not measured: gates are asserted at every update"
    floor = load_floor(Path(pair.floor))
    if floor.subject != describe_subject(pair):
        return {}, f"{pair.floor} was measured for another original, gates or seed: not used"
    return {name: dict(mode.horizon) for name, mode in floor.modes.items()}, pair.floor

"""Run two systems in lockstep in every mode asked for and conclude."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from traingen.compare.gates import Gates
from traingen.compare.summary import ModeResult
from traingen.errors import ConfigError
from traingen.lockstep.conductor import Conductor, Plan
from traingen.lockstep.name_map import NameMap
from traingen.lockstep.output import ModeOutput, OutputFolder
from traingen.lockstep.pair import MODES, Mode
from traingen.lockstep.result import LockstepResult, judge
from traingen.lockstep.system import System

OnUpdate = Callable[[str, int], None]


def lockstep(
    original: System,
    package: System,
    *,
    name_map: NameMap | None = None,
    gates: Gates | None = None,
    modes: Sequence[Mode] = MODES,
    updates: int = 300,
    seed: int = 0,
    horizons: Mapping[str, Mapping[str, int]] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    on_update: OnUpdate | None = None,
) -> LockstepResult:
    """Train both systems side by side, update by update, and say whether and where they part.

    Args:
        original: the system to be reproduced.
        package: the re-implementation; starts from the original's weights.
        name_map: which tensor is which; by default names are the same.
        gates: how far each quantity may differ; exact by default.
        modes: `natural` never touches the systems again after the start; `reseeded` sets the
            generators of both before every update; `synchronized` also copies the original's
            state into the package after every comparison.
        updates: completed optimizer updates per mode.
        seed: of everything that is drawn.
        horizons: mode -> gate -> last update at which that gate is asserted there.
        out: folder for recordings and differences, one subfolder per mode; must not exist.
        overwrite: move an existing `out` aside, once both systems have completed an update.
        on_update: called with mode and update after each comparison.

    Raises:
        TraingenError: a system cannot be started, raises or stalls, or names are left over.
    """
    check_one_device()
    folder = OutputFolder(None if out is None else Path(out), overwrite=overwrite)
    results: dict[str, ModeResult] = {}
    for mode in modes:
        plan = Plan(
            mode=mode,
            updates=updates,
            seed=seed,
            name_map=name_map or NameMap(),
            gates=gates or Gates(),
            horizon=(horizons or {}).get(mode, {}),
        )
        output = ModeOutput(folder, mode=mode)
        results[mode] = Conductor(
            plan, original, package, output, on_update=_bind(on_update, mode)
        ).run()
    return judge(results)


def check_one_device() -> None:
    """Refuse a machine on which more than one CUDA device is visible.

    Raises:
        ConfigError: with the way out; the protocol asks for one explicitly selected GPU.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count > 1:
        raise ConfigError(
            f"{count} CUDA devices are visible, expected exactly one selected: set "
            'CUDA_VISIBLE_DEVICES to its index (or to "" for the CPU).'
        )


def _bind(on_update: OnUpdate | None, mode: str) -> Callable[[int], None] | None:
    if on_update is None:
        return None
    return lambda update: on_update(mode, update)

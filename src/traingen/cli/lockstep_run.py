"""Carry out `traingen lockstep`: build the pair, run it, save and print the result."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from tqdm import tqdm

from traingen.errors import ConfigError
from traingen.lockstep.build import make_system
from traingen.lockstep.floor import (
    horizons_of,
    make_floor,
    measure_floor,
    prepare_floor,
    save_floor,
)
from traingen.lockstep.output import free_name
from traingen.lockstep.pair import Mode, load_pair, make_gates, make_name_map
from traingen.lockstep.run import check_one_device, lockstep
from traingen.lockstep.save import save_result
from traingen.report.terminal import render_lockstep


def run_pair(
    *,
    config: Path,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
    modes: tuple[Mode, ...] | None,
    updates: int | None,
) -> int:
    """Run the pair of `config` in lockstep; returns the verdict's exit code.

    Raises:
        TraingenError: the pair cannot be run; nothing is written before both systems have
            completed an update.
    """
    quieten_lightning()
    pair = load_pair(config)
    chosen = list(modes or pair.modes)
    asked = updates or pair.updates
    original, package = make_system(pair, "original"), make_system(pair, "package")
    horizons, source = horizons_of(pair)
    folder = choose_folder(out, config=config)
    gates = make_gates(pair)
    # stdout is for the result: what the trainings print goes to stderr
    with (
        redirect_stdout(sys.stderr),
        show_progress(total=asked * len(chosen), quiet=as_json) as tick,
    ):
        result = lockstep(
            original, package,
            name_map=make_name_map(pair), gates=gates, modes=chosen, updates=asked, seed=pair.seed,
            horizons=horizons, out=folder, overwrite=overwrite, on_update=tick,
        )  # fmt: skip
    saved = save_result(result, folder, pair=pair, config=config, horizon_source=source)
    if as_json:
        print(json.dumps(result.to_json() | {"out": str(folder)}, allow_nan=False))
    else:
        print(render_lockstep(result, title=config.stem, gates=gates, horizon_source=source))
        print(f"output          {saved}")
    return result.exit_code


def run_floor(
    *, config: Path, modes: tuple[Mode, ...] | None, updates: int | None, as_json: bool
) -> int:
    """Measure the floor of the pair's original and write it to the pair's `floor` file.

    Raises:
        ConfigError: the pair names no floor file.
    """
    pair = load_pair(config)
    if pair.floor is None:
        raise ConfigError(f"{config}: 'floor' names the file to measure into; it is missing.")
    check_one_device()
    prepare_floor(Path(pair.floor))
    quieten_lightning()
    chosen, asked = list(modes or pair.modes), updates or pair.updates
    with (
        redirect_stdout(sys.stderr),
        show_progress(total=2 * asked * len(chosen), quiet=as_json) as tick,
    ):
        floors = measure_floor(
            lambda name: make_system(pair, "original", name=name),
            gates=make_gates(pair), modes=chosen, updates=asked, seed=pair.seed, on_update=tick,
        )  # fmt: skip
    save_floor(make_floor(pair, floors), Path(pair.floor))
    if not as_json:
        for mode, floor in floors.items():
            print(
                f"{mode}: {floor.again_equal_updates} of {floor.updates} updates equal when run "
                f"again; horizons {floor.horizon or 'none'}"
            )
    print(json.dumps({"floor": pair.floor}) if as_json else f"floor           {pair.floor}")
    return 0


def quieten_lightning() -> None:
    """Keep Lightning's greetings out of the report; its warnings stay, but for one about itself."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")


def choose_folder(out: Path | None, *, config: Path) -> Path:
    """The folder of this run: the one asked for, or a new one named by date and time."""
    if out is not None:
        return out
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    return free_name(Path(".cache", config.stem, "lockstep", stamp))


@contextmanager
def show_progress(*, total: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """One bar over all modes on stderr, where that is a terminal."""
    hidden = quiet or not sys.stderr.isatty()
    with tqdm(total=total, unit="update", disable=hidden, file=sys.stderr) as bar:

        def tick(mode: str, update: int) -> None:
            bar.set_description(mode, refresh=False)
            bar.update()

        yield tick

"""A defect of the original is part of what is reproduced: here its rate never moves, nor may ours.

pytorch-tabnet 4.1.0 ticks an epoch's scheduler only after an evaluation. Everything here is
asserted both ways: without an evaluation set nothing ticks, with one both sides do, alike.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import traingen
from examples.tabnet.original import fit_original
from examples.tabnet.package import digits_halving_fit
from traingen.cli.main import main
from traingen.lockstep import load_pair
from traingen.records import Recording, UpdateRecord, read_recording

ROOT = Path(__file__).parents[1]
PAIR = "configs/lockstep/tabnet_never_ticks.yaml"
SIDES = ("original", "package")
MODES = ("natural", "reseeded", "synchronized")
UPDATES_PER_EPOCH = 11
NEVER_TICKED = "scheduler: it never ticked"

# With an evaluation set and a halving every epoch: three epochs, and what their updates use.
EVALUATED = f"""
extends: {PAIR}
original: {{init_args: {{evaluate: true, halve_every: 1}}}}
package: {{init_args: {{evaluate: true, halve_every: 1}}}}
modes: [natural]
updates: 33
floor: null
"""
HALVED = [2e-2, 1e-2, 5e-3]

# Said by Lightning, at each epoch, of what the original leaves out without a word.
pytestmark = pytest.mark.filterwarnings(
    "ignore:ReduceLROnPlateau conditioned on metric val_accuracy which is not available"
)


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def lockstep(config: str, out: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and result of `traingen lockstep`."""
    code = main(["lockstep", "--config", config, "--out", str(out)])
    return code, json.loads((out / "result.json").read_text())


def record_package(folder: Path, **fit_args: Any) -> Recording:
    """The recording of our fit, run alone."""
    call = digits_halving_fit(**fit_args)
    call.trainer.callbacks.append(traingen.StepRecorder(str(folder)))
    call.trainer.fit(call.model, datamodule=call.datamodule)
    return read_recording(folder)


def rates(recording: Recording) -> list[float]:
    """The rate that each update used."""
    return [rate for update in recording.updates for rate in update.lr]


def ticks(recording: Recording) -> list[int]:
    """How often the scheduler had ticked when each update began; each must have exactly one."""
    return [_only_scheduler(update).ticks for update in recording.updates]


def _only_scheduler(update: UpdateRecord) -> Any:
    assert update.scheduler is not None
    [state] = update.scheduler
    return state


def per_update(per_epoch: list[Any]) -> list[Any]:
    """One value per epoch, as one per update."""
    return [value for value in per_epoch for _ in range(UPDATES_PER_EPOCH)]


def test_the_pair_crosses_more_epochs_than_a_halving_takes() -> None:
    """Else a rate that stays would prove nothing."""
    pair = load_pair(Path(PAIR))
    original, package = pair.original.init_args, pair.package.init_args

    assert original["halve_every"] == package["halve_every"] == 2
    assert pair.updates >= 5 * UPDATES_PER_EPOCH


@pytest.mark.parametrize(
    ("evaluate", "expected"), [(False, [2e-2] * 3), (True, HALVED)], ids=["alone", "evaluated"]
)
def test_the_originals_own_history_shows_whether_its_rate_moved(
    evaluate: bool, expected: list[float]
) -> None:
    classifier = fit_original(max_epochs=3, halve_every=1, evaluate=evaluate)

    assert classifier.history["lr"] == expected


@pytest.mark.parametrize(
    ("evaluate", "expected", "ticked"),
    [(False, [2e-2] * 3, [0, 0, 0]), (True, HALVED, [0, 1, 2])],
    ids=["alone", "evaluated"],
)
def test_the_package_alone_ticks_only_if_it_evaluates(
    evaluate: bool, expected: list[float], ticked: list[int], tmp_path: Path
) -> None:
    recording = record_package(tmp_path, max_epochs=3, halve_every=1, evaluate=evaluate)

    assert rates(recording) == per_update(expected)
    assert ticks(recording) == per_update(ticked)


def test_a_mended_package_ticks_without_an_evaluation(tmp_path: Path) -> None:
    recording = record_package(tmp_path, max_epochs=3, halve_every=1, only_if_evaluated=False)

    assert rates(recording) == per_update(HALVED)


@pytest.mark.slow
def test_in_lockstep_neither_side_ticks_and_the_result_says_so(tmp_path: Path) -> None:
    code, result = lockstep(PAIR, tmp_path / "out")

    assert (code, result["verdict"], result["updates"]) == (0, "pass", 60)
    assert NEVER_TICKED in result["not_exercised"]
    assert result["horizon_source"] == "configs/lockstep/tabnet_never_ticks.floor.json"
    for mode in MODES:
        assert result["modes"][mode]["equal_updates"] == 60
        for side in SIDES:
            recording = read_recording(tmp_path / "out" / mode / side)
            assert rates(recording) == [2e-2] * 60
            assert ticks(recording) == [0] * 60
        package = read_recording(tmp_path / "out" / mode / "package")
        assert {update.epoch for update in package.updates} == set(range(6))


@pytest.mark.slow
def test_in_lockstep_with_an_evaluation_set_both_sides_tick_alike(tmp_path: Path) -> None:
    (tmp_path / "evaluated.yaml").write_text(EVALUATED)

    code, result = lockstep(str(tmp_path / "evaluated.yaml"), tmp_path / "out")

    assert (code, result["modes"]["natural"]["equal_updates"]) == (0, 33)
    assert NEVER_TICKED not in result["not_exercised"]
    for side in SIDES:
        recording = read_recording(tmp_path / "out" / "natural" / side)
        assert rates(recording) == per_update(HALVED)
        assert ticks(recording) == per_update([0, 1, 2])

"""Every YAML in configs/fit is run as it is shipped, with `traingen fit`, and does what it says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from traingen.cli.main import main
from traingen.errors import CadenceWarning
from traingen.records import Recording, read_recording

FOLDER = Path(__file__).parents[1] / "configs" / "fit"
UPDATES = 33  # 3 epochs of 11
CYCLE, INJECTED, NEVER = "digits_lr_scheduler_config", "digits_init_args", "digits_never_ticks"
BROKEN = "broken/digits_top_level_lr_scheduler"

# Lightning's own word for what digits_never_ticks.yaml is about.
MISSING_METRIC = "ignore:ReduceLROnPlateau conditioned on metric val_accuracy"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the files write under out/ goes where the command is run."""
    monkeypatch.chdir(tmp_path)


def fit(name: str, *arguments: str) -> int:
    """The exit code of `traingen fit` with a shipped file."""
    return main(["fit", "--config", str(FOLDER / f"{name}.yaml"), *arguments])


def recording_of(name: str) -> Recording:
    """What the run has recorded, where its file says."""
    return read_recording(Path(load(name)["record"]["path"]))


def load(name: str) -> dict[str, Any]:
    """The file's content."""
    content: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return content


def rates(recording: Recording) -> list[float]:
    """The rate that each update used."""
    return [rate for update in recording.updates for rate in update.lr]


def one_cycle(update: int) -> float:
    """The rate of `update` (from 1) in a cycle over 33 updates that peaks at 2e-2.

    Half a cosine up from a 25th of the peak over the first 30 percent, half a cosine down to a
    10,000th of where it began; torch's defaults, computed without torch.
    """
    peak, first = 2e-2, 2e-2 / 25
    top, end, tick = 0.3 * UPDATES - 1, UPDATES - 1, update - 1
    if tick <= top:
        return _half_cosine(first, peak, tick / top)
    return _half_cosine(peak, first / 1e4, (tick - top) / (end - top))


def _half_cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


CYCLE_RATES = [one_cycle(update) for update in range(1, UPDATES + 1)]


def test_every_file_in_the_folder_is_run_here() -> None:
    files = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.yaml")}

    assert files == {CYCLE, INJECTED, NEVER, BROKEN}


@pytest.mark.parametrize("name", [CYCLE, INJECTED])
def test_a_right_file_trains_at_the_rates_of_its_schedule(name: str) -> None:
    code = fit(name)

    recording = recording_of(name)
    assert code == 0
    assert rates(recording) == pytest.approx(CYCLE_RATES, rel=1e-12, abs=0)
    assert recording.end is not None
    assert recording.end.reason == "finished"


def test_both_ways_to_name_the_schedule_give_the_same_training() -> None:
    fit(CYCLE)
    fit(INJECTED)

    one, other = recording_of(CYCLE), recording_of(INJECTED)
    assert [u.loss for u in one.updates] == [u.loss for u in other.updates]
    assert rates(one) == rates(other)


def test_the_broken_file_stops_before_its_first_update(capsys: pytest.CaptureFixture[str]) -> None:
    code = fit(BROKEN)

    error = capsys.readouterr().err
    assert code == 1
    assert "TG-SCHED-EPOCH" in error
    assert "lr_scheduler_config: {interval: step}" in error
    assert "Traceback" not in error
    assert not Path(load(BROKEN)["record"]["path"], "updates.rank0.jsonl").exists()


def test_the_broken_file_trains_once_the_missing_line_is_given() -> None:
    code = fit(BROKEN, "--lr_scheduler_config", "{interval: step}")

    assert code == 0
    assert rates(recording_of(BROKEN)) == pytest.approx(CYCLE_RATES, rel=1e-12, abs=0)


def test_nothing_but_the_missing_line_is_broken() -> None:
    right, broken = load(CYCLE), load(BROKEN)
    for settings in (right, broken):
        del settings["cadence"], settings["record"], settings["trainer"]["logger"]

    assert right.pop("lr_scheduler_config") == {"interval": "step", "frequency": 1}
    assert broken == right


@pytest.mark.filterwarnings(MISSING_METRIC)
def test_without_an_evaluation_the_rate_stays_and_the_guard_warns() -> None:
    with pytest.warns(CadenceWarning, match="TG-SCHED-PLATEAU-STALE.*metric was missing"):
        code = fit(NEVER)

    assert code == 0
    assert rates(recording_of(NEVER)) == [2e-2] * UPDATES


def test_with_an_evaluation_the_rate_moves_and_nobody_warns() -> None:
    """Warnings are errors here."""
    code = fit(NEVER, "--trainer.limit_val_batches", "1.0")

    assert code == 0
    assert rates(recording_of(NEVER)) == [2e-2] * 11 + [1e-2] * 11 + [5e-3] * 11


def test_a_file_can_be_run_again_and_keeps_the_recording_from_before() -> None:
    codes = [fit(CYCLE), fit(CYCLE)]

    folder = Path(load(CYCLE)["record"]["path"])
    assert codes == [0, 0]
    assert len(list(folder.glob("updates.rank0*"))) == 2


@pytest.mark.parametrize("name", [CYCLE, INJECTED, NEVER, BROKEN])
def test_what_a_file_writes_lies_under_its_own_name_in_out(name: str) -> None:
    settings = load(name)
    own = Path("out/fit") / Path(name).name
    logger = settings["trainer"]["logger"]["init_args"]

    assert Path(logger["save_dir"], logger["name"]) == own
    assert settings["record"] == {"path": f"{own}/recording", "overwrite": True}

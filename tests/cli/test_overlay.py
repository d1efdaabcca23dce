"""`traingen overlay` names a YAML that adds a callback to any LightningCLI; so does a flag."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import third_party
from tests.third_party import UPDATES, call_script, run_script, write_script
from traingen.cli.main import main
from traingen.cli.overlay import overlays
from traingen.errors import CadenceViolation
from traingen.records import read_recording

GUARD = "traingen.callbacks.cadence_guard.CadenceGuard"
RECORDER = "traingen.callbacks.step_recorder.StepRecorder"
FLAGS = {
    "guard": ["--trainer.callbacks+=traingen.CadenceGuard"],
    "record": [
        "--trainer.callbacks+=traingen.StepRecorder",
        "--trainer.callbacks.path=recording",
    ],
}


@pytest.fixture
def overlay(capsys: pytest.CaptureFixture[str]):
    """What `traingen overlay NAME` prints."""

    def ask(*name: str) -> str:
        assert main(["overlay", *name]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        return line

    return ask


# The command --------------------------------------------------------------------------------


def test_the_path_of_a_shipped_file_is_printed(overlay):
    for name in overlays():
        path = Path(overlay(name))
        assert path.is_absolute() and path.is_file() and path.stem == name
    assert overlay() == overlay("guard") != overlay("record")


def test_an_unknown_name_is_one_line_and_exit_code_2(capsys):
    assert main(["overlay", "gaurd"]) == 2
    out, error = capsys.readouterr()
    assert (out, error) == (
        "",
        "traingen: error: overlay: expected one of guard, record, got 'gaurd'.\n",
    )


LIGHT = """
import sys
from traingen.cli.overlay import overlays, run
from argparse import Namespace
assert run(Namespace(name="record")) == 0
assert not {"torch", "lightning", "jsonargparse", "yaml", "numpy"} & set(sys.modules)
"""


def test_the_command_loads_no_framework():
    subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, check=True)


def test_every_overlay_only_appends_callbacks():
    assert set(overlays()) == {"guard", "record"}
    for path in overlays().values():
        ((trainer, callbacks),) = yaml.safe_load(path.read_text()).items()
        assert trainer == "trainer" and list(callbacks) == ["callbacks+"]


# A command line that somebody else wrote -----------------------------------------------------


def given_overlays(overlay, *names: str) -> list[str]:
    return [f"--config={overlay(name)}" for name in names]


def given_flags(overlay, *names: str) -> list[str]:
    return [flag for name in names for flag in FLAGS[name]]


WAYS = pytest.mark.parametrize("way", [given_overlays, given_flags], ids=["overlay", "flag"])


@WAYS
def test_both_together_are_added_and_what_the_config_names_is_kept(
    overlay, way, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    call_script(tmp_path, "fit", "--config=train.yaml", *way(overlay, "guard", "record"))
    recording = read_recording(tmp_path / "recording")
    assert len(recording.updates) == UPDATES
    ours = [name for name in recording.run.callbacks if "LightningCLI" not in name]
    assert [n for n in ours if n in (third_party.GIVEN, GUARD, RECORDER)] == [
        third_party.GIVEN, GUARD, RECORDER,
    ]  # fmt: skip
    saved = yaml.safe_load((tmp_path / "root" / "config.yaml").read_text())
    assert [one["class_path"] for one in saved["trainer"]["callbacks"]] == [
        "lightning.pytorch.callbacks.ModelSummary",
        "traingen.CadenceGuard",
        "traingen.StepRecorder",
    ]


def test_an_argument_on_the_command_line_goes_to_the_last_overlay(overlay, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    arguments = given_overlays(overlay, "guard", "record")
    call_script(tmp_path, "fit", "-c=train.yaml", *arguments, "--trainer.callbacks.path=runs/a")
    assert len(read_recording(tmp_path / "runs" / "a").updates) == UPDATES


def test_a_second_run_with_the_overlay_moves_the_recording_aside(overlay, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    for _ in range(2):
        call_script(tmp_path, "fit", "-c=train.yaml", *given_overlays(overlay, "record"))
        (tmp_path / "root" / "config.yaml").unlink()  # Lightning refuses to overwrite that
    assert [path.name for path in sorted((tmp_path / "recording").iterdir())] == [
        "times.jsonl", "times.jsonl.old-1", "updates.rank0.jsonl", "updates.rank0.jsonl.old-1",
    ]  # fmt: skip


def test_without_the_overlay_nothing_is_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    call_script(tmp_path, "fit", "--config=train.yaml")
    assert not (tmp_path / "recording").exists()


def test_the_script_that_somebody_wrote_knows_nothing_of_us():
    assert "traingen" not in third_party.CLI_SCRIPT + third_party.TRAINER_SCRIPT
    assert "traingen" not in third_party.TRAIN_YAML


@pytest.mark.parametrize(
    "way",
    [given_overlays, pytest.param(given_flags, marks=pytest.mark.slow)],
    ids=["overlay", "flag"],
)
def test_a_script_is_guarded_and_recorded(overlay, way, tmp_path):
    write_script(tmp_path)
    done = run_script(tmp_path, "fit", "-c=train.yaml", *way(overlay, "guard", "record"))
    assert done.returncode == 0, done.stderr
    recording = read_recording(tmp_path / "recording")
    assert len(recording.updates) == UPDATES
    assert {third_party.GIVEN, GUARD, RECORDER} <= set(recording.run.callbacks)


# The real guard: these depend on what CadenceGuard finds -------------------------------------


@WAYS
@pytest.mark.filterwarnings("ignore:A `OneCycleLR` scheduler is using:RuntimeWarning")
def test_one_cycle_ticked_by_epoch_is_stopped(overlay, way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    arguments = ["fit", "--config=train.yaml", "--model.interval=default"]
    with pytest.raises(CadenceViolation, match="TG-SCHED-EPOCH"):
        call_script(tmp_path, *arguments, *way(overlay, "guard"))


@pytest.mark.slow
@WAYS
def test_one_cycle_ticked_by_epoch_ends_the_script_with_an_error(overlay, way, tmp_path):
    write_script(tmp_path)
    arguments = ["fit", "--config=train.yaml", "--model.interval=default"]
    done = run_script(tmp_path, *arguments, *way(overlay, "guard"))
    assert done.returncode == 1
    assert "CadenceViolation" in done.stderr and "TG-SCHED-EPOCH" in done.stderr


# The how-to pages -----------------------------------------------------------------------------


def commands_of(page: str) -> list[str]:
    """Each command that trains, as the page shows it."""
    text = (third_party.ROOT / "docs" / "how-to" / page).read_text()
    return re.findall(r"^\$ python train.py (fit -c train.yaml .*)$", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "command", [c for page in ("add-by-overlay.md", "add-by-flag.md") for c in commands_of(page)]
)
def test_every_command_of_the_how_to_pages_trains(overlay, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    filled = re.sub(r"\$\(traingen overlay ?(\w*)\)", lambda m: overlay(*m[1].split()), command)
    cli = call_script(tmp_path, *filled.split())
    asked = [name for name in ("guard", "record") if name in command.lower()]
    classes = [type(one).__name__ for one in cli.trainer.callbacks]
    assert ("CadenceGuard" in classes) == ("guard" in asked or command.endswith("overlay)"))
    recordings = list(tmp_path.rglob("updates.rank0.jsonl"))
    assert [len(read_recording(path).updates) for path in recordings] == [UPDATES] * (
        "record" in asked
    )


def test_the_yaml_of_the_how_to_page_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_script(tmp_path)
    page = (third_party.ROOT / "docs" / "how-to" / "add-by-overlay.md").read_text()
    (text,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "own.yaml").write_text(text)
    cli = call_script(tmp_path, "fit", "-c=train.yaml", "-c=own.yaml")
    assert "CadenceGuard" in [type(one).__name__ for one in cli.trainer.callbacks]

"""The configuration that a training leaves behind trains the same again."""

from pathlib import Path

import pytest
import torch
import yaml

from tests.cli import small
from tests.cli.small import run, traingen

SAVED = {
    "cadence": {"expected": "step", "on_violation": "raise", "reference_updates": 300},
    "record": {"path": "runs/a", "rng": ["torch"]},
    "lr_scheduler_config": {"interval": "step", "frequency": 1},
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small, "fitted", [])


def test_the_saved_configuration_holds_what_was_said():
    assert run(**SAVED) == 0
    saved = yaml.safe_load(Path("config.yaml").read_text())
    assert {key: saved[key] for key in SAVED} == SAVED
    assert saved["seed_everything"] == 11


def test_what_was_not_said_is_saved_as_off():
    assert run() == 0
    saved = yaml.safe_load(Path("config.yaml").read_text())
    assert saved["record"] is False
    assert saved["cadence"]["expected"] == "auto"


def test_the_saved_configuration_trains_to_the_same_bits():
    assert run("--trainer.default_root_dir=first", **SAVED) == 0
    again = ["--record.path=runs/b", "--trainer.default_root_dir=second"]
    assert traingen("fit", "--config=first/config.yaml", *again) == 0
    first, second = (model.state_dict() for model in small.fitted)
    assert all(torch.equal(first[name], second[name]) for name in first)
    a, b = (Path(f"runs/{name}/updates.rank0.jsonl").read_text() for name in "ab")
    assert a.splitlines()[1:] == b.splitlines()[1:]  # the first one says argv and time


def test_the_configuration_of_an_earlier_run_is_never_lost(capsys):
    assert run() == 0
    before = Path("config.yaml").read_bytes()
    assert run("--seed_everything=12") == 2
    error = capsys.readouterr().err
    assert error.startswith("traingen: error: ")
    assert "config.yaml exists" in error
    assert "--trainer.default_root_dir" in error
    assert error.count("\n") == 1
    assert Path("config.yaml").read_bytes() == before


def test_another_folder_takes_another_configuration():
    assert run() == 0
    assert run("--trainer.default_root_dir=second") == 0

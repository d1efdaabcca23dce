"""`traingen validate`, `test` and `predict` take the configuration of `fit` and only evaluate."""

from pathlib import Path

import pytest

from tests.cli import small
from tests.cli.small import Net, run

STAGES = {"validate": "validation_step", "test": "test_step", "predict": "predict_step"}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small, "fitted", [])


@pytest.fixture
def steps(monkeypatch):
    """The names of the steps that ran, in order."""
    seen = []
    for name in ("training_step", *STAGES.values()):
        original = getattr(Net, name)

        def step(self, batch, batch_idx, name=name, original=original):
            seen.append(name)
            return original(self, batch, batch_idx)

        monkeypatch.setattr(Net, name, step)
    return seen


@pytest.mark.parametrize("command", STAGES)
def test_it_evaluates_and_records_nothing(command, steps):
    assert run(command=command, record=True) == 0
    assert steps == [STAGES[command]] * small.BATCHES
    assert not Path("recording").exists()


def test_cadence_is_judged_in_training_alone(capsys):
    wrong = {"lr_scheduler_config": {"interval": "epoch"}, "cadence": {"expected": "step"}}
    assert run(command="validate", **wrong) == 0
    assert capsys.readouterr().err == ""
    assert run("--trainer.default_root_dir=fit", **wrong) == 1


@pytest.mark.parametrize("command", STAGES)
def test_it_refuses_what_fit_refuses(command, capsys):
    assert run(command=command, model=None) == 2
    assert capsys.readouterr().err.startswith(f"traingen: error: {command}: expected a model")

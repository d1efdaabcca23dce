"""`traingen fit` from arguments to exit code: what is refused, what fails, what is a crash."""

import signal
import sys
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.cli import LightningCLI

from tests.cli import small
from tests.cli.small import CONFIG, UPDATES, Net, configure, run, traingen
from traingen import CadenceGuard, StepRecorder
from traingen.callbacks.attendance import Attendance
from traingen.errors import CadenceViolation, CadenceWarning


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small, "fitted", [])


class Raising(Net):
    """Raises in training_step."""

    error: BaseException

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise self.error


class RaisingWhenMade(Net):
    def __init__(self) -> None:
        super().__init__()
        raise ValueError("made wrongly")


class OwnOptimizer(Net):
    """Has an optimizer and no scheduler."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Evicting(Net):
    """Brings callbacks of its own, which replace those of the command."""

    def configure_callbacks(self) -> list[pl.Callback]:
        return [CadenceGuard(), StepRecorder("elsewhere")]


class Violating(pl.Callback):
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        raise CadenceViolation("TG-ONE: first\n  Fix: this\nTG-TWO: second")


def model(name: str) -> dict[str, Any]:
    return {"class_path": f"{__name__}.{name}"}


@pytest.fixture
def training_raises(monkeypatch):
    """Let `Raising.training_step` raise what the test says."""
    handler = signal.getsignal(signal.SIGINT)

    def replace(error: BaseException) -> None:
        monkeypatch.setattr(Raising, "error", error, raising=False)

    yield replace
    signal.signal(signal.SIGINT, handler)  # Lightning ignores it once interrupted


@pytest.fixture
def refused(capsys):
    """Run the arguments, see that they are bad input, and return the one line that says so."""

    def check(*arguments: str, **changes: Any) -> str:
        assert run(*arguments, **changes) == 2
        error = capsys.readouterr().err
        assert error.startswith("traingen: error: ")
        assert error.index("\n") == len(error) - 1
        return error

    return check


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_help_is_lightnings_own_under_the_name_of_the_command(command, capsys):
    with pytest.raises(SystemExit) as stop:
        traingen(command, "--help")
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert text.startswith(f"usage: traingen {command} [-c CONFIG]")
    for option in ("trainer.max_epochs", "cadence.expected", "record", "lr_scheduler_config"):
        assert f"--{option} " in text


def test_a_right_training_ends_with_0_and_has_the_guard_once(capsys):
    assert run() == 0
    callbacks = small.fitted[-1].trainer.callbacks
    assert sum(isinstance(callback, CadenceGuard) for callback in callbacks) == 1
    assert sum(isinstance(callback, Attendance) for callback in callbacks) == 1
    assert small.fitted[-1].trainer.global_step == UPDATES


def test_the_arguments_do_not_compete_with_those_of_the_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pytest", "its", "own"])
    assert run() == 0  # a warning would be an error
    with pytest.warns(UserWarning, match=r"not recommended to provide both args and command line"):
        LightningCLI(Net, small.Data, run=False, args=["--trainer.accelerator=cpu"])


def test_without_a_model_it_refuses_and_says_where_to_name_one(refused):
    error = refused(model=None)
    assert "fit: expected a model, found none: give --model CLASS_PATH" in error


def test_null_is_no_model_either(refused):
    assert "expected a model, found none" in refused("--model=null")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--max_epochs=3"], "unrecognized arguments: --max_epochs=3"),
        (["stray"], "unrecognized arguments: stray"),
        (["--trainer.max_epochs=many"], "trainer.max_epochs"),
        (["--trainer.accelerator=abacus"], "accelerator='abacus'"),
        (["--trainer.strategy=nonsense"], "strategy='nonsense'"),
        (["--trainer.limit_train_batches=2.5"], "invalid value 2.5 for limit_train_batches"),
        (["--model=tests.cli.small.Missing"], "has no attribute 'Missing'"),
        (["--model=nowhere.Net"], "No module named 'nowhere'"),
        (["--model=tests.cli.small.Data"], "not correspond to a subclass of LightningModule"),
        (["--model.widht=3"], "Option 'widht' is not accepted"),
        (["--optimizer.lr=-1"], "Invalid learning rate: -1.0"),
        (["--config=missing.yaml"], "missing.yaml"),
        (["--config=torn.yaml"], "config"),
        (["--ckpt_path=missing.ckpt"], "ckpt_path 'missing.ckpt' does not exist"),
        (["--cadence.on_violation=shrug"], "cadence.on_violation"),
        (["--cadence.reference_updates=0"], "reference_updates must be 1 or more"),
        (["--cadence.expected=often"], "often"),
        (["--record.pth=a"], "Unexpected keys: {'pth'}"),
        (["--record.rng=[dice]"], "'dice'"),
        (["--record=taken"], "taken"),
        (["--lr_scheduler_config.interval=steps"], "lr_scheduler_config"),
        (["--lr_scheduler_config.frequency=0"], "lr_scheduler_config"),
        (['--lr_scheduler_config={"freq": 2}'], "Unexpected keys: {'freq'}"),
        (["--optimizer=null", "--lr_scheduler=null"], "found no optimizer and no lr_scheduler"),
        (["--optimizer=null"], "found no optimizer: give --optimizer"),
        (["--lr_scheduler=null"], "found no lr_scheduler: give --lr_scheduler"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, refused, arguments, named):
    (tmp_path / "torn.yaml").write_text("trainer: [")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "updates.rank0.jsonl").write_text("somebody's")
    assert named in refused(*arguments)


def test_what_lightning_refuses_is_bad_input(refused):
    error = refused(optimizer=None, lr_scheduler=None, lr_scheduler_config=None)
    assert "fit: No `configure_optimizers()` method defined" in error


def test_a_training_that_our_recorder_refuses_is_bad_input(refused, tmp_path):
    (tmp_path / "taken.jsonl").write_text("somebody's")
    error = refused(f"--record={tmp_path / 'taken.jsonl'}")
    assert "taken.jsonl: a recording needs a new path, and this one exists" in error


@pytest.mark.parametrize(
    "error",
    [ValueError("mine"), FileNotFoundError("mine"), MisconfigurationException("mine")],
    ids=lambda error: type(error).__name__,
)
def test_what_the_users_own_code_raises_keeps_its_traceback(training_raises, error):
    training_raises(error)
    with pytest.raises(type(error), match=r"^mine$"):
        run(model=model("Raising"))


def test_a_model_that_cannot_be_made_keeps_its_traceback():
    with pytest.raises(ValueError, match="made wrongly") as caught:
        run(model=model("RaisingWhenMade"))
    assert str(caught.value.__cause__) == "made wrongly"


def test_a_violation_is_exit_code_1_and_its_findings_are_printed_as_they_are(capsys):
    trainer = CONFIG["trainer"] | {"callbacks": [{"class_path": f"{__name__}.Violating"}]}
    assert run(trainer=trainer) == 1
    assert capsys.readouterr().err == "TG-ONE: first\n  Fix: this\nTG-TWO: second\n"


def test_a_schedule_in_updates_that_ticks_by_epoch_is_exit_code_1(capsys):
    assert run(lr_scheduler_config=None) == 1
    error = capsys.readouterr().err
    assert error.startswith("TG-SCHED-EPOCH: CosineAnnealingLR")
    assert "lr_scheduler_config: {interval: step}" in error


def test_the_guard_is_configured_as_cadence():
    with pytest.warns(CadenceWarning, match="TG-SCHED-EPOCH"):
        assert run("--cadence.on_violation=warn", lr_scheduler_config=None) == 0


def test_a_model_that_evicts_the_guard_and_the_recorder_is_reported():
    with pytest.warns(UserWarning, match="TG-CALLBACK-EVICTED") as caught:
        assert run("--record=true", model=model("Evicting")) == 0
    text = " ".join(str(warning.message) for warning in caught)
    assert "the CadenceGuard given to the trainer" in text
    assert "the StepRecorder given to the trainer" in text


def test_a_scheduler_that_lightning_drops_for_want_of_an_optimizer_is_exit_code_1(capsys):
    assert run(model=model("OwnOptimizer"), optimizer=None, lr_scheduler_config=None) == 1
    assert capsys.readouterr().err.startswith("TG-SCHED-CLI-DROPPED: ")


def test_an_interrupted_training_is_exit_code_130(training_raises, capsys):
    training_raises(KeyboardInterrupt())
    assert run(model=model("Raising")) == 130
    assert capsys.readouterr().err == "traingen: interrupted\n"


def test_the_users_own_exit_is_not_taken_for_ctrl_c(training_raises):
    training_raises(SystemExit(1))
    with pytest.raises(SystemExit) as stop:
        run(model=model("Raising"))
    assert stop.value.code == 1


def test_the_whole_configuration_can_be_given_as_arguments(tmp_path):
    arguments = ["--model=tests.cli.small.OwnOptimizers", "--data=tests.cli.small.Data"]
    arguments += [f"--trainer.{key}={value}" for key, value in configure()["trainer"].items()]
    assert traingen("fit", "--seed_everything=3", *arguments) == 0
    assert small.fitted[-1].interval == "step"

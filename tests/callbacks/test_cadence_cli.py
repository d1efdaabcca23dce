"""Public reports about LightningCLI, and what our callbacks say in a command line that is not ours.

Each with a sibling and a healthy neighbour that must stay silent.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import yaml
from lightning.pytorch.cli import LightningCLI, LRSchedulerCallable
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from tests.callbacks.guarded import RATE, loader
from traingen import CadenceGuard, StepRecorder
from traingen.callbacks.lightning_run import is_from_command_line
from traingen.errors import CadenceViolation
from traingen.records import read_recording

SGD = ("--optimizer=SGD", f"--optimizer.lr={RATE}")
WARNING_GUARD = (
    "--trainer.callbacks+=traingen.CadenceGuard",
    "--trainer.callbacks.on_violation=warn",
)


class Plain(pl.LightningModule):
    """Somebody's module without configure_optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch[0]).square().mean()

    def train_dataloader(self) -> Any:
        return loader(5)


class Own(Plain):
    """The same with an optimizer and a schedule of its own."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
        scheduler = CosineAnnealingLR(optimizer, 10)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class Takes(Plain):
    """The same with a schedule that it is given."""

    def __init__(self, scheduler: LRSchedulerCallable = lambda o: CosineAnnealingLR(o, 10)) -> None:
        super().__init__()
        self.scheduler = scheduler

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
        return [optimizer], [{"scheduler": self.scheduler(optimizer), "interval": "step"}]


class LateLayer(Plain):
    """Makes a layer in configure_model, after the command line has made the optimizer."""

    def configure_model(self) -> None:
        if not hasattr(self, "late"):
            self.late = nn.Linear(3, 1)


class EvictsRecorder(Own):
    def configure_callbacks(self) -> Any:
        return [StepRecorder("elsewhere")]


class EvictsGuard(Own):
    def configure_callbacks(self) -> Any:
        return [CadenceGuard(expected="step")]


class Same(Own):
    """Returns a callback, of another class than ours."""

    def configure_callbacks(self) -> Any:
        return [pl.callbacks.EarlyStopping("loss", strict=False)]


@pytest.fixture(autouse=True)
def _in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])


class Done:
    """A command that ran: its trainer, our guard in it, and every warning."""

    def __init__(self, model: type[pl.LightningModule], *arguments: str, cli: Any = LightningCLI):
        options = {"accelerator": "cpu", "max_epochs": 2, "logger": False}
        options |= {"enable_checkpointing": False, "enable_progress_bar": False}
        options |= {"enable_model_summary": False}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.cli = cli(model, args=["fit", *arguments], trainer_defaults=options)
        self.messages = [str(one.message) for one in caught]
        guards = [one for one in self.cli.trainer.callbacks if isinstance(one, CadenceGuard)]
        self.ids = [finding.id for guard in guards for finding in guard.findings]
        self.errors = [
            finding for guard in guards for finding in guard.findings if finding.severity == "error"
        ]


# ---- Lightning#15340: the command line's scheduler ticks once per epoch --------------------------


@pytest.mark.parametrize(
    "scheduler",
    [
        ("--lr_scheduler=CosineAnnealingLR", "--lr_scheduler.T_max=10"),
        ("--lr_scheduler=OneCycleLR", "--lr_scheduler.max_lr=1", "--lr_scheduler.total_steps=10"),
    ],
)
def test_the_command_line_s_scheduler_by_epoch_is_an_error(scheduler):
    done = Done(Plain, *SGD, *scheduler, *WARNING_GUARD)
    (error,) = done.errors
    assert error.id == "TG-SCHED-EPOCH"
    assert "(2 of 10 expected ticks)" in error.measured
    assert error.fix.startswith("Override configure_optimizers of your LightningCLI")


def test_it_stops_before_the_first_update_by_default():
    arguments = ("--lr_scheduler=CosineAnnealingLR", "--lr_scheduler.T_max=10", WARNING_GUARD[0])
    with pytest.raises(CadenceViolation, match="TG-SCHED-EPOCH"):
        Done(Plain, *SGD, *arguments)


class ByStep(LightningCLI):
    """The way out that the finding names."""

    @staticmethod
    def configure_optimizers(
        lightning_module: Any, optimizer: Any, lr_scheduler: Any = None
    ) -> Any:
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": lr_scheduler, "interval": "step"},
        }


def test_the_way_out_that_it_names_is_one():
    scheduler = ("--lr_scheduler=CosineAnnealingLR", "--lr_scheduler.T_max=10")
    done = Done(Plain, *SGD, *scheduler, *WARNING_GUARD, cli=ByStep)
    assert done.ids == []


# ---- Lightning#17547, #17800: a scheduler without an optimizer does nothing ----------------------


@pytest.mark.parametrize(
    "scheduler",
    [
        ("--lr_scheduler=CosineAnnealingLR", "--lr_scheduler.T_max=10"),
        ("--lr_scheduler=StepLR", "--lr_scheduler.step_size=4"),
    ],
)
def test_a_scheduler_that_the_command_line_drops_is_an_error(scheduler):
    done = Done(Own, *scheduler, *WARNING_GUARD)
    assert [error.id for error in done.errors] == ["TG-SCHED-CLI-DROPPED"]
    assert scheduler[0].rpartition("=")[2] in done.errors[0].measured


def test_a_scheduler_that_goes_to_the_model_is_not_dropped():
    class Given(Own):
        def __init__(self, scheduler: dict[str, Any]) -> None:
            super().__init__()
            self.given = scheduler

    class HandsOver(LightningCLI):
        def add_arguments_to_parser(self, parser: Any) -> None:
            parser.add_lr_scheduler_args((CosineAnnealingLR,), link_to="model.scheduler")

    scheduler = ("--lr_scheduler=CosineAnnealingLR", "--lr_scheduler.T_max=10")
    done = Done(Given, *scheduler, *WARNING_GUARD, cli=HandsOver)
    assert "CosineAnnealingLR" in str(done.cli.model.given)
    assert done.ids == []


# ---- Lightning#9856: configure_optimizers is overridden ------------------------------------------


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_the_model_s_optimizers_overridden_by_the_command_line_are_warned_of(optimizer):
    done = Done(Own, f"--optimizer={optimizer}", f"--optimizer.lr={RATE}", *WARNING_GUARD)
    assert done.ids == ["TG-SCHED-CLI-OVERRIDDEN"]
    assert any("Own.configure_optimizers is not called" in message for message in done.messages)


@pytest.mark.parametrize(("model", "arguments"), [(Own, ()), (Plain, SGD)])
def test_one_source_of_optimizers_is_silent(model, arguments):
    assert Done(model, *arguments, *WARNING_GUARD).ids == []


def test_two_guards_on_the_command_line_find_what_one_does():
    scheduler = ("--lr_scheduler=CosineAnnealingLR", "--lr_scheduler.T_max=2")
    assert Done(Plain, *SGD, *scheduler, *WARNING_GUARD, *WARNING_GUARD).ids == []


@pytest.mark.parametrize(("model", "arguments", "known"), [(Plain, SGD, True), (Own, (), False)])
def test_the_command_line_s_optimizers_are_known_through_somebody_s_wrapper(
    model, arguments, known
):
    module = Done(model, *arguments).cli.model
    original = module.configure_optimizers
    module.configure_optimizers = functools.wraps(original)(lambda: original())
    assert is_from_command_line(module) is known


def test_a_schedule_injected_into_the_model_is_silent():
    scheduler = ("--model.scheduler=CosineAnnealingLR", "--model.scheduler.T_max=10")
    assert Done(Takes, *scheduler, *WARNING_GUARD).ids == []


def test_a_layer_made_after_the_command_line_s_optimizer_is_named():
    done = Done(LateLayer, *SGD, *WARNING_GUARD)
    assert done.ids == ["TG-OPT-PARAMETERS-LEFT"]
    assert any("late.weight, late.bias" in message for message in done.messages)


# ---- Lightning#15256, jsonargparse#256, Lightning#7540: arguments and saved configs --------------


def test_our_callbacks_and_all_their_arguments_are_in_the_saved_config():
    done = Done(
        Own,
        "--trainer.callbacks+=traingen.CadenceGuard",
        "--trainer.callbacks.expected=step",
        "--trainer.callbacks+=traingen.StepRecorder",
        "--trainer.callbacks.path=recorded",
        "--trainer.logger=CSVLogger",
        "--trainer.logger.save_dir=logs",
    )
    saved = yaml.safe_load(Path(done.cli.trainer.log_dir, "config.yaml").read_text())
    guard, recorder = saved["trainer"]["callbacks"]
    assert guard == {
        "class_path": "traingen.CadenceGuard",
        "init_args": {"expected": "step", "on_violation": "raise", "reference_updates": 300},
    }
    assert recorder["init_args"]["path"] == "recorded"
    assert done.ids == []


def test_an_expectation_by_scheduler_can_be_typed():
    done = Done(
        Own,
        WARNING_GUARD[0],
        "--trainer.callbacks.expected={CosineAnnealingLR: epoch}",
        WARNING_GUARD[1],
    )
    assert done.ids == ["TG-SCHED-STEP"]


# ---- Lightning#18784: a callback of the model evicts one of ours ---------------------------------

GUARD = ("--trainer.callbacks+=traingen.CadenceGuard",)
RECORDER = ("--trainer.callbacks+=traingen.StepRecorder", "--trainer.callbacks.path=mine")


@pytest.mark.parametrize(
    ("model", "arguments", "name"),
    [
        (EvictsRecorder, RECORDER, "StepRecorder"),
        (EvictsRecorder, GUARD + RECORDER, "StepRecorder"),
        (EvictsGuard, GUARD, "CadenceGuard"),
    ],
)
def test_an_evicted_callback_is_noticed_once(model, arguments, name):
    done = Done(model, *arguments)
    (message,) = [one for one in done.messages if "TG-CALLBACK-EVICTED" in one]
    assert f"the traingen.{name} of the configuration takes no part" in message
    assert f"{model.__name__}.configure_callbacks" in message


@pytest.mark.parametrize(("model", "arguments"), [(Own, GUARD + RECORDER), (Same, GUARD)])
def test_callbacks_that_stay_are_not_missed(model, arguments):
    done = Done(model, *arguments)
    assert [one for one in done.messages if "TG-CALLBACK-EVICTED" in one] == []


# ---- Lightning's two callbacks of one class ------------------------------------------------------


def test_two_recorders_are_two_recordings():
    second = ("--trainer.callbacks+=traingen.StepRecorder", "--trainer.callbacks.path=yours")
    Done(Own, *RECORDER, *second)
    mine, yours = read_recording("mine"), read_recording("yours")
    assert len(mine.updates) == len(yours.updates) == 10


# ---- python-chebai#12: unseeded is seed 0 --------------------------------------------------------


def test_the_seed_that_lightning_chose_is_recorded():
    Done(Own, *RECORDER)
    run = read_recording("mine").run
    assert (run.seed, run.seed_source) == (0, "PL_GLOBAL_SEED")

"""`record` and `lr_scheduler_config`: what a configuration may say, and what comes of it."""

import copy
import inspect
from pathlib import Path

import pytest

from tests.cli import small
from tests.cli.small import UPDATES, run
from traingen import StepRecorder
from traingen.cli.fit_options import RECORDER_ARGUMENTS
from traingen.cli.fit_run import TraingenCLI
from traingen.errors import CadenceWarning
from traingen.records import read_recording

STEP = {"class_path": "torch.optim.lr_scheduler.StepLR", "init_args": {"step_size": 1}}
PLATEAU = {
    "class_path": "lightning.pytorch.cli.ReduceLROnPlateau",
    "init_args": {"monitor": "val_loss", "patience": 1},
}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small, "fitted", [])


def recordings() -> list[str]:
    """Every recording below the current folder."""
    return sorted(str(path.parent) for path in Path().rglob("updates.rank0.jsonl"))


def scheduler_config():
    """How the last training's only scheduler ticked."""
    (config,) = small.fitted[-1].trainer.lr_scheduler_configs
    return config


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, []),
        (True, ["recording"]),
        ("runs/a", ["runs/a"]),
        ({"overwrite": True}, ["recording"]),
    ],
    ids=str,
)
def test_record_says_whether_and_where(record, expected):
    assert run(record=record) == 0
    assert recordings() == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--record=true"], ["recording"]),
        (['--record={"path": "runs/a"}'], ["runs/a"]),
        (["--record.path=runs/a", "--record.overwrite=true"], ["runs/a"]),
        (["--record=null"], []),
    ],
    ids=lambda value: " ".join(value),
)
def test_record_says_the_same_as_an_argument(arguments, expected):
    assert run(*arguments) == 0
    assert recordings() == expected


def test_every_argument_of_the_recorder_reaches_it():
    assert run(record={"path": "a", "rng": ["torch", "numpy"], "digest_batches": False}) == 0
    recording = read_recording(Path("a"))
    assert len(recording.updates) == UPDATES
    assert list(recording.updates[0].rng) == ["torch", "numpy"]
    assert "batch" not in recording.run.observes
    assert list(RECORDER_ARGUMENTS) == list(inspect.signature(StepRecorder).parameters)


@pytest.mark.parametrize("record", ['{"pth": "a"}', "{path: a", "[a]"])
def test_a_mapping_that_does_not_fit_is_no_file_name(record, capsys):
    assert run(f"--record={record}") == 2
    assert 'Parser key "record"' in capsys.readouterr().err
    assert recordings() == []


def test_an_existing_recording_is_moved_aside_if_that_is_asked_for():
    assert run("--record=a", "--trainer.default_root_dir=first") == 0
    assert run("--record=a", "--trainer.default_root_dir=second") == 2
    assert run("--record.path=a", "--record.overwrite=true",
               "--trainer.default_root_dir=third") == 0  # fmt: skip


def test_lr_scheduler_config_is_what_lightning_reads_beside_the_scheduler():
    said = {"interval": "step", "frequency": 5, "name": "rate"}
    with pytest.warns(CadenceWarning, match="TG-SCHED-FREQUENCY-BATCHES"):
        run(lr_scheduler_config=said, lr_scheduler=STEP)
    config = scheduler_config()
    assert (config.interval, config.frequency, config.name) == ("step", 5, "rate")
    assert config.scheduler.last_epoch == UPDATES // 5


def test_without_it_lightnings_default_holds():
    code = run("--cadence.expected=epoch", lr_scheduler_config=None, lr_scheduler=STEP)
    assert code == 0
    assert scheduler_config().interval == "epoch"
    assert scheduler_config().scheduler.last_epoch == small.EPOCHS


def test_without_optimizer_and_scheduler_it_may_be_empty():
    own = {"class_path": "tests.cli.small.OwnOptimizers"}
    assert run(model=own, optimizer=None, lr_scheduler=None, lr_scheduler_config={}) == 0


@pytest.mark.parametrize(
    ("said", "monitor", "strict"),
    [
        ({}, "val_loss", True),
        ({"strict": False}, "val_loss", False),
        ({"monitor": "val_again"}, "val_again", True),
    ],
    ids=str,
)
def test_a_plateau_scheduler_keeps_its_monitor_unless_another_is_given(said, monitor, strict):
    assert run(lr_scheduler=PLATEAU, lr_scheduler_config=said) == 0
    config = scheduler_config()
    assert (config.monitor, config.strict) == (monitor, strict)
    assert config.reduce_on_plateau


def test_a_copy_of_the_model_does_not_copy_the_command_line(monkeypatch):
    def refuse(self, memo):
        raise AssertionError("the command line was copied")

    monkeypatch.setattr(TraingenCLI, "__deepcopy__", refuse, raising=False)
    assert run() == 0
    model = small.fitted[-1]
    model.trainer = None
    twin = copy.deepcopy(model)
    assert twin.configure_optimizers()["lr_scheduler"]["interval"] == "step"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--lr_scheduler=SequentialLR", "--lr_scheduler.milestones=[3]"), "schedulers"),
        (("--lr_scheduler.interval=step",), "Option 'interval' is not accepted"),
    ],
)
def test_a_scheduler_the_command_line_cannot_build_is_refused_with_the_way_out(
    arguments, told, capsys
):
    assert run(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line
    assert "LRSchedulerCallable" in line
    assert "lr_scheduler_config" in line


@pytest.mark.filterwarnings("ignore:No seed found, seed set to 0")
@pytest.mark.parametrize(
    ("seed", "source"), [(None, "seed_everything, by default"), (0, "seed_everything")]
)
def test_whether_the_seed_was_asked_for_is_recorded(seed, source):
    assert run(seed_everything=seed, record="watched") == 0
    recorded = read_recording("watched").run
    assert (recorded.seed, recorded.seed_source) == (0, source)


@pytest.mark.parametrize("cadence", [True, False, "step"])
def test_cadence_that_is_no_mapping_is_refused_with_the_way_out(cadence, capsys):
    assert run(cadence=cadence) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("traingen: error: fit:")
    assert "cadence" in line

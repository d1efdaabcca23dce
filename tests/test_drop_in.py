"""TRAINGEN adds guests to every Trainer of an installation, and never anything but a warning."""

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import pytest

from tests import first_law, installed, third_party
from tests.callbacks.small import BATCHES, Small, fit, make_loader, make_trainer
from tests.third_party import TRAIN_YAML, UPDATES, call_script, run_script, write_script
from traingen import CadenceGuard, StepRecorder, drop_in
from traingen.callbacks.guest import Guest
from traingen.drop_in import fresh_folder, make_callbacks
from traingen.errors import CadenceViolation
from traingen.records import Recording, read_recording

ROOT = Path(__file__).parents[1]
GUARD = "traingen.callbacks.cadence_guard.CadenceGuard"
RECORDER = "traingen.callbacks.step_recorder.StepRecorder"

INERT = """
import json, os, sys
from traingen.drop_in import make_callbacks
for value in (None, "", "  "):
    os.environ.pop("TRAINGEN", None)
    if value is not None:
        os.environ["TRAINGEN"] = value
    assert make_callbacks() == []
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """What must be on the path for Lightning to find the entry points."""
    if installed.are_visible():
        return ()
    return (installed.make_distribution(tmp_path_factory.mktemp("installed")),)


@pytest.fixture
def traingen_is(
    site: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], None]:
    """Set TRAINGEN, in a process that has the entry points and works in `tmp_path`."""
    for path in site:
        monkeypatch.syspath_prepend(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drop_in, "_warned", set())
    monkeypatch.setattr(drop_in, "_folders", set())
    return lambda value: monkeypatch.setenv("TRAINGEN", value)


def inner_callbacks(callbacks: list[Any]) -> list[Any]:
    return [one.inner for one in callbacks if isinstance(one, Guest)]


def recordings(folder: Path) -> list[Recording]:
    """Every recording below `recordings/`, the oldest first."""
    return [read_recording(path) for path in sorted((folder / "recordings").iterdir())]


# Only if asked ------------------------------------------------------------------------------


def test_both_names_of_lightning_are_given_the_same_factory(traingen_is):
    for group in ("lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory"):
        factories = [point.load() for point in metadata.entry_points(group=group)]
        assert factories == [make_callbacks]


def test_unset_or_empty_nothing_is_added_and_nothing_imported():
    done = subprocess.run([sys.executable, "-c", INERT], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert not {"torch", "lightning", "numpy", "yaml", "jsonargparse", "msgspec"} & set(loaded)
    ours = [name for name in loaded if name.partition(".")[0] == "traingen"]
    assert ours == ["traingen", "traingen.drop_in"]


def test_a_trainer_has_no_guest_unless_asked(traingen_is):
    assert inner_callbacks(make_trainer([]).callbacks) == []
    traingen_is("guard")
    assert len(inner_callbacks(make_trainer([]).callbacks)) == 1


# What is asked for --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "classes"),
    [
        ("guard", [CadenceGuard]),
        ("record", [StepRecorder]),
        ("record,guard", [StepRecorder, CadenceGuard]),
        (" guard , record, ", [StepRecorder, CadenceGuard]),
        ("record,record", [StepRecorder]),
    ],
)
def test_words_name_the_callbacks(traingen_is, value, classes):
    traingen_is(value)
    assert [type(one) for one in inner_callbacks(make_callbacks())] == classes


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("cadence: true", [CadenceGuard]),
        ("cadence: {}", [CadenceGuard]),
        ("record: true\ncadence: true", [StepRecorder, CadenceGuard]),
        ("record: false\ncadence: true", [CadenceGuard]),
        ("record: runs/a", [StepRecorder]),
        ("record: {rng: [torch, numpy], mirror: true}", [StepRecorder]),
        ("record: false", []),
        ("record: null", []),
    ],
)
def test_a_file_names_the_callbacks(traingen_is, tmp_path, text, classes):
    (tmp_path / "watch.yaml").write_text(text)
    traingen_is("watch.yaml")
    assert [type(one) for one in inner_callbacks(make_callbacks())] == classes


class Remembers(CadenceGuard):
    """Keeps what it was made with."""

    def __init__(
        self,
        expected: str | dict[str, str] = "auto",
        on_violation: Literal["raise", "warn"] = "raise",
        reference_updates: int = 300,
    ) -> None:
        self.arguments = (expected, on_violation, reference_updates)


def test_a_file_gives_the_guard_its_arguments(traingen_is, tmp_path, monkeypatch):
    monkeypatch.setattr("traingen.callbacks.cadence_guard.CadenceGuard", Remembers)
    (tmp_path / "watch.yaml").write_text(
        "cadence: {expected: {LambdaLR: step}, on_violation: warn, reference_updates: 20}"
    )
    traingen_is(str(tmp_path / "watch.yaml"))
    (guard,) = inner_callbacks(make_callbacks())
    assert guard.arguments == ({"LambdaLR": "step"}, "warn", 20)


@pytest.mark.parametrize("record", ["runs/a", "{path: runs/a, rng: []}"])
def test_a_file_says_where_to_record(traingen_is, tmp_path, record):
    (tmp_path / "watch.yaml").write_text(f"record: {record}")
    traingen_is("watch.yaml")
    fit([], max_epochs=1)
    assert len(read_recording(tmp_path / "runs" / "a").updates) == BATCHES
    assert not (tmp_path / "recordings").exists()


def test_training_under_traingen_ends_in_the_same_bits(traingen_is, tmp_path):
    without = first_law.trained_without()
    traingen_is("record,guard")
    first_law.assert_same_training(without, first_law.train([]))
    (recording,) = recordings(tmp_path)
    assert len(recording.updates) == first_law.UPDATES
    assert recording.run.callbacks == [RECORDER, GUARD]


# Where it is recorded -----------------------------------------------------------------------


def test_every_trainer_of_a_process_has_a_folder_of_its_own_and_says_it(
    traingen_is, tmp_path, caplog
):
    traingen_is("record")
    trainers = [make_trainer([], max_epochs=1) for _ in range(3)]
    assert not (tmp_path / "recordings").exists()  # nothing before something is trained
    for trainer in trainers:
        trainer.fit(Small(), make_loader())
    assert [len(recording.updates) for recording in recordings(tmp_path)] == [BATCHES] * 3
    for recording in recordings(tmp_path):
        assert f"records this Trainer's updates in {recording.path.parent}\n" in caplog.text


def test_a_second_fit_goes_on_in_the_recording_of_the_first(traingen_is, tmp_path):
    traingen_is("record")
    trainer = fit([], max_epochs=1)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Small(), make_loader())
    (folder,) = (tmp_path / "recordings").iterdir()
    recording = read_recording(folder)
    assert [u.epoch for u in recording.updates] == [0] * BATCHES + [1] * BATCHES
    assert [event.event for event in recording.events] == ["segment"]


def test_a_folder_is_named_by_time_and_process_and_never_given_twice(traingen_is, tmp_path):
    now = datetime(2026, 7, 28, 10, 15)
    given = [fresh_folder(now, pid=4711), fresh_folder(now, pid=4711), fresh_folder(now, pid=12)]
    assert given == [
        tmp_path / "recordings" / name
        for name in ("20260728-101500-4711", "20260728-101500-4711-2", "20260728-101500-12")
    ]
    (tmp_path / "recordings" / "20260728-101501-12").mkdir(parents=True)
    later = fresh_folder(datetime(2026, 7, 28, 10, 15, 1), pid=12)
    assert later.name == "20260728-101501-12-2"


def test_the_folder_stays_where_the_trainer_was_made(traingen_is, tmp_path, monkeypatch):
    traingen_is("record")
    trainer = make_trainer([], max_epochs=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    trainer.fit(Small(), make_loader())
    assert len(recordings(tmp_path)) == 1


# Bad values ---------------------------------------------------------------------------------

FILES = {
    "list.yaml": "[record]",
    "empty.yaml": "",
    "broken.yaml": "record: [",
    "binary.yaml": "\xff\xfe",
    "unknown.yaml": "cadance: {expected: step}",
    "argument.yaml": "cadence: {expect: step}",
    "type.yaml": "cadence: {reference_updates: many}",
    "choice.yaml": "cadence: {on_violation: stop}",
    "null.yaml": "cadence:",
    "number.yaml": "record: 3",
    "nowhere.yaml": "record: ''",
    "rng.yaml": "record: {rng: [cuda]}",
    "half.yaml": "record: true\ncadence: {on_violation: stop}",
}
BAD = [
    ("gaurd", ["expected record, guard or the path of a YAML file", "'gaurd'"]),
    ("record,gaurd", ["'gaurd'"]),
    ("1", ["'1'"]),
    ("Record", ["'Record'"]),
    (",", ["found neither: ','"]),
    ("missing.yaml", ["found neither: 'missing.yaml'"]),
    (".", ["found neither: '.'"]),
    ("x" * 5000, ["too long"]),
    ("list.yaml", ["the keys record and cadence", "['record']"]),
    ("empty.yaml", ["the keys record and cadence", "found None"]),
    ("broken.yaml", ["cannot be read", "line 1"]),
    ("binary.yaml", ["cannot be read"]),
    ("unknown.yaml", ["the keys record and cadence", "'cadance'"]),
    ("argument.yaml", ["cadence: ", "'expect'"]),
    ("type.yaml", ["cadence: ", "reference_updates", "int", "many"]),
    ("choice.yaml", ["cadence: ", "on_violation", "'raise', 'warn'", "stop"]),
    ("null.yaml", ["cadence: expected true or a mapping", "None"]),
    ("number.yaml", ["record: expected true or a mapping", "3"]),
    ("nowhere.yaml", ["record: expected true or a mapping", "''"]),
    ("rng.yaml", ["StepRecorder(rng=…)", "'cuda'"]),
    ("half.yaml", ["cadence: "]),
]


@pytest.mark.parametrize(("value", "parts"), BAD, ids=[value[:12] for value, _ in BAD])
def test_a_bad_value_is_one_warning_and_adds_nothing(traingen_is, tmp_path, value, parts):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    traingen_is(value)
    with pytest.warns(UserWarning, match="TRAINGEN=") as said:
        assert make_callbacks() == []
    (warning,) = said
    message = str(warning.message)
    assert message.startswith(f"TRAINGEN={value}: ")
    assert message.endswith("Nothing is recorded or guarded; the training goes on.")
    assert [part for part in parts if part not in message] == []
    assert make_callbacks() == []  # the second Trainer is silent: a warning is an error here


def test_with_a_bad_value_the_training_goes_on(traingen_is, tmp_path):
    traingen_is("gaurd")
    with pytest.warns(UserWarning, match="TRAINGEN=gaurd"):
        trainer = fit([], max_epochs=1)
    assert trainer.global_step == BATCHES
    assert list(tmp_path.iterdir()) == []


def test_whatever_goes_wrong_no_trainer_is_harmed(traingen_is, monkeypatch):
    monkeypatch.setitem(sys.modules, "traingen.callbacks.guest", None)  # an import that fails
    traingen_is("guard")
    with pytest.warns(UserWarning, match="TRAINGEN=guard: .*traingen.callbacks.guest"):
        assert make_callbacks() == []


def test_where_warnings_are_errors_a_bad_value_is_logged(traingen_is, caplog):
    traingen_is("gaurd")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_callbacks() == []
    assert "TRAINGEN=gaurd" in caplog.text


# A training that somebody else wrote --------------------------------------------------------

OWN = """\
    - class_path: traingen.CadenceGuard
    - class_path: traingen.StepRecorder
      init_args:
        path: own
"""


def test_yaml_and_environment_make_one_recording_and_one_guard(traingen_is, tmp_path):
    write_script(tmp_path, train=TRAIN_YAML + OWN)
    traingen_is("record,guard")
    cli = call_script(tmp_path, "fit", "--config=train.yaml")
    assert len(read_recording(tmp_path / "own").updates) == UPDATES
    assert not (tmp_path / "recordings").exists()
    guests = [one for one in cli.trainer.callbacks if isinstance(one, Guest)]
    assert [guest._away for guest in guests] == [True, True]


def test_the_environment_adds_to_a_command_line_training(traingen_is, tmp_path):
    write_script(tmp_path)
    traingen_is("record,guard")
    call_script(tmp_path, "fit", "--config=train.yaml")
    (recording,) = recordings(tmp_path)
    assert len(recording.updates) == UPDATES
    assert {third_party.GIVEN, GUARD, RECORDER} <= set(recording.run.callbacks)
    saved = (tmp_path / "root" / "config.yaml").read_text()
    assert "traingen" not in saved  # it is no part of the configuration


TWICE = """
import os
import pytorch_lightning

def weights():
    torch.manual_seed(1)
    net, trainer = Net(), Trainer(accelerator="cpu", devices=1, max_epochs=1)
    trainer.fit(net, data, data)
    return trainer, [p.detach().numpy().tobytes() for p in net.parameters()]

watched = weights()
os.environ["TRAINGEN"] = ""
alone = weights()
names = [type(one).__name__ for one in watched[0].callbacks]
print("guests", names.count("Guest"), "same", watched[1] == alone[1])
"""


def test_a_script_with_the_other_name_of_lightning_is_recorded_and_guarded(site, tmp_path):
    """Progress bar, logger, validation and checkpoints of `pytorch_lightning` are in it."""
    script = third_party.TRAINER_SCRIPT.format(package="pytorch_lightning", interval="step")
    write_script(tmp_path, script=f"{script}{indented(TWICE)}")
    done = run_script(tmp_path, environment={"TRAINGEN": "record,guard"}, path=site)
    assert done.returncode == 0, done.stderr
    assert "trained 10" in done.stdout and "Epoch 0: 100%" in done.stdout + done.stderr
    assert "guests 2 same True" in done.stdout
    assert [len(one.updates) for one in recordings(tmp_path)] == [UPDATES, UPDATES]
    assert len(list(tmp_path.rglob("*.ckpt"))) == 3


def indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


@pytest.mark.slow
def test_a_plain_trainer_script_is_recorded_and_guarded(site, tmp_path):
    script = third_party.TRAINER_SCRIPT.format(package="lightning.pytorch", interval="step")
    write_script(tmp_path, script=script)
    done = run_script(tmp_path, environment={"TRAINGEN": "record,guard"}, path=site)
    assert done.returncode == 0, done.stderr
    assert "trained 10" in done.stdout
    (recording,) = recordings(tmp_path)
    assert len(recording.updates) == UPDATES
    assert f"records this Trainer's updates in {recording.path.parent}" in done.stderr


@pytest.mark.slow
def test_a_bad_value_in_a_script_is_said_on_stderr(site, tmp_path):
    write_script(tmp_path)
    done = run_script(
        tmp_path, "fit", "--config=train.yaml", environment={"TRAINGEN": "gaurd"}, path=site
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("TRAINGEN=gaurd: expected record, guard or the path") == 1


# The real guard: these depend on what CadenceGuard finds -------------------------------------


@pytest.mark.filterwarnings("ignore:A `OneCycleLR` scheduler is using:RuntimeWarning")
def test_one_cycle_ticked_by_epoch_is_stopped(traingen_is, tmp_path):
    write_script(tmp_path)
    traingen_is("record,guard")
    with pytest.raises(CadenceViolation, match="TG-SCHED-EPOCH"):
        call_script(tmp_path, "fit", "--config=train.yaml", "--model.interval=default")
    (recording,) = recordings(tmp_path)
    assert recording.end.reason == "exception" and "TG-SCHED-EPOCH" in recording.end.message


@pytest.mark.filterwarnings("ignore:A `OneCycleLR` scheduler is using:RuntimeWarning")
def test_a_guard_that_warns_lets_it_train(traingen_is, tmp_path):
    write_script(tmp_path)
    (tmp_path / "watch.yaml").write_text("cadence: {on_violation: warn}")
    traingen_is("watch.yaml")
    with pytest.warns(UserWarning, match="TG-SCHED-EPOCH"):
        cli = call_script(tmp_path, "fit", "--config=train.yaml", "--model.interval=default")
    assert cli.trainer.global_step == UPDATES


@pytest.mark.slow
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_one_cycle_ticked_by_epoch_ends_a_script_with_an_error(site, tmp_path, package):
    script = third_party.TRAINER_SCRIPT.format(package=package, interval="epoch")
    write_script(tmp_path, script=script)
    done = run_script(tmp_path, environment={"TRAINGEN": "guard"}, path=site)
    assert done.returncode == 1
    assert "CadenceViolation" in done.stderr and "TG-SCHED-EPOCH" in done.stderr
    assert "trained" not in done.stdout


# The how-to pages -----------------------------------------------------------------------------


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_every_value_and_file_of_the_how_to_page_is_taken(traingen_is, tmp_path):
    (text,) = blocks("add-by-environment.md", "yaml")
    (tmp_path / "watch.yaml").write_text(text)
    values = re.findall(r"TRAINGEN=(\S+)", "".join(blocks("add-by-environment.md", "console")))
    assert values == ["guard", "record", "record,guard", "watch.yaml"]
    for value, guests in zip(values, (1, 1, 2, 2), strict=True):
        traingen_is(value)
        assert len(make_callbacks()) == guests  # and says nothing: a warning is an error here


def test_the_script_of_the_how_to_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("add-in-a-script.md", "python")
    exec(code, {"model": Small(), "data": make_loader()})
    assert capsys.readouterr().out.splitlines()[-1] == "pass"
    assert len(read_recording(tmp_path / "runs" / "first").updates) == 2 * BATCHES
    assert "traingen/loss" in (tmp_path / "logs/lightning_logs/version_0/metrics.csv").read_text()

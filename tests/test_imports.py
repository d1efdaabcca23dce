"""What stays light when imported or asked for help, each seen in a fresh interpreter."""

import json
import subprocess
import sys

import pytest

from tests.reading.recordings import make_training, write_recording

FRAMEWORKS = {"torch", "lightning", "pytorch_lightning", "torchmetrics"}
REPORT = (
    "import json, sys; print(); print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))"
)
COMMAND = """
import runpy, sys
sys.argv = ["traingen", *{arguments!r}]
try:
    runpy.run_module("traingen", run_name="__main__")
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
"""


def modules_loaded_by(code: str) -> set[str]:
    """The top-level modules loaded in a fresh interpreter after `code`."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", ["traingen", "traingen.records"])
def test_values_load_neither_frameworks_nor_numpy(module):
    loaded = modules_loaded_by(f"import {module}")
    assert not loaded & {*FRAMEWORKS, "numpy"}


def test_comparing_recordings_loads_no_framework():
    loaded = modules_loaded_by("import traingen.compare")
    assert not loaded & FRAMEWORKS


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["lockstep", "--help"], ["findings"]], ids=" ".join
)
def test_help_loads_no_framework(arguments):
    loaded = modules_loaded_by(COMMAND.format(arguments=arguments))
    assert not loaded & FRAMEWORKS


@pytest.mark.parametrize(
    "arguments",
    [["show", "RUN"], ["show", "RUN", "--update", "2"], ["tail", "RUN", "--once"],
     ["compare", "RUN", "RUN"]],
    ids=" ".join,
)  # fmt: skip
def test_commands_on_recordings_load_neither_frameworks_nor_numpy(tmp_path, arguments):
    path = write_recording(tmp_path / "run", make_training(3))
    given = [str(path) if argument == "RUN" else argument for argument in arguments]
    loaded = modules_loaded_by(COMMAND.format(arguments=given))
    assert not loaded & {*FRAMEWORKS, "numpy"}


def test_a_recording_in_columns_needs_numpy_and_no_framework(tmp_path):
    path = write_recording(tmp_path / "run", make_training(3))
    assert "numpy" not in modules_loaded_by("import traingen; traingen.load")
    loaded = modules_loaded_by(f"import traingen; traingen.load({str(path)!r})")
    assert loaded & {*FRAMEWORKS, "numpy"} == {"numpy"}


def test_the_fit_family_loads_no_framework_before_it_runs():
    loaded = modules_loaded_by("import traingen.cli.fit; traingen.cli.fit.run_arguments")
    assert not loaded & {*FRAMEWORKS, "jsonargparse"}


def test_a_framework_that_is_loaded_is_seen():
    loaded = modules_loaded_by("import torch")
    assert "torch" in loaded


def test_step_recorder_is_loaded_on_first_use():
    loaded = modules_loaded_by("import traingen; traingen.StepRecorder")
    assert {"torch", "lightning"} <= loaded

"""`traingen fit` as a process of its own: a real Ctrl-C, and what reaches the terminal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.small import configure
from traingen.records import read_recording

ROOT = Path(__file__).parents[2]
MODULE = """
import time

from tests.cli.small import Net


class Slow(Net):
    def training_step(self, batch, batch_idx):
        time.sleep(0.05)
        return super().training_step(batch, batch_idx)
"""
# A process that was started in the background ignores SIGINT, and its children inherit that.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from traingen.cli.main import main
sys.exit(main())
"""


@pytest.fixture
def start(tmp_path):
    """Start `traingen` in a folder where the user's own module lies; ended with the test."""
    (tmp_path / "own.py").write_text(MODULE)
    processes = []

    def popen(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield popen
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(path: Path, *, lines: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= lines):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_ends_with_130_and_a_whole_recording(tmp_path, start):
    config = configure(model={"class_path": "own.Slow"}, lr_scheduler_config=None,
                       lr_scheduler=None, record="run")  # fmt: skip
    config["trainer"]["max_epochs"] = 1000
    (tmp_path / "fit.yaml").write_text(yaml.safe_dump(config))

    process = start("fit", "--config=fit.yaml")
    wait_for(tmp_path / "run" / "updates.rank0.jsonl", lines=4, process=process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)

    assert process.returncode == 130, error
    assert error.endswith("traingen: interrupted\n")
    assert "Traceback" not in error
    recording = read_recording(tmp_path / "run")
    assert len(recording.updates) >= 3
    assert recording.end.reason == "interrupted"


def test_bad_input_is_all_that_reaches_the_terminal(start):
    process = start("fit", "--trainer.max_epochs=1")
    printed, error = process.communicate(timeout=120)
    assert process.returncode == 2
    assert printed == ""
    assert error.startswith("traingen: error: fit: expected a model")
    assert error.count("\n") == 1

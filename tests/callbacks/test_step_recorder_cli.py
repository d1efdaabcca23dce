"""StepRecorder in a plain LightningCLI: named in YAML, on the command line, in its help."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.callbacks.small import BATCHES
from traingen.records import read_recording

ROOT = Path(__file__).parents[2]

COMMAND = """
from lightning.pytorch.cli import LightningCLI
from tests.callbacks.small import Small, make_loader

class Model(Small):
    def __init__(self, width: int = 4):
        super().__init__()

    def train_dataloader(self):
        return make_loader()

if __name__ == "__main__":
    LightningCLI(Model)
"""
CONFIG = """
seed_everything: 11
trainer:
  accelerator: cpu
  devices: 1
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  enable_model_summary: false
"""
CALLBACKS = """\
  callbacks:
    - class_path: traingen.StepRecorder
      init_args:
        path: run
        rng: [torch, numpy]
"""


def run_cli(folder: Path, *arguments: str, config: str = CONFIG) -> str:
    """Run a plain LightningCLI script in `folder` and return what it printed."""
    (folder / "main.py").write_text(COMMAND)
    (folder / "config.yaml").write_text(config)
    done = subprocess.run(
        [sys.executable, "main.py", *arguments],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_yaml_names_the_recorder_and_the_saved_config_repeats_it(tmp_path):
    root = f"--trainer.default_root_dir={tmp_path / 'root'}"
    run_cli(tmp_path, "fit", "--config=config.yaml", root, config=CONFIG + CALLBACKS)
    recording = read_recording(tmp_path / "run")
    assert len(recording.updates) == BATCHES
    assert (recording.run.seed, recording.run.seed_source) == (11, "PL_GLOBAL_SEED")
    assert list(recording.updates[0].rng) == ["torch", "numpy"]
    saved = (tmp_path / "root" / "config.yaml").read_text()
    assert "class_path: traingen.StepRecorder\n" in saved


@pytest.mark.slow
def test_command_line_adds_the_recorder(tmp_path):
    run_cli(
        tmp_path,
        "fit",
        "--config=config.yaml",
        f"--trainer.default_root_dir={tmp_path / 'root'}",
        "--trainer.callbacks+=traingen.StepRecorder",
        "--trainer.callbacks.path=run",
    )
    assert len(read_recording(tmp_path / "run").updates) == BATCHES
    saved = (tmp_path / "root" / "config.yaml").read_text()
    assert "class_path: traingen.StepRecorder\n" in saved


@pytest.mark.slow
def test_command_line_help_shows_the_docs_of_the_arguments(tmp_path):
    text = run_cli(tmp_path, "fit", "--trainer.callbacks.help=traingen.StepRecorder")
    for argument, doc in {
        "path": "the recording: a file that ends in",
        "overwrite": "move an existing file aside",
        "rng": "random generators whose state is digested",
        "digest_batches": "digest the content of every batch",
    }.items():
        assert f"--trainer.callbacks.{argument}" in text
        assert doc in " ".join(text.split())

"""A training that somebody else wrote: a LightningCLI script that knows nothing of traingen."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
UPDATES = 10

CLI_SCRIPT = """
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self, interval: str = "step"):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.interval = interval

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=10)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **self.how()}}

    def how(self):
        return {} if self.interval == "default" else {"interval": self.interval}

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(20, 3)), batch_size=2)


def main():
    return LightningCLI(Net)


if __name__ == "__main__":
    main()
"""

TRAIN_YAML = """
seed_everything: 1
trainer:
  accelerator: cpu
  devices: 1
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
  default_root_dir: root
  callbacks:
    - class_path: lightning.pytorch.callbacks.ModelSummary
      init_args:
        max_depth: 2
"""
GIVEN = "lightning.pytorch.callbacks.model_summary.ModelSummary"  # that of TRAIN_YAML

# The same with a Trainer of its own; {package} is either name of Lightning.
TRAINER_SCRIPT = """
import torch
from {package} import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch[0]).square().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=10)
        return [optimizer], [{{"scheduler": scheduler, "interval": "{interval}"}}]


if __name__ == "__main__":
    torch.manual_seed(1)
    data = DataLoader(TensorDataset(torch.randn(20, 3)), batch_size=2)
    trainer = Trainer(accelerator="cpu", devices=1, max_epochs=1)
    trainer.fit(Net(), data, data)
    trainer.validate(ckpt_path="best", dataloaders=data)
    print("trained", trainer.global_step)
"""


def write_script(folder: Path, *, script: str = CLI_SCRIPT, train: str = TRAIN_YAML) -> None:
    """Put the script and its config into `folder`."""
    (folder / "train.py").write_text(script)
    (folder / "train.yaml").write_text(train)


def run_script(
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    path: tuple[Path, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the script of `folder` there; `path` goes onto its PYTHONPATH."""
    added = os.pathsep.join(str(entry) for entry in (ROOT / "src", *path))
    return subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=folder,
        env={"PYTHONPATH": added, "PATH": "", "OMP_NUM_THREADS": "1", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def call_script(folder: Path, *arguments: str) -> Any:
    """The same within this process: returns the LightningCLI, or raises what training raised.

    It works in the current directory, and leaves it to the autouse fixture to restore the process.
    """
    spec = importlib.util.spec_from_file_location("somebodys_train", folder / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.argv[:] = ["train.py", *arguments]
    return module.main()

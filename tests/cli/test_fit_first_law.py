"""`traingen fit`, guarded and recorded, trains to the same bits as a plain LightningCLI."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch.cli import LightningCLI

from tests.cli import small
from tests.cli.small import configure, run

OWN = {"model": {"class_path": "tests.cli.small.OwnOptimizers"}, "lr_scheduler_config": None,
       "optimizer": None, "lr_scheduler": None}  # fmt: skip
PLAIN_SGD = {"lr_scheduler_config": None, "lr_scheduler": None}


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(small, "fitted", [])


def final_state() -> dict[str, Any]:
    """Everything that must be equal, of the training that ended last."""
    model = small.fitted[-1]
    (optimizer,) = model.trainer.optimizers
    momenta = [state.get("momentum_buffer") for state in optimizer.state_dict()["state"].values()]
    states = {
        **model.state_dict(),
        **{f"momentum {index}": momentum for index, momentum in enumerate(momenta)},
        "rng": torch.get_rng_state(),
    }
    rates = [group["lr"] for group in optimizer.param_groups]
    return {name: value for name, value in states.items() if value is not None} | {
        "lr": torch.tensor(rates, dtype=torch.float64)
    }


def fit_plainly(*arguments: str, **changes: Any) -> dict[str, Any]:
    Path("plain.yaml").write_text(yaml.safe_dump(configure(**changes)))
    root = "--trainer.default_root_dir=plain"
    LightningCLI(args=["fit", "--config=plain.yaml", root, *arguments])
    return final_state()


def fit_watched(**changes: Any) -> dict[str, Any]:
    assert run("--record=watched", **changes) == 0
    assert Path("watched/updates.rank0.jsonl").exists()
    return final_state()


def differing(a: dict[str, Any], b: dict[str, Any]) -> set[str]:
    assert a.keys() == b.keys()
    return {name for name in a if not torch.equal(a[name], b[name])}


@pytest.fixture(autouse=True)
def no_arguments_of_the_process(monkeypatch):
    monkeypatch.setattr("sys.argv", ["pytest"])  # LightningCLI warns that they compete


@pytest.mark.parametrize("changes", [OWN, PLAIN_SGD], ids=["model", "command line"])
def test_guarded_and_recorded_it_ends_in_the_same_bits(changes):
    watched = fit_watched(**changes)
    plain = fit_plainly(**changes)
    assert len(plain) > 5
    assert differing(watched, plain) == set()


def test_another_seed_would_be_seen():
    watched = fit_watched(**OWN)
    plain = fit_plainly("--seed_everything=12", **OWN)
    assert {"rng", "net.0.weight", "net.2.bias"} <= differing(watched, plain)

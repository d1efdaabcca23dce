"""The main job on real code: TabNet's own fit against our port, right and broken on purpose."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from examples.tabnet.original import fit_original
from examples.tabnet.package import digits_fit
from traingen.cli.main import main
from traingen.lockstep import FitCall, LoopSystem, TrainerSystem
from traingen.lockstep.system import Updated
from traingen.observe.rng import seed_rng
from traingen.records import read_recording

ROOT = Path(__file__).parents[1]
PAIR = "configs/lockstep/tabnet_digits.yaml"


@dataclass(frozen=True, kw_only=True)
class Twin:
    """A broken twin and what must be said of it."""

    file: str
    cause: str
    update: int
    finding: str
    moves_the_loss: bool  # in natural mode, beyond 1e-3 within its 40 updates


TWINS = [
    Twin(
        file="batchnorm_momentum",
        cause="buffers.network.encoder.first.shared.0.norm.norm.running_mean",
        update=1,
        finding="TG-LOCKSTEP-BUFFERS",
        moves_the_loss=False,
    ),
    Twin(
        file="sparse_loss_weight",
        cause="objective",
        update=1,
        finding="TG-LOCKSTEP-OBJECTIVE",
        moves_the_loss=True,
    ),
    Twin(
        file="clipping_left_out",
        cause="clipping.clipped",
        update=1,
        finding="TG-LOCKSTEP-CLIPPING",
        moves_the_loss=True,
    ),
    Twin(
        file="scheduler_per_epoch",
        cause="scheduler[0].ticks",
        update=2,
        finding="TG-LOCKSTEP-SCHEDULER",
        moves_the_loss=True,
    ),
    Twin(
        file="adam_eps",
        cause="hyper_parameters[0].eps",
        update=1,
        finding="TG-LOCKSTEP-HYPER-PARAMETERS",
        moves_the_loss=True,
    ),
    Twin(
        file="extra_draw",
        cause="rng.after_update.torch",
        update=1,
        finding="TG-LOCKSTEP-RNG",
        moves_the_loss=False,
    ),
    Twin(
        file="never_ticks_mended",
        cause="scheduler[0].ticks",
        update=12,
        finding="TG-LOCKSTEP-SCHEDULER",
        moves_the_loss=True,
    ),
]


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_the_right_pair_passes_every_time(
    attempt: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    code = main(["lockstep", "--config", PAIR, "--out", str(out)])
    printed = capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert (code, result["verdict"], result["updates"]) == (0, "pass", 300)
    assert result["horizon_source"] == "configs/lockstep/tabnet_digits.floor.json"
    for mode in ("natural", "reseeded", "synchronized"):
        found = result["modes"][mode]
        assert (found["verdict"], found["equal_updates"]) == ("pass", 300)
        assert found["compared"]["parameters"] == 300 * 54
        assert found["compared"]["buffers"] == 300 * 60
        assert found["compared"]["loss_terms"] == 300 * 2
        for side in ("original", "package"):
            recording = read_recording(out / mode / side)
            assert len(recording.updates) == 300
            assert recording.torn is None
    readme = (ROOT / "README.md").read_text()
    for line in printed.splitlines()[:-1]:  # the last one names this run's folder
        assert line.strip() in readme, line


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.file)
@pytest.mark.filterwarnings("ignore:A `OneCycleLR` scheduler is using 'interval'")
def test_a_broken_twin_is_caught_and_its_cause_named(
    twin: Twin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is renamed: nothing but the run itself can tell what is wrong."""
    config = tmp_path / "a.yaml"
    shutil.copy(f"configs/lockstep/broken/{twin.file}.yaml", config)
    code = main(["lockstep", "--config", str(config), "--out", str(tmp_path / "out"), "--json"])
    captured = capsys.readouterr()
    assert code == 1, captured.err
    result = json.loads(captured.out)
    assert result["verdict"] == "fail"
    assert result["cause"] == twin.cause
    assert result["first_divergence"]["update"] == twin.update
    assert [finding["id"] for finding in result["findings"]] == [twin.finding]
    departed = result["modes"]["natural"]["loss_departure"] is not None
    assert departed == twin.moves_the_loss


def test_every_broken_twin_has_an_expectation() -> None:
    files = {path.stem for path in Path("configs/lockstep/broken").glob("*.yaml")}
    assert files == {twin.file for twin in TWINS}


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_valid_recordings(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "traingen", "lockstep", "--config", PAIR, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    differences = out / "natural" / "differences.jsonl"
    deadline = time.monotonic() + 120
    while not (differences.exists() and differences.read_bytes().count(b"\n") >= 5):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    printed, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "Traceback" not in error
    assert printed == ""
    for side in ("original", "package"):
        recording = read_recording(out / "natural" / side)
        assert len(recording.updates) >= 5
        assert recording.end is not None
        assert recording.torn is None


def test_only_the_factory_of_the_original_imports_it() -> None:
    importers = set()
    for folder in ("src", "examples"):
        for path in Path(folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                if any(name.partition(".")[0] == "pytorch_tabnet" for name in names):
                    importers.add(path.as_posix())
    assert importers == {"examples/tabnet/original.py"}


def test_the_package_trains_where_the_original_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "pytorch_tabnet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytorch_tabnet", None)
    with pytest.raises(ImportError):
        __import__("pytorch_tabnet.tab_model")
    seed_rng(0)
    call = digits_fit(max_epochs=8)
    call.trainer.fit(call.model, datamodule=call.datamodule)
    assert call.trainer.global_step == 88
    assert float(call.trainer.callback_metrics["val_accuracy"]) > 0.2  # chance is 0.1


@pytest.mark.parametrize("side", ["original", "package"])
def test_in_lockstep_each_side_trains_to_the_bits_it_trains_to_alone(side: str) -> None:
    alone, parked = [], []
    seed_rng(0)
    _train(side, alone)
    system = (
        LoopSystem(lambda: _train(side, parked))
        if side == "original"
        else TrainerSystem(lambda: _fit_call(parked))
    )
    system.start(seed=0)
    updates = 0
    while isinstance(system.advance(), Updated):
        updates += 1
    system.stop()
    mine, theirs = alone[0].state_dict(), parked[0].state_dict()
    assert updates == 22
    assert mine.keys() == theirs.keys()
    assert [name for name, value in mine.items() if not torch.equal(value, theirs[name])] == []


def _train(side: str, models: list[torch.nn.Module]) -> None:
    if side == "original":
        models.append(fit_original(max_epochs=2).network)
        return
    call = _fit_call(models)
    call.trainer.fit(call.model, datamodule=call.datamodule)


def _fit_call(models: list[torch.nn.Module]) -> FitCall:
    call = digits_fit(max_epochs=2)
    models.append(call.model)
    return call

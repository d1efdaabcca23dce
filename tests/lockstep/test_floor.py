"""The original against itself: equal when run again, and parted by one ulp after a while."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
import yaml

from tests.lockstep.small import UPDATES, Trace, plain_loop
from traingen.cli.main import main
from traingen.errors import ConfigError
from traingen.lockstep import Gates, LoopSystem
from traingen.lockstep.floor import (
    describe_subject,
    horizons_of,
    load_floor,
    measure_floor,
    move_one_ulp,
)
from traingen.lockstep.pair import load_pair

ROOT = Path(__file__).parents[2]
LOOSE = Gates.of_numbers(objective={"rtol": 1e-6}, gradients={"rtol": 1e-2, "atol": 1e-3})


def make(name: str) -> LoopSystem:
    return LoopSystem(lambda: plain_loop(Trace()), name=name)


def write_pair(folder: Path, **changes: object) -> Path:
    path = folder / "pair.yaml"
    content: dict[str, object] = {
        "pair": 1,
        "original": {"class_path": "tests.lockstep.small.pair_original", "system": "loop"},
        "package": {"class_path": "tests.lockstep.small.pair_package", "system": "trainer"},
        "name_map": {"patterns": [[r"(\d.*)", r"network.\1"]]},
        "modes": ["natural"],
        "updates": UPDATES,
        "floor": str(folder / "floor.json"),
    }
    path.write_text(yaml.safe_dump(content | changes))
    return path


def test_run_again_the_original_is_equal_and_moved_it_is_not() -> None:
    floors = measure_floor(
        make, gates=LOOSE, modes=["natural", "synchronized"], updates=UPDATES, seed=0
    )
    natural = floors["natural"]
    assert (natural.updates, natural.again_equal_updates) == (UPDATES, UPDATES)
    assert natural.again_largest == {}
    assert natural.ulp_largest["parameters"] > 0
    assert floors["synchronized"].horizon == {}


def test_horizons_belong_to_what_rounding_can_move() -> None:
    floors = measure_floor(make, gates=LOOSE, modes=["natural"], updates=UPDATES, seed=0)
    horizon = floors["natural"].horizon
    assert horizon["parameters"] == 1  # exact here, and one ulp off from the start
    assert set(horizon) <= {
        "objective", "gradients", "grad_norm", "clipping", "optimizer_state", "parameters",
        "buffers",
    }  # fmt: skip
    assert horizon.get("gradients", UPDATES) > 1


def test_an_original_that_does_not_repeat_itself_shows() -> None:
    runs: list[int] = []

    def restless() -> None:
        runs.append(1)
        torch.rand(len(runs))
        plain_loop(Trace())

    floors = measure_floor(
        lambda name: LoopSystem(restless, name=name),
        gates=LOOSE, modes=["natural"], updates=3, seed=0,
    )  # fmt: skip
    assert floors["natural"].again_equal_updates < 3


def test_moving_by_one_ulp_moves_every_weight_by_exactly_that() -> None:
    system = make("original")
    system.start(seed=0)
    before = {n: p.clone() for n, p in system.live().parameters.items()}
    move_one_ulp(system)
    after = system.live().parameters
    system.stop()
    for name, value in before.items():
        assert torch.equal(after[name], torch.nextafter(value, torch.tensor(torch.inf)))


def test_the_command_writes_the_floor_and_the_next_run_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    config = write_pair(tmp_path)
    assert main(["lockstep", "--config", str(config), "--measure-floor"]) == 0
    assert f"{UPDATES} of {UPDATES} updates equal when run again" in capsys.readouterr().out
    assert main(["lockstep", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "natural: report-only after update" in printed
    assert "floor.json" in printed.replace("\n", "").replace(" ", "")


def test_a_floor_of_another_subject_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    pair = load_pair(write_pair(tmp_path))
    main(["lockstep", "--config", str(tmp_path / "pair.yaml"), "--measure-floor", "--updates", "2"])
    assert horizons_of(pair)[0] != {}
    other = load_pair(write_pair(tmp_path, seed=1))
    horizons, source = horizons_of(other)
    assert horizons == {}
    assert "measured for another original, gates or seed" in source
    assert describe_subject(other) != describe_subject(pair)


def test_without_a_floor_every_gate_is_asserted_throughout(tmp_path: Path) -> None:
    horizons, source = horizons_of(load_pair(write_pair(tmp_path, floor=None)))
    assert horizons == {}
    assert "asserted at every update" in source


def test_a_pair_that_names_no_floor_file_cannot_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_pair(tmp_path, floor=None)
    assert main(["lockstep", "--config", str(config), "--measure-floor"]) == 2
    assert "'floor' names the file to measure into" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"floor": 1}'])
def test_what_is_no_floor_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "floor.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="no floor file"):
        load_floor(path)


def test_the_shipped_floor_belongs_to_the_shipped_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    pair = load_pair(Path("configs/lockstep/tabnet_digits.yaml"))
    floor = load_floor(Path(str(pair.floor)))
    assert floor.subject == describe_subject(pair)
    assert {m: f.again_equal_updates for m, f in floor.modes.items()} == dict.fromkeys(
        pair.modes, pair.updates
    )
    assert msgspec.to_builtins(floor)["floor"] == 1

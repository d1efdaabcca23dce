"""Bad input ends with one clear line and exit code 2, and nothing is written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from traingen.cli.main import main

ROOT = Path(__file__).parents[2]
PATTERN = [r"(\d.*)", r"network.\1"]


def pair(**changes: object) -> dict[str, object]:
    """A right pair of the small trainings, changed."""
    right: dict[str, object] = {
        "pair": 1,
        "original": {"class_path": "tests.lockstep.small.pair_original", "system": "loop"},
        "package": {"class_path": "tests.lockstep.small.pair_package", "system": "trainer"},
        "name_map": {"patterns": [PATTERN]},
        "updates": 3,
    }
    return right | changes


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command on a pair; returns exit code, stdout, stderr and the output folder."""
    monkeypatch.chdir(ROOT)

    def run(content: object, *options: str):
        config, out = tmp_path / "pair.yaml", tmp_path / "out"
        if content is not None:
            config.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        code = main(["lockstep", "--config", str(config), "--out", str(out), *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err, out

    return run


def test_the_right_pair_passes(run) -> None:
    code, printed, _, out = run(pair())
    assert code == 0
    assert printed.startswith("VERDICT  PASS  pair: every asserted gate held")
    assert json.loads((out / "result.json").read_text())["verdict"] == "pass"


def package(**init_args: object) -> dict[str, object]:
    return {
        "class_path": "tests.lockstep.small.pair_package",
        "system": "trainer",
        "init_args": init_args,
    }


BAD = {
    "missing config": (None, "no such pair file"),
    "no YAML": ("pair: [1", "no valid YAML"),
    "no mapping": ("- 1", "expected a mapping with 'pair: 1'"),
    "another version": (pair(pair=2), "pair: Invalid enum value 2"),
    "unknown key": (pair(updatez=3), "unknown field `updatez`"),
    "unknown gate": (pair(gates={"weights": {"rtol": 1.0}}), "unknown quantity 'weights'"),
    "limit without reason": (pair(gates={"buffers": {"rtol": 1.0}}), "needs a 'why'"),
    "unknown module": (
        pair(original={"class_path": "nowhere.fit", "system": "loop"}),
        "class_path 'nowhere.fit' cannot be imported",
    ),
    "unknown name": (
        pair(original={"class_path": "tests.lockstep.small.nothing", "system": "loop"}),
        "has no 'nothing'",
    ),
    "unknown argument": (pair(package=package(no_such=1)), "package raised before its first"),
    "unmapped name": (
        pair(name_map={"patterns": [[r"(0\..*)", r"network.\1"]]}),
        "'1.weight' of the original is not mapped",
    ),
    "two to one": (
        pair(name_map={"patterns": [PATTERN], "exact": {"1.bias": "network.0.bias"}}),
        "'0.bias' and '1.bias' both map to 'network.0.bias'",
    ),
    "mapped to nothing": (
        pair(name_map={"patterns": [[r"(\d.*)", r"net.\1"]]}),
        "maps to 'net.0.weight', which the package does not have",
    ),
    "shapes differ": (pair(package=package(width=9)), "these cannot be the same tensor"),
    "not a FitCall": (
        pair(package={"class_path": "tests.lockstep.small.make_network", "system": "trainer"}),
        "must return a traingen.lockstep.FitCall, got Sequential",
    ),
    "trains nothing": (
        pair(original={"class_path": "tests.lockstep.small.make_network", "system": "loop"}),
        "original: ended without training",
    ),
    "unknown tapped function": (
        pair(
            taps={
                "x": {
                    "original": {"function": "tests.lockstep.small.no"},
                    "package": {"module": "network"},
                }
            }
        ),
        "there is no function 'tests.lockstep.small.no'",
    ),
    "unknown tapped module": (
        pair(taps={"x": {"original": {"module": "0"}, "package": {"module": "nett"}}}),
        "has no module 'nett'",
    ),
    "tap that nothing comes through": (
        pair(
            taps={
                "x": {
                    "original": {"function": "tests.lockstep.small.make_noise"},
                    "package": {"function": "tests.lockstep.small.make_noise"},
                }
            }
        ),
        "taps.x: nothing came through it in the first update of the original",
    ),
    "missing floor": (pair(floor="no/floor.json"), "no such floor file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_it_is_one_line_exit_code_2_and_nothing_written(name: str, run) -> None:
    content, expected = BAD[name]
    code, printed, error, out = run(content)
    assert code == 2
    lines = [line for line in error.splitlines() if line.startswith("traingen: error: ")]
    assert len(lines) == 1
    assert expected in lines[0]
    assert "Traceback" not in error
    assert printed == ""
    assert not out.exists()


def test_an_existing_output_is_refused_and_kept(run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    code, _, error, out = run(pair())
    assert code == 2
    assert "exists already" in error
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_overwrite_moves_an_existing_output_aside(run, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    code, _, _, out = run(pair(), "--overwrite")
    assert code == 0
    assert (tmp_path / "out.old" / "mine.txt").read_text() == "precious"
    assert (out / "result.json").exists()


def test_an_original_that_is_not_installed(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "pytorch_tabnet"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pytorch_tabnet", None)
    code, _, error, out = run("extends: configs/lockstep/tabnet_digits.yaml")
    assert code == 2
    assert "pytorch_tabnet" in error
    assert "installed" in error
    assert not out.exists()


def test_json_is_one_object_with_the_documented_fields(run) -> None:
    code, printed, _, out = run(pair(package=package(eps=1e-6)), "--json", "--mode", "natural")
    document = json.loads(printed)
    assert code == document["exit_code"] == 1
    assert document["verdict"] == "fail"
    assert document["first_divergence"] == {
        "update": 1,
        "quantity": "hyper_parameters",
        "path": "hyper_parameters[0].eps",
    }
    assert document["cause"] == "hyper_parameters[0].eps"
    assert document["findings"][0]["id"] == "TG-LOCKSTEP-HYPER-PARAMETERS"
    assert document["out"] == str(out)
    assert {"updates", "not_exercised", "modes"} <= document.keys()


def test_a_pair_that_excuses_everything_proves_nothing(run) -> None:
    everything = {"only_original": {".*": "not needed"}, "only_package": {".*": "not needed"}}
    code, printed, _, out = run(pair(name_map=everything))
    assert code == 2
    assert "trains, but is excused from comparison" in " ".join(printed.split())
    assert json.loads((out / "result.json").read_text())["verdict"] == "inconclusive"


def test_a_pair_whose_gates_are_all_report_only_proves_nothing(run) -> None:
    gates = {
        gate: {"report_only": True, "why": "just looking"}
        for gate in ("objective", "gradients", "grad_norm", "clipping", "optimizer_state",
                     "parameters", "buffers", "hyper_parameters")
    }  # fmt: skip
    code, printed, _, _ = run(pair(gates=gates, package=package(eps=1e-3)))
    assert code == 2
    assert "nothing of objective, gradients, parameters was asserted" in " ".join(printed.split())


def test_a_trained_parameter_that_is_excused_is_a_warning(run) -> None:
    names = {
        "patterns": [[r"([0-3].*|4\.weight)", r"network.\1"]],
        "only_original": {r"4\.bias": "left to chance"},
        "only_package": {r"network\.4\.bias": "left to chance"},
    }
    _, printed, _, out = run(pair(name_map=names), "--mode", "natural")
    result = json.loads((out / "result.json").read_text())
    assert "excused         original 4.bias and 1 more: left to chance" in printed
    assert result["modes"]["natural"]["excused_trained"] == [
        "original 4.bias",
        "package network.4.bias",
    ]
    assert "TG-LOCKSTEP-EXCUSED" in [finding["id"] for finding in result["findings"]]

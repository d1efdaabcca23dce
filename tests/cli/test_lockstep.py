import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from traingen.cli.main import main

DEFAULTS = {
    "config": Path("pair.yaml"),
    "out": None,
    "overwrite": False,
    "as_json": False,
    "modes": None,
    "updates": None,
    "measure_floor": False,
}


@pytest.fixture
def calls(monkeypatch):
    """What `run_lockstep` was called with, without what it would load or do."""
    found = []

    def run_lockstep(**arguments):
        found.append(arguments)
        return 1

    command = SimpleNamespace(run_lockstep=run_lockstep)
    monkeypatch.setitem(sys.modules, "traingen.lockstep", SimpleNamespace(command=command))
    monkeypatch.setitem(sys.modules, "traingen.lockstep.command", command)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--out", "runs/a", "--overwrite"], {"out": Path("runs/a"), "overwrite": True}),
        (["--json"], {"as_json": True}),
        (["--updates", "7"], {"updates": 7}),
        (["--measure-floor"], {"measure_floor": True}),
        (["--mode", "reseeded", "--mode", "natural"], {"modes": ("reseeded", "natural")}),
        (["--mode", "natural", "--mode", "natural"], {"modes": ("natural",)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_become_the_call(calls, options, expected):
    code = main(["lockstep", "--config", "pair.yaml", *options])
    assert calls == [DEFAULTS | expected]
    assert code == 1


@pytest.mark.parametrize(
    "options", [["--updates", "0"], ["--updates", "many"], ["--mode", "sideways"]], ids=" ".join
)
def test_value_out_of_range_is_wrong_usage(calls, capsys, options):
    with pytest.raises(SystemExit) as stop:
        main(["lockstep", "--config", "pair.yaml", *options])
    assert stop.value.code == 2
    assert options[0] in capsys.readouterr().err
    assert calls == []

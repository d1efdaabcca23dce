import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from traingen.cli.main import main

PAIR = {
    "config": Path("pair.yaml"),
    "out": None,
    "overwrite": False,
    "as_json": False,
    "modes": None,
    "updates": None,
}
FLOOR = {"config": Path("pair.yaml"), "as_json": False, "modes": None, "updates": None}


@pytest.fixture
def calls(monkeypatch):
    """What was called with which arguments, without what it would load or do."""
    found = []
    run = SimpleNamespace(
        run_pair=lambda **arguments: found.append(("pair", arguments)) or 1,
        run_floor=lambda **arguments: found.append(("floor", arguments)) or 1,
    )
    monkeypatch.setitem(sys.modules, "traingen.cli.lockstep_run", run)
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {}),
        (["--out", "runs/a", "--overwrite"], {"out": Path("runs/a"), "overwrite": True}),
        (["--json"], {"as_json": True}),
        (["--updates", "7"], {"updates": 7}),
        (["--mode", "reseeded", "--mode", "natural"], {"modes": ("reseeded", "natural")}),
        (["--mode", "natural", "--mode", "natural"], {"modes": ("natural",)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_become_the_call(calls, options, expected):
    code = main(["lockstep", "--config", "pair.yaml", *options])
    assert calls == [("pair", PAIR | expected)]
    assert code == 1


def test_measuring_the_floor_is_another_call(calls):
    main(["lockstep", "--config", "pair.yaml", "--measure-floor", "--updates", "7"])
    assert calls == [("floor", FLOOR | {"updates": 7})]


@pytest.mark.parametrize(
    "options", [["--updates", "0"], ["--updates", "many"], ["--mode", "sideways"]], ids=" ".join
)
def test_value_out_of_range_is_wrong_usage(calls, capsys, options):
    with pytest.raises(SystemExit) as stop:
        main(["lockstep", "--config", "pair.yaml", *options])
    assert stop.value.code == 2
    assert options[0] in capsys.readouterr().err
    assert calls == []

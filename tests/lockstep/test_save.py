"""What result.json states beside the verdict."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from traingen.cli.main import main

ROOT = Path(__file__).parents[2]
PAIR = """
pair: 1
original: {class_path: tests.lockstep.small.pair_original, system: loop}
package: {class_path: tests.lockstep.small.pair_package, system: trainer}
name_map: {patterns: [['(\\d.*)', 'network.\\1']]}
modes: [natural]
updates: 2
"""


@pytest.fixture
def result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(ROOT)
    config = tmp_path / "pair.yaml"
    config.write_text(PAIR)
    assert main(["lockstep", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    found: dict[str, object] = json.loads((tmp_path / "out" / "result.json").read_text())
    return found


def test_it_holds_the_resolved_pair_and_the_facts_of_the_run(result) -> None:
    assert result["lockstep"] == 1
    assert result["pair"]["seed"] == 0  # a default, resolved
    assert result["pair"]["updates"] == 2
    assert result["versions"]["torch"]
    assert result["modes"]["natural"]["updates"] == 2


def test_it_holds_digests_of_the_files_that_were_imported(result) -> None:
    sources = result["sources"]
    file = "tests/lockstep/small.py"
    assert sources[file] == hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
    assert not [name for name in sources if name.startswith("/")]
    assert not [name for name in sources if "site-packages" in name or name.startswith("torch/")]

"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from traingen.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`(?:\$ )?make ([a-z-]+)`|\$ make ([a-z-]+)", README))
    assert {one or other for one, other in named} - targets == set()
    assert {"quickstart", "test"} <= {one or other for one, other in named}


def test_every_command_and_file_it_names_exists() -> None:
    commands = {command.name for command in COMMANDS}
    assert set(re.findall(r"\$ (?:\.venv/bin/)?traingen ([a-z]+)", README)) == commands
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_python_way_is_under_15_lines() -> None:
    [block] = [b for b in blocks("python") if "lockstep(" in b]
    assert len(block.strip().splitlines()) < 15


@pytest.mark.slow
def test_the_python_way_runs_and_passes(tmp_path: Path) -> None:
    [block] = [b for b in blocks("python") if "lockstep(" in b]
    code = block.replace("out/from_python", str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "pass None"


def test_the_guard_says_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [shown] = [b for b in blocks("text") if b.startswith("TG-SCHED-EPOCH")]
    config = ROOT / "configs/fit/broken/digits_top_level_lr_scheduler.yaml"
    code = main(["fit", "--config", str(config)])
    assert (code, capsys.readouterr().err.endswith(shown)) == (1, True)


@pytest.mark.slow
def test_the_broken_twin_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers aside: their last digits depend on the processor and its threads."""
    monkeypatch.chdir(ROOT)
    config = "configs/lockstep/broken/batchnorm_momentum.yaml"
    code = main(["lockstep", "--config", config, "--out", str(tmp_path / "out")])
    printed = NUMBER.sub("#", capsys.readouterr().out).splitlines()
    [shown] = [b for b in blocks("text") if "batchnorm_momentum" in b]
    missing = [
        line for line in NUMBER.sub("#", shown).splitlines() if line != "…" and line not in printed
    ]
    assert (code, missing) == (1, [])

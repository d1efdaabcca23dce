"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from traingen.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


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

"""What the how-to pages about recordings show is what happens."""

import re
import shlex
from pathlib import Path

import pytest

from tests.reading.recordings import make_training, write_recording
from traingen.cli.main import build_parser, find_command
from traingen.compare.order import GATED

ROOT = Path(__file__).parents[2]
PAGES = ("read-a-recording", "compare-two-recordings")


def page(name):
    return (ROOT / "docs" / "how-to" / f"{name}.md").read_text()


def commands_in(text):
    return [
        shlex.split(line, comments=True)[2:]
        for line in re.findall(r"^\$ traingen .*$", text, re.MULTILINE)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_every_command_it_shows_can_be_typed(name):
    commands = commands_in(page(name))
    assert commands
    for arguments in commands:
        assert build_parser(find_command(arguments)).parse_args(arguments)


def test_a_command_that_cannot_be_typed_is_noticed(capsys):
    ((first, *rest),) = commands_in("$ traingen show runs/first --upbeat 3  # no such option")
    with pytest.raises(SystemExit):
        build_parser(find_command([first])).parse_args([first, *rest])
    assert "--upbeat" in capsys.readouterr().err


@pytest.mark.parametrize("name", PAGES)
def test_its_python_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for run in ("first", "original", "package"):
        write_recording(tmp_path / "runs" / run, make_training(30))
    (block,) = re.findall(r"```python\n(.*?)```", page(name), flags=re.DOTALL)
    exec(compile(block, name, "exec"), {})
    assert capsys.readouterr().out.split() in (["pass", "None"], [str(2.3025 / 30), "0.001", "29"])


@pytest.mark.parametrize("name", PAGES)
def test_every_page_it_links_to_exists(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page(name))
    assert links
    assert [link for link in links if not (ROOT / "docs" / "how-to" / link).exists()] == []


def test_every_quantity_with_a_limit_of_its_own_is_named():
    named = set(re.findall(r"`([a-z_]+)`", page("compare-two-recordings")))
    assert set(GATED) - named == {"prepared_inputs", "forward", "buffers"}  # never recorded

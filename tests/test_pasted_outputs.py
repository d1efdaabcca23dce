"""What the documents show of a command's output is what it prints."""

import doctest
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import paste_outputs
from scripts.paste_outputs import (
    DOCUMENTS,
    Block,
    iter_blocks,
    mask_numbers,
    paste,
    select_lines,
)
from traingen.cli.main import main

ROOT = Path(__file__).parents[1]
TUTORIAL = "docs/tutorial/prove-your-first-port.md"
TRAINS_AN_ORIGINAL = "tabnet_digits.yaml", "batchnorm_momentum.yaml"  # of minutes

Printed = Callable[[Block], str]


@pytest.fixture
def printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Printed:
    """Runs a block's command where what it writes is in nobody's way."""
    for name in ("configs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)

    def run(block: Block) -> str:
        program, *arguments = block.command.split()
        if program == "python":
            monkeypatch.syspath_prepend(tmp_path)
            monkeypatch.setattr("sys.argv", arguments[1:])
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            main(arguments)
        said = capsys.readouterr()
        if block.shown is None:
            return ""
        return select_lines(said.err if block.stderr else said.out, block.lines)

    return run


def blocks_of(document: str) -> list[Block]:
    return list(iter_blocks((ROOT / document).read_text(encoding="utf-8")))


def is_slow(block: Block) -> bool:
    return any(name in block.command for name in TRAINS_AN_ORIGINAL)


def assert_shown(block: Block, printed: str) -> None:
    """Numbers aside: their last digits depend on the processor and its threads."""
    if block.shown is None:
        return
    assert mask_numbers(block.shown).strip() == mask_numbers(printed).strip(), block.command


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_shows_output(document: str) -> None:
    assert blocks_of(document)


def test_the_tutorial_prints_what_it_shows(printed: Printed) -> None:
    for block in blocks_of(TUTORIAL):
        assert_shown(block, printed(block))


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_readme_prints_what_it_shows(printed: Printed, quick: bool) -> None:
    blocks = [block for block in blocks_of("README.md") if is_slow(block) is not quick]
    assert blocks
    for block in blocks:
        assert_shown(block, printed(block))


def test_another_output_is_noticed() -> None:
    [block] = iter_blocks("<!-- prints: traingen x -->\n```text\nVERDICT  PASS  a 1.5\n```\n")
    assert_shown(block, "VERDICT  PASS  a 2.5\n")
    with pytest.raises(AssertionError, match="traingen x"):
        assert_shown(block, "VERDICT  FAIL  a 1.5\n")


def test_blocks_are_pasted_in_place() -> None:
    text = "a\n<!-- prints: traingen x | lines 2.. -->\n\n```text\nold\n```\nb\n"
    pasted = paste(text, lambda command: ("one\ntwo\n", "trouble\n"))
    assert pasted == text.replace("old", "two")
    again = text.replace("lines 2..", "stderr")
    assert paste(again, lambda command: ("", "trouble\n")) == again.replace("old", "trouble")


def test_a_command_that_is_only_run_leaves_the_document_as_it_is() -> None:
    ran: list[str] = []
    text = "a\n<!-- runs: traingen fit -->\nb\n"
    assert paste(text, lambda command: (ran.append(command) or "out\n", "")) == text
    assert ran == ["traingen fit"]


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown option 'head 3'"):
        list(iter_blocks("<!-- prints: traingen x | head 3 -->\n```text\n```\n"))


def test_examples_of_the_script_are_true() -> None:
    assert doctest.testmod(paste_outputs).attempted > 0
    assert doctest.testmod(paste_outputs).failed == 0

"""Where a lockstep run is written: nothing that exists is ever lost."""

import logging
import re
import warnings
from pathlib import Path

import pytest

from traingen.cli.lockstep_run import choose_folder, quieten_lightning
from traingen.lockstep.output import free_name

CONFIG = Path("configs/lockstep/tabnet_digits.yaml")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_free_name_is_kept():
    assert free_name(Path("runs/a")) == Path("runs/a")


@pytest.mark.parametrize(
    ("taken", "expected"),
    [(["a"], "a-2"), (["a", "a-2", "a-3"], "a-4"), (["a", "a-3"], "a-2"), (["b"], "a")],
)
def test_a_name_that_is_taken_gets_the_first_free_number(taken, expected):
    for name in taken:
        Path(name).mkdir()
    assert free_name(Path("a")) == Path(expected)


def test_a_file_takes_a_name_too():
    Path("a.old").touch()
    assert free_name(Path("a.old")) == Path("a.old-2")


def test_a_folder_that_is_asked_for_is_used_and_not_made():
    assert choose_folder(Path("out"), config=CONFIG) == Path("out")
    assert not Path("out").exists()


def test_without_out_a_folder_of_the_pair_and_the_moment_is_chosen():
    folder = choose_folder(None, config=CONFIG)
    assert folder.parent == Path(".cache/tabnet_digits/lockstep")
    assert re.fullmatch(r"\d{8}-\d{6}", folder.name)
    assert not folder.exists()


def test_two_runs_of_one_moment_get_two_folders():
    first = choose_folder(None, config=CONFIG)
    first.mkdir(parents=True)
    second = choose_folder(None, config=CONFIG)
    assert second != first
    assert first.exists()


def test_lightnings_greetings_are_kept_out_and_its_warnings_are_not():
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    try:
        with warnings.catch_warnings():
            quieten_lightning()
        assert not logger.isEnabledFor(logging.INFO)
        assert logger.isEnabledFor(logging.WARNING)
    finally:
        logger.setLevel(level)

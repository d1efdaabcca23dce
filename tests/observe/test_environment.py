"""A run states where it came from: versions, devices and the source it ran."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from traingen.observe import environment
from traingen.observe.environment import (
    describe_devices,
    describe_git,
    describe_run,
    describe_versions,
)
from traingen.records import FORMAT, OptimizerIdentity, SchedulerIdentity, decode_line, encode_line


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, which is the current directory."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("rate = 1\n")
    git("init", "--quiet")
    git("add", "train.py")
    git("commit", "--quiet", "--message", "first")
    return tmp_path


def test_a_clean_repository_is_its_commit(repository: Path):
    assert describe_git() == {"commit": git("rev-parse", "HEAD"), "dirty": None}


def test_uncommitted_changes_have_a_digest_that_tells_them_apart(repository: Path):
    (repository / "train.py").write_text("rate = 2\n")
    first = describe_git()
    (repository / "train.py").write_text("rate = 3\n")
    git("add", "train.py")
    second = describe_git()
    (repository / "train.py").write_text("rate = 2\n")
    assert first["commit"] == second["commit"] == git("rev-parse", "HEAD")
    assert len({None, first["dirty"], second["dirty"]}) == 3
    assert describe_git() == first


def test_a_folder_inside_a_repository_tells_of_all_of_it(repository: Path, monkeypatch):
    inner = repository / "inner"
    inner.mkdir()
    (repository / "train.py").write_text("rate = 2\n")
    outside = describe_git()
    monkeypatch.chdir(inner)
    assert describe_git() == outside
    assert outside["dirty"]


def test_outside_of_git_there_is_nothing_to_tell(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_git() is None


def test_a_repository_without_a_commit_tells_nothing(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    assert describe_git() is None


def test_a_machine_without_git_tells_nothing(repository: Path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert describe_git() is None


def test_git_that_does_not_answer_is_not_waited_for(repository: Path, monkeypatch):
    monkeypatch.setattr(environment, "GIT_SECONDS", 0)
    assert describe_git() is None


def test_versions_are_those_of_this_process():
    versions = describe_versions()
    assert versions["python"] == platform.python_version()
    assert versions["torch"] == torch.__version__


def test_a_package_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(environment, "PACKAGES", ("torch", "no-such-distribution"))
    assert set(describe_versions()) == {"python", "torch"}


def test_devices_are_named_without_waking_an_accelerator():
    devices = describe_devices()
    assert devices[0].startswith(f"cpu: {platform.machine()}, ")
    assert torch.cuda.is_initialized() or len(devices) == 1


def describe(**facts: object):
    optimizer = OptimizerIdentity(index=0, class_path="a.B", groups=1, parameters=2)
    scheduler = SchedulerIdentity(
        id=0, class_path="a.C", optimizer=0, interval=None, frequency=None
    )
    return describe_run(observes=["loss"], optimizers=[optimizer], schedulers=[scheduler], **facts)


def test_a_run_line_states_what_is_known_and_null_for_the_rest():
    run = describe(seed=7, seed_source="argument")
    assert (run.format, run.attempt, run.world_size, run.rank) == (FORMAT, 1, 1, 0)
    assert (run.seed, run.seed_source, run.precision) == (7, "argument", None)
    assert run.argv == sys.argv
    assert decode_line(encode_line(run), where="here") == run


def test_every_run_has_its_own_id():
    assert describe().run_id != describe().run_id


def test_an_unknown_fact_is_refused():
    with pytest.raises(TypeError, match="colour"):
        describe(colour="red")

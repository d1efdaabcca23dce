"""Processes that end without a word: nothing that was handed over is lost, and the run goes on.

`TRAINGEN_KILLS` says how many trainings are killed; `make test-kill` kills 50.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.callbacks.lasting import comparable, recorder, train
from tests.callbacks.nursery import BEGUN, Child, Nursery
from traingen.errors import RecordingError
from traingen.records import Recording, UpdateRecord, decode_line, read_recording

KILLS = int(os.environ.get("TRAINGEN_KILLS", "4"))
CHAIN = 5  # kills of one run, which is resumed after each
LONGEST = 0.1  # seconds from its begin
ENDLESS = 1_000_000


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    one = Nursery()
    yield one
    one.close()


def kill(child: Child, *, after: float, number: signal.Signals = signal.SIGKILL) -> list[int]:
    """Send the signal after so many seconds; what the child told from here on."""
    time.sleep(after)
    os.kill(child.pid, number)
    return child.rest()


def check_whole(path: Path, *, told: int, state: dict[str, object] | None = None) -> Recording:
    """The file holds every update that was told, and only whole lines but for a torn tail."""
    *lines, tail = (path / "updates.rank0.jsonl").read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        decode_line(line + b"\n", where=f"line {number}")
    recording = read_recording(path)
    assert (recording.torn is not None) == bool(tail)
    held = recording.updates[-1].update if recording.updates else 0
    assert held >= told, f"update {held + 1} was handed over and is not in the file"
    assert [update.update for update in recording.updates] == list(range(1, held + 1))
    if state is not None:
        assert state["completed"] == state["updates"]
        assert state["completed"] <= [held], "the checkpoint claims what the file does not hold"
    return recording


def state_of(checkpoint: Path) -> dict[str, object]:
    states = torch.load(checkpoint, weights_only=True)["callbacks"]
    (state,) = (state for name, state in states.items() if "StepRecorder" in name)
    return dict(state)


def begin(nursery: Nursery, folder: Path, *, resume: bool, max_steps: int = ENDLESS) -> Child:
    """A training in `folder`, which saves its checkpoint there."""
    return nursery.train(
        folder,
        path=str(folder / "run"),
        checkpoint=str(folder / "last.ckpt"),
        resume=resume,
        every=4,
        max_steps=max_steps,
    )


def test_a_killed_training_has_lost_nothing_and_goes_on(tmp_path: Path, nursery: Nursery) -> None:
    chance = random.Random(20261130)
    inside, runs = 0, []
    for killed in range(KILLS):
        folder = tmp_path / f"run-{killed // CHAIN}"
        first = killed % CHAIN == 0
        if first:
            folder.mkdir()
            runs.append(folder)
        child = begin(nursery, folder, resume=not first)
        assert child.hear() == BEGUN
        told = child.hear() if first else None  # with it there is a checkpoint
        rest = kill(child, after=chance.uniform(0, LONGEST))
        died_inside = nursery.status() == -signal.SIGKILL
        last = max([told or 0, *rest])
        recording = check_whole(folder / "run", told=last, state=state_of(folder / "last.ckpt"))
        assert recording.end is None
        inside += died_inside
    assert inside >= 0.9 * KILLS, f"only {inside} of {KILLS} died while they trained"
    longest = 0
    for folder in runs:
        held = read_recording(folder / "run").updates[-1].update
        child = begin(nursery, folder, resume=True, max_steps=held + 5)
        child.rest()
        assert nursery.status() == 0
        recording = check_whole(folder / "run", told=held + 5)
        assert recording.end is not None and recording.end.reason == "finished"
        assert (recording.missing, recording.torn) == ((), None)
        longest = max(longest, held + 5)
    train(recorder(tmp_path / "whole"), max_epochs=-1, max_steps=longest)
    expected = comparable(read_recording(tmp_path / "whole").updates)
    for folder in runs:
        found = comparable(read_recording(folder / "run").updates)
        assert found == expected[: len(found)]


def test_a_line_that_is_lost_or_changed_would_be_noticed(tmp_path: Path, nursery: Nursery) -> None:
    child = begin(nursery, tmp_path, resume=False)
    told = [child.hear() for _ in range(9)][-1]
    rest = kill(child, after=0)
    assert nursery.status() == -signal.SIGKILL
    last = max([told or 0, *rest])
    check_whole(tmp_path / "run", told=last)
    file = tmp_path / "run" / "updates.rank0.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    updates = [n for n, line in enumerate(lines) if line.startswith(b'{"kind":"update"')]
    file.write_bytes(b"".join(lines[: updates[last - 1]]))
    with pytest.raises(AssertionError, match=f"update {last} was handed over"):
        check_whole(tmp_path / "run", told=last)
    file.write_bytes(b"".join(lines[: updates[2]] + lines[updates[3] :]))
    with pytest.raises(RecordingError, match="'update' of optimizer 0 must be 3, got 4"):
        check_whole(tmp_path / "run", told=last)
    changed = lines[updates[2]].replace(b'"loss":', b'"loss":1')
    assert changed != lines[updates[2]]
    file.write_bytes(b"".join([*lines[: updates[2]], changed, *lines[updates[3] :]]))
    with pytest.raises(RecordingError, match="crc"):
        check_whole(tmp_path / "run", told=last)


def test_a_second_process_is_refused_and_the_first_not_disturbed(
    tmp_path: Path, nursery: Nursery
) -> None:
    child = begin(nursery, tmp_path, resume=False)
    while (child.hear() or 0) < 2:
        pass
    path = tmp_path / "run"
    with pytest.raises(RecordingError, match="this one exists"):
        train(recorder(path))
    with pytest.raises(RecordingError, match="is being written by another recorder"):
        train(recorder(path, overwrite=True))
    with pytest.raises(RecordingError, match="is being written by another recorder"):
        train(recorder(path), resume=tmp_path / "last.ckpt")
    reached = child.hear() or 0
    rest = kill(child, after=0.02)
    assert nursery.status() == -signal.SIGKILL
    assert rest[-1] > reached + 1  # it went on
    recording = check_whole(path, told=rest[-1])
    assert [run.attempt for run in recording.runs] == [1]
    train(recorder(path), resume=tmp_path / "last.ckpt", max_epochs=-1, max_steps=rest[-1] + 50)
    assert [run.attempt for run in read_recording(path).runs] == [1, 2]  # and nobody holds it now


def test_sigterm_to_a_process_ends_its_recording_as_interrupted(
    tmp_path: Path, nursery: Nursery
) -> None:
    child = begin(nursery, tmp_path, resume=False)
    while (child.hear() or 0) < 2:
        pass
    rest = kill(child, after=0.02, number=signal.SIGTERM)
    assert nursery.status() == 1  # Lightning raises
    recording = check_whole(tmp_path / "run", told=rest[-1])
    assert recording.end is not None
    assert (recording.end.reason, recording.end.updates) == ("interrupted", rest[-1])
    assert all(isinstance(update, UpdateRecord) for update in recording.updates)

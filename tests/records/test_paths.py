"""Where a recording lies, and names that move no RNG."""

import random
from pathlib import Path

import pytest

from traingen.records import new_run_id, recording_path, times_path


@pytest.mark.parametrize(
    ("path", "rank", "expected"),
    [
        ("runs/a", 0, "runs/a/updates.rank0.jsonl"),
        ("runs/a", 3, "runs/a/updates.rank3.jsonl"),
        ("runs/v1.2", 0, "runs/v1.2/updates.rank0.jsonl"),
        ("runs/a.jsonl", 0, "runs/a.jsonl"),
        ("runs/a.b.jsonl", 3, "runs/a.b.rank3.jsonl"),
        ("runs/a/updates.rank0.jsonl", 0, "runs/a/updates.rank0.jsonl"),
        ("runs/a/updates.rank0.jsonl", 3, "runs/a/updates.rank3.jsonl"),
    ],
)
def test_a_run_is_a_folder_or_a_file(path: str, rank: int, expected: str) -> None:
    assert recording_path(path, rank=rank) == Path(expected)


@pytest.mark.parametrize(
    ("path", "rank", "expected"),
    [
        ("runs/a", 0, "runs/a/times.jsonl"),
        ("runs/a", 3, "runs/a/times.rank3.jsonl"),
        ("runs/a/updates.rank0.jsonl", 0, "runs/a/times.jsonl"),
        ("runs/a/updates.rank3.jsonl", 0, "runs/a/times.rank3.jsonl"),
        ("runs/a.jsonl", 0, "runs/a.times.jsonl"),
        ("runs/a.jsonl", 3, "runs/a.rank3.times.jsonl"),
    ],
)
def test_times_lie_beside_the_recording(path: str, rank: int, expected: str) -> None:
    assert times_path(path, rank=rank) == Path(expected)


def test_run_ids_differ_and_draw_nothing() -> None:
    before = random.getstate()
    first, second = new_run_id(), new_run_id()
    assert random.getstate() == before
    assert first != second
    assert len(first) == 32

"""A guarded sink keeps its first error, writes no more, and leaves no empty file behind."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.records.samples import make_run, make_update
from traingen.errors import RecordingError
from traingen.records import JsonlSink, MemorySink, Record
from traingen.records.guard import GuardedSink
from traingen.records.times import TimesSink, iter_times


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Fails(MemorySink):
    """Refuses its record number `at`, from 1, and whatever comes after a refusal is an error."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def write(self, record: Record) -> None:
        assert len(self.records) < self.at, "written to after it had failed"
        if len(self.records) + 1 == self.at:
            self.at = -1
            raise RecordingError("no space")
        super().write(record)


def test_the_guard_keeps_the_first_error_and_writes_no_more():
    guard = GuardedSink(Fails(3), held=[4])
    records = [make_run(), make_update(5), make_update(6), make_update(7)]
    for record in records:
        guard.write(record)
    assert str(guard.error) == "no space"
    assert guard.held == {0: 5}
    guard.close()
    guard.close()
    assert str(guard.error) == "no space"


def test_the_guard_removes_only_what_is_empty_and_its_own(tmp_path):
    for name, written in (("written", True), ("empty", False)):
        sink = JsonlSink(tmp_path / f"{name}.jsonl")
        guard = GuardedSink(sink, files=[sink.path])
        if written:
            guard.write(make_run())
        guard.close()
        assert sink.path.exists() == written
    sink = JsonlSink(tmp_path / "moved.jsonl")
    guard = GuardedSink(sink, files=[sink.path])
    sink.path.rename(tmp_path / "elsewhere.jsonl")
    sink.path.touch()  # somebody else's
    guard.close()
    assert sink.path.exists()


def test_a_line_that_was_never_whole_is_taken_back_and_the_empty_file_removed(tmp_path):
    sink = JsonlSink(tmp_path / "run.jsonl")
    guard = GuardedSink(sink, files=[sink.path])
    with full_disk(50):
        guard.write(make_run())
        assert sink.path.stat().st_size == 50
    guard.close()
    assert guard.error is not None and not sink.path.exists()


def test_times_are_written_until_one_fails_and_removed_if_none_were(tmp_path):
    sink, times = JsonlSink(tmp_path), TimesSink(tmp_path)
    guard = GuardedSink(sink, times=times, files=[sink.path, times.path])
    guard.write(make_run())
    guard.close()
    assert (sink.path.exists(), times.path.exists()) == (True, False)
    guard = GuardedSink(MemorySink(), times=TimesSink(tmp_path), attempt=2)
    guard.write_times(1, 0, 0.5, 0.25)
    guard.write_times(2, 0, float("nan"), 0.25)
    guard.write_times(3, 0, 0.5, 0.25)
    guard.close()
    assert "times of update 2 must be finite" in str(guard.times_error)
    assert guard.error is None
    assert [(time.attempt, time.update) for time in iter_times(tmp_path)] == [(2, 1)]


def test_what_is_no_error_of_recording_passes_through():
    class Breaks(MemorySink):
        def write(self, record: Record) -> None:
            raise KeyboardInterrupt

    guard = GuardedSink(Breaks())
    with pytest.raises(KeyboardInterrupt):
        guard.write(make_update(1))
    assert (guard.error, guard.held) == (None, {})

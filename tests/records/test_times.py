"""Times lie beside the recording, and a file of them fails as loudly as a recording does."""

import json
import math
import os
from pathlib import Path

import msgspec
import pytest

from tests.records.samples import make_run
from traingen.errors import RecordingError
from traingen.records import JsonlSink, StepTime, TimesSink, iter_times, times_path


def time_of(update: int, step: float = 0.5, optimizer: int = 0) -> StepTime:
    return StepTime(
        attempt=1, update=update, optimizer=optimizer, step_seconds=step, wait_seconds=0.25
    )


def write(sink: TimesSink, *times: StepTime) -> None:
    for one in times:
        sink.write(one)


def test_times_lie_beside_the_recording_and_come_back(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as recording, TimesSink(tmp_path) as sink:
        recording.write(make_run())
        write(sink, time_of(1), time_of(2))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "times.jsonl",
        "updates.rank0.jsonl",
    ]
    for path in (tmp_path, recording.path, sink.path):
        assert tuple(iter_times(path)) == (time_of(1), time_of(2))


def test_a_line_is_strict_json_of_five_fields(tmp_path: Path) -> None:
    with TimesSink(tmp_path / "a.jsonl", rank=2) as sink:
        sink.write(
            StepTime(attempt=3, update=1, optimizer=0, step_seconds=0.0123, wait_seconds=0.0004)
        )
    assert sink.path.name == "a.rank2.times.jsonl"
    assert sink.path.read_text() == (
        '{"attempt":3,"update":1,"optimizer":0,"step_seconds":0.0123,"wait_seconds":0.0004}\n'
    )
    assert [one.step_seconds for one in iter_times(tmp_path / "a.jsonl", rank=2)] == [0.0123]


def test_a_file_of_times_that_exists_is_refused_or_moved_aside(tmp_path: Path) -> None:
    for step in (0.5, 0.75):
        with TimesSink(tmp_path, overwrite=True) as sink:
            write(sink, time_of(1, step))
    with pytest.raises(RecordingError, match="this one exists"):
        TimesSink(tmp_path)
    assert tuple(iter_times(tmp_path)) == (time_of(1, 0.75),)
    assert "0.5" in (tmp_path / "times.jsonl.old-1").read_text()


def test_a_resume_appends(tmp_path: Path) -> None:
    first = [time_of(n, optimizer=o) for n in (1, 2, 3) for o in (0, 1)]
    with TimesSink.resume(tmp_path) as sink:  # there is none yet
        write(sink, *first)
    with TimesSink.resume(tmp_path) as sink:
        write(sink, time_of(2, step=9.0))
    assert list(iter_times(tmp_path)) == [*first, time_of(2, step=9.0)]


@pytest.mark.parametrize("cut", range(1, 20, 3))
def test_a_torn_line_is_passed_over_before_and_after_a_resume(tmp_path: Path, cut: int) -> None:
    with TimesSink(tmp_path) as sink:
        write(sink, time_of(1), time_of(2))
    os.truncate(sink.path, sink.path.stat().st_size - cut)
    assert tuple(iter_times(tmp_path)) == (time_of(1),)
    with TimesSink.resume(tmp_path) as sink:
        write(sink, time_of(2), time_of(3))
    # a line that lacked its newline alone is whole again
    assert [*dict.fromkeys(iter_times(tmp_path))] == [time_of(1), time_of(2), time_of(3)]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"attempt":1,"update":0,"optimizer":0,"step_seconds":1.0,"wait_seconds":0.0}',
        b'{"attempt":1,"update":1,"optimizer":0,"step_seconds":"1","wait_seconds":0.0}',
        b'{"attempt":1,"update":1,"optimizer":0,"step_seconds":1.0}',
        b'{"update":1,"optimizer":0,"step_seconds":1.0,"wait_seconds":0.0}',
        b"not json}",
    ],
)
def test_a_whole_line_that_is_none_of_times_is_refused_at_its_place(
    tmp_path: Path, line: bytes
) -> None:
    with TimesSink(tmp_path) as sink:
        write(sink, time_of(1))
    sink.path.write_bytes(sink.path.read_bytes() + line + b"\n")
    with pytest.raises(RecordingError, match=r"times\.jsonl:2: must be the times of one update"):
        list(iter_times(tmp_path))


@pytest.mark.parametrize("seconds", [math.nan, math.inf])
def test_times_that_are_no_numbers_are_refused_before_they_are_written(
    tmp_path: Path, seconds: float
) -> None:
    with TimesSink(tmp_path) as sink, pytest.raises(RecordingError, match="must be finite"):
        write(sink, time_of(1, seconds))
    assert sink.path.read_bytes() == b""


def test_a_run_that_was_not_timed_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"times\.jsonl: no such file of times"):
        iter_times(tmp_path)


def test_two_writers_a_removed_file_and_a_closed_sink_are_errors(tmp_path: Path) -> None:
    sink = TimesSink(tmp_path)
    with pytest.raises(RecordingError, match="is being written by another"):
        TimesSink.resume(tmp_path)
    sink.path.unlink()
    with pytest.raises(RecordingError, match="was removed"):
        write(sink, time_of(1))
    sink.close()
    sink.close()
    with pytest.raises(RecordingError, match="the sink is closed"):
        write(sink, time_of(1))


def test_unknown_fields_of_a_newer_writer_are_passed_over(tmp_path: Path) -> None:
    newer = msgspec.structs.asdict(time_of(1)) | {"gpu": 0.1}
    times_path(tmp_path).write_text(json.dumps(newer) + "\n")
    assert tuple(iter_times(tmp_path)) == (time_of(1),)

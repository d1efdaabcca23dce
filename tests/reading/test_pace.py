"""How long updates took, from the times beside a recording."""

import pytest

from tests.reading.recordings import make_training, write_recording
from traingen.reading.pace import measure_pace
from traingen.records import recording_path
from traingen.records.times import StepTime, TimesSink


def timed(path, *times):
    write_recording(path, make_training(3))
    with TimesSink(path) as sink:
        for update, (step, wait) in enumerate(times, start=1):
            sink.write(
                StepTime(
                    attempt=1, update=update, optimizer=0, step_seconds=step, wait_seconds=wait
                )
            )
    return recording_path(path)


def test_the_median_does_not_mind_one_slow_update(tmp_path):
    pace = measure_pace(timed(tmp_path / "run", (0.1, 0.05), (0.1, 0.05), (9.8, 0.9)))
    assert pace is not None
    assert (pace.updates, pace.median_seconds) == (3, 0.1)
    assert pace.total_seconds == pytest.approx(10.0)
    assert pace.wait_share == pytest.approx(0.1)


def test_no_time_at_all_has_no_share(tmp_path):
    pace = measure_pace(timed(tmp_path / "run", (0.0, 0.0)))
    assert pace is not None
    assert pace.wait_share is None


def test_without_times_there_is_no_pace(tmp_path):
    write_recording(tmp_path / "run", make_training(3))
    assert measure_pace(recording_path(tmp_path / "run")) is None
    assert measure_pace(timed(tmp_path / "empty")) is None

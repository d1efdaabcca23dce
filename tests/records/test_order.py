"""Lines that are missing from a recording are seen by what the next event or the end counts."""

from pathlib import Path

import pytest

from tests.records.samples import make_end, make_event, make_resumed, make_run, make_update
from traingen.errors import RecordingError
from traingen.records import Record, encode_line, iter_records, read_recording
from traingen.records.order import Order

RUN = make_run(system=None)
LOCKSTEP = make_run(system="package")
AT_THREE = make_run(system=None, attempt=2, resumed=make_resumed(3))


def write(path: Path, *records: Record) -> Path:
    path.write_bytes(b"".join(map(encode_line, records)))
    return path


def read(path: Path, *records: Record) -> list[Record]:
    return list(iter_records(write(path / "a.jsonl", *records)))


@pytest.mark.parametrize(
    "records",
    [
        [RUN, make_update(1), make_update(2), make_end(updates=2)],
        [RUN, make_event(update=0), make_update(1), make_event(update=1)],
        [RUN, make_update(1), make_update(1, optimizer=1), make_end(updates=2)],
        [AT_THREE, make_update(4), make_event(update=4), make_end(updates=4)],
        [
            RUN, make_update(1), make_end(updates=1), make_event(event="segment", update=1),
            make_update(2), make_update(1, optimizer=1), make_end(updates=3),
        ],
        [RUN, make_update(1), AT_THREE, make_update(4), make_end(updates=4)],
    ],
    ids=["end", "events", "optimizers", "resumed", "segment", "attempts"],
)  # fmt: skip
def test_counts_of_what_stands_are_taken(tmp_path: Path, records: list[Record]) -> None:
    assert read(tmp_path, *records) == records


@pytest.mark.parametrize("reason", ["finished", "stopped"])
@pytest.mark.parametrize("updates", [0, 1, 3, 4])
def test_an_end_that_counts_other_updates_is_refused(
    tmp_path: Path, reason: str, updates: int
) -> None:
    end = make_end(reason=reason, updates=updates)
    with pytest.raises(RecordingError, match=rf":4: 'updates' must be 2, .* got {updates}: lines"):
        read(tmp_path, RUN, make_update(1), make_update(2), end)


@pytest.mark.parametrize("update", [0, 3])
def test_an_event_that_counts_other_updates_is_refused(tmp_path: Path, update: int) -> None:
    records = [RUN, make_update(1), make_event(update=update), make_update(2)]
    with pytest.raises(RecordingError, match=rf":3: 'update' must be 1, .* got {update}: lines"):
        read(tmp_path, *records)


@pytest.mark.parametrize(("attempt", "before"), [(2, 2), (3, 7)])
def test_a_checkpoint_of_a_later_attempt_is_refused(
    tmp_path: Path, attempt: int, before: int
) -> None:
    later = make_run(system=None, attempt=attempt, resumed=make_resumed(1, attempt=before))
    with pytest.raises(RecordingError, match=rf":3: 'resumed.attempt' must be below {attempt}"):
        read(tmp_path, RUN, make_update(1), later)
    before_it = make_run(system=None, attempt=attempt, resumed=make_resumed(1, attempt=1))
    assert read(tmp_path, RUN, make_update(1), before_it)[-1] == before_it


def test_an_event_after_a_line_that_is_missing_is_refused(tmp_path: Path) -> None:
    killed = [RUN, make_update(1), make_event(update=2)]  # the line of update 2 is not there
    with pytest.raises(RecordingError, match=":3: 'update' must be 1"):
        read(tmp_path, *killed)
    with pytest.raises(RecordingError, match=":4: 'updates' must be 1"):
        read(tmp_path, *killed, make_end(updates=2))
    resumed = make_run(system=None, attempt=2, resumed=make_resumed(2))
    with pytest.raises(RecordingError, match=":3: 'update' must be 1"):
        read(tmp_path, *killed, resumed)


@pytest.mark.parametrize("reason", ["interrupted", "exception"])
@pytest.mark.parametrize("events", [0, 2])
def test_the_update_in_which_a_training_broke_off_may_have_no_line(
    tmp_path: Path, reason: str, events: int
) -> None:
    said = [make_event(event="skipped_step", update=2)] * events
    records = [RUN, make_update(1), *said, make_end(reason=reason, updates=2)]
    assert read(tmp_path, *records) == records
    with pytest.raises(RecordingError, match=r"must be 1, .* got 3"):  # but no two of them
        read(tmp_path, *records[:-1], make_end(reason=reason, updates=3))
    with pytest.raises(RecordingError, match="must be 1"):  # and none is counted back
        read(tmp_path, RUN, make_update(1), make_event(), make_end(reason=reason, updates=1))


def test_a_resume_says_that_the_update_is_missing(tmp_path: Path) -> None:
    resumed = make_run(system=None, attempt=2, resumed=make_resumed(2))
    broken = [RUN, make_update(1), make_end(reason="interrupted", updates=2), resumed]
    recording = read_recording(write(tmp_path / "a.jsonl", *broken, make_update(3)))
    assert [(gap.first, gap.last) for gap in recording.missing] == [(2, 2)]


def test_a_lockstep_drops_what_one_side_did_alone(tmp_path: Path) -> None:
    for last in ("stopped", "exception"):
        records = [LOCKSTEP, make_update(1), make_event(), make_end(reason=last, updates=3)]
        assert read(tmp_path, *records) == records
    with pytest.raises(RecordingError, match=r"must be 1, .* got 3"):
        read(tmp_path, LOCKSTEP, make_update(1), make_end(updates=3))
    with pytest.raises(RecordingError, match=r"must be 1, .* got 0"):
        read(tmp_path, LOCKSTEP, make_update(1), make_end(reason="stopped", updates=0))


def test_a_torn_line_may_be_the_end_that_explains_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", RUN, make_update(1), make_event())
    end = encode_line(make_end(reason="interrupted", updates=2))
    path.write_bytes(path.read_bytes() + end[:-9])
    assert len(list(iter_records(path))) == 3


def test_from_inside_a_file_on_only_what_is_known_is_checked() -> None:
    order = Order(inside=True)
    for record in (make_event(update=7), make_update(4), make_update(2, optimizer=1)):
        order.check(record, where="x")
    order.check(make_update(5), where="x")
    for update in (5, 7):
        with pytest.raises(RecordingError, match="'update' of optimizer 0 must be 6"):
            order.check(make_update(update), where="x")
    order.check(AT_THREE, where="x")
    with pytest.raises(RecordingError, match="'updates' must be 3"):
        order.check(make_end(updates=2), where="x")

"""A file comes back as what was written, or as an error that names the line."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.records.make_golden import GOLDEN
from tests.records.samples import golden_records, make_end, make_event, make_run, make_update
from traingen.errors import RecordingError
from traingen.records import (
    EventRecord,
    Record,
    TornTail,
    UpdateRecord,
    encode_line,
    iter_records,
    read_recording,
)


def write(path: Path, *records: Record) -> Path:
    path.write_bytes(b"".join(map(encode_line, records)))
    return path


def test_the_golden_recording_is_read_and_written_again_byte_for_byte() -> None:
    assert b"".join(map(encode_line, iter_records(GOLDEN))) == GOLDEN.read_bytes()
    assert repr(list(iter_records(GOLDEN))) == repr(golden_records())


def test_a_recording_holds_every_line_in_its_place(
    recording_file: Path, records: list[Record]
) -> None:
    recording = read_recording(recording_file)
    assert recording.path == recording_file
    assert (recording.run, recording.end, recording.torn) == (records[0], records[-1], None)
    assert repr(recording.updates) == repr(
        tuple(record for record in records if isinstance(record, UpdateRecord))
    )
    assert recording.events == tuple(r for r in records if isinstance(r, EventRecord))


def test_a_folder_is_read_as_its_rank_0() -> None:
    assert read_recording(GOLDEN.parent).path == GOLDEN


def test_a_folder_may_be_called_like_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "run.jsonl"
    folder.mkdir()
    shutil.copy(GOLDEN, folder)
    assert len(read_recording(folder).updates) == 3


def test_a_file_cut_at_any_byte_gives_a_prefix_and_its_torn_tail(tmp_path: Path) -> None:
    records = [make_run(), make_event(), make_update(1), make_end()]
    recording_file = write(tmp_path / "run.jsonl", *records)
    content = recording_file.read_bytes()
    whole = [repr(record) for record in records]
    for cut in range(1, len(content)):
        recording_file.write_bytes(content[:cut])
        lines = content[:cut].count(b"\n")
        assert [repr(r) for r in iter_records(recording_file)] == whole[:lines]
        if lines == 0:
            with pytest.raises(RecordingError, match="got only a torn one"):
                read_recording(recording_file)
            continue
        tail = content[:cut].rpartition(b"\n")[2]
        torn = TornTail(line=lines + 1, offset=cut - len(tail), length=len(tail)) if tail else None
        assert read_recording(recording_file).torn == torn


def test_a_last_line_that_parses_but_lacks_its_newline_is_torn(recording_file: Path) -> None:
    recording_file.write_bytes(recording_file.read_bytes()[:-1])
    recording = read_recording(recording_file)
    assert recording.end is None
    assert recording.torn is not None
    assert recording.torn.line == 6


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_one_flipped_bit_in_a_file_never_gives_another_record(
    recording_file: Path, data: st.DataObject
) -> None:
    content = b"".join(map(encode_line, golden_records()))
    damaged = bytearray(content)
    position = data.draw(st.integers(0, len(content) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    recording_file.write_bytes(damaged)
    if position == len(content) - 1:  # the last newline: the line before it is torn
        assert read_recording(recording_file).torn is not None
        return
    line = content[:position].count(b"\n") + 1
    with pytest.raises(RecordingError, match=rf"run\.jsonl:{line}: "):
        read_recording(recording_file)


def test_records_before_a_damaged_line_are_given(recording_file: Path) -> None:
    content = recording_file.read_bytes()
    recording_file.write_bytes(content.replace(b"validation", b"validatioN"))
    reading = iter_records(recording_file)
    assert len([next(reading) for _ in range(3)]) == 3
    with pytest.raises(RecordingError, match=r"run\.jsonl:4: 'crc' must be"):
        next(reading)


def test_a_missing_file_is_refused_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no such recording"):
        iter_records(tmp_path / "none.jsonl")
    with pytest.raises(RecordingError, match=r"updates\.rank0\.jsonl: no such recording"):
        read_recording(tmp_path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="got an empty file"):
        read_recording(write(tmp_path / "run.jsonl"))


def test_a_file_that_does_not_open_with_a_run_line_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "run.jsonl", make_update(1), make_run())
    with pytest.raises(RecordingError, match=r":1: the first record must be a run line, got upda"):
        read_recording(path)


@pytest.mark.parametrize("numbers", [(1, 3), (1, 1), (2, 1)])
def test_updates_that_do_not_follow_one_another_are_refused(
    tmp_path: Path, numbers: tuple[int, int]
) -> None:
    path = write(tmp_path / "run.jsonl", make_run(), *map(make_update, numbers))
    expected = f"must be {numbers[0] + 1}, got {numbers[1]}"
    with pytest.raises(RecordingError, match=rf":3: 'update' of optimizer 0 {expected}"):
        read_recording(path)


def test_each_optimizer_counts_for_itself(tmp_path: Path) -> None:
    numbers = [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2)]
    updates = [make_update(update, optimizer=optimizer) for optimizer, update in numbers]
    path = write(tmp_path / "run.jsonl", make_run(), *updates)
    assert [(u.optimizer, u.update) for u in read_recording(path).updates] == numbers


def test_a_resume_counts_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = (make_run(), make_update(1), make_update(2), make_update(3), make_end())
    second = (make_run(attempt=2), make_update(3), make_update(4))
    recording = read_recording(write(tmp_path / "run.jsonl", *first, *second))
    assert [update.update for update in recording.updates] == [1, 2, 3, 3, 4]
    assert (recording.run.attempt, recording.end) == (1, None)


@pytest.mark.parametrize("changes", [{"attempt": 1}, {"attempt": 2, "run_id": "ff"}])
def test_another_run_in_the_same_file_is_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    path = write(tmp_path / "run.jsonl", make_run(), make_event(), make_run(**changes))
    with pytest.raises(RecordingError, match=r":3: '(attempt|run_id)' must be"):
        read_recording(path)

"""A file comes back as what was written, or as an error that names the line."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.records.make_golden import GOLDEN, GOLDEN_RESUMED, TORN, resumed_bytes
from tests.records.samples import (
    golden_records,
    make_end,
    make_event,
    make_resumed,
    make_run,
    make_update,
    resumed_records,
)
from traingen.errors import RecordingError
from traingen.records import (
    EventRecord,
    Fragment,
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
    records = [make_run(), make_event(update=0), make_update(1), make_end(updates=1)]
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


@pytest.mark.parametrize("second", [1, 3])
def test_updates_that_do_not_follow_one_another_are_refused(tmp_path: Path, second: int) -> None:
    path = write(tmp_path / "run.jsonl", make_run(), make_update(1), make_update(second))
    expected = f"must be 2, got {second}"
    with pytest.raises(RecordingError, match=rf":3: 'update' of optimizer 0 {expected}"):
        read_recording(path)


def test_a_recording_may_begin_later_only_if_its_run_line_says_so(tmp_path: Path) -> None:
    resumed = make_run(attempt=2, resumed=make_resumed(3))
    for run, expected in ((make_run(), 1), (make_run(attempt=2), 1), (resumed, 4)):
        right = write(tmp_path / "right.jsonl", run, make_update(expected))
        assert [update.update for update in read_recording(right).updates] == [expected]
        wrong = write(tmp_path / "wrong.jsonl", run, make_update(expected + 1))
        with pytest.raises(RecordingError, match=f"must be {expected}, got {expected + 1}"):
            read_recording(wrong)


def test_each_optimizer_counts_for_itself(tmp_path: Path) -> None:
    numbers = [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2)]
    updates = [make_update(update, optimizer=optimizer) for optimizer, update in numbers]
    path = write(tmp_path / "run.jsonl", make_run(), *updates)
    assert [(u.optimizer, u.update) for u in read_recording(path).updates] == numbers


def test_a_resume_counts_on_from_its_checkpoint(tmp_path: Path) -> None:
    first = (make_run(), make_update(1), make_update(2), make_update(3, loss=9.0), make_end())
    second = (make_run(attempt=2, resumed=make_resumed(2)), make_update(3), make_update(4))
    path = write(tmp_path / "run.jsonl", *first, *second)
    recording = read_recording(path)
    assert [(u.update, u.loss) for u in recording.updates[2:]] == [(3, 2.3025 / 3), (4, 2.3025 / 4)]
    assert [run.attempt for run in recording.runs] == [1, 2]
    assert (recording.run, recording.end) == (first[0], None)
    assert list(iter_records(path)) == [*first, *second]


def test_an_attempt_without_checkpoint_begins_at_1(tmp_path: Path) -> None:
    first = (make_run(), make_update(1))
    path = write(tmp_path / "run.jsonl", *first, make_run(attempt=2), make_update(1, loss=9.0))
    assert [update.loss for update in read_recording(path).updates] == [9.0]
    write(path, *first, make_run(attempt=2), make_update(2))
    with pytest.raises(RecordingError, match=":4: 'update' of optimizer 0 must be 1, got 2"):
        read_recording(path)


def test_an_optimizer_that_was_not_there_at_the_checkpoint_begins_at_1(tmp_path: Path) -> None:
    run = make_run(attempt=2, resumed=make_resumed(2))
    path = write(tmp_path / "run.jsonl", run, make_update(3), make_update(1, optimizer=1))
    assert [(u.optimizer, u.update) for u in read_recording(path).updates] == [(0, 3), (1, 1)]


def test_after_an_end_comes_a_later_attempt_or_a_segment_and_nothing_else(tmp_path: Path) -> None:
    ended = (make_run(), make_update(1), make_end(updates=1))
    segment = make_event(event="segment", update=1, details={"fit": 2})
    path = write(tmp_path / "run.jsonl", *ended, segment, make_update(2), make_end(updates=2))
    recording = read_recording(path)
    assert [update.update for update in recording.updates] == [1, 2]
    assert recording.end == make_end(updates=2)
    for record in (make_update(2), make_event(), make_end()):
        write(path, *ended, record)
        with pytest.raises(RecordingError, match=r":4: after an end line must come a run line or"):
            read_recording(path)


def test_other_ranks_are_read_from_beside_rank_0(tmp_path: Path) -> None:
    for name in ("updates.rank1.jsonl", "a.rank1.jsonl"):
        write(tmp_path / name, make_run(rank=1))
    for path in (tmp_path, tmp_path / "updates.rank0.jsonl", tmp_path / "a.jsonl"):
        assert read_recording(path, rank=1).run.rank == 1
        assert list(iter_records(path, rank=1)) == [make_run(rank=1)]
    with pytest.raises(RecordingError, match=r"a\.rank2\.jsonl: no such recording"):
        read_recording(tmp_path / "a.jsonl", rank=2)


# ---- fragments ----------------------------------------------------------------------------------


def test_the_golden_resumed_recording_is_read_as_it_was_meant() -> None:
    assert GOLDEN_RESUMED.read_bytes() == resumed_bytes()
    recording = read_recording(GOLDEN_RESUMED)
    assert [(u.optimizer, u.update) for u in recording.updates] == [
        (0, 1), (1, 1), (0, 2), (1, 2), (0, 4), (1, 5),
    ]  # fmt: skip
    (fragment,) = recording.fragments
    assert (fragment.line, fragment.length) == (10, len(TORN) + 1)
    written = [record for attempt in resumed_records() for record in attempt]
    assert list(iter_records(GOLDEN_RESUMED)) == written


LATER = (make_run(attempt=2, resumed=make_resumed(1)), make_update(2))
WHOLE = encode_line(make_update(2, loss=9.0))


def torn_before(path: Path, fragment: bytes, *later: Record) -> Path:
    """A first attempt that was torn in `fragment`, ended by the newline of what came `later`."""
    write(path, make_run(), make_update(1))
    path.write_bytes(path.read_bytes() + fragment + b"\n" + b"".join(map(encode_line, later)))
    return path


@pytest.mark.parametrize("cut", [1, 30, len(WHOLE) // 2, len(WHOLE) - 3])
def test_a_torn_line_before_a_later_attempt_is_a_fragment(tmp_path: Path, cut: int) -> None:
    path = torn_before(tmp_path / "run.jsonl", WHOLE[:cut], *LATER)
    recording = read_recording(path)
    offset = len(encode_line(make_run()) + encode_line(make_update(1)))
    assert recording.fragments == (Fragment(line=3, offset=offset, length=cut + 1),)
    assert recording.updates == (make_update(1), make_update(2))
    assert list(iter_records(path)) == [make_run(), make_update(1), *LATER]


def test_a_block_of_zeros_from_a_power_failure_is_a_fragment(tmp_path: Path) -> None:
    path = torn_before(tmp_path / "run.jsonl", b"\0" * 4096, *LATER)
    assert [fragment.line for fragment in read_recording(path).fragments] == [3]


def test_a_tail_that_lacked_only_its_newline_is_a_record_once_it_has_one(tmp_path: Path) -> None:
    path = torn_before(tmp_path / "run.jsonl", WHOLE[:-1], *LATER)
    recording = read_recording(path)
    assert recording.fragments == ()
    assert [s.last for s in recording.superseded] == [2]


@pytest.mark.parametrize(
    "later",
    [(), (make_update(2),), (make_event(),), (make_run(),), (make_run(attempt=2, run_id="ff"),)],
    ids=["nothing", "update", "event", "same attempt", "another run"],
)
def test_a_torn_line_anywhere_else_is_damage(tmp_path: Path, later: tuple[Record, ...]) -> None:
    path = torn_before(tmp_path / "run.jsonl", WHOLE[:30], *later)
    with pytest.raises(RecordingError, match=r":3: a line must end in|:4: '(attempt|run_id)' must"):
        read_recording(path)


def test_a_damaged_whole_line_before_a_later_attempt_is_damage(tmp_path: Path) -> None:
    damaged = WHOLE.replace(b"9.0", b"8.0")[:-1]
    path = torn_before(tmp_path / "run.jsonl", damaged, *LATER)
    with pytest.raises(RecordingError, match=r":3: 'crc' must be"):
        read_recording(path)


def test_a_file_torn_again_where_it_was_resumed_keeps_both_torn_lines(tmp_path: Path) -> None:
    path = torn_before(tmp_path / "run.jsonl", WHOLE[:30])
    opening = encode_line(LATER[0])[:40]
    content = path.read_bytes()
    path.write_bytes(content + opening)
    recording = read_recording(path)
    assert ([f.line for f in recording.fragments], recording.torn) == (
        [3],
        TornTail(line=4, offset=len(content), length=40),
    )
    path.write_bytes(content + opening + b"\n" + b"".join(map(encode_line, LATER)))
    assert [fragment.line for fragment in read_recording(path).fragments] == [3, 4]
    path.write_bytes(content + encode_line(make_update(2))[:40])  # opens nothing
    with pytest.raises(RecordingError, match=":3: a line must end in"):
        read_recording(path)


@pytest.mark.parametrize("changes", [{"attempt": 1}, {"attempt": 2, "run_id": "ff"}])
def test_another_run_in_the_same_file_is_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    path = write(tmp_path / "run.jsonl", make_run(), make_update(), make_run(**changes))
    with pytest.raises(RecordingError, match=r":3: '(attempt|run_id)' must be"):
        read_recording(path)

"""Which records stand is the same read line by line as it is read whole."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading.recordings import (
    change,
    ended_after,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_file,
    write_recording,
)
from tests.records.samples import make_event
from traingen.errors import RecordingError
from traingen.reading.opening import RunReader
from traingen.reading.outline import iter_outlined, outline_recording
from traingen.records import (
    EventRecord,
    RunRecord,
    UpdateRecord,
    encode_line,
    iter_records,
    read_recording,
)
from traingen.records.attempts import Ledger


def read_through(path):
    """The updates and events that stand, and the ledger when all was taken."""
    outline = outline_recording(path)
    ledger = Ledger(outline.runs)
    kept = [record for record in iter_outlined(outline) if ledger.take(record)]
    updates = tuple(record for record in kept if isinstance(record, UpdateRecord))
    events = tuple(record for record in kept if isinstance(record, EventRecord))
    return updates, events, ledger


def spread(spans):
    """Every superseded update on its own: the reader tells apart what superseded it."""
    return sorted(
        (span.attempt, span.optimizer, update)
        for span in spans
        for update in range(span.first, span.last + 1)
    )


def assert_reads_alike(path):
    whole = read_recording(path)
    updates, events, ledger = read_through(path)
    assert (updates, events) == (whole.updates, whole.events)
    assert spread(ledger.superseded) == spread(whole.superseded)
    assert ledger.missing == whole.missing
    assert ledger.end == whole.end


def two_optimizers(first, last):
    pairs = zip(make_updates(first, last), make_updates(first, last, optimizer=1), strict=True)
    return [record for pair in pairs for record in pair]


RECORDINGS = {
    "one attempt": make_training(4),
    "no update": [seeing_run()],
    "a resume that repeats": [
        seeing_run(), *make_updates(1, 5), make_event(update=5), resumed_at(3),
        make_event(update=3), *make_updates(4, 6), ended_after(6),
    ],
    "a later attempt alone": [resumed_at(3), *make_updates(4, 6)],
    "a later attempt alone without updates": [resumed_at(3)],
    "a gap between attempts": [seeing_run(), *make_updates(1, 2), resumed_at(5),
                               *make_updates(6, 7)],
    "back twice": [
        seeing_run(), *make_updates(1, 6), resumed_at(5), *make_updates(6, 8),
        resumed_at(2, attempt=3), *make_updates(3, 4),
    ],
    "a branch aside": [
        seeing_run(), *make_updates(1, 6), resumed_at(2), *make_updates(3, 4),
        make_event(update=4), resumed_at(6, attempt=3, before=1), *make_updates(7, 8),
    ],
    "begun again": [seeing_run(), *make_updates(1, 3), resumed_at(attempt=2),
                    *make_updates(1, 2)],
    "two optimizers": [seeing_run(), *two_optimizers(1, 4), resumed_at(2, 3),
                       *make_updates(3, 3), *make_updates(4, 4, optimizer=1)],
    "after an end": [*make_training(4), resumed_at(2), *make_updates(3, 3)],
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_stands_line_by_line_is_what_stands_as_a_whole(tmp_path, name):
    assert_reads_alike(write_recording(tmp_path / "run", RECORDINGS[name]))


@given(
    attempts=st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 4), st.booleans()), min_size=1, max_size=4
    )
)
def test_any_resumes_are_read_alike(tmp_path_factory, attempts):
    records = [seeing_run()]
    for number, (completed, more, eventful) in enumerate(attempts, start=2):
        records.append(resumed_at(completed, attempt=number))
        records += make_updates(completed + 1, completed + more)
        records += [make_event(update=completed + more)] if eventful else []
    assert_reads_alike(write_recording(tmp_path_factory.mktemp("any") / "run", records))


def test_an_event_of_a_later_counted_step_is_superseded_like_an_update(tmp_path):
    skipped = make_event(event="skipped_step", update=3, details={"global_step": 4})
    resumed = resumed_at(3)
    resumed = msgspec.structs.replace(
        resumed, resumed=msgspec.structs.replace(resumed.resumed, global_step=3)
    )
    path = write_recording(tmp_path / "run", [seeing_run(), *make_updates(1, 3), skipped, resumed])
    assert read_through(path)[1] == ()
    assert_reads_alike(path)


def test_an_outline_tells_runs_torn_lines_and_nothing_else(tmp_path):
    torn = encode_line(make_updates(3, 3)[0])[:40]
    lines = [seeing_run(), *make_updates(1, 2), torn + b"\n", resumed_at(2), torn]
    outline = outline_recording(write_file(tmp_path / "a.jsonl", lines))
    assert [run.attempt for run in outline.runs] == [1, 2]
    assert (outline.fragments, outline.torn) == (1, 40)
    assert outline.run is outline.runs[-1]
    assert outline.file == tmp_path / "a.jsonl"


@pytest.mark.parametrize("content", [b"", b'{"kind":"run"', b"no recording\n"], ids=str)
def test_without_a_run_line_there_is_no_recording(tmp_path, content):
    path = write_file(tmp_path / "a.jsonl", [content])
    with pytest.raises(RecordingError, match="a run line first"):
        outline_recording(path)


def test_a_missing_recording_is_said_as_by_the_reader(tmp_path):
    with pytest.raises(RecordingError, match="no such recording"):
        outline_recording(tmp_path / "none")


def test_a_damaged_run_line_is_refused_by_its_line(tmp_path):
    damaged = encode_line(resumed_at(1)).replace(b"torch.optim", b"torch.0ptim")
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *make_updates(1, 1), damaged])
    with pytest.raises(RecordingError, match=r"a\.jsonl:3: 'crc'"):
        outline_recording(path)


def test_an_attempt_that_is_opened_while_one_reads_is_left_out(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *make_updates(1, 3)])
    outline = outline_recording(path)
    write_file(path, [seeing_run(), *make_updates(1, 3), resumed_at(1), *make_updates(2, 2)])
    standing = RunReader(outline).standing()
    assert [r.update for r in standing if isinstance(r, UpdateRecord)] == [1, 2, 3]
    assert len(list(iter_records(path))) == 6


def test_what_stands_holds_each_update_once(tmp_path):
    records = change(RECORDINGS["a resume that repeats"], 5, loss=9.0)
    outline = outline_recording(write_recording(tmp_path / "run", records))
    standing = list(RunReader(outline).standing())
    assert sum(isinstance(record, RunRecord) for record in standing) == 2
    assert [r.update for r in standing if isinstance(r, UpdateRecord)] == [1, 2, 3, 4, 5, 6]

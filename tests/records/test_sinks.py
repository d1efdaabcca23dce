"""What a sink took is kept, in order, and nothing that was there before is lost."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.records.samples import make_end, make_event, make_run, make_update
from traingen.errors import RecordingError
from traingen.records import (
    JsonlSink,
    MemorySink,
    Record,
    Sink,
    TeeSink,
    encode_line,
    iter_records,
)

MakeSink = Callable[[Path], Sink]
SINKS: dict[str, MakeSink] = {
    "jsonl": lambda folder: JsonlSink(folder),
    "memory": lambda folder: MemorySink(),
    "tee": lambda folder: TeeSink(MemorySink(), JsonlSink(folder)),
}


@pytest.fixture(params=SINKS.values(), ids=SINKS)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    return request.param(tmp_path)


class Unclosable(MemorySink):
    def close(self) -> None:
        raise OSError("cannot close")


def test_every_sink_closes_twice_and_then_takes_nothing(sink: Sink) -> None:
    sink.write(make_run())
    sink.close()
    sink.close()
    with pytest.raises(RecordingError, match="the sink is closed"):
        sink.write(make_update())


def test_each_record_is_on_disk_when_write_returns(tmp_path: Path, records: list[Record]) -> None:
    with JsonlSink(tmp_path / "new" / "run") as sink:
        for count, record in enumerate(records, start=1):
            sink.write(record)
            assert sink.path.read_bytes() == b"".join(map(encode_line, records[:count]))
    assert sink.path == tmp_path / "new" / "run" / "updates.rank0.jsonl"


def test_one_line_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sizes = os.write, []
    monkeypatch.setattr(os, "write", lambda fd, data: sizes.append(len(data)) or real(fd, data))
    with JsonlSink(tmp_path) as sink:
        sink.write(make_run())
    assert sizes == [len(encode_line(make_run()))]


def test_a_path_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("precious")
    with pytest.raises(RecordingError, match="--overwrite"):
        JsonlSink(path)
    assert path.read_text() == "precious"


def test_of_two_sinks_on_one_path_the_second_is_refused(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as first:
        with pytest.raises(RecordingError, match="is being written by another recorder"):
            JsonlSink(tmp_path)
        first.write(make_run())
    with pytest.raises(RecordingError, match="this one exists"):
        JsonlSink(tmp_path)
    assert list(iter_records(tmp_path)) == [make_run()]


def test_each_rank_has_its_own_file(tmp_path: Path) -> None:
    with JsonlSink(tmp_path / "a.jsonl") as zero, JsonlSink(tmp_path / "a.jsonl", rank=1) as one:
        assert (zero.path.name, one.path.name) == ("a.jsonl", "a.rank1.jsonl")


def test_overwrite_moves_the_old_files_aside(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for seed in range(3):
        with JsonlSink(path, overwrite=True) as sink:
            sink.write(make_run(seed=seed))
    contents = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert contents == {
        "run.jsonl": encode_line(make_run(seed=2)),
        "run.jsonl.old-1": encode_line(make_run(seed=0)),
        "run.jsonl.old-2": encode_line(make_run(seed=1)),
    }


@pytest.mark.parametrize("folder", ["file", "file/run"])
def test_a_path_that_cannot_be_made_is_an_error_with_its_cause(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=r"updates\.rank0\.jsonl: cannot be created") as caught:
        JsonlSink(tmp_path / folder)
    assert isinstance(caught.value.__cause__, OSError)


def test_short_writes_are_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
    with JsonlSink(tmp_path) as sink:
        sink.write(make_run())
        sink.write(make_update())
    assert list(iter_records(tmp_path)) == [make_run(), make_update()]


def fail_midway(error: BaseException, *, after: int) -> Callable[[int, bytes], int]:
    """An `os.write` that writes `after` bytes, then raises."""
    real, calls = os.write, []

    def write(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise error
        return real(fd, data[:after])

    return write


@pytest.mark.parametrize("after", [1, 50])
def test_a_line_cut_short_by_a_full_disk_is_not_glued_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    with JsonlSink(tmp_path) as sink:
        sink.write(make_run())
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail_midway(full, after=after))
            with pytest.raises(RecordingError, match="cannot be written: No space left"):
                sink.write(make_update())
        sink.write(make_end(updates=0))
    assert list(iter_records(tmp_path)) == [make_run(), make_end(updates=0)]


def test_a_line_that_was_whole_when_ctrl_c_came_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def interrupted(fd: int, data: bytes) -> int:
        real(fd, data)
        raise KeyboardInterrupt

    with JsonlSink(tmp_path) as sink:
        sink.write(make_run())
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sink.write(make_event(update=0))
        sink.write(make_update())
        sink.write(make_end(reason="interrupted", updates=1))
    assert list(iter_records(tmp_path)) == [
        make_run(),
        make_event(update=0),
        make_update(),
        make_end(reason="interrupted", updates=1),
    ]


def test_a_record_that_cannot_be_encoded_leaves_no_trace(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as sink:
        sink.write(make_run())
        with pytest.raises(RecordingError, match="cannot be written as JSON"):
            sink.write(make_event(details={"a": object()}))
    assert list(iter_records(tmp_path)) == [make_run()]


def test_a_sink_closes_on_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), JsonlSink(tmp_path) as sink:
        raise ZeroDivisionError
    with pytest.raises(RecordingError, match="closed"):
        sink.write(make_run())


def test_a_memory_sink_keeps_the_very_objects() -> None:
    sink, record = MemorySink(), make_run()
    sink.write(record)
    assert sink.records[0] is record


def test_a_tee_closes_all_even_if_one_raises() -> None:
    last = MemorySink()
    tee = TeeSink(Unclosable(), last)
    tee.write(make_run())
    with pytest.raises(OSError, match="cannot close"):
        tee.close()
    assert last.records == [make_run()]
    with pytest.raises(RecordingError, match="closed"):
        last.write(make_run())

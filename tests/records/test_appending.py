"""One writer per file; what stops it is said at once, and what was written stays whole."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.records.samples import make_end, make_event, make_resumed, make_run, make_update
from traingen.errors import RecordingError
from traingen.records import JsonlSink, encode_line, iter_records, read_recording

RUN_ID = make_run().run_id
NOBODY = 65534


def start(path: Path, updates: int = 2) -> Path:
    """A recording that was left without an end."""
    with JsonlSink(path) as sink:
        sink.write(make_run())
        for update in range(1, updates + 1):
            sink.write(make_update(update))
    return sink.path


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# ---- a run that goes on -------------------------------------------------------------------------


def test_a_resume_appends_the_next_attempt_and_changes_nothing_before(tmp_path: Path) -> None:
    path = start(tmp_path)
    before = path.read_bytes()
    with JsonlSink.resume(tmp_path, run_id=RUN_ID) as sink:
        assert (sink.path, sink.attempt, sink.reached) == (path, 1, {1: {0: 2}})
        sink.write(make_run(attempt=2, resumed=make_resumed(1)))
        sink.write(make_update(2))
    assert path.read_bytes().startswith(before)
    recording = read_recording(tmp_path)
    assert [update.update for update in recording.updates] == [1, 2]
    with JsonlSink.resume(tmp_path, run_id=RUN_ID) as sink:
        assert (sink.attempt, sink.reached) == (2, {1: {0: 2}, 2: {0: 2}})


def test_a_new_sink_has_no_attempt_behind_it(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as sink:
        assert (sink.attempt, sink.reached) == (0, {})


def test_a_file_with_nothing_in_it_is_taken_as_new(tmp_path: Path) -> None:
    """A process that was killed before its first line leaves one."""
    (tmp_path / "run.jsonl").touch()
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        sink.write(make_run())
    assert list(iter_records(sink.path)) == [make_run()]
    assert list(tmp_path.iterdir()) == [sink.path]


def test_what_cannot_be_moved_aside_leaves_nothing_else_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.jsonl").write_text("somebody's")

    def refuse(*names: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(RecordingError, match="cannot be created: Permission denied"):
        JsonlSink(tmp_path / "run.jsonl", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@pytest.mark.parametrize("change", ["cut", "written to"])
def test_a_file_that_somebody_else_changes_is_noticed_at_the_next_line(
    tmp_path: Path, change: str
) -> None:
    with JsonlSink(tmp_path / "run.jsonl") as sink:
        sink.write(make_run())
        if change == "cut":
            os.truncate(sink.path, 100)
        else:
            with sink.path.open("ab") as other:
                other.write(b"mine\n")
        with pytest.raises(RecordingError, match="somebody else has cut it or written to it"):
            sink.write(make_update(1))


def test_a_second_fit_goes_on_after_the_end(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as sink:
        for record in (make_run(), make_update(1), make_end(updates=1)):
            sink.write(record)
    with JsonlSink.resume(tmp_path, run_id=RUN_ID) as sink:
        sink.write(make_event(event="segment", update=1, details={"fit": 2}))
        sink.write(make_update(2))
    assert [update.update for update in read_recording(tmp_path).updates] == [1, 2]


def test_the_file_of_another_run_is_not_resumed_and_left_alone(tmp_path: Path) -> None:
    path = start(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"kind":"upd')
    before = path.read_bytes()
    with pytest.raises(RecordingError, match="'run_id' must be ff to go on with this run, got 01"):
        JsonlSink.resume(tmp_path, run_id="ff")
    assert path.read_bytes() == before
    JsonlSink.resume(tmp_path, run_id=RUN_ID).close()  # the refusal kept no lock


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "got an empty file"),
        (encode_line(make_run())[:-9], "got only a torn one: nothing to resume"),
        (encode_line(make_run()) + b"precious\n", ":2: a line must end in"),
        (encode_line(make_run()) + encode_line(make_update(2)), ":2: 'update' of optimizer 0 must"),
        (encode_line(make_run()) + encode_line(make_update(2))[:-1], ":2: 'update' of optimizer 0"),
        (encode_line(make_run()) + b'{"a":1,"crc":"00000000"}', ":2: 'crc' must be"),
    ],
)
def test_a_file_that_cannot_be_read_is_not_resumed_and_left_alone(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=message):
        JsonlSink.resume(path, run_id=RUN_ID)
    assert path.read_bytes() == content


def test_there_must_be_a_file_to_resume(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"rank0\.jsonl: cannot be opened again: No such file"):
        JsonlSink.resume(tmp_path, run_id=RUN_ID)
    assert list(tmp_path.iterdir()) == []


RECORDS = [make_run(), make_update(1), make_update(2)]
CONTENT = b"".join(map(encode_line, RECORDS))
FIRST = len(encode_line(RECORDS[0]))
ENDS = {len(b"".join(map(encode_line, RECORDS[:count]))) for count in (1, 2, 3)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(FIRST, len(CONTENT)))
def test_a_torn_tail_is_never_glued_to_what_a_resume_writes(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(CONTENT[:cut])
    later = [make_run(attempt=2, resumed=make_resumed(1)), make_update(2, loss=9.0)]
    with JsonlSink.resume(path, run_id=RUN_ID) as sink:
        assert path.read_bytes() == CONTENT[:cut]  # the newline comes with the first line
        for record in later:
            sink.write(record)
    end = b"" if CONTENT[:cut].endswith(b"\n") else b"\n"
    assert path.read_bytes() == CONTENT[:cut] + end + b"".join(map(encode_line, later))
    recording = read_recording(path)
    assert recording.updates[-1] == later[1]
    ends_whole = {cut, cut + 1} & ENDS  # with its newline, or but for it
    assert len(recording.fragments) == (0 if ends_whole else 1)


def test_a_resume_that_writes_nothing_leaves_a_torn_tail_torn(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(CONTENT[:-30])
    JsonlSink.resume(path, run_id=RUN_ID).close()
    assert path.read_bytes() == CONTENT[:-30]


@pytest.mark.parametrize("written", [1, 20])
def test_a_disk_that_is_full_at_the_first_line_of_a_resume_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(CONTENT[:-30])
    real, calls = os.write, []

    def full(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:written])

    sink = JsonlSink.resume(path, run_id=RUN_ID)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(RecordingError, match=r"No space left on device\. All lines before"):
            sink.write(make_run(attempt=2, resumed=make_resumed(1)))
    sink.close()
    assert path.read_bytes() == CONTENT[:-30]


def test_a_first_line_that_was_whole_when_ctrl_c_came_parts_the_torn_tail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(CONTENT[:-30])
    real = os.write

    def interrupted(fd: int, data: bytes) -> int:
        real(fd, data)
        raise KeyboardInterrupt

    later = [make_run(attempt=2, resumed=make_resumed(1)), make_update(2)]
    with JsonlSink.resume(path, run_id=RUN_ID) as sink:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                sink.write(later[0])
        sink.write(later[1])
    assert path.read_bytes() == CONTENT[:-30] + b"\n" + b"".join(map(encode_line, later))


# ---- two recorders ------------------------------------------------------------------------------


def test_while_one_sink_writes_no_other_opens_or_moves_its_file(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as first:
        first.write(make_run())
        for open_again in (
            lambda: JsonlSink.resume(tmp_path, run_id=RUN_ID),
            lambda: JsonlSink(tmp_path, overwrite=True),
        ):
            with pytest.raises(RecordingError, match="is being written by another recorder"):
                open_again()
        first.write(make_update(1))
    assert [file.name for file in tmp_path.iterdir()] == ["updates.rank0.jsonl"]
    assert list(iter_records(tmp_path)) == [make_run(), make_update(1)]
    JsonlSink.resume(tmp_path, run_id=RUN_ID).close()  # closed, it is free


HOLD = """
import sys
from tests.records.samples import make_run
from traingen.records import JsonlSink
sink = JsonlSink(sys.argv[1])
sink.write(make_run())
print("open", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_writes_is_refused_until_that_is_gone(tmp_path: Path) -> None:
    with python(HOLD, tmp_path) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        with pytest.raises(RecordingError, match="is being written by another recorder"):
            JsonlSink.resume(tmp_path, run_id=RUN_ID)
        other.send_signal(signal.SIGKILL)
    JsonlSink.resume(tmp_path, run_id=RUN_ID).close()


FORK = """
import os, sys
from tests.records.samples import make_run, make_update
from traingen.errors import RecordingError
from traingen.records import JsonlSink
sink = JsonlSink(sys.argv[1])
sink.write(make_run())
fd = sink._file._fd
back, there = os.pipe()
child = os.fork()
if child == 0:
    os.close(there)
    os.read(back, 1)  # the parent has closed its sink and opened it again
    try:
        sink.write(make_update(1))
    except RecordingError as error:
        print(error, flush=True)
    sink.close()
    os._exit(0)
sink.write(make_update(1))
sink.close()
JsonlSink.resume(sys.argv[1], run_id=make_run().run_id).close()  # though the child is alive
os.write(there, b"x")
os.waitpid(child, 0)
print("done", flush=True)
"""


def test_a_forked_child_neither_writes_nor_keeps_the_lock(tmp_path: Path) -> None:
    with python(FORK, tmp_path) as process:
        said, _ = process.communicate()
    refusal, done = said.splitlines()
    assert "the sink belongs to the process that opened it" in refusal
    assert (done, process.returncode) == ("done", 0)
    assert list(iter_records(tmp_path)) == [make_run(), make_update(1)]


def test_a_child_that_was_given_the_open_file_does_not_keep_it_locked(tmp_path: Path) -> None:
    with JsonlSink(tmp_path) as sink:
        sink.write(make_run())
        assert sink._file._fd is not None
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            pass_fds=[sink._file._fd],
        )
    with child:
        JsonlSink.resume(tmp_path, run_id=RUN_ID).close()
        assert child.poll() is None


def test_a_file_system_without_locks_is_written_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    for number in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO):
        folder = tmp_path / str(number)
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", refuse)
            if number == errno.EIO:  # that is a broken disk, not one without locks
                with pytest.raises(RecordingError, match="cannot be created: Input/output error"):
                    JsonlSink(folder)
                continue
            start(folder)
        assert len(read_recording(folder).updates) == 2


# ---- disks and folders --------------------------------------------------------------------------


@pytest.mark.parametrize("remove", ["file", "folder", "replaced"])
def test_a_recording_that_vanishes_is_noticed_at_the_next_record(
    tmp_path: Path, remove: str
) -> None:
    folder = tmp_path / "run"
    sink = JsonlSink(folder)
    sink.write(make_run())
    if remove == "replaced":
        (tmp_path / "other").write_text("precious")
        os.replace(tmp_path / "other", sink.path)
    else:
        sink.path.unlink()
    if remove == "folder":
        folder.rmdir()
    for _ in range(2):
        with pytest.raises(RecordingError, match="was removed while it was being written"):
            sink.write(make_update(1))
    sink.close()
    assert sink.path.exists() == (remove == "replaced")


def test_a_folder_that_is_moved_takes_its_recording_along(tmp_path: Path) -> None:
    with JsonlSink(tmp_path / "run") as sink:
        sink.write(make_run())
        (tmp_path / "run").rename(tmp_path / "moved")
        sink.write(make_update(1))
    assert list(iter_records(tmp_path / "moved")) == [make_run(), make_update(1)]


LIMITED = """
import resource, sys
from tests.records.samples import make_run, make_update
from traingen.errors import RecordingError
from traingen.records import JsonlSink
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
sink = JsonlSink(sys.argv[1])
count = 0
try:
    sink.write(make_run())
    while True:
        sink.write(make_update(count + 1))
        count += 1
except RecordingError as error:
    print(count, error, flush=True)
sink.close()
"""


@pytest.mark.parametrize("size", [5000, 5001, 9000])
def test_a_file_that_may_not_grow_keeps_its_whole_lines_and_nothing_else(
    tmp_path: Path, size: int
) -> None:
    with python(LIMITED, tmp_path, size) as process:
        said, _ = process.communicate()
    count, message = said.split(" ", 1)
    assert "cannot be written: File too large. All lines before are whole." in message
    recording = read_recording(tmp_path)
    assert recording.torn is None
    assert [update.update for update in recording.updates] == list(range(1, int(count) + 1))
    assert recording.path.stat().st_size <= size


@contextmanager
def as_nobody() -> Iterator[None]:
    """The superuser may write anywhere; a test of permissions must be somebody else."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_that_may_not_be_written_is_refused_at_the_start() -> None:
    with tempfile.TemporaryDirectory() as folder:
        read_only = Path(folder) / "run"
        read_only.mkdir(mode=0o555)
        Path(folder).chmod(0o755)  # nobody may look into it
        with as_nobody(), pytest.raises(RecordingError, match="cannot be created: Permission den"):
            JsonlSink(read_only)
        read_only.chmod(0o777)
        with as_nobody():  # the same, where it may
            JsonlSink(read_only).close()


def test_an_error_at_close_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonlSink(tmp_path)
    fd = sink._file._fd
    assert fd is not None
    real = os.close

    def full(number: int) -> None:
        real(number)
        if number == fd:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "close", full)
    with pytest.raises(RecordingError, match="cannot be closed: Disk quota exceeded"):
        sink.close()
    sink.close()

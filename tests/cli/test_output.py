"""Where a command's words go, and what is refused as a place for them."""

import io
import json
import os
import stat
import threading

import pytest

from traingen.cli.output import check_out, save_json, write_json, write_text
from traingen.errors import ConfigError


def test_text_is_printed_while_somebody_reads(capsys):
    assert write_text("one\ntwo") is True
    write_json({"verdict": "pass"})
    assert capsys.readouterr().out == 'one\ntwo\n{"verdict": "pass"}\n'


def test_a_result_replaces_an_older_one_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "new" / "result.json"
    save_json({"verdict": "fail"}, path)
    save_json({"verdict": "pass"}, path)
    assert json.loads(path.read_text()) == {"verdict": "pass"}
    assert list(path.parent.iterdir()) == [path]


def test_what_is_no_strict_json_is_a_bug(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_json({"loss": float("nan")}, tmp_path / "result.json")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"--out .*: cannot be written"):
        save_json({}, tmp_path / "file" / "result.json")


def test_an_output_must_not_take_the_place_of_an_input(tmp_path):
    given = tmp_path / "run"
    given.touch()
    for out in (given, tmp_path, tmp_path / "other.jsonl"):
        with pytest.raises(ConfigError, match="expected a new file for the result"):
            check_out(out, given)


@pytest.mark.parametrize("out", [None, "result.json"])
def test_any_other_output_is_taken(tmp_path, out):
    assert check_out(out and tmp_path / out, tmp_path / "run") is None


# ---- what is no regular file --------------------------------------------------------------------


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    save_json({"verdict": "pass"}, pipe)
    reader.join(20)
    assert json.loads(read[0]) == {"verdict": "pass"}
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_and_stays_one(tmp_path, exists):
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    if exists:
        target.write_text("something longer than the result that takes its place")
    link.symlink_to(target)
    save_json({"a": 1}, link)
    assert link.is_symlink()
    assert json.loads(target.read_text()) == {"a": 1}


def test_a_link_to_a_recording_or_an_input_is_no_place_for_a_result(tmp_path):
    recording, given, other = (tmp_path / name for name in ("a.jsonl", "given", "other.json"))
    for target, allowed in ((recording, False), (given, False), (other, True)):
        target.touch()
        link = tmp_path / f"to-{target.name}.json"
        link.symlink_to(target)
        if allowed:
            check_out(link, given)
            continue
        with pytest.raises(ConfigError, match="expected a new file for the result"):
            check_out(link, given)


def test_a_write_that_fails_leaves_the_older_result_and_nothing_beside_it(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    save_json({"old": 1}, path)
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "replace", raise_full)
        with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
            save_json({"new": 1}, path)
    assert json.loads(path.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [path]


# ---- an output that takes nothing, or not every character ---------------------------------------


class Full(io.RawIOBase):
    """A disk without space, on the descriptor of a file that takes what is left."""

    def __init__(self, file):
        self._file = file

    def writable(self):
        return True

    def fileno(self):
        return self._file.fileno()

    def write(self, data):
        raise_full()


def raise_full(*_):
    raise OSError(28, "No space left on device")


def test_an_output_without_space_is_an_error_and_not_told_again_at_the_end(tmp_path, monkeypatch):
    with (tmp_path / "file").open("wb") as file:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BufferedWriter(Full(file))))
        with pytest.raises(ConfigError, match="output cannot be written: No space left on device"):
            write_text("one")
        before = os.fstat(file.fileno())
        assert not stat.S_ISREG(before.st_mode)  # the descriptor leads nowhere now
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("encoding", "expected"), [("ascii", b"a ? b ?\n"), ("utf-8", "a ✓ b …\n".encode())]
)
def test_no_report_is_lost_where_a_character_cannot_be_printed(monkeypatch, encoding, expected):
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding=encoding))
    assert write_text("a ✓ b …") is True
    assert printed.getvalue() == expected

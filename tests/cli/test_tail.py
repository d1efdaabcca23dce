"""`traingen tail`: what is there, what comes, and when it stops."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.reading.recordings import (
    ended_after,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_file,
    write_ranks,
    write_recording,
)
from tests.records.samples import make_event, make_update
from traingen.cli.main import main
from traingen.cli.tail import INTERVAL_SECONDS, follow, render_line
from traingen.errors import RecordingError
from traingen.records import encode_line
from traingen.report.recording import render_record


class Script:
    """A clock that does the next thing whenever `follow` pauses, and ends it when none is left."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.pauses = []

    def __call__(self, seconds):
        self.pauses.append(seconds)
        if not self.steps:
            raise KeyboardInterrupt
        self.steps.pop(0)()


def followed(path, *steps, **options):
    """The lines that are written while the steps happen one by one, and the script."""
    lines, script = [], Script(*steps)
    arguments = {"lines": 10, "render": render_record} | options
    try:
        follow(path, write=lambda line: lines.append(line) or True, pause=script, **arguments)
    except KeyboardInterrupt:
        lines.append("interrupted")
    return lines, script


def appending(path, *parts):
    """A step that writes these records or bytes at the end of the file."""

    def append():
        with path.open("ab") as file:
            for part in parts:
                file.write(part if isinstance(part, bytes) else encode_line(part))

    return append


def shown(records):
    return [render_record(record) for record in records]


def test_it_prints_what_comes_and_stops_at_the_end(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *make_updates(1, 1)])
    lines, script = followed(
        path, appending(path, *make_updates(2, 3)), lambda: None,
        appending(path, make_event(update=3), ended_after(3)),
    )  # fmt: skip
    expected = [seeing_run(), *make_updates(1, 3), make_event(update=3), ended_after(3)]
    assert lines == shown(expected)
    assert script.pauses == [INTERVAL_SECONDS] * 3


def test_a_run_that_has_ended_is_printed_without_waiting(tmp_path):
    path = write_recording(tmp_path / "run", make_training(20))
    lines, script = followed(path, lines=3)
    assert lines == shown(make_training(20)[-3:])
    assert script.pauses == []


def test_a_line_in_the_making_is_printed_once_it_is_whole(tmp_path):
    (update,) = make_updates(1, 1)
    line = encode_line(update)
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), line[:30]])
    lines, _ = followed(
        path, appending(path, line[30:-1]), appending(path, b"\n"), appending(path, ended_after(1))
    )
    assert lines == shown([seeing_run(), update, ended_after(1)])


def test_a_resume_goes_on_after_what_was_torn_and_after_an_end(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *make_updates(1, 2), b'{"kind":"upd'])
    resumed = [resumed_at(1), *make_updates(2, 2), ended_after(2)]
    lines, _ = followed(path, appending(path, b"\n", *resumed))
    assert lines == shown([seeing_run(), *make_updates(1, 2), *resumed])
    again = [*resumed, resumed_at(2, attempt=3), *make_updates(3, 3)]
    path = write_file(tmp_path / "b.jsonl", [seeing_run(), *make_updates(1, 2), *again])
    assert followed(path)[0][-1] == "interrupted"  # the end in between is none


def test_once_is_enough_where_it_is_asked_for(tmp_path):
    path = write_recording(tmp_path / "run", make_training(3)[:-1])
    lines, script = followed(path, once=True)
    assert lines == shown(make_training(3)[:-1])
    assert script.pauses == []


def test_what_does_not_exist_yet_is_waited_for_where_it_is_asked_for(tmp_path):
    path = tmp_path / "run"
    lines, script = followed(
        path, lambda: None, lambda: write_recording(path, make_training(2)), wait=True
    )
    assert lines == shown(make_training(2))
    assert len(script.pauses) == 2
    with pytest.raises(RecordingError, match=r"no such recording.*--wait"):
        followed(tmp_path / "none")


def test_a_file_that_is_taken_away_ends_it(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [seeing_run()])
    with pytest.raises(RecordingError, match="no such recording"):
        followed(path, path.unlink)


def test_it_stops_when_nobody_reads_any_more(tmp_path):
    path = write_recording(tmp_path / "run", make_training(5)[:-1])
    taken = []
    follow(path, lines=10, render=render_record, write=lambda line: taken.append(line) or False,
           pause=Script())  # fmt: skip
    assert len(taken) == 1


def test_json_lines_are_those_of_the_file(tmp_path):
    path = write_recording(tmp_path / "run", make_training(2))
    lines, _ = followed(path, render=render_line)
    assert lines == (path / "updates.rank0.jsonl").read_text().splitlines()


# ---- the command --------------------------------------------------------------------------------


def test_the_command_prints_the_last_lines(tmp_path, capsys):
    write_recording(tmp_path / "run", make_training(20))
    assert main(["tail", str(tmp_path / "run"), "-n", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == shown(make_training(20)[-2:])


def test_it_follows_rank_0_or_another_one_and_says_so_once(tmp_path, capsys):
    path = write_ranks(tmp_path / "run", make_training(20), make_training(20, loss=7.0))
    for options, rank in (([], 0), (["--rank", "1"], 1)):
        assert main(["tail", str(path), "-n", "3", *options]) == 0
        out, err = capsys.readouterr()
        assert ("loss 7 " in out) == (rank == 1)
        assert err == (
            f"traingen: this is rank {rank} of 2: --rank R follows another one, show merges all\n"
        )
    assert main(["tail", str(path), "--json"]) == 0
    assert capsys.readouterr().out.startswith('{"kind":"update"')


def test_of_a_single_rank_there_is_nothing_to_say(tmp_path, capsys):
    write_recording(tmp_path / "run", make_training(3))
    main(["tail", str(tmp_path / "run")])
    assert capsys.readouterr().err == ""


def test_it_is_said_once_also_of_what_is_waited_for(tmp_path):
    path, said = tmp_path / "run", []
    followed(
        path, lambda: None, lambda: write_ranks(path, *[make_training(2)[:-1]] * 2),
        appending(path / "updates.rank0.jsonl", ended_after(2)), wait=True, remark=said.append,
    )  # fmt: skip
    assert len(said) == 1


def test_damage_is_bad_input(tmp_path, capsys):
    path = write_file(
        tmp_path / "a.jsonl", [seeing_run(), b"nothing of ours}\n", *make_updates(1, 1)]
    )
    assert main(["tail", str(path), "--once"]) == 2
    assert "a.jsonl: at byte" in capsys.readouterr().err


@pytest.mark.parametrize("updates", [[4, 7], [4, 4]])
@pytest.mark.parametrize("lines", [2, 10])
def test_lines_that_are_missing_or_doubled_are_bad_input(tmp_path, capsys, updates, lines):
    given = [make_update(number) for number in (1, 2, 3, *updates)]
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *given])
    assert main(["tail", str(path), "--once", "-n", str(lines)]) == 2
    err = capsys.readouterr().err
    assert f"'update' of optimizer 0 must be 5, got {updates[1]}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("line", [b"nothing of ours\n", b'{"kind":"update","upd\n'])
def test_damage_at_the_end_is_bad_input_at_once(tmp_path, capsys, line):
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *make_updates(1, 2), line])
    assert main(["tail", str(path), "--once"]) == 2
    out, err = capsys.readouterr()
    assert out.count("\n") == 3
    assert (err.count("\n"), "a.jsonl: at byte" in err) == (1, True)


def test_what_is_no_beginning_of_a_line_is_damage_while_it_is_followed(tmp_path):
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), b"nothing of ours\n"])
    with pytest.raises(RecordingError, match="at byte"):
        followed(path)


def test_a_torn_line_is_said_once_and_a_resume_waited_for(tmp_path):
    said = []
    torn = [seeing_run(), *make_updates(1, 2), b'{"kind":"upd\n']
    path = write_file(tmp_path / "a.jsonl", torn)
    resumed = [resumed_at(1), *make_updates(2, 2), ended_after(2)]
    lines, _ = followed(path, lambda: None, appending(path, *resumed), remark=said.append)
    assert lines == shown([*torn[:-1], *resumed])
    assert len(said) == 1
    assert said[0].startswith(f"{path}: at byte")
    path = write_file(tmp_path / "b.jsonl", torn)
    with pytest.raises(RecordingError, match="at byte"):
        followed(path, appending(path, *make_updates(3, 3)), remark=said.append)


def test_ctrl_c_ends_a_command_that_follows_with_130(tmp_path):
    path = write_recording(tmp_path / "run", make_training(3)[:-1])
    command = [sys.executable, "-m", "traingen", "tail", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          preexec_fn=default_ctrl_c) as process:  # fmt: skip
        assert process.stdout is not None
        for _ in range(4):
            assert process.stdout.readline()
        time.sleep(0.1)  # it is asleep between two looks at the file
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "traingen: interrupted\n")


def default_ctrl_c():
    """A shell's background jobs ignore it, and hand that on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

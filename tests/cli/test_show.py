"""`traingen show`: the overview, one update, findings and exit codes."""

import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.reading.recordings import (
    change,
    ended_after,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_ranks,
    write_recording,
)
from tests.records.samples import make_event, make_update
from traingen.cli.main import main
from traingen.records.times import StepTime, TimesSink

ROOT = Path(__file__).parents[2]
COMMON = {
    "verdict", "exit_code", "updates", "first_divergence", "cause", "findings", "not_exercised",
}  # fmt: skip
ILL = change(make_training(4), 3, loss=math.nan, grad_norm=math.nan, grad_norm_clipped=math.nan)


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_recording(tmp_path / "run", make_training(4))


def test_a_healthy_recording_ends_with_0(capsys):
    assert main(["show", "run"]) == 0
    assert capsys.readouterr().out.startswith(
        "RECORDING  run/updates.rank0.jsonl: 4 updates, finished\n"
    )


def test_an_error_found_in_it_ends_with_1(capsys, tmp_path):
    write_recording(tmp_path / "ill", ILL)
    assert main(["show", "ill"]) == 1
    assert "\nERROR  TG-RECORD-" in capsys.readouterr().out


def test_nothing_recorded_ends_with_2(capsys, tmp_path):
    write_recording(tmp_path / "empty", [seeing_run()])
    assert main(["show", "empty"]) == 2
    out, err = capsys.readouterr()
    assert "0 updates, no end line" in out
    file = "empty/updates.rank0.jsonl"
    assert err == f"traingen: {file}: no update is recorded yet: nothing to judge.\n"
    main(["show", "run"])
    assert capsys.readouterr().err == ""


def test_nothing_recorded_says_so_also_of_a_run_that_ended_and_of_ranks_apart(capsys, tmp_path):
    write_recording(tmp_path / "ended", [seeing_run(), ended_after(0)])
    assert main(["show", "ended"]) == 2
    assert "no update is recorded: nothing" in capsys.readouterr().err
    write_ranks(tmp_path / "apart", make_training(2), [seeing_run()])
    assert main(["show", "apart"]) == 2
    assert "no update is recorded that all ranks have: nothing" in capsys.readouterr().err


def test_nothing_recorded_but_an_error_found_ends_with_1_and_is_judged(capsys, tmp_path):
    def counted(steps):
        details = {"count": steps, "global_step": steps}
        return make_event(event="counted_without_update", update=0, details=details)

    write_recording(tmp_path / "idle", [seeing_run(), counted(8), ended_after(0)])
    assert main(["show", "idle"]) == 1
    out, err = capsys.readouterr()
    assert ("ERROR  TG-RECORD-NO-UPDATE" in out, err) == (True, "")
    assert main(["show", "idle", "--json"]) == 1
    out, err = capsys.readouterr()
    assert (json.loads(out)["verdict"], json.loads(out)["updates"], err) == ("fail", 0, "")


def test_an_update_of_an_empty_recording_is_bad_input(capsys, tmp_path):
    write_recording(tmp_path / "empty", [seeing_run()])
    assert main(["show", "empty", "--update", "1"]) == 2
    assert "holds no update 1: it holds none at all" in capsys.readouterr().err


def test_another_file_is_no_recording(capsys, tmp_path):
    (tmp_path / "times.jsonl").write_text('{"update":1}\n{"update":2}\n')
    assert main(["show", "times.jsonl"]) == 2
    assert "found none in 2 lines: no recording, name a RUN folder" in capsys.readouterr().err


def test_an_output_on_a_full_disk_is_one_line_and_exit_code_2(tmp_path):
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "traingen", "show", str(tmp_path / "run")], cwd=ROOT,
            stdout=out, stderr=subprocess.PIPE, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)),
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2, "traingen: error: the output cannot be written: File too large.\n",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["none", "torn.jsonl"])
def test_no_recording_is_one_line_and_exit_code_2(name, tmp_path, capsys):
    (tmp_path / "torn.jsonl").write_bytes(b'{"kind":"run"')
    assert main(["show", name]) == 2
    assert capsys.readouterr().err.startswith(f"traingen: error: {name}: ")


def test_json_is_one_object_and_the_same_goes_to_the_output(capsys, tmp_path):
    write_recording(tmp_path / "ill", ILL)
    assert main(["show", "ill", "--json", "--out", "result.json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "result.json").read_text())
    assert printed.keys() >= COMMON
    assert (printed["verdict"], printed["updates"], printed["pace"]) == ("fail", 4, None)
    assert printed["recording"]["optimizers"]["0"]["loss"]["nonfinite"] == 1


def test_what_the_recorder_does_not_see_is_not_exercised(capsys, tmp_path):
    blind = seeing_run(observes=["update", "loss", "lr"])
    write_recording(tmp_path / "blind", [blind, *make_training(2)[1:]])
    main(["show", "blind", "--json"])
    lines = json.loads(capsys.readouterr().out)["not_exercised"]
    assert "ema: the recorder does not see it" in lines
    assert not any(line.startswith("loss:") for line in lines)


def test_times_are_shown_where_there_are_any(capsys):
    with TimesSink("run") as sink:
        sink.write(
            StepTime(attempt=1, update=1, optimizer=0, step_seconds=0.25, wait_seconds=0.125)
        )
    main(["show", "run"])
    assert "time            median 0.25 s per update" in capsys.readouterr().out


# ---- one update ---------------------------------------------------------------------------------


def test_every_field_of_one_update_is_printed(capsys):
    assert main(["show", "run", "--update", "3"]) == 0
    fields = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert (fields["update"], fields["lr_0"], fields["scheduler.0.ticks"]) == ("3", "0.001", "2")


def test_one_update_as_json_is_the_record(capsys):
    main(["show", "run", "--update", "3", "--json"])
    (plain,) = json.loads(capsys.readouterr().out)["updates"]
    assert plain == msgspec.to_builtins(make_update(3))


def test_of_an_update_that_was_done_over_the_one_that_stands_is_shown(capsys, tmp_path):
    old = change([seeing_run(), *make_updates(1, 4)], 3, loss=99.0)
    write_recording(tmp_path / "resumed", [*old, resumed_at(2), *make_updates(3, 4)])
    main(["show", "resumed", "--update", "3"])
    assert "99.0" not in capsys.readouterr().out


def test_of_several_optimizers_each_has_its_block(capsys, tmp_path):
    both = [seeing_run(), *make_updates(1, 2, optimizer=1), *make_updates(1, 2)]
    write_recording(tmp_path / "both", both)
    main(["show", "both", "--update", "2"])
    blocks = capsys.readouterr().out.split("\n\n")
    assert [block.splitlines()[1].split() for block in blocks] == [
        ["optimizer", "0"], ["optimizer", "1"],
    ]  # fmt: skip


def test_an_update_that_is_not_there_is_bad_input(capsys):
    assert main(["show", "run", "--update", "9"]) == 2
    assert "holds no update 9: its last one is 4" in capsys.readouterr().err


# ---- several ranks ------------------------------------------------------------------------------


@pytest.fixture
def ranks(tmp_path):
    """Two of them, of which the second has other losses and once another rate."""
    other = change(make_training(4, loss=4.0), 3, loss=6.0, lr=[0.5])
    return write_ranks(tmp_path / "ranks", make_training(4, loss=2.0), other)


@pytest.mark.parametrize(("mine", "other"), [(0.05, 0.3), (0.001, 0.0011)])
def test_ranks_that_train_at_other_rates_are_an_error(mine, other, tmp_path, capsys):
    ranks = [make_training(4, lr=[rate]) for rate in (mine, other)]
    write_ranks(tmp_path / "apart", *ranks)
    assert main(["show", "apart"]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "ERROR TG-RECORD-RANKS" in text
    assert f"lr differs in 4 updates, first 1: [{mine}] on rank 0; [{other}] on rank 1" in text
    assert main(["show", "apart", "--rank", "1"]) == 0
    write_ranks(tmp_path / "alike", *[make_training(4, lr=[mine])] * 2)
    assert main(["show", "alike"]) == 0
    assert "TG-RECORD-RANKS" not in capsys.readouterr().out


def test_ranks_are_shown_merged_with_the_spread_between_them(ranks, capsys):
    assert main(["show", "ranks"]) == 1  # of the rate
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "RECORDING ranks/updates.rank0.jsonl, 2 ranks merged: 4 updates, finished",
        "norm, 2 ranks, cpu",
        "loss first 3, last 3; least 3 at 1; most 4 at 3",
        "by rank mean loss 2 on rank 0; 4.5 on rank 1; 4 apart at most, at 3",
        "ranks lr differs in 1 updates, first 3: [0.001] on rank 0; [0.5] on rank 1",
    ):
        assert part in text


def test_what_the_ranks_do_not_share_is_part_of_the_json(ranks, capsys):
    main(["show", "ranks", "--json"])
    found = json.loads(capsys.readouterr().out)["recording"]["ranks"]
    assert (found["merged"], found["spreads"][0]["means"]) == (2, [2.0, 4.5])
    assert found["disagreements"][0] == {
        "field": "lr", "optimizer": 0, "update": 3, "values": [[0.001], [0.5]], "count": 1,
    }  # fmt: skip
    main(["show", "ranks", "--rank", "1", "--json"])
    assert json.loads(capsys.readouterr().out)["recording"]["ranks"] is None


def test_one_rank_is_shown_alone(ranks, capsys):
    assert main(["show", "ranks", "--rank", "1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("RECORDING ranks/updates.rank1.jsonl: 4 updates")
    assert "rank 1 of 2" in text
    assert "loss first 4, last 4; least 4 at 1; most 6 at 3" in text
    assert "by rank" not in text


def test_one_update_is_shown_as_all_ranks_did_it(ranks, capsys):
    for options, loss, merged in (([], "4.0", True), (["--rank", "1"], "6.0", False)):
        assert main(["show", "ranks", "--update", "3", *options]) == 0
        fields = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
        assert (fields["loss"], fields.get("ranks") == "2, merged") == (loss, merged)
    main(["show", "ranks", "--update", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["ranks"] == 2


def test_a_rank_that_was_killed_is_said_in_the_first_line(tmp_path, capsys):
    write_ranks(tmp_path / "killed", make_training(12), make_training(7)[:-1])
    assert main(["show", "killed"]) == 0
    assert " ".join(capsys.readouterr().out.split()).startswith(
        "RECORDING killed/updates.rank0.jsonl, 2 ranks merged: 7 updates that all ranks have, "
        "finished on rank 0; no end line on rank 1"
    )


def test_a_missing_rank_is_one_line_and_exit_code_2_unless_one_is_asked_for(ranks, capsys):
    (ranks / "updates.rank1.jsonl").unlink()
    assert main(["show", "ranks"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no recording of rank 1: " in err
    assert main(["show", "ranks", "--rank", "0"]) == 0


@pytest.mark.parametrize("rank", ["-1", "x", "1.0", "²"])
def test_what_is_no_rank_is_wrong_usage(ranks, rank, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["show", "ranks", "--rank", rank])
    assert stop.value.code == 2
    assert "expected a rank, counted from 0" in capsys.readouterr().err


# ---- size ---------------------------------------------------------------------------------------

PEAK = """
import resource, sys
from traingen.cli.main import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def peak_kilobytes(command, *paths):
    done = subprocess.run(
        [sys.executable, "-c", PEAK, command, *map(str, paths)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stderr.splitlines()[-1])


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """20,000 updates on two ranks: 2 times 30 MB of lines, and far more as records."""
    folder = tmp_path_factory.mktemp("long")
    updates = make_updates(1, 20_000)
    write_ranks(folder / "ranks", [seeing_run(), *updates], [seeing_run(), *updates])
    write_ranks(folder / "few", *[[seeing_run(), *updates[:4]]] * 2)
    assert (folder / "ranks" / "updates.rank1.jsonl").stat().st_size > 20_000_000
    return folder


@pytest.mark.parametrize(("command", "recordings"), [("show", 1), ("compare", 2)])
@pytest.mark.parametrize("options", [["--rank", "0"], []], ids=["one rank", "two ranks"])
def test_memory_does_not_grow_with_the_recording(long, command, recordings, options):
    few, many = (
        peak_kilobytes(command, *[long / name] * recordings, *options) for name in ("few", "ranks")
    )
    assert many - few < 12_000

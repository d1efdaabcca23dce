"""`traingen compare`: limits from files and options, exit codes, what is printed and written."""

import json

import pytest

from tests.reading.recordings import (
    change,
    make_training,
    seeing_run,
    write_ranks,
    write_recording,
)
from traingen.cli.compare import choose_gates
from traingen.cli.main import build_parser, find_command, main
from traingen.compare.gates import Tolerance

TRAINING = make_training(4)
COMMON = {
    "verdict", "exit_code", "updates", "first_divergence", "cause", "findings", "not_exercised",
}  # fmt: skip


@pytest.fixture(autouse=True)
def recordings(tmp_path, monkeypatch):
    """`a`, its equal `b`, and `c` that used another rate in update 3."""
    monkeypatch.chdir(tmp_path)
    write_recording(tmp_path / "a", TRAINING)
    write_recording(tmp_path / "b", TRAINING)
    write_recording(tmp_path / "c", change(TRAINING, 3, lr=[0.0011]))
    write_recording(tmp_path / "empty", [seeing_run()])
    (tmp_path / "limits.yaml").write_text("lr: {rtol: 0.2, why: a test}")
    (tmp_path / "text.yaml").write_text("lr: {rtol: much, why: a test}")
    write_ranks(tmp_path / "two", TRAINING, TRAINING)
    write_ranks(tmp_path / "apart", TRAINING, change(TRAINING, 3, loss=9.0))
    write_ranks(tmp_path / "cut", TRAINING, TRAINING)
    (tmp_path / "cut" / "updates.rank1.jsonl").unlink()


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        (["a", "b"], 0, "PASS"),
        (["a", "a/updates.rank0.jsonl"], 0, "PASS"),
        (["a", "c"], 1, "FAIL"),
        (["a", "c", "--updates", "2"], 0, "PASS"),
        (["a", "c", "--rtol", "lr=0.2"], 0, "PASS"),
        (["a", "c", "--atol", "lr=0.0002"], 0, "PASS"),
        (["a", "c", "--rtol", "lr=1e-6"], 1, "FAIL"),
        (["a", "c", "--rtol", "objective=1"], 1, "FAIL"),
        (["a", "c", "--report-only", "lr"], 0, "PASS"),
        (["a", "empty"], 2, "INCONCLUSIVE"),
        (["a", "b", "--updates", "9"], 2, "INCONCLUSIVE"),
        (["two", "apart"], 1, "FAIL"),
        (["two", "apart", "--rank", "0"], 0, "PASS"),
        (["two", "apart", "--rank", "1"], 1, "FAIL"),
        (["two", "cut", "--rank", "0"], 0, "PASS"),
    ],
    ids=str,
)
def test_the_exit_code_is_the_verdicts(arguments, code, verdict, capsys):
    assert main(["compare", *arguments]) == code
    assert capsys.readouterr().out.startswith(f"VERDICT  {verdict}  ")


def test_json_is_one_object_and_the_same_goes_to_the_output(capsys, tmp_path):
    assert main(["compare", "a", "c", "--json", "--out", "out/result.json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out" / "result.json").read_text())
    assert printed.keys() >= COMMON
    assert printed["first_divergence"] == {"update": 3, "quantity": "lr", "path": "lr[0]"}


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("--gates", "lr: {rtol: 0.2, why: a test}"),
        ("--config", "pair: 1\ngates: {lr: {rtol: 0.2, why: a test}}"),
    ],
)
def test_limits_come_from_a_file(tmp_path, option, text):
    (tmp_path / "limits.yaml").write_text(text)
    assert main(["compare", "a", "c", option, "limits.yaml"]) == 0
    (tmp_path / "limits.yaml").write_text(text.replace("0.2", "0.01"))
    assert main(["compare", "a", "c", option, "limits.yaml"]) == 1
    assert main(["compare", "a", "c", option, "limits.yaml", "--out", "limits.yaml"]) == 2
    assert (tmp_path / "limits.yaml").read_text() == text.replace("0.2", "0.01")


def gates_for(*arguments):
    given = ["compare", "a", "b", *arguments]
    return choose_gates(build_parser(find_command(given)).parse_args(given)).limits


def test_options_go_before_the_file(tmp_path):
    (tmp_path / "g.yaml").write_text("lr: {rtol: 0.2, why: w}\nbatch: {report_only: true, why: w}")
    options = ["--rtol", "lr=0.5", "--atol", "lr=1e-3", "--report-only", "rng"]
    assert gates_for("--gates", "g.yaml", *options) == {
        "lr": Tolerance(rtol=0.5, atol=1e-3, why="w"),
        "batch": Tolerance(report_only=True, why="w"),
        "rng": Tolerance(report_only=True),
    }
    assert gates_for() == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["a"],
        ["a", "b", "--rtol", "loss=1e-3"],
        ["a", "b", "--rtol", "lr=-1"],
        ["a", "b", "--rtol", "lr=inf"],
        ["a", "b", "--rtol", "lr"],
        ["a", "b", "--report-only", "loss"],
        ["a", "b", "--updates", "0"],
        ["a", "b", "--rank", "-1"],
        ["a", "b", "--config", "x", "--gates", "y"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", *arguments])
    assert stop.value.code == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "none"], "none: no such recording"),
        (["two", "cut"], "no recording of rank 1: copy the files"),
        (["two", "cut", "--rank", "1"], "rank1.jsonl: no such recording"),
        (["a", "b", "--gates", "none.yaml"], "no such file of gates"),
        (["a", "b", "--out", "a"], "expected a new file for the result"),
        (["a", "b", "--config", "limits.yaml"], "neither 'pair' nor 'gates'"),
        (["a", "b", "--gates", "text.yaml"], "gates.lr.rtol: Expected `float`, got `str`"),
    ],
    ids=str,
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(["compare", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err

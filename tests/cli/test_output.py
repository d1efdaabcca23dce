"""Where a command's words go, and what is refused as a place for them."""

import json

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

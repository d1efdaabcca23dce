"""What one mode writes: two recordings and one line of differences per update."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compare.results import make_comparison, make_difference
from tests.records.samples import make_end, make_run, make_update
from traingen.compare.gates import EXACT
from traingen.compare.tensors import compare_tensors
from traingen.errors import ConfigError
from traingen.lockstep.output import ModeOutput, OutputFolder, describe_comparison
from traingen.records import read_recording


def describe(*differences: Any, **changes: Any) -> dict[str, Any]:
    comparison = make_comparison(3, *differences, **changes)
    return describe_comparison(comparison, [], mode="natural", report_only=[])


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is no strict JSON")


def test_nothing_is_written_before_it_is_opened(tmp_path):
    output = ModeOutput(OutputFolder(tmp_path / "out"), mode="natural")
    output.write_differences(make_comparison(1), [], report_only=[])
    output.original.write(make_run())
    output.close()
    assert list(tmp_path.iterdir()) == []
    assert not output.opened


def test_two_recordings_and_one_line_per_update_are_written(tmp_path):
    output = ModeOutput(OutputFolder(tmp_path / "out"), mode="natural")
    output.open()
    for sink in (output.original, output.package):
        for record in (make_run(), make_update(1), make_end(updates=1)):
            sink.write(record)
    output.write_differences(make_comparison(1), [], report_only=[])
    output.write_differences(make_comparison(2), [], report_only=["lr"])
    output.close()
    for side in ("original", "package"):
        assert len(read_recording(tmp_path / "out" / "natural" / side).updates) == 1
    lines = (tmp_path / "out/natural/differences.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2]
    assert json.loads(lines[1])["report_only"] == ["lr"]


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    output = ModeOutput(OutputFolder(None), mode="natural")
    output.open()
    output.original.write(make_run())
    output.write_differences(make_comparison(1), [], report_only=[])
    output.close()
    assert output.opened
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_exists_is_refused_before_anything_runs(kind, tmp_path):
    path = tmp_path / "out"
    path.mkdir() if kind == "folder" else path.touch()
    with pytest.raises(ConfigError, match="out: exists already: choose another output"):
        OutputFolder(path)
    assert path.exists()


def test_what_exists_is_moved_aside_only_when_there_is_something_to_write(tmp_path):
    path = tmp_path / "out"
    for content in ("first", "second", "third"):
        folder = OutputFolder(path, overwrite=True)
        if content != "first":
            assert (path / "result.json").exists()  # not yet
        folder.claim()
        folder.claim()  # again: nothing more happens
        (path / "result.json").write_text(content)
    found = {p.parent.name: p.read_text() for p in tmp_path.rglob("result.json")}
    assert found == {"out": "third", "out.old": "first", "out.old-2": "second"}


def test_an_output_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used as output"):
        OutputFolder(tmp_path / "file" / "out", overwrite=True).claim()


def test_differences_are_strict_json_and_say_nonfinite_numbers_by_name(tmp_path):
    output = ModeOutput(OutputFolder(tmp_path / "m"), mode="natural")
    output.open()
    odd = make_difference(original=math.nan, absolute=math.inf)
    output.write_differences(make_comparison(1, odd, loss_relative=math.inf), [], report_only=[])
    output.close()
    (line,) = (tmp_path / "m" / "natural" / "differences.jsonl").read_text().splitlines()
    plain = json.loads(line, parse_constant=refuse)
    assert plain["loss_relative"] == "Infinity"
    assert plain["differences"][0]["original"] == "NaN"


def test_a_line_counts_what_differs_and_what_left_its_gate():
    line = describe(
        make_difference("gradients"), make_difference("gradients", left=False),
        make_difference("lr", left=False),
    )  # fmt: skip
    assert line["differing"] == {"gradients": 2, "lr": 1}
    assert line["left"] == {"gradients": 1}
    assert line["compared"] == {"gradients": 2, "parameters": 3}
    assert (line["mode"], line["update"]) == ("natural", 3)


@pytest.mark.parametrize(
    ("differences", "kept"),
    [
        ([("a", 1.0, True), ("b", 3.0, True), ("c", 2.0, True)], "b"),
        ([("a", 9.0, False), ("b", 3.0, True)], "b"),  # what left its gate before what is larger
        ([("a", 1.0, True), ("b", None, True)], "b"),  # a shape or a missing tensor has no size
        ([("a", 1.0, False), ("b", 2.0, False)], "b"),
        ([("a", 1.0, True), ("b", 1.0, True)], "a"),
        ([("a", 1.0, True), ("b", math.inf, True)], "b"),
    ],
)
def test_of_each_quantity_the_worst_difference_is_kept(differences, kept):
    made = [make_difference(path=p, absolute=size, left=left) for p, size, left in differences]
    line = describe(*made, make_difference("lr", path="lr[0]"))
    assert [d["path"] for d in line["differences"]] == [kept, "lr[0]"]


def test_a_line_sums_up_the_tensors():
    found = compare_tensors(
        3, "buffers", [("a", torch.ones(1), torch.ones(1)), ("b", torch.ones(1), torch.zeros(1))],
        EXACT,
    )  # fmt: skip
    line = describe_comparison(make_comparison(3), [found], mode="natural", report_only=[])
    assert line["tensors"] == {
        "buffers": {"compared": 2, "equal": 1, "max_absolute": 1.0, "max_path": "buffers.b"}
    }


def test_paths_are_where_they_are_looked_for(tmp_path):
    output = ModeOutput(OutputFolder(tmp_path / "out"), mode="natural")
    output.open()
    output.original.write(make_run())
    output.package.write(make_run())
    output.close()
    found = {p.relative_to(tmp_path / "out" / "natural") for p in tmp_path.rglob("*.jsonl")}
    assert found == {
        Path("differences.jsonl"), Path("original/updates.rank0.jsonl"),
        Path("package/updates.rank0.jsonl"),
    }  # fmt: skip

"""Two compared recordings as plain text: what it says, and that it fits 80 columns."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading.recordings import (
    change,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_recording,
)
from traingen.compare.gates import Gates
from traingen.compare.recordings import compare_recordings
from traingen.report.comparison import render_comparison
from traingen.report.layout import WIDTH

TRAINING = make_training(4)


@pytest.fixture
def render(tmp_path, monkeypatch):
    """What is shown of two lists of records, with its spaces joined."""

    monkeypatch.chdir(tmp_path)

    def compare_and_render(original, package, gates=None, **options):
        paths = [
            write_recording(Path(name), records)
            for name, records in (("a", original), ("b", package))
        ]
        result = compare_recordings(*paths, gates=gates, **options)
        text = render_comparison(result, gates or Gates())
        assert max(map(len, text.splitlines())) <= WIDTH
        return " ".join(text.split())

    return compare_and_render


def test_a_pass_says_how_much_was_compared_and_what_was_not(render):
    text = render(TRAINING, TRAINING)
    assert text.startswith("VERDICT PASS every asserted gate held at every update")
    assert "updates 4 compared, 4 equal in every compared value" in text
    assert "loss relative difference never over 0.001, at most 0" in text
    assert "gates all else exact" in text
    assert "not compared tensors: " in text
    assert "not exercised nothing that is watched for" in text
    assert "ERROR" not in text


def test_a_fail_names_update_quantity_and_cause_with_the_way_out(render):
    text = render(TRAINING, change(TRAINING, 3, lr=[0.5]))
    assert text.startswith("VERDICT FAIL first in lr, at update 3: lr[0]")
    assert "ERROR TG-LOCKSTEP-LR measured lr[0] differs at update 3" in text
    assert "fix Compare initial rates" in text
    assert "first value that differs: update 3, lr[0] (gate: exact)" in text
    assert "largest lr 0.499" in text


def test_an_open_verdict_says_why(render):
    text = render(TRAINING, TRAINING, updates=9)
    assert text.startswith("VERDICT INCONCLUSIVE 4 of 9 updates were compared")


def test_a_loss_that_departs_is_told_where(render):
    gates = Gates.of_numbers(objective={"rtol": 1.0, "why": "a test"})
    text = render(TRAINING, change(TRAINING, 2, loss=1.2), gates)
    assert "relative difference first over 0.001 at update 2" in text
    assert "gates objective rtol=1; all else exact" in text


def test_what_either_file_holds_is_told(render):
    resumed = [seeing_run(), *make_updates(1, 3), resumed_at(2), *make_updates(3, 4)]
    text = render(TRAINING, resumed)
    assert "a: 4 updates, finished" in text
    assert "b: 4 updates, no end line: still running or killed; attempts 1, 2" in text
    assert "superseded: updates 3 to 3 of attempt 1" in text


def test_what_a_file_does_not_hold_is_told(render):
    late = render([seeing_run()], [resumed_at(2), *make_updates(3, 4)])
    assert "a: no updates, " in late
    assert "missing: updates 1 to 2" in late


def test_run_lines_that_differ_are_named_and_many_are_cut(render):
    other = seeing_run(seed=8, versions={f"library{n}": "2" for n in range(20)})
    text = render(TRAINING, [other, *TRAINING[1:]])
    assert "runs differ seed: 7 and 8" in text
    assert "and in 11 more values" in text


@given(path=st.text("abc_. ", min_size=1, max_size=120), value=st.text(max_size=90))
def test_nothing_is_too_wide(tmp_path_factory, path, value):
    folder = tmp_path_factory.mktemp("wide")
    records = [seeing_run(), *make_updates(1, 1, user=None)]
    a = write_recording(folder / "a", change(records, 1, loss_terms={path: 1.0}))
    b = write_recording(folder / "b", change(records, 1, loss_terms={path: 2.0},
                                             data_sampler={"x": value}))  # fmt: skip
    text = render_comparison(compare_recordings(a, b), Gates())
    assert max(map(len, text.splitlines())) <= WIDTH


ALLOWANCE = "grad_norm, clipping rtol=0.001 where one side alone has its clip's own norm"


@pytest.mark.parametrize(
    ("sources", "gates"),
    [
        (("measured", "clip"), f"gates {ALLOWANCE}; all else exact"),
        (("clip", "clip"), "gates all else exact"),
        (("measured", "measured"), "gates all else exact"),
    ],
    ids=str,
)
def test_the_allowance_for_a_clips_own_norm_is_named_where_it_was_applied(render, sources, gates):
    assert gates in render(*(make_training(4, grad_norm_source=source) for source in sources))


@pytest.mark.parametrize(
    ("ratios", "limits", "shown"),
    [
        (None, {"rtol": 1e-9}, "not asserted parameters not compared"),
        ({"weight": 1.0}, {"rtol": 1e-9}, "not asserted parameters (digests) not compared"),
        ({"weight": 1.0}, {}, None),
    ],
    ids=["alone", "beside", "exact"],
)
def test_digests_that_are_only_reported_stand_under_not_asserted(render, ratios, limits, shown):
    records = make_training(4, update_ratios=ratios)
    text = render(records, records, Gates.of_numbers(parameters=limits))
    assert shown in text if shown else "not asserted" not in text

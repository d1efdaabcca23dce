"""One recording as plain text: as a whole, an update, a line."""

import math

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
    write_ranks,
    write_recording,
)
from tests.records.samples import make_end, make_event, make_resumed, make_update
from traingen.compare.findings import Finding
from traingen.reading.opening import open_run
from traingen.reading.overview import Overview
from traingen.reading.pace import Pace
from traingen.records import OptimizerIdentity
from traingen.report.layout import WIDTH
from traingen.report.recording import render_fields, render_overview, render_record

FINDING = Finding(id="TG-A-B", severity="error", measured="1", meaning="It means.", fix="Fix.")


@pytest.fixture
def render(tmp_path):
    """What is shown of a list of records, with its spaces joined."""

    def write_and_render(records, findings=(), pace=None):
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        reader = open_run(write_recording(folder, records))
        overview = Overview(reader)
        for record in reader.records():
            overview.take(record)
        text = render_overview(overview, findings, pace)
        assert max(map(len, text.splitlines())) <= WIDTH
        return " ".join(text.split())

    return write_and_render


# ---- as a whole ---------------------------------------------------------------------------------


def test_it_says_what_ran_and_how_it_went(render):
    text = render(make_training(4))
    for part in (
        "4 updates, finished",
        "system package",
        "optimizer torch.optim.Adam, 1 group, 42 parameters",
        "StepLR, every step: 4 ticks over 4 updates",
        "seed 7 (seed_everything)",
        "precision 32-true, accumulation 1, clipping to 1.0 by norm, cpu",
        "git c0ffee",
        "torch 2.13.0, lightning 2.6.6",
        "attempts 1 loss first 2.3025",
        "clipped 4 of 4 updates (100%)",
        "rate first 0.001, last 0.001",
        "micro-batches 1 in 4 updates",
        "events none",
    ):
        assert part in text
    assert "time" not in text


def test_an_end_other_than_the_usual_is_told(render):
    failed = make_end(reason="exception", message="ValueError('x')")
    assert "1 updates, exception (ValueError('x'))" in render([*make_training(1)[:-1], failed])


def test_without_an_end_it_may_be_running(render):
    text = render(make_training(3)[:-1])
    assert "3 updates, no end line: still running or killed" in text


@pytest.fixture
def render_ranks(tmp_path):
    """What is shown of ranks with these records, with its spaces joined."""

    def write_and_render(*ranks):
        reader = open_run(write_ranks(tmp_path / f"run{len(list(tmp_path.iterdir()))}", *ranks))
        overview = Overview(reader)
        for record in reader.records():
            overview.take(record)
        text = render_overview(overview, (), None)
        assert max(map(len, text.splitlines())) <= WIDTH
        return " ".join(text.split())

    return write_and_render


def test_of_several_ranks_the_spread_of_their_losses_is_told(render_ranks, render):
    ranks = [make_training(3, loss=loss) for loss in (0.716, 0.339)]
    text = render_ranks(*ranks)
    assert "2 ranks merged: 3 updates" in text
    assert "by rank mean loss 0.716 on rank 0; 0.339 on rank 1; 0.377 apart at most, at 1" in text
    assert " ranks lr" not in text
    assert "by rank" not in render(ranks[0])


def test_losses_that_are_equal_on_all_ranks_are_suspicious(render_ranks):
    text = render_ranks(*[make_training(3)] * 2)
    assert "by rank losses are equal at every update: have all ranks the same data?" in text


def test_the_rank_whose_losses_are_not_finite_is_named(render_ranks):
    poor = change(make_training(3), 2, loss=math.nan)
    text = render_ranks(make_training(3), poor, make_training(3))
    assert "updates with a loss that is NOT FINITE: 0 on ranks 0, 2; 1 on rank 1" in text


def test_what_does_not_fit_between_ranks_is_told(render_ranks):
    poor = change(make_training(3)[:-1], 3, lr=[0.5])[:3]
    text = render_ranks(make_training(3), change(poor, 2, lr=[0.5]))
    assert "ranks not equally long, updates: 3 on rank 0; 2 on rank 1; merged 2" in text
    assert "lr differs in 1 updates, first 2: [0.001] on rank 0; [0.5] on rank 1" in text
    assert "ends differ: finished on rank 0; no end line on rank 1" in text


def test_attempts_and_what_they_superseded_or_lack_are_told(render):
    text = render([resumed_at(2), *make_updates(3, 6), resumed_at(4, attempt=3)])
    assert "attempts 2, 3 attempt 2 was resumed after update 2, attempt 1" in text
    assert "superseded: updates 5 to 6 of optimizer 0, attempt 2" in text
    assert "missing: updates 1 to 2 of optimizer 0" in text


def test_what_earlier_attempts_were_trained_with_is_told_where_the_last_is_not(render):
    first = [seeing_run(precision="16-mixed", clipping=None), *make_updates(1, 4)]
    text = render([*first, resumed_at(3), *make_updates(4, 5)])
    assert "before attempt 1: precision 16-mixed; no clipping seed" in text
    sgd = OptimizerIdentity(index=0, class_path="torch.optim.SGD", groups=2, parameters=42)
    first[0] = seeing_run(optimizers=[sgd], schedulers=[])
    text = render([*first, resumed_at(3), *make_updates(4, 5)])
    assert "attempt 1: torch.optim.SGD, 2 groups, 42 parameters; no scheduler seed" in text
    aside = [*first, resumed_at(3), *make_updates(4, 5)]
    assert "before" in render([*aside, resumed_at(5, attempt=3)])
    assert "before" not in render([seeing_run(), *make_updates(1, 4), *aside[-3:]])


def test_each_optimizer_s_count_at_the_checkpoint_is_named(render):
    text = render([seeing_run(), *make_updates(1, 4), resumed_at(4, 9)])
    assert "resumed after update 4 of optimizer 0, 9 of optimizer 1, attempt 1" in text


def test_an_attempt_whose_checkpoint_no_recorder_knew_says_what_is_not_counted(render):
    facts = make_resumed(attempt=None, global_step=15)
    unknown = "attempt 1 was resumed at global_step 15; updates before it were not recorded"
    assert unknown in render([seeing_run(resumed=facts), *make_updates(1, 2)])
    facts = make_resumed(attempt=None, global_step=None)
    assert "attempt 1 was resumed; updates" in render([seeing_run(resumed=facts)])
    assert "not recorded and" not in render([resumed_at(15), *make_updates(16, 16)])


def fit_again(update, optimizer, *schedulers):
    details = {"fit": 2, "optimizers": [optimizer], "schedulers": list(schedulers)}
    return make_event(event="segment", update=update, details=details)


def test_a_further_fit_tells_what_else_it_trains_with(render):
    first = make_training(4)
    text = render([*first, fit_again(4, "torch.optim.SGD"), *make_updates(5, 6)])
    assert "further fits fit 2 from update 5 on: torch.optim.SGD; no scheduler seed" in text
    run = first[0]
    same = fit_again(4, run.optimizers[0].class_path, *(s.class_path for s in run.schedulers))
    assert "further fits fit 2 from update 5 on seed" in render([*first, same])
    assert "further fits" not in render(first)


def test_numbers_that_are_not_finite_are_loud(render):
    text = render(change(make_training(4), 3, loss=math.nan))
    assert "NOT FINITE in 1, first at 3" in text
    assert "NOT FINITE" not in render(make_training(4))


def test_what_some_updates_lack_is_told(render):
    text = render(change(make_training(4), 3, loss=None))
    assert "in 3 of 4 updates" in text


def test_a_loop_that_tells_little_has_few_lines(render):
    bare = {"loss": None, "clipped": None, "ema": None, "amp_scale": None, "scheduler": None}
    run = seeing_run(
        system=None, schedulers=[], git=None, clipping=None, accumulation=None, seed=None,
        versions={},
    )  # fmt: skip
    text = render([run, *make_updates(1, 2, **bare)])
    for part in ("loss not recorded", "scheduler none", "seed not known", "no clipping"):
        assert part in text
    for part in ("system", "clipped", "averaged", "scaler", "git", "versions", "accumulation"):
        assert part not in text


def test_every_optimizer_has_its_block(render):
    both = [*make_updates(1, 2), *make_updates(1, 3, optimizer=1, lr=[0.5])]
    text = render([seeing_run(), *both])
    assert "optimizer 0: 2 updates" in text
    assert "optimizer 1: 3 updates" in text
    assert "rate first 0.5, last 0.5" in text


def test_findings_and_times_come_with_it(render):
    pace = Pace(updates=4, median_seconds=0.25, total_seconds=1.0, wait_share=0.5)
    text = render(make_training(4), [FINDING], pace)
    assert "time median 0.25 s per update, 1 s in all, 50% of it waiting for data" in text
    assert text.endswith("ERROR TG-A-B measured 1 meaning It means. fix Fix.")


# ---- one update, one line -----------------------------------------------------------------------


def test_fields_stand_below_one_another():
    assert render_fields({"a": 1, "long.name": "x"}) == "a          1\nlong.name  x"
    assert len(render_fields({"ids": list(range(99))})) == WIDTH
    assert render_fields({}) == ""


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            make_update(12, epoch=3, loss=0.5),
            "update     12  epoch 3  loss 0.5  norm 1.93 clipped to 1  lr 0.001",
        ),
        (
            make_update(1, optimizer=1, loss=None, grad_norm=None, epoch=None, lr=[0.1, 0.2]),
            "update      1  optimizer 1  objective 2.3025  lr 0.1, 0.2",
        ),
        (make_event(details=None), "event validation after 2 updates: no details"),
        (
            make_event(event="skipped_step", details={"optimizer": 0, "amp_scale": 0.5}),
            "event skipped_step after 2 updates: optimizer 0, amp_scale 0.5",
        ),
        (seeing_run(), "run 01234567 of the package, attempt 1: begins"),
        (
            resumed_at(4),
            "run 01234567 of the package, attempt 2: resumed after update 4, attempt 1",
        ),
        (ended_after(9), "end after 9 updates: finished"),
        (make_end(message="no"), "end after 3 updates: finished: no"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_record_is_one_line(record, line):
    assert render_record(record) == line


@given(loss=st.floats(), lr=st.lists(st.floats(), max_size=9), update=st.integers(1, 10**12))
def test_no_line_is_too_wide(loss, lr, update):
    assert len(render_record(make_update(update, loss=loss, lr=lr, epoch=10**6))) <= WIDTH


def test_what_is_no_record_has_no_line():
    with pytest.raises(TypeError, match="no record: int"):
        render_record(3)

"""Which steps a gradient scaler left out, and whether its scale holds."""

import pytest

from tests.judge.recordings import end, event, judged, resumed, run, skip, update, updates
from tests.records.samples import make_resumed


def skips(steps: int, *, scale: float = 65536.0, optimizer: int = 0):
    return [skip(n + 1, before=scale / 2**n, optimizer=optimizer) for n in range(steps)]


@pytest.mark.parametrize("steps", [1, 3, 16])
def test_skipped_steps_are_told_and_no_fault(steps):
    found = judged(run(), updates(1, 2), skips(steps), updates(3, 8), end())
    assert list(found) == ["TG-RECORD-SKIPPED"]
    finding = found["TG-RECORD-SKIPPED"]
    assert finding.severity == "info"
    assert finding.measured == (
        f"{steps} of {steps + 8} steps were skipped, first after update 2 at scale 65536"
    )


def test_nothing_is_said_where_nothing_was_skipped():
    assert judged(run(), updates(1, 5, amp_scale=65536.0, amp_growth=0), end()) == {}


def test_a_scale_that_falls_below_one_is_a_warning():
    found = judged(run(), update(1), skips(18), updates(2, 5), end())
    finding = found["TG-RECORD-SCALE-COLLAPSED"]
    assert finding.severity == "warning"
    assert finding.measured == (
        "after update 1: 18 skipped in a row, the scale went from 65536 to 0.25"
    )


@pytest.mark.parametrize("steps", [20, 45])
def test_a_training_that_stands_still_is_an_error(steps):
    found = judged(run(), updates(1, 3), skips(steps, scale=2.0**60))
    assert found["TG-RECORD-SCALE-COLLAPSED"].severity == "error"
    assert found["TG-RECORD-SCALE-COLLAPSED"].measured.endswith("no update followed")
    found = judged(run(), updates(1, 3), skips(steps, scale=2.0**60), update(4))
    assert found["TG-RECORD-SCALE-COLLAPSED"].severity == "warning"


@pytest.mark.parametrize(("steps", "scale"), [(5, 65536.0), (10, 1024.0), (19, 2.0**40)])
@pytest.mark.parametrize("reason", ["finished", "stopped"])
def test_a_run_of_nothing_but_skipped_steps_is_an_error(steps, scale, reason):
    found = judged(run(), skips(steps, scale=scale), end(reason=reason))
    finding = found["TG-RECORD-SCALE-COLLAPSED"]
    assert finding.severity == "error"
    assert finding.measured == (
        f"before the first update: {steps} skipped in a row, the scale went from {scale:g} to "
        f"{scale / 2**steps:g}; no update followed"
    )


@pytest.mark.parametrize(
    "records",
    [
        [*skips(4), end()],  # a scale that still finds its level
        [*skips(10)],
        [*skips(10), end(reason="interrupted")],
        [*skips(10), end(reason="exception")],
        [*skips(10), update(1), end()],
        [update(1), *skips(10), end()],
        [*skips(10), end(), event("segment", fit=2, global_step=10), update(1), end()],
    ],
    ids=["few", "runs", "interrupted", "exception", "update", "after one", "another fit"],
)
def test_skipped_steps_before_or_after_an_update_or_too_few_are_no_collapse(records):
    assert list(judged(run(), records)) == ["TG-RECORD-SKIPPED"]


def test_a_resume_with_updates_before_it_may_skip_a_few_steps():
    assert list(judged(resumed(3), skips(10), end())) == ["TG-RECORD-SKIPPED"]


@pytest.mark.parametrize(("each", "ids"), [(4, []), (5, ["TG-RECORD-SCALE-COLLAPSED"])])
def test_rows_of_two_optimizers_are_not_added_up(each, ids):
    both = [*skips(each), *skips(each, optimizer=1)]
    assert list(judged(run(optimizers=2), both, end())) == [*ids, "TG-RECORD-SKIPPED"]


def test_many_skips_that_are_not_in_a_row_are_no_collapse():
    steps = [one for n in range(1, 60) for one in (skip(2 * n, before=4.0), update(n))]
    assert list(judged(run(), steps, end())) == ["TG-RECORD-SKIPPED"]


def test_a_small_initial_scale_has_not_collapsed():
    assert list(judged(run(), skip(1, before=2.0), updates(1, 5))) == ["TG-RECORD-SKIPPED"]


def test_rows_of_two_optimizers_are_told_apart():
    both = [
        one for n in range(19) for one in (skip(n, before=1e9), skip(n, before=1e9, optimizer=1))
    ]
    found = judged(run(optimizers=2), both, update(1), update(1, optimizer=1))
    assert list(found) == ["TG-RECORD-SKIPPED"]


def test_a_collapse_that_a_resume_supersedes_is_taken_back():
    lost = [run(), updates(1, 9), skips(30)]
    assert "TG-RECORD-SCALE-COLLAPSED" in judged(*lost)
    assert judged(*lost, resumed(5), updates(6, 20), end()) == {}


def saved_at(step: int, completed: int):
    facts = make_resumed(completed, global_step=step)
    return run(attempt=2, resumed=facts)


@pytest.mark.parametrize(("step", "told"), [(5, "2 of 8"), (4, "1 of 7"), (3, None)])
def test_steps_that_were_skipped_after_the_checkpoint_do_not_count(step, told):
    """They come after as many updates, and at a higher global_step."""
    found = judged(run(), updates(1, 3), skip(4), skip(5), saved_at(step, 3), updates(4, 6), end())
    assert [one.measured.split(" steps")[0] for one in found.values()] == ([told] if told else [])


@pytest.mark.parametrize("steps", [20, 24])
def test_a_scale_that_collapsed_after_the_checkpoint_does_not_count(steps):
    skipped = [skip(3 + n, before=2.0**10 / 2**n) for n in range(1, steps + 1)]
    lost = [run(), *updates(1, 3), *skipped, update(4)]
    collapsed = "TG-RECORD-SCALE-COLLAPSED"
    assert collapsed in judged(lost, saved_at(3 + steps, 3), updates(4, 6))
    for step in (3, 13):  # before it, and within
        assert collapsed not in judged(lost, saved_at(step, 3), updates(4, 6))

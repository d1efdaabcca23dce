"""One judge over a whole recording: silent on healthy ones, exact over resumes, small."""

import math
import tracemalloc

import pytest

from tests.judge.recordings import (
    at,
    end,
    event,
    judged,
    resumed,
    run,
    scheduler,
    skip,
    update,
    updates,
)
from tests.records.samples import golden_records, make_end, make_event, make_run, make_update
from traingen.judge import RecordingJudge, judge_recording

NOTHING = {"objective": None, "loss": None, "grad_norm": None, "grad_norm_clipped": None}
SECOND_FIT = event("segment", fit=2, global_step=9)


# ---- silence ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "records",
    [
        [],
        [make_run()],
        [make_run(), *map(make_update, range(1, 50)), make_event(), make_end(scheduler=None)],
        [run(), *updates(1, 9), end(reason="interrupted")],
        [resumed(5), *updates(6, 9), end()],
        [run(), *updates(1, 9), end(), SECOND_FIT, *updates(10, 15), end()],
        [run(), *updates(1, 9), resumed(6), *updates(7, 12), end()],
        [run(), event("novel", optimizer="?"), *updates(1, 3), make_event(details=None)],
        [run(observes=[]), *updates(1, 3, **NOTHING, lr=[]), end()],
    ],
    ids=[
        "nothing", "only a run line", "the samples", "interrupted", "a later attempt alone",
        "two fits", "a resume", "unknown events", "an observer that sees nothing",
    ],
)  # fmt: skip
def test_a_healthy_recording_is_silent(records):
    assert judge_recording(records) == []


def test_the_golden_recording_has_the_loss_that_was_put_in_and_no_error():
    found = judged(golden_records())
    assert "TG-RECORD-NONFINITE-LOSS" in found
    assert all(finding.severity != "error" for finding in found.values())


@pytest.mark.parametrize(
    "name",
    [
        "skipped_step", "counted_without_update", "uncounted_update", "optimizer_found",
        "clip_without_gradients", "clip_on_scaled_gradients", "scheduler_swapped", "averaging",
        "segment",
    ],
)  # fmt: skip
@pytest.mark.parametrize("details", [None, {}, {"optimizer": "x", "count": "y", "global_step": []}])
def test_an_event_that_says_little_breaks_nothing(name, details):
    records = [run(), update(1), make_event(event=name, details=details), update(2), end()]
    for finding in judge_recording(records):
        assert "None" not in finding.measured


# ---- several findings, and resumes --------------------------------------------------------------


def faulty():
    """An info, a warning and an error, in this order."""
    return [
        run(),
        skip(1),
        update(1),
        update(2, **NOTHING),
        *updates(3, 8, grad_norm=math.nan, grad_norm_clipped=math.nan),
    ]


def test_errors_come_first():
    findings = judge_recording([*faulty(), end()])
    assert [finding.severity for finding in findings] == ["error", "warning", "info"]


def test_record_by_record_is_the_same_as_all_at_once():
    judge = RecordingJudge()
    for record in faulty():
        judge.see(record)
        judge.findings()  # looking changes nothing
    assert judge.findings() == judge_recording(faulty())


@pytest.mark.parametrize(
    ("completed", "ids"),
    [
        (8, {"TG-RECORD-NONFINITE", "TG-RECORD-NO-GRADIENT", "TG-RECORD-SKIPPED"}),
        (2, {"TG-RECORD-NO-GRADIENT", "TG-RECORD-SKIPPED"}),
        (1, {"TG-RECORD-SKIPPED"}),
    ],
)
def test_what_a_resume_supersedes_is_taken_back(completed, ids):
    found = judged(faulty(), resumed(completed), updates(completed + 1, 20), end())
    found.pop("TG-RECORD-NOT-REPEATED", None)
    assert found.keys() == ids


@pytest.mark.parametrize(("completed", "count"), [(8, 6), (5, 3), (3, 1)])
def test_counts_are_those_of_what_survives(completed, count):
    found = judged(faulty(), resumed(completed), updates(completed + 1, 20), end())
    assert f"{count} of 20 updates are such" in found["TG-RECORD-NONFINITE"].measured


def on_the_main_line(nan_in):
    """Attempt 1 makes updates 1 to 20, of which one is NaN; attempt 2 leaves it at update 5."""
    broken = {"grad_norm": math.nan, "grad_norm_clipped": math.nan}
    first = [update(n, **(broken if n == nan_in else {})) for n in range(1, 21)]
    return [run(), *first, resumed(5), *updates(6, 9, **broken)]


@pytest.mark.parametrize(
    ("nan_in", "completed", "told"),
    [
        (7, 20, "update 7: grad_norm is nan, grad_norm_clipped is nan; 1 of 30 updates are such"),
        (12, 15, "update 12: grad_norm is nan, grad_norm_clipped is nan; 1 of 30 updates are such"),
        (12, 11, None),
        (None, 20, None),
    ],
)
def test_an_attempt_that_goes_back_to_the_main_line_takes_up_what_was_found_of_it(
    nan_in, completed, told
):
    back = [resumed(completed, attempt=3, before=1), *updates(completed + 1, 30), end()]
    found = judged(on_the_main_line(nan_in), back)
    found.pop("TG-RECORD-NOT-REPEATED", None)
    assert [finding.measured for finding in found.values()] == ([] if told is None else [told])


def test_it_can_go_back_more_than_once_and_stay_on_the_branch():
    nan = "TG-RECORD-NONFINITE"
    back = [resumed(5, attempt=3, before=1), *updates(6, 22)]
    again = [resumed(20, attempt=4, before=1), *updates(21, 30)]
    found = judged(on_the_main_line(7), back, again)
    assert "1 of 30 updates are such" in found[nan].measured
    branch = [resumed(9, attempt=4, before=2), *updates(10, 30)]
    found = judged(on_the_main_line(7), back, branch)
    assert found[nan].measured.startswith("update 6: ")
    assert "4 of 30 updates are such" in found[nan].measured


def test_updates_of_this_file_are_counted_where_it_begins_with_a_later_attempt():
    found = judged(resumed(100), updates(101, 109), update(110, **NOTHING), end())
    assert found["TG-RECORD-NO-GRADIENT"].measured == (
        "update 110 had no gradient: no backward, or none that was not cleared again; 1 of 10 "
        "updates are such"
    )


# ---- size ---------------------------------------------------------------------------------------


def long_training(steps: int):
    """Faults of many kinds, over and over."""
    yield run(optimizers=2, schedulers=[scheduler()])
    for n in range(1, steps + 1):
        yield skip(n)
        yield event("clip_without_gradients", optimizer=0, max_norm=1.0 / n)
        yield event("counted_without_update", count=1, global_step=2 * n)
        broken = {"grad_norm": math.nan, "grad_norm_clipped": math.nan, "micro_batches": 1}
        yield update(n, divisor=2, scheduler=at(2 * n), ema={"updates": n}, **broken)
        yield update(n, optimizer=1, **NOTHING)


def size_after(steps: int) -> int:
    tracemalloc.start()
    try:
        judge = RecordingJudge()
        for record in long_training(steps):
            judge.see(record)
        assert len(judge.findings()) > 5
        del record
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_updates():
    assert size_after(4000) < 1.1 * size_after(1500)

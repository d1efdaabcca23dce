"""Whether gradients were clipped as declared, when they were whole and unscaled."""

import math

import pytest

from tests.judge.recordings import end, event, judged, run, skip, update

NORM = {"value": 1.0, "algorithm": "norm"}
VALUE = {"value": 0.01, "algorithm": "value"}


def clipped(number: int, before: float, after: float, **changes):
    fields = {
        "grad_norm": before, "grad_norm_clipped": after, "clipped": after != before,
        "clip_coefficient": after / before,
    }  # fmt: skip
    return update(number, **(fields | changes))


# ---- the declared limit -------------------------------------------------------------------------


@pytest.mark.parametrize(("after", "how"), [(3.27, "and nothing was clipped"), (1.1, "after")])
def test_a_norm_beyond_the_declared_limit_is_an_error(after, how):
    records = [clipped(1, 3.27, 1.0), clipped(2, 3.27, after), clipped(3, 0.2, 0.2)]
    found = judged(run(clipping=NORM), records, end())
    assert list(found) == ["TG-RECORD-CLIP-LIMIT"]
    finding = found["TG-RECORD-CLIP-LIMIT"]
    assert finding.severity == "error"
    assert finding.measured.startswith(f"update 2: the gradient norm is {after} {how}")
    assert finding.measured.endswith("1 of 3 updates exceed it")


@pytest.mark.parametrize("after", [0.9999, 1.0, 1.0009])
def test_a_norm_within_the_limit_is_silent_however_large_it_was_before(after):
    assert judged(run(clipping=NORM), [clipped(n, 1e6, after) for n in (1, 2)], end()) == {}


@pytest.mark.parametrize("after", [1.414, 9.0])
def test_a_clip_of_each_parameter_by_itself_is_told_and_no_error(after):
    in_parts = [clipped(n, 10.0, after, clip_coefficient=None) for n in (1, 2)]
    finding = judged(run(clipping=NORM), in_parts, end())["TG-RECORD-CLIP-LIMIT"]
    assert finding.severity == "info"
    told = f"update 1: the gradient norm is {after:g} after clipping in parts, "
    assert finding.measured.startswith(told)
    whole = clipped(3, 10.0, 10.0, clip_coefficient=None)  # not clipped at all
    finding = judged(run(clipping=NORM), in_parts, whole, end())["TG-RECORD-CLIP-LIMIT"]
    assert (finding.severity, finding.measured[:9]) == ("error", "update 3:")


def test_no_limit_is_held_against_a_run_that_declares_none():
    assert judged(run(clipping=None), clipped(1, 50.0, 50.0)) == {}


@pytest.mark.parametrize("clipping", [{"value": None}, {"value": 1.0}, {"algorithm": "norm"}, {}])
def test_a_limit_that_is_not_told_whole_is_not_held_against_it(clipping):
    assert judged(run(clipping=clipping), clipped(1, 50.0, 50.0)) == {}


@pytest.mark.parametrize(("after", "ids"), [(0.0999, []), (0.2, ["TG-RECORD-CLIP-LIMIT"])])
def test_a_clip_by_value_bounds_the_norm_by_the_number_of_elements(after, ids):
    # 100 parameters of at most 0.01 each: a norm of 0.1
    assert list(judged(run(clipping=VALUE), clipped(1, 7.0, after))) == ids


@pytest.mark.parametrize(
    ("precision", "ids"), [("bf16-true", []), ("32-true", ["TG-RECORD-CLIP-LIMIT"])]
)
def test_gradients_in_halves_are_rounded_once_more(precision, ids):
    assert list(judged(run(clipping=NORM, precision=precision), clipped(1, 9.0, 1.004))) == ids


def test_a_norm_that_is_no_number_is_left_to_those_who_look_for_it():
    found = judged(run(clipping=NORM), clipped(1, math.inf, math.nan))
    assert list(found) == ["TG-RECORD-NONFINITE"]


# ---- a clip before the backward -----------------------------------------------------------------


def early(limit: float | None = 0.01, optimizer: int | None = 0):
    return event("clip_without_gradients", optimizer=optimizer, max_norm=limit)


@pytest.mark.parametrize("optimizer", [0, None])
@pytest.mark.parametrize("limit", [0.01, 0.4, None])
def test_a_clip_before_the_backward_of_too_large_gradients_is_an_error(limit, optimizer):
    steps = [one for n in (1, 2, 3) for one in (early(limit, optimizer), update(n))]
    found = judged(run(), steps, end())
    assert list(found) == ["TG-RECORD-CLIP-BEFORE-BACKWARD"]
    finding = found["TG-RECORD-CLIP-BEFORE-BACKWARD"]
    assert finding.severity == "error"
    assert finding.measured.startswith("update 1: ")
    assert finding.measured.endswith(
        "before the backward and a norm of 0.5 was used; so it was at 3 steps"
    )


def test_it_is_a_warning_while_no_norm_was_too_large():
    steps = [one for n in (1, 2) for one in (early(limit=2.0), update(n))]
    assert judged(run(), steps)["TG-RECORD-CLIP-BEFORE-BACKWARD"].severity == "warning"
    found = judged(run(), steps, early(limit=2.0), update(3, grad_norm=3.0, grad_norm_clipped=3.0))
    assert found["TG-RECORD-CLIP-BEFORE-BACKWARD"].severity == "error"
    assert found["TG-RECORD-CLIP-BEFORE-BACKWARD"].measured.startswith("update 3: ")


def test_a_clip_of_a_batch_that_was_left_out_is_no_misplaced_one():
    none = {"objective": None, "loss": None, "grad_norm": None, "grad_norm_clipped": None}
    found = judged(run(), update(1), early(), update(2, **none), update(3), end())
    assert list(found) == ["TG-RECORD-NO-GRADIENT"]


def test_a_clip_before_a_step_that_was_never_made_is_none_either():
    without = event("counted_without_update", count=1, global_step=2)
    assert list(judged(run(), update(1), early(), without, update(2))) == ["TG-RECORD-NO-UPDATE"]


def test_a_clip_over_all_networks_is_silent_where_each_is_clipped_at_its_own_step():
    steps = [
        one
        for n in range(1, 4)
        for one in (
            early(limit=1.0, optimizer=1),
            clipped(n, 3.0, 1.0, global_step=None),
            early(limit=1.0, optimizer=0),
            clipped(n, 2.0, 1.0 if n > 1 else 0.9, optimizer=1, global_step=None),
        )
    ]
    assert judged(run(optimizers=2), steps, end()) == {}


def test_clips_in_their_place_are_silent():
    assert judged(run(), [clipped(n, 3.0, 1.0) for n in (1, 2, 3)], end()) == {}


# ---- a clip of scaled gradients -----------------------------------------------------------------


@pytest.mark.parametrize(("limit", "scale"), [(1.0, 65536.0), (0.1, 16384.0), (None, 2.0)])
def test_a_clip_of_scaled_gradients_is_an_error(limit, scale):
    clip = event("clip_on_scaled_gradients", optimizer=0, max_norm=limit, amp_scale=scale)
    found = judged(run(), update(1), clip, update(2), clip, update(3), end())
    assert list(found) == ["TG-RECORD-CLIP-SCALED"]
    finding = found["TG-RECORD-CLIP-SCALED"]
    assert finding.severity == "error"
    assert finding.measured.startswith("after update 1: ")
    assert f"with the scale {scale:g} in them; 2 such clips" in finding.measured


def test_a_scale_of_one_does_no_harm():
    clip = event("clip_on_scaled_gradients", optimizer=0, max_norm=1.0, amp_scale=1.0)
    assert judged(run(), update(1), clip, update(2), end()) == {}


def test_unscaled_clips_under_a_scaler_are_silent():
    found = judged(run(), skip(1), [clipped(n, 9.0, 1.0, global_step=n + 1) for n in (1, 2)], end())
    assert list(found) == ["TG-RECORD-SKIPPED"]

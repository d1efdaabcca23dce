"""Whether the weights are still numbers."""

import math

import pytest

from tests.judge.recordings import end, event, judged, resumed, run, update, updates
from traingen.judge import judge_recording
from traingen.records import ShardFacts

NAN, INF = math.nan, math.inf


def broken(number: int, norm: float = NAN, **changes):
    fields = {"loss": norm, "objective": norm, "grad_norm": norm, "grad_norm_clipped": norm}
    return update(number, **(fields | changes))


@pytest.mark.parametrize("norm", [NAN, INF, -INF])
@pytest.mark.parametrize("first", [1, 4])
def test_an_update_with_gradients_that_are_no_numbers_is_an_error(norm, first):
    found = judged(run(), updates(1, first - 1), [broken(n, norm) for n in range(first, 9)], end())
    assert list(found) == ["TG-RECORD-NONFINITE"]
    finding = found["TG-RECORD-NONFINITE"]
    assert finding.severity == "error"
    assert finding.measured.startswith(f"update {first}: loss is {norm}, objective is {norm}")
    assert finding.measured.endswith(f"{9 - first} of 8 updates are such")


def test_finite_numbers_of_any_size_are_none_of_it():
    numbers = {"loss": 1e30, "objective": -1e30, "grad_norm": 1e19, "grad_norm_clipped": 1e-30}
    assert judged(run(), updates(1, 3, **numbers), end()) == {}


def test_an_infinite_norm_that_a_clip_by_norm_turned_into_nan_is_an_error():
    found = judged(run(), updates(1, 2), broken(3, loss=2.0, objective=2.0, grad_norm=INF))
    assert "grad_norm is inf, grad_norm_clipped is nan" in found["TG-RECORD-NONFINITE"].measured


@pytest.mark.parametrize(
    "changes", [{"loss": NAN, "objective": NAN}, {"loss": INF}, {"grad_norm": INF}]
)
def test_what_does_not_reach_the_weights_is_a_warning(changes):
    found = judged(run(), updates(1, 2), update(3, **changes), updates(4, 5), end())
    assert list(found) == ["TG-RECORD-NONFINITE-LOSS"]
    assert found["TG-RECORD-NONFINITE-LOSS"].severity == "warning"
    assert found["TG-RECORD-NONFINITE-LOSS"].measured.startswith("update 3: ")


def test_a_loss_that_is_nan_where_no_norm_is_known_is_an_error():
    found = judged(run(), broken(1, grad_norm=None, grad_norm_clipped=None))
    assert found["TG-RECORD-NONFINITE"].severity == "error"


@pytest.mark.parametrize("loss", [NAN, INF])
def test_gradients_that_a_guard_cleared_before_the_step_harm_nothing(loss):
    cleared = {"objective": None, "grad_norm": None, "grad_norm_clipped": None}
    found = judged(run(), updates(1, 3), update(4, loss=loss, **cleared), end())
    assert {id: one.severity for id, one in found.items()} == {
        "TG-RECORD-NONFINITE-LOSS": "warning", "TG-RECORD-NO-GRADIENT": "warning",
    }  # fmt: skip
    unseen = run(observes=["loss"])
    assert list(judged(unseen, update(4, loss=loss, **cleared))) == ["TG-RECORD-NONFINITE"]


@pytest.mark.parametrize(("share", "ids"), [(NAN, ["TG-RECORD-NONFINITE"]), (4.0, [])])
def test_shards_are_judged_by_their_share(share, ids):
    shard = ShardFacts(grad_norm_squared=4.0, grad_norm_clipped_squared=share)
    record = update(1, grad_norm=None, grad_norm_clipped=None, shard=shard)
    assert list(judged(run(), record)) == ids


def test_the_parameters_it_began_in_are_named_where_they_are_known():
    record = broken(2, layer_norms={"first.weight": 0.5, "head.weight": NAN, "head.bias": INF})
    measured = judged(run(), update(1), record)["TG-RECORD-NONFINITE"].measured
    assert "(first in head.weight, 2 of 3 parameters)" in measured


def test_each_optimizer_is_told_apart():
    records = [
        run(optimizers=2),
        broken(1),
        broken(1, optimizer=1),
        update(2),
        broken(2, optimizer=1),
    ]
    first, second = judge_recording(records)
    assert first.measured.startswith("update 1 of optimizer 0: ")
    assert first.measured.endswith("1 of 2 updates are such")
    assert second.measured.startswith("update 1 of optimizer 1: ")


def test_a_step_that_a_scaler_skipped_is_no_update_with_nan():
    skipped = event("skipped_step", optimizer=0, amp_scale=65536.0, amp_scale_after=32768.0)
    found = judged(run(), update(1), skipped, updates(2, 3), end())
    assert "TG-RECORD-NONFINITE" not in found


@pytest.mark.parametrize(("completed", "seen"), [(100, 10), (7, 103)])
def test_only_updates_that_this_file_holds_are_counted(completed, seen):
    later = updates(completed + 1, 109)
    broken = update(110, grad_norm=NAN, grad_norm_clipped=NAN)
    found = judged(resumed(completed), later, broken, end())
    assert found["TG-RECORD-NONFINITE"].measured.endswith(f"; 1 of {seen} updates are such")


def test_updates_that_the_file_lacks_in_its_midst_are_not_counted():
    """The first attempt was killed before it had written the last ones; another was elsewhere."""
    broken = update(12, grad_norm=NAN, grad_norm_clipped=NAN)
    for before, seen in ((1, 10), (2, 2)):
        later = resumed(10, attempt=3, before=before)
        found = judged(run(), updates(1, 8), later, update(11), broken, end())
        assert found["TG-RECORD-NONFINITE"].measured.endswith(f"; 1 of {seen} updates are such")


def test_what_was_found_beside_an_attempt_that_is_not_in_the_file_does_not_stand():
    lost = [run(), update(1, grad_norm=NAN, grad_norm_clipped=NAN), *updates(2, 8)]
    on = updates(11, 12)
    assert judged(lost, resumed(10, attempt=3, before=2), on, end()) == {}
    assert judged(lost, resumed(10, attempt=3, before=1), on, end()).keys() == {
        "TG-RECORD-NONFINITE"
    }

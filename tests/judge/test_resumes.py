"""Whether a resumed attempt repeats what it supersedes."""

import math

import pytest

from tests.judge.recordings import end, judged, resumed, run, update, updates
from traingen.judge.resumes import KEPT
from traingen.records import BatchFacts

ID = "TG-RECORD-NOT-REPEATED"


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"loss": 0.7}, "loss"),
        ({"lr": [0.01]}, "lr [0.001], then [0.01]"),
        ({"batch": BatchFacts(digest="d2", ids=None)}, "batch d1, then d2"),
        ({"rng": {"torch": "zz"}}, "rng"),
        ({"parameters": "e2"}, "parameters e1, then e2"),
    ],
)
def test_other_values_than_before_are_told(changes, first):
    again = [*updates(4, 5), update(6, **changes)]
    found = judged(run(), updates(1, 6), resumed(3), again, end())
    assert list(found) == [ID]
    assert found[ID].severity == "info"
    assert found[ID].measured.startswith(f"update 6 in attempt 2: {first}")
    assert found[ID].measured.endswith("1 of 3 updates that were made again")


def test_all_that_differs_is_named_in_the_order_of_a_step():
    changes = {"parameters": "e2", "loss": 9.0, "objective": 9.0, "rng": {"torch": "x"}}
    found = judged(run(), updates(1, 6), resumed(5), update(6, **changes))
    assert "rng {'python': '…, then {'torch': 'x'} (and loss, objective, parameters)" in (
        found[ID].measured
    )


@pytest.mark.parametrize("changes", [{"batch_idx": 0}, {"epoch": 1}])
def test_another_place_in_the_data_is_a_warning(changes):
    found = judged(run(), updates(1, 6), resumed(3), updates(4, 5, **changes))
    assert found[ID].severity == "warning"


def test_a_resume_that_repeats_is_silent():
    lost = updates(4, 6, loss=math.nan, grad_norm_clipped=0.5)
    again = updates(4, 9, loss=math.nan)
    found = judged(run(), updates(1, 3), lost, resumed(3), again, end())
    assert ID not in found


@pytest.mark.parametrize("completed", [6, 8])
def test_nothing_is_said_where_nothing_was_superseded(completed):
    again = updates(completed + 1, 12, lr=[0.5])
    assert judged(run(), updates(1, completed), resumed(completed), again, end()) == {}


def test_what_an_attempt_did_not_record_is_not_known():
    found = judged(run(), updates(1, 6), resumed(3), updates(4, 6, parameters=None, rng=None))
    assert found == {}


def test_optimizers_are_told_apart():
    first = [update(n, optimizer=i, global_step=None) for n in (1, 2) for i in (0, 1)]
    again = [update(2, optimizer=1, global_step=None, lr=[1.0])]
    found = judged(run(optimizers=2), first, resumed(2, 1), again)
    assert found[ID].measured.startswith("update 2 of optimizer 1 in attempt 2: lr ")


def test_only_the_latest_updates_are_kept():
    lost = updates(1, KEPT + 10)
    found = judged(run(), lost, resumed(0), updates(1, KEPT + 10, lr=[1.0]))
    assert found[ID].measured.endswith(f"{KEPT} of {KEPT} updates that were made again")

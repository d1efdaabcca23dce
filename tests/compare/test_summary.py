"""What one mode concludes from its comparisons, and what it has not put to the test."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.compare.results import make_comparison, make_difference, make_mode, make_summary
from traingen.compare.differences import Comparison
from traingen.compare.gates import EXACT
from traingen.compare.order import CAUSAL_ORDER
from traingen.compare.summary import plain_difference
from traingen.compare.tensors import compare_tensors, per_quantity

# ---- verdict ------------------------------------------------------------------------------------


def test_every_update_equal_is_a_pass():
    mode = make_mode(make_comparison(1), make_comparison(2))
    assert (mode.verdict, mode.reason) == ("pass", None)
    assert (mode.updates, mode.equal_updates) == (2, 2)
    assert mode.compared == {"gradients": 4, "parameters": 6}


def test_a_gate_that_was_left_is_a_fail():
    mode = make_mode(make_comparison(1), make_comparison(2, make_difference(update=2)))
    assert (mode.verdict, mode.reason) == ("fail", "a gate was left at update 2")
    assert mode.first_divergence == mode.earliest_difference == make_difference(update=2)
    assert mode.equal_updates == 1


def test_a_difference_within_its_gate_is_a_pass_and_kept():
    inside = make_difference(left=False)
    mode = make_mode(make_comparison(1, inside), make_comparison(2))
    assert mode.verdict == "pass"
    assert mode.first_divergence is None
    assert (mode.earliest_difference, mode.equal_updates) == (inside, 1)


@pytest.mark.parametrize(
    ("comparisons", "reason"),
    [
        ([], "nothing was compared"),
        ([make_comparison(1, compared={"batch": 1}), make_comparison(2, compared={"batch": 1})],
         "nothing was compared"),
        ([make_comparison(1, compared={"parameters": 0}), make_comparison(2, compared={})],
         "nothing was compared"),
        ([make_comparison(1)], "1 of 2 updates were compared"),
    ],
)  # fmt: skip
def test_too_little_compared_is_inconclusive(comparisons, reason):
    mode = make_summary(*comparisons).result(not_exercised=(), not_synchronized={})
    assert (mode.verdict, mode.reason) == ("inconclusive", reason)


LEFT = [make_comparison(1), make_comparison(2, make_difference(update=2))]
EQUAL = [make_comparison(1), make_comparison(2)]


@pytest.mark.parametrize(
    ("comparisons", "failure", "doubt", "verdict", "reason"),
    [
        (LEFT, "ended early", "both NaN", "fail", "a gate was left at update 2"),
        (EQUAL, "ended early", "both NaN", "fail", "ended early"),
        (EQUAL[:1], "ended early", None, "fail", "ended early"),
        ([], "ended early", None, "fail", "ended early"),
        (EQUAL, None, "both NaN", "inconclusive", "both NaN"),
        (EQUAL[:1], None, "both NaN", "inconclusive", "both NaN"),
        (LEFT, None, "both NaN", "fail", "a gate was left at update 2"),
    ],
)
def test_fail_beats_inconclusive_beats_pass(comparisons, failure, doubt, verdict, reason):
    summary = make_summary(*comparisons)
    summary.failure, summary.doubt = failure, doubt
    mode = summary.result(not_exercised=(), not_synchronized={})
    assert (mode.verdict, mode.reason) == (verdict, reason)


# ---- horizons -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "verdict"), [(1, "fail"), (4, "fail"), (5, "fail"), (6, "pass"), (9, "pass")]
)
def test_gates_are_asserted_up_to_and_including_the_horizon(update, verdict):
    comparisons = [
        make_comparison(n, *([make_difference(update=n)] if n == update else []))
        for n in range(1, 10)
    ]
    mode = make_mode(*comparisons, asked=9, horizon={"gradients": 5})
    assert mode.verdict == verdict
    assert (mode.first_divergence is None) == (verdict == "pass")
    assert (mode.report_only_divergence is None) == (verdict == "fail")


def test_a_gate_without_a_horizon_is_asserted_at_all_updates():
    late = make_difference("batch", 9)
    comparisons = [make_comparison(n) for n in range(1, 9)]
    mode = make_mode(*comparisons, make_comparison(9, late), asked=9, horizon={"gradients": 5})
    assert (mode.verdict, mode.first_divergence) == ("fail", late)


def test_a_tail_shares_the_horizon_of_its_gate():
    summary = make_summary(horizon={"rng": 3})
    assert summary.asserts("tail.rng", 3)
    assert not summary.asserts("tail.rng", 4)


def test_beyond_the_horizon_an_asserted_gate_still_fails():
    early, late = make_difference("gradients", 6), make_difference("lr", 7)
    mode = make_mode(
        make_comparison(6, early), make_comparison(7, late), asked=7, horizon={"gradients": 5}
    )
    assert (mode.report_only_divergence, mode.first_divergence) == (early, late)
    assert mode.verdict == "fail"


# ---- cause --------------------------------------------------------------------------------------


@given(
    quantities=st.lists(st.sampled_from(CAUSAL_ORDER), min_size=1, unique=True),
    inside=st.sets(st.sampled_from(CAUSAL_ORDER)),
)
def test_the_cause_is_the_earliest_that_left_its_gate(quantities, inside):
    differences = [make_difference(q, left=q not in inside) for q in quantities]
    comparison = per_quantity([], make_comparison(1, *differences))
    mode = make_mode(comparison, asked=1)
    left = [q for q in quantities if q not in inside]
    first = mode.first_divergence
    assert (first and first.quantity) == min(left, key=CAUSAL_ORDER.index, default=None)
    assert mode.earliest_difference.quantity == min(quantities, key=CAUSAL_ORDER.index)


def test_the_first_update_counts_whatever_comes_later():
    first, later = make_difference("buffers", 1), make_difference("batch", 2)
    mode = make_mode(make_comparison(1, first), make_comparison(2, later))
    assert mode.first_divergence == first


def test_records_and_tensors_of_an_update_are_joined_in_causal_order():
    base = make_comparison(1, make_difference("lr"), compared={"lr": 1}, nonfinite=("package",))
    tensors = [
        compare_tensors(1, "parameters", [("w", torch.ones(1), torch.zeros(1))], EXACT),
        compare_tensors(1, "gradients", [("w", torch.ones(1), torch.zeros(1))], EXACT),
    ]
    joined = per_quantity(tensors, base)
    assert [d.quantity for d in joined.differences] == ["gradients", "lr", "parameters"]
    assert joined.compared == {"lr": 1, "parameters": 1, "gradients": 1}
    assert (joined.nonfinite, joined.loss_relative) == (("package",), 0.0)


# ---- sizes --------------------------------------------------------------------------------------


def loss_of(*sizes: float | None) -> Any:
    return make_mode(
        *(make_comparison(n, loss_relative=size) for n, size in enumerate(sizes, start=1)),
        asked=len(sizes),
    )


@pytest.mark.parametrize(
    ("sizes", "departure", "largest"),
    [
        ([0.0, 1e-3], None, 1e-3),
        ([0.0, 1.1e-3, 0.5, 0.1], (2, 1.1e-3), 0.5),
        ([math.inf], (1, math.inf), math.inf),
        ([None, None], None, None),
        ([None, 0.25], (2, 0.25), 0.25),
        ([0.0], None, 0.0),
    ],
)
def test_the_loss_departs_where_it_first_exceeds_the_protocols_limit(sizes, departure, largest):
    mode = loss_of(*sizes)
    assert mode.loss_departure == departure
    assert mode.largest_loss_relative == largest


def test_the_largest_difference_of_each_quantity_is_kept():
    mode = make_mode(
        make_comparison(1, make_difference(absolute=1.0), make_difference("lr", absolute=None)),
        make_comparison(2, make_difference(update=2, absolute=3.0, left=False)),
        make_comparison(3, make_difference(absolute=2.0), make_difference("loss_terms")),
    )
    assert mode.largest == {"gradients": 3.0, "loss_terms": 1.0}


def test_a_difference_becomes_plain_values():
    plain = plain_difference(make_difference(limit="rtol=1"))
    assert plain == {
        "update": 1, "quantity": "gradients", "path": "gradients.w", "original": 1.0,
        "package": 2.0, "absolute": 1.0, "relative": None, "left": True, "limit": "rtol=1",
    }  # fmt: skip
    assert plain_difference(None) is None


def test_notes_go_into_the_result():
    summary = make_summary()
    summary.notes.append("package raised while it was being ended")
    result = summary.result(
        not_exercised=["x"], not_synchronized={"ema": "y"}, excused={}, excused_trained=[]
    )
    assert result.notes == ("package raised while it was being ended",)


def test_an_empty_comparison_counts_its_update():
    mode = make_mode(Comparison(update=1, compared={"parameters": 1}), asked=1)
    assert (mode.updates, mode.verdict) == (1, "pass")


def test_report_only_gates_assert_nothing_and_are_said():
    mode = make_mode(make_comparison(1), make_comparison(2), report_only=frozenset({"gradients"}))
    assert mode.not_asserted == ("gradients",)
    assert mode.verdict == "pass"  # parameters were asserted


def test_a_horizon_of_nothing_asserts_nothing():
    mode = make_mode(make_comparison(1), make_comparison(2), horizon={"parameters": 0})
    assert mode.not_asserted == ("parameters",)


def test_a_run_that_asserted_nothing_it_computed_proves_nothing():
    gates = frozenset({"gradients", "parameters", "objective"})
    computed = {"compared": {"gradients": 2, "parameters": 3, "objective": 1}}
    mode = make_mode(
        make_comparison(1, **computed), make_comparison(2, **computed), report_only=gates
    )
    assert mode.verdict == "inconclusive"
    assert "was asserted" in str(mode.reason)


def test_why_a_failed_run_ended_is_kept_as_a_note():
    summary = make_summary(make_comparison(1, make_difference()))
    summary.doubt = "package raised at update 2"
    result = summary.result(not_exercised=[], not_synchronized={})
    assert (result.verdict, result.notes) == ("fail", ("package raised at update 2",))

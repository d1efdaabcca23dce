"""What a comparison found, and two of one update joined."""

from typing import Any

from traingen.compare.differences import Comparison, Difference, combine_comparisons


def difference(quantity: str, update: int = 3, **changes: Any) -> Difference:
    fields = {"path": quantity, "original": 1, "package": 2} | changes
    return Difference(update=update, quantity=quantity, **fields)


def test_earlier_update_ranks_before_causal_order():
    ranked = sorted(
        [difference("batch", 4), difference("buffers", 3), difference("batch", 3)],
        key=lambda d: d.rank,
    )
    assert [(d.update, d.quantity) for d in ranked] == [(3, "batch"), (3, "buffers"), (4, "batch")]


def test_left_are_those_that_leave_their_gates():
    inside, outside = difference("lr", left=False), difference("buffers")
    comparison = Comparison(update=3, compared={}, differences=(inside, outside))
    assert comparison.left == (outside,)


def test_joined_comparisons_keep_everything_in_causal_order():
    late, early = difference("parameters"), difference("batch")
    first = Comparison(
        update=3, compared={"parameters": 5}, differences=(late,), loss_relative=0.5,
        nonfinite=("package",),
    )  # fmt: skip
    second = Comparison(update=3, compared={"batch": 2}, differences=(early,))
    joined = combine_comparisons(first, second)
    assert joined == Comparison(
        update=3, compared={"parameters": 5, "batch": 2}, differences=(early, late),
        loss_relative=0.5, nonfinite=("package",),
    )  # fmt: skip

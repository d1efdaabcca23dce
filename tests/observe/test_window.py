"""A window holds just what is in the next update of its optimizer."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from traingen.observe.events import Clip
from traingen.observe.window import Batch, Norms, Root, Term, Window, total


def make_window(index: int = 0) -> Window:
    parameters = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))]
    return Window(index, torch.optim.SGD(parameters, lr=0.1), {id(parameters[1]): "bias"})


def make_batch(divisor: float | None = None) -> Batch:
    return Batch(epoch=0, batch_idx=0, divisor=divisor)


def root(value: float, batch: Batch | None = None, scale: float | None = None) -> Root:
    return Root(torch.tensor(value), None if scale is None else torch.tensor(scale), batch)


def take(window: Window, *values: float, divisor: float | None = None) -> Batch:
    """A batch with a backward for each of `values`."""
    batch = make_batch(divisor)
    window.begin(batch)
    for value in values:
        window.reach([root(value, batch)], batch)
    return batch


# Roots


def test_a_root_is_read_without_its_scale():
    assert float(root(24.0, scale=8.0)) == 3.0
    assert float(root(24.0)) == 24.0


def test_a_total_of_nothing_is_unknown():
    assert total([]) is None
    assert total([root(1.0), root(8.0, scale=4.0)]) == 3.0


# Which batches are in


def test_batches_that_reach_the_gradients_are_kept_in_order():
    window = make_window()
    batches = [take(window, 1.0), take(window, 2.0)]
    assert window.batches == batches
    assert total(window.roots) == 3.0


def test_a_batch_that_has_reached_nothing_yet_may_still_take_part():
    window = make_window()
    first, second = take(window), take(window, 1.0)
    assert window.batches == [first, second]


def test_a_batch_that_reached_only_another_optimizer_has_no_part():
    window, other = make_window(0), make_window(1)
    batch = make_batch()
    window.begin(batch)
    other.begin(batch)
    other.reach([root(1.0, batch)], batch)
    following = take(window, 2.0)
    assert window.batches == [following]
    assert other.batches == [batch]


def test_a_batch_that_reached_both_is_in_both():
    windows = [make_window(0), make_window(1)]
    batch = make_batch()
    for window in windows:
        window.begin(batch)
        window.reach([root(1.0, batch)], batch)
    for window in windows:
        window.begin(make_batch())
    assert [window.batches[0] for window in windows] == [batch, batch]


def test_batches_before_one_that_was_anothers_are_kept_if_they_reached_this_one():
    window, other = make_window(0), make_window(1)
    mine = take(window, 1.0)
    for reaches in (False, True):
        batch = make_batch()
        window.begin(batch)
        if reaches:
            other.reach([root(2.0, batch)], batch)
    following = take(window)
    assert window.batches == [mine, following]


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("clears", [False, True])
def test_a_window_stays_small_over_many_batches_of_another_optimizer(every, clears):
    window, other, longest = make_window(0), make_window(1), 0
    for number in range(10_000):
        batch = make_batch()
        window.begin(batch)
        other.begin(batch)
        longest = max(longest, len(window.batches) + len(window.roots))
        if number % every:
            continue  # a batch that the loop leaves out
        other.reach([root(1.0, batch)], batch)
        if clears:
            window.reach([root(1.0, batch)], batch)
            window.clear(batch)
        other.empty()
        other.clear(batch)
    assert longest <= every + 1


# Clearing


def test_what_is_cleared_is_in_no_update_but_the_batch_in_work_may_be():
    window = make_window()
    take(window, 1.0)
    current = take(window, 2.0)
    window.clear(current)
    assert (window.batches, window.roots) == ([current], [])
    window.reach([root(5.0, current)], current)
    following = take(window, 7.0)
    assert window.batches == [current, following]
    assert total(window.roots) == 12.0


def test_a_batch_that_was_cleared_and_reached_nothing_again_has_no_part():
    window = make_window()
    kept = take(window, 1.0)
    window.roots.clear()
    thrown_away = take(window, 2.0)
    thrown_away.cleared.add(window.index)
    following = take(window, 3.0)
    assert window.batches == [kept, following]


def test_clearing_before_the_first_backward_leaves_the_batch_in():
    window = make_window()
    batch = make_batch()
    window.begin(batch)
    window.clear(batch)
    window.reach([root(1.0, batch)], batch)
    window.begin(make_batch())
    assert window.batches[0] is batch
    assert batch.is_in(window.index)


def test_clearing_takes_the_scale_out():
    window = make_window()
    batch = make_batch()
    window.reach([root(16.0, batch, scale=8.0)], batch)
    assert window.scale == 8.0
    window.clear(batch)
    assert window.scale is None


def test_emptied_it_is_like_new_but_for_its_count():
    window, fresh = make_window(), make_window()
    window.updates = 3
    take(window, 1.0, divisor=2)
    window.evaluate(terms=0)
    window.evaluate(terms=4)
    window.reach([root(1.0, None, scale=2.0)], None)
    window.empty()
    names = [n for n in Window.__slots__ if n not in ("optimizer", "names", "updates")]
    changed = [n for n in names if getattr(window, n) != getattr(fresh, n)]
    assert changed == ["terms_from"]  # terms are numbered on
    assert window.updates == 3


# The loss


@pytest.mark.parametrize(
    ("batches", "divisor", "loss", "each"),
    [
        ([[3.0]], None, 3.0, [3.0]),
        ([[1.0, 2.0]], None, 3.0, [3.0]),
        ([[1.0], [3.0]], None, None, None),
        ([[1.0], [3.0]], 2, 4.0, [2.0, 6.0]),
        ([[1.0, 2.0], [3.0, 4.0]], 2, 10.0, [6.0, 14.0]),
        ([[], [3.0]], 2, 6.0, [6.0]),
        ([[]], 2, None, None),
        ([], None, None, None),
    ],
)
def test_the_loss_is_the_mean_of_what_each_batch_had_before_it_was_divided(
    batches, divisor, loss, each
):
    window = make_window()
    for values in batches:
        take(window, *values, divisor=divisor)
    assert window.losses() == (loss, each)


@given(
    values=st.lists(st.lists(st.floats(-9, 9, width=32), min_size=1, max_size=3), min_size=1),
)
def test_the_mean_of_the_micro_losses_is_the_loss_and_their_sum_the_objective(values):
    window = make_window()
    for several in values:
        take(window, *several, divisor=len(values))
    loss, each = window.losses()
    assert loss == pytest.approx(sum(each) / len(each), abs=1e-9)
    assert loss == pytest.approx(total(window.roots), rel=1e-9, abs=1e-9)
    assert len(each) == len(values)


# Closures


def evaluate(window: Window, batch: Batch, value: float, *, terms: int = 0) -> None:
    window.evaluate(terms=terms)
    window.clear(batch)
    window.reach([root(value, batch)], batch)


@pytest.mark.parametrize("count", [2, 5])
def test_of_several_evaluations_the_first_and_the_last_are_told(count):
    window = make_window()
    batch = take(window)
    for number in range(count):
        evaluate(window, batch, 10.0 - number)
    facts = window.closure()
    assert (facts.evaluations, facts.first_objective) == (count, 10.0)
    assert facts.last_objective == total(window.roots) == 11.0 - count


@pytest.mark.parametrize("count", [0, 1])
def test_a_step_with_at_most_one_evaluation_has_no_closure_to_tell_of(count):
    window = make_window()
    batch = take(window, 1.0)
    for _ in range(count):
        evaluate(window, batch, 2.0)
    assert window.closure() is None


def test_from_the_second_evaluation_on_the_clip_of_the_one_before_is_forgotten():
    window = make_window()
    batch = take(window, 1.0)
    clip = Clip(
        gradients=[], parameters=[], max_norm=1.0, total_norm=torch.ones(()), norm_type=2.0
    )  # fmt: skip
    window.clips, window.norms = [clip], Norms(whole=1.0, share=None)
    window.evaluate(terms=0)
    assert (window.clips, window.norms.whole) == ([clip], 1.0)
    window.reach([root(1.0, batch)], batch)  # gradients that it has set to zero by hand
    window.evaluate(terms=0)
    assert (window.clips, window.norms) == ([], None)


def test_an_evaluation_without_a_backward_has_no_objective():
    window = make_window()
    batch = take(window)
    evaluate(window, batch, 1.0)
    window.evaluate(terms=0)
    facts = window.closure()
    assert (facts.first_objective, facts.last_objective) == (1.0, None)


# Terms


def note(batch: Batch, *terms: tuple[int, str, float]) -> None:
    batch.terms += [Term(number, name, torch.tensor(value)) for number, name, value in terms]


def test_terms_are_means_over_the_batches_that_had_them():
    window = make_window()
    note(take(window), (0, "fit", 1.0), (1, "penalty", 5.0))
    note(take(window), (2, "fit", 2.0))
    assert window.terms() == {"fit": 1.5, "penalty": 5.0}
    assert window.terms([Term(3, "fit", torch.tensor(6.0))]) == {"fit": 3.0, "penalty": 5.0}


def test_from_the_second_evaluation_on_only_its_own_terms_count():
    window = make_window()
    note(take(window), (0, "fit", 1.0))
    batch = take(window)
    for number in (1, 2):
        evaluate(window, batch, 1.0, terms=number)
        note(batch, (number, "fit", 10.0 * number))
        expected = [{"fit": 5.5}, {"fit": 20.0}][number - 1]
        assert window.terms() == expected


def test_a_term_that_a_step_has_taken_is_not_told_again():
    window = make_window()
    first, last = take(window), take(window)
    note(first, (0, "fit", 1.0), (1, "other", 2.0))
    note(last, (2, "fit", 3.0), (3, "other", 4.0))
    first.terms[1].taken = last.terms[1].taken = True
    assert window.terms() == {"fit": 2.0}
    last.terms[0].taken = True
    assert window.terms() == {"fit": 1.0}
    assert window.terms(only_whole=True) is None


def test_without_terms_none_are_told():
    assert make_window().terms() is None


# Parameters


def test_parameters_are_named_by_the_loop_or_else_numbered():
    window = make_window()
    first, second = window.parameters
    assert window.named_parameters() == [("0", first), ("bias", second)]
    assert window.gradients == []
    second.grad = torch.ones(1)
    assert window.gradients == [second.grad]

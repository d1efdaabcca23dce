"""Updates are paired by optimizer and number, whatever either recording lacks."""

from hypothesis import given
from hypothesis import strategies as st

from tests.reading.recordings import make_updates
from tests.records.samples import make_update
from traingen.compare.alignment import TurnOrder, align_updates


def turns(*order):
    """Updates in the order in which optimizers step, each counted on its own."""
    counts = {}
    for optimizer in order:
        counts[optimizer] = counts.get(optimizer, 0) + 1
        yield make_update(counts[optimizer], optimizer=optimizer)


def keys_of(pairs):
    """Of each pair, what either side has: (optimizer, update) or None."""
    return [
        tuple(side and (side.optimizer, side.update) for side in (pair.original, pair.package))
        for pair in pairs
    ]


def test_equal_recordings_are_paired_in_their_order():
    pairs = list(align_updates(turns(0, 1, 0), turns(0, 1, 0)))
    assert keys_of(pairs) == [((0, 1),) * 2, ((1, 1),) * 2, ((0, 2),) * 2]
    assert [pair.places for pair in pairs] == [(0, 0), (1, 1), (2, 2)]


def test_what_one_lacks_at_its_beginning_or_end_is_alone():
    pairs = keys_of(align_updates(make_updates(1, 4), make_updates(3, 6)))
    expected = [((0, n), None) for n in (1, 2)] + [((0, n),) * 2 for n in (3, 4)]
    assert pairs == [*expected, (None, (0, 5)), (None, (0, 6))]


def test_what_one_lacks_in_between_is_alone():
    holed = [*make_updates(1, 1), *make_updates(4, 4)]
    pairs = keys_of(align_updates(holed, make_updates(1, 4)))
    assert sorted(pairs, key=str) == sorted(
        [((0, 1),) * 2, (None, (0, 2)), (None, (0, 3)), ((0, 4),) * 2], key=str
    )


@given(
    mine=st.lists(st.integers(0, 2), max_size=15), theirs=st.lists(st.integers(0, 2), max_size=15)
)
def test_every_update_comes_once_and_meets_its_own_kind(mine, theirs):
    a, b = list(turns(*mine)), list(turns(*theirs))
    pairs = list(align_updates(a, b))
    assert sorted((p.original for p in pairs if p.original), key=_key) == sorted(a, key=_key)
    assert sorted((p.package for p in pairs if p.package), key=_key) == sorted(b, key=_key)
    both = {_key(p.original) for p in pairs if p.original and p.package}
    assert both == {_key(r) for r in a} & {_key(r) for r in b}
    assert all(_key(p.original) == _key(p.package) for p in pairs if p.original and p.package)


def _key(record):
    return (record.optimizer, record.update)


def test_little_is_held_back_though_one_begins_much_later():
    """Who is behind is read on: nothing of the later one waits for more than its first update."""
    ahead = []
    late = (ahead.append(n) or make_update(n) for n in range(100, 103))
    for pair in align_updates(make_updates(1, 102), late):
        if pair.package is None:
            assert len(ahead) <= 1
    assert ahead == [100, 101, 102]


# ---- the order of turns --------------------------------------------------------------------------


def broken_between(mine, theirs):
    order = TurnOrder()
    for pair in align_updates(turns(*mine), turns(*theirs)):
        order.add(pair)
    return order.broken


def test_optimizers_that_take_turns_alike_are_in_order():
    assert broken_between([0, 1, 0, 1], [0, 1, 0, 1]) is None
    assert broken_between([0, 0, 0], [0, 0]) is None


def test_other_turns_are_found_where_they_begin():
    assert broken_between([0, 1, 0, 1], [0, 1, 1, 0]) == (
        "update 2 of optimizer 0 comes before update 2 of optimizer 1 in original, and after it "
        "in package"
    )


def test_what_only_one_recording_has_does_not_break_the_order():
    assert broken_between([0, 1, 0, 1, 0], [0, 0, 0]) is None


@given(order=st.lists(st.integers(0, 2), min_size=2, max_size=12), at=st.integers(0, 10))
def test_two_turns_swapped_break_the_order_and_the_same_twice_do_not(order, at):
    at %= len(order) - 1
    swapped = [*order[:at], order[at + 1], order[at], *order[at + 2 :]]
    assert broken_between(order, order) is None
    assert (broken_between(order, swapped) is None) == (order == swapped)

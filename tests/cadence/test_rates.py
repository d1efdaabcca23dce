"""The watch on rates: silent as long as schedulers and reference explain them, else one word."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traingen.cadence.rates import RateWatch
from traingen.cadence.reference import RateTable
from traingen.compare.findings import Finding

FALLING = [0.8, 0.4, 0.2, 0.1, 0.05, 0.025]
rate = st.floats(1e-6, 1e3)


def make_table(rates: Sequence[float | Sequence[float]]) -> RateTable:
    rows = tuple((one,) if isinstance(one, float) else tuple(one) for one in rates)
    return RateTable(path=Path("runs/original"), kind="recording", rates=rows)


def make_watch(**options: Any) -> tuple[RateWatch, list[Finding]]:
    found: list[Finding] = []
    return RateWatch(emit=found.append, **options), found


def train(watch: RateWatch, rates: Sequence[float], *, optimizer: int = 0) -> None:
    """Updates at these rates, each set by a tick after the update before it."""
    for one in rates:
        watch.left(optimizer, (one,))
        watch.updated(optimizer, (one,))


def ids(found: list[Finding]) -> list[str]:
    return [finding.id.removeprefix("TG-") for finding in found]


# ---- rates that nobody's tick explains ----------------------------------------------------------


@given(st.lists(rate, min_size=1, max_size=9))
def test_rates_that_ticks_left_are_no_finding(rates):
    watch, found = make_watch()
    train(watch, rates)
    watch.end()
    assert found == []
    assert watch.updates == {0: len(rates)}


def test_a_constant_rate_needs_no_tick():
    watch, found = make_watch()
    watch.left(0, (0.3, 0.1))
    for _ in range(5):
        watch.updated(0, (0.3, 0.1))
    assert found == []


def test_a_rate_that_moved_by_itself_is_told_with_group_values_and_update():
    watch, found = make_watch()
    watch.left(0, (0.3, 0.1))
    watch.updated(0, (0.3, 0.1))
    watch.updated(0, (0.3, 0.125))
    (finding,) = found
    assert (finding.id, finding.severity) == ("TG-SCHED-RATE-MOVED", "warning")
    assert finding.measured == (
        "optimizer 0, group 1: the rate went from 0.1 to 0.125 before update 2, "
        "and no scheduler had ticked"
    )


@given(st.lists(rate, min_size=2, max_size=9), st.data())
def test_one_rate_that_moved_is_found_at_its_update(rates, data):
    at = data.draw(st.integers(0, len(rates) - 1))
    watch, found = make_watch()
    for number, one in enumerate(rates):
        watch.left(0, (one,))
        watch.updated(0, (one * 1.5 if number == at else one,))
    assert ids(found) == ["SCHED-RATE-MOVED"]
    assert f"before update {at + 1}," in found[0].measured


def test_a_rate_that_keeps_moving_is_told_once_for_each_optimizer():
    watch, found = make_watch()
    for one in FALLING:
        watch.updated(0, (one,))
        watch.updated(3, (one,))
    assert [one.measured[:11] for one in found] == ["optimizer 0", "optimizer 3"]


def test_a_tick_of_another_optimizer_explains_nothing():
    watch, found = make_watch()
    watch.left(0, (0.3,))
    watch.left(1, (0.2,))
    watch.updated(0, (0.2,))
    assert ids(found) == ["SCHED-RATE-MOVED"]


def test_the_first_rate_has_nothing_before_it():
    watch, found = make_watch()
    watch.updated(0, (0.3,))
    assert found == []


def test_groups_that_are_added_are_no_move_and_are_watched_from_then_on():
    watch, found = make_watch()
    watch.left(0, (0.3,))
    watch.updated(0, (0.3,))
    watch.updated(0, (0.3, 0.01))
    watch.updated(0, (0.3, 0.01))
    assert found == []
    watch.updated(0, (0.3, 0.02))
    assert "group 1: the rate went from 0.01 to 0.02 before update 4" in found[0].measured


# ---- a reference --------------------------------------------------------------------------------


@given(st.lists(rate, min_size=1, max_size=9))
def test_the_rates_of_the_reference_are_no_finding(rates):
    watch, found = make_watch(references={0: make_table(rates)}, compare=len(rates))
    train(watch, rates)
    watch.end()
    assert found == []
    assert watch.compared == {0: len(rates)}


@given(st.lists(rate, min_size=1, max_size=9), st.data(), st.floats(1e-4, 10))
def test_one_other_rate_is_an_error_at_its_update(rates, data, by):
    at = data.draw(st.integers(0, len(rates) - 1))
    watch, found = make_watch(references={0: make_table(rates)}, compare=len(rates))
    train(watch, [*rates[:at], rates[at] * (1 + by), *rates[at + 1 :]])
    watch.end()
    assert [(one.id, one.severity) for one in found] == [("TG-SCHED-REFERENCE", "error")]
    assert found[0].measured.startswith(f"optimizer 0, update {at + 1}: rate ")


def test_rates_that_all_differ_are_one_finding_with_both_values():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6)
    train(watch, [0.7, 0.3, 0.1, 0.9, 0.9, 0.9])
    (finding,) = found
    assert finding.measured == "optimizer 0, update 1: rate 0.7 where the reference has 0.8"
    assert watch.compared == {0: 6}


def test_of_two_optimizers_each_has_its_own_reference():
    tables = {0: make_table(FALLING), 1: make_table(FALLING[::-1])}
    watch, found = make_watch(references=tables, compare=6)
    train(watch, FALLING, optimizer=0)
    train(watch, FALLING, optimizer=1)
    watch.end()
    assert [one.measured[:21] for one in found] == ["optimizer 1, update 1"]


def test_an_optimizer_without_a_reference_is_compared_with_none():
    watch, found = make_watch(references={1: make_table(FALLING)}, compare=6)
    train(watch, [5.0] * 6, optimizer=0)
    train(watch, FALLING, optimizer=1)
    watch.end()
    assert (found, watch.compared) == ([], {1: 6})


def test_another_number_of_groups_differs_unless_all_rates_are_one():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6)
    watch.updated(0, (0.8, 0.8))
    assert found == []
    watch.left(0, (0.4, 0.3))
    watch.updated(0, (0.4, 0.3))
    assert "update 2: 2 parameter groups where the reference has 1" in found[0].measured


def test_no_more_is_compared_than_was_asked_for():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=3)
    train(watch, [0.8, 0.4, 0.2, 9.0, 9.0, 9.0])
    watch.end()
    assert (found, watch.compared) == ([], {0: 3})


@pytest.mark.parametrize(("recorded", "trained"), [(4, 6), (6, 4), (4, 4)])
def test_where_reference_or_run_is_too_short_it_says_how_much_was_compared(recorded, trained):
    watch, found = make_watch(references={0: make_table(FALLING[:recorded])}, compare=6)
    train(watch, FALLING[:trained])
    assert found == []
    watch.end()
    (finding,) = found
    assert (finding.id, finding.severity) == ("TG-SCHED-REFERENCE-SHORT", "warning")
    assert finding.measured == (
        f"optimizer 0: 4 of 6 rates compared; runs/original holds {recorded}"
    )


def test_a_run_without_an_update_has_compared_nothing():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6)
    watch.end()
    assert "0 of 6 rates compared" in found[0].measured
    assert watch.compared == {}


def test_beyond_the_reference_no_rate_is_wrong():
    watch, found = make_watch(references={0: make_table(FALLING[:2])}, compare=6)
    train(watch, [0.8, 0.4, 9.0, 9.0])
    assert found == []
    assert watch.compared == {0: 2}


# ---- resumed ------------------------------------------------------------------------------------


@pytest.mark.parametrize("done", [1, 4])
def test_a_resumed_run_is_compared_from_the_update_at_which_it_goes_on(done):
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6, updates={0: done})
    train(watch, FALLING[done:])
    assert found == []
    assert (watch.updates, watch.compared) == ({0: 6}, {0: 6 - done})


def test_a_resumed_run_that_starts_its_schedule_anew_differs_at_once():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6, updates={0: 3})
    train(watch, FALLING[:3])
    assert found[0].measured == "optimizer 0, update 4: rate 0.8 where the reference has 0.1"


def test_a_resumed_run_that_compared_all_it_could_is_not_called_short():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6, updates={0: 4})
    train(watch, FALLING[4:])
    watch.end()
    assert found == []


def test_a_resumed_run_that_ended_early_is_called_short():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=6, updates={0: 2})
    train(watch, FALLING[2:4])
    watch.end()
    assert ids(found) == ["SCHED-REFERENCE-SHORT"]
    assert "2 of 4 rates compared" in found[0].measured  # the first two were the earlier part's


def test_a_run_resumed_after_all_that_was_asked_for_has_nothing_to_compare():
    watch, found = make_watch(references={0: make_table(FALLING)}, compare=3, updates={0: 5})
    train(watch, [9.0])
    watch.end()
    assert (found, watch.compared) == ([], {})

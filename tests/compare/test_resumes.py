"""Ticks count from 0 again after a resume, and are compared from there."""

import pytest

from tests.reading.recordings import resumed_at, seeing_run
from tests.records.samples import make_update
from traingen.compare.gates import Gates
from traingen.compare.records import compare_updates
from traingen.compare.resumes import TickBases
from traingen.records import SchedulerState

WHOLE, RESUMED = [seeing_run()], [seeing_run(), resumed_at(3)]


def update(number, *ticks):
    """An update that finds its schedulers at `ticks`, resumed or not at the same epoch."""
    states = [SchedulerState(id=i, last_epoch=number - 1, ticks=t) for i, t in enumerate(ticks)]
    return make_update(number, scheduler=states)


def differing(bases, *pairs):
    """Update and path of each difference."""
    found = [compare_updates(*bases.rebase(a, b), Gates()).differences for a, b in pairs]
    return [(d.update, d.path) for differences in found for d in differences]


def test_without_a_resume_ticks_are_compared_as_they_are():
    bases = TickBases([*WHOLE, *WHOLE])
    pairs = [(update(1, 0), update(1, 0)), (update(2, 1), update(2, 0))]
    assert differing(bases, *pairs) == [(2, "scheduler[0].ticks")]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_resumed_training_ticks_on_as_one_that_was_not(swapped):
    pairs = [(update(n, n - 1), update(n, n - 1 if n <= 3 else n - 4)) for n in range(1, 7)]
    pairs = [pair[::-1] for pair in pairs] if swapped else pairs
    assert differing(TickBases([*WHOLE, *RESUMED]), *pairs) == []


def test_a_tick_that_is_lost_after_a_resume_is_found():
    pairs = [(update(n, n - 1), update(n, n - 4)) for n in (4, 5)]
    pairs.append((update(6, 5), update(6, 1)))
    assert differing(TickBases([*WHOLE, *RESUMED]), *pairs) == [(6, "scheduler[0].ticks")]


def test_a_resume_whose_first_update_has_no_partner_is_not_overlooked():
    pairs = [(update(3, 2), update(3, 2)), (update(5, 4), update(5, 1))]
    assert differing(TickBases([*WHOLE, *RESUMED]), *pairs) == []


def test_another_number_of_schedulers_is_left_for_the_comparison():
    pairs = [(update(4, 3, 3), update(4, 0)), (update(5, 4, 4), update(5, 1))]
    assert [path for _, path in differing(TickBases(RESUMED), *pairs)] == ["scheduler[1]"] * 2


def test_optimizers_are_resumed_each_at_its_own_update():
    bases = TickBases([*WHOLE, seeing_run(), resumed_at(9, 1)])
    first = make_update(2, optimizer=1, scheduler=update(2, 1).scheduler)
    resumed = make_update(2, optimizer=1, scheduler=update(2, 0).scheduler)
    assert differing(bases, (first, resumed)) == []

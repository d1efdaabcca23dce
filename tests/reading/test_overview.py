"""What is gathered of a recording, checked against what was put into it."""

import math

import pytest

from tests.reading.recordings import (
    change,
    ended_after,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_recording,
)
from tests.records.samples import make_event
from traingen.reading.opening import open_run
from traingen.reading.outline import iter_outlined
from traingen.reading.overview import Overview, Series
from traingen.records import SchedulerIdentity, SchedulerState

NAN, INF = math.nan, math.inf


def overview_of(tmp_path, records):
    reader = open_run(write_recording(tmp_path / "run", records))
    overview = Overview(reader)
    passed = list(overview.watch(reader.records()))
    assert passed == list(iter_outlined(reader.outline))  # it only looks
    return overview


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 1.0, 2.0], (3.0, 2.0, 1.0, 2, 3.0, 1, 3, 0, None)),
        ([None, 5.0, None], (5.0, 5.0, 5.0, 2, 5.0, 2, 1, 0, None)),
        ([1.0, NAN, INF], (1.0, INF, 1.0, 1, 1.0, 1, 3, 2, 2)),
        ([None, None], (None, None, None, None, None, None, 0, 0, None)),
    ],
    ids=str,
)
def test_a_series_keeps_ends_extremes_and_what_is_not_finite(values, expected):
    series = Series()
    for update, value in enumerate(values, start=1):
        series.add(update, value)
    found = (series.first, series.last, series.least, series.least_at, series.most,
             series.most_at, series.known, series.nonfinite, series.nonfinite_at)  # fmt: skip
    assert found == expected


def test_an_optimizer_counts_updates_clips_and_micro_batches(tmp_path):
    records = change(make_training(4), 2, clipped=False, micro_batches=3)
    records = change(records, 4, clipped=None, lr=[0.5])
    seen = overview_of(tmp_path, records).optimizers[0]
    assert (seen.updates, seen.first, seen.last) == (4, 1, 4)
    assert (seen.clipped, seen.clip_known) == (2, 3)
    assert seen.micro_batches == {1: 3, 3: 1}
    assert (seen.lr_first, seen.lr_last) == ([0.001], [0.5])
    assert (seen.loss.most_at, seen.loss.least_at) == (1, 4)


def test_only_what_stands_is_counted(tmp_path):
    first = change([seeing_run(), *make_updates(1, 4)], 4, loss=1e9)
    late = make_event(update=4)
    again = [resumed_at(2), *make_updates(3, 5), make_event(update=5)]
    overview = overview_of(tmp_path, [*first, late, *again])
    assert overview.updates == 5
    assert overview.optimizers[0].loss.most == make_updates(1, 1)[0].loss
    assert overview.events == {"validation": 1}
    assert [(old.first, old.last) for old in overview.ledger.superseded] == [(3, 4)]


def ticked(updates, ticks):
    """Updates of which each finds the scheduler at so many ticks."""
    return [
        make_updates(n, n, scheduler=[SchedulerState(id=0, last_epoch=t, ticks=t)])[0]
        for n, t in zip(updates, ticks, strict=True)
    ]


def test_ticks_are_counted_up_to_the_end_line(tmp_path):
    scheduler = overview_of(tmp_path, make_training(5)).schedulers[0]
    assert (scheduler.ticks, scheduler.updates) == (5, 5)


def test_without_an_end_the_tail_of_the_last_update_is_not_seen(tmp_path):
    scheduler = overview_of(tmp_path, make_training(5)[:-1]).schedulers[0]
    assert (scheduler.ticks, scheduler.updates) == (4, 4)


def test_a_scheduler_that_ticks_at_every_second_update_is_seen_to(tmp_path):
    records = [seeing_run(), *ticked(range(1, 6), [0, 0, 1, 1, 2])]
    scheduler = overview_of(tmp_path, records).schedulers[0]
    assert (scheduler.ticks, scheduler.updates) == (2, 4)


def test_ticks_of_an_attempt_do_not_run_into_those_of_the_next(tmp_path):
    """A resume builds its schedulers anew, and they count from 0."""
    records = [
        seeing_run(), *ticked([1, 2, 3, 4], [0, 1, 2, 3]), ended_after(4),
        resumed_at(2), *ticked([3, 4], [0, 1]),
    ]  # fmt: skip
    scheduler = overview_of(tmp_path, records).schedulers[0]
    assert (scheduler.ticks, scheduler.updates) == (2, 2)  # 1 to 2, and 3 to 4


def test_a_scheduler_is_seen_at_the_updates_of_its_own_optimizer(tmp_path):
    identity = SchedulerIdentity(id=0, class_path="S", optimizer=1, interval=None, frequency=None)
    states = {"scheduler": [SchedulerState(id=0, last_epoch=0, ticks=0)]}
    later = {"scheduler": [SchedulerState(id=0, last_epoch=1, ticks=1)]}
    records = [
        seeing_run(schedulers=[identity]),
        *make_updates(1, 1, **states), *make_updates(1, 1, optimizer=1, **states),
        *make_updates(2, 3, **later), *make_updates(2, 2, optimizer=1, **later),
    ]  # fmt: skip
    scheduler = overview_of(tmp_path, records).schedulers[0]
    assert (scheduler.ticks, scheduler.updates) == (1, 1)


def test_everything_is_strict_json(tmp_path):
    records = change(make_training(3), 2, loss=NAN, grad_norm=INF)
    plain = overview_of(tmp_path, records).to_json()
    assert plain["optimizers"]["0"]["loss"]["nonfinite"] == 1
    assert plain["optimizers"]["0"]["grad_norm"]["last"] == 1.93
    assert plain["schedulers"] == {"0": {"ticks": 3, "updates": 3}}
    assert (plain["end"]["reason"], plain["attempts"]) == ("finished", [1])
    unfinished = overview_of(tmp_path / "b", change(make_training(2), 2, loss=NAN)[:-1]).to_json()
    assert unfinished["optimizers"]["0"]["loss"]["last"] == "NaN"
    assert unfinished["end"] is None

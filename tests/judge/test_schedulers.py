"""Whether schedulers keep to the updates, forward and themselves."""

import pytest

from tests.judge.recordings import (
    STEP_LR,
    at,
    end,
    event,
    judged,
    resumed,
    run,
    scheduler,
    skip,
    update,
)
from traingen.records import RunRecord

TICKED, REWOUND = "TG-RECORD-TICKED-ON-SKIPPED", "TG-RECORD-REWOUND"


def scheduled(**changes) -> RunRecord:
    return run(schedulers=[scheduler(**changes)])


def stepped(pattern: str, *, ticks_on_skipped: bool, batches: int = 1000, frequency: int = 1):
    """A training of steps, `u` an update and `s` a skipped one, ticked as Lightning does."""
    ticks = applied = 0
    for step, what in enumerate(pattern, start=1):
        if what == "s":
            yield skip(step)
        else:
            applied += 1
            place = {"batch_idx": (step - 1) % batches, "epoch": (step - 1) // batches}
            yield update(applied, global_step=step, scheduler=at(ticks), **place)
        if what == "u" or ticks_on_skipped:
            ticks += ((step - 1) % batches + 1) % frequency == 0
    yield end(scheduler=at(ticks))


# ---- ticks on steps that applied nothing --------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "idle", "when"),
    [
        ("us", 1, "first after update 1"),
        ("uuuss", 2, "first after update 3"),
        ("ss", 2, "before any update"),
        ("ssssssssss", 10, "before any update"),
        ("usuuu", 1, "first before update 2"),
        ("sssuuuu", 3, "first before update 1"),
        ("uusuusuussu", 4, "first before update 3"),
    ],
)
@pytest.mark.parametrize("interval", ["step", None])
def test_ticks_on_skipped_steps_are_a_warning(pattern, idle, when, interval):
    found = judged(scheduled(interval=interval), stepped(pattern, ticks_on_skipped=True))
    assert {one for one in found if one != "TG-RECORD-SCALE-COLLAPSED"} == {
        TICKED, "TG-RECORD-SKIPPED",
    }  # fmt: skip
    assert found[TICKED].severity == "warning"
    assert found[TICKED].measured == (
        f"StepLR (scheduler 0): {idle} of {len(pattern)} ticks came on steps that applied nothing, "
        f"{when}"
    )


@pytest.mark.parametrize("pattern", ["us", "ss", "usuuu", "sssuuuu", "uusuusuussu", "uuu"])
@pytest.mark.parametrize("interval", ["step", None])
def test_a_schedule_that_leaves_them_out_is_silent(pattern, interval):
    found = judged(scheduled(interval=interval), stepped(pattern, ticks_on_skipped=False))
    assert TICKED not in found
    assert REWOUND not in found


def test_ticks_on_steps_that_the_module_left_out_are_a_warning_too():
    without = event("counted_without_update", count=2, global_step=3)
    records = [update(1, scheduler=at(0)), without, update(2, scheduler=at(3))]
    assert "2 of 3 ticks" in judged(scheduled(), records)[TICKED].measured


@pytest.mark.parametrize(("pattern", "idle"), [("uusuuu", 1), ("uussuu", 1), ("uuusuu", 0)])
def test_a_frequency_counts_batches(pattern, idle):
    ticked = stepped(pattern, ticks_on_skipped=True, frequency=3)
    found = judged(scheduled(frequency=3), ticked)
    assert (TICKED in found) == bool(idle)
    silent = stepped(pattern, ticks_on_skipped=False, frequency=3)
    assert TICKED not in judged(scheduled(frequency=3), silent)


def test_a_schedule_by_epoch_ticks_whatever_became_of_its_steps():
    records = [update(1, scheduler=at(0)), skip(2), skip(3), update(2, scheduler=at(2), epoch=2)]
    assert TICKED not in judged(scheduled(interval="epoch"), records)


def test_a_loop_that_ticks_several_times_per_update_is_not_judged():
    # as many ticks as processes, and none for a skipped step
    records = [update(n, scheduler=at(2 * (n - 1))) for n in range(1, 6)]
    found = judged(scheduled(interval=None), records, skip(6), update(6, scheduler=at(10)), end())
    assert TICKED not in found


def test_a_skip_of_another_optimizer_is_no_business_of_a_scheduler():
    records = [
        update(1, scheduler=at(0)), update(1, optimizer=1, global_step=2), skip(4, optimizer=1),
        update(2, global_step=3, scheduler=at(1)), update(3, global_step=5, scheduler=at(2)),
        end(scheduler=at(3)),
    ]  # fmt: skip
    assert TICKED not in judged(run(optimizers=2, schedulers=[scheduler()]), records)
    assert TICKED in judged(
        run(optimizers=2, schedulers=[scheduler()]), records[:3], skip(4),
        update(2, global_step=5, scheduler=at(2)),
    )  # fmt: skip


# ---- counters that go back ----------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(4, 3), (10, 0)])
def test_a_counter_that_goes_down_is_a_warning(before, after):
    records = [
        update(1, scheduler=at(before, before)),
        update(2, scheduler=at(before + 1, after)),
        update(3, scheduler=at(before + 2, after + 1)),
    ]
    found = judged(scheduled(), records)
    assert list(found) == [REWOUND]
    assert found[REWOUND].severity == "warning"
    assert found[REWOUND].measured == (
        f"StepLR (scheduler 0): last_epoch went from {before} back to {after}, before update 2"
    )


@pytest.mark.parametrize("skipped", [1, 2])
def test_a_tick_that_was_undone_around_a_skipped_step_is_a_warning(skipped):
    # each skipped step was ticked, then last_epoch -= 2 and another tick
    records = [
        update(1, scheduler=at(0, 0)), update(2, scheduler=at(1, 1)), *map(skip, range(skipped)),
        update(3, scheduler=at(2 + 2 * skipped, 2)), update(4, scheduler=at(3 + 2 * skipped, 3)),
    ]  # fmt: skip
    assert (
        f"moved by 1 in {1 + 2 * skipped} ticks" in judged(scheduled(), records)[REWOUND].measured
    )


def counted(*states: tuple[int, int | float], ended: bool = True, start: int = 1):
    """Updates that find a scheduler so, by ticks and last_epoch; the last state is at the end."""
    last = [end(scheduler=at(*states[-1]))] if ended else []
    begins = states[:-1] if ended else states
    return [update(n, scheduler=at(*state)) for n, state in enumerate(begins, start)] + last


def set_back(at_tick: int, *, by: int, ticks: int, updates: int = 12) -> list[tuple[int, int]]:
    """A schedule that is ticked once per update; after one of them also set back and ticked."""
    states = [(n, n) for n in range(at_tick)]
    return states + [(n + ticks, n - by + ticks) for n in range(at_tick, updates)]


@pytest.mark.parametrize(
    ("states", "told"),
    [
        # last_epoch -= 2; step(), once
        (set_back(5, by=2, ticks=1), "moved by 0 in 2 ticks, before update 6"),
        (set_back(3, by=2, ticks=1), "moved by 0 in 2 ticks, before update 4"),
        (set_back(8, by=3, ticks=2), "moved by 0 in 3 ticks, before update 9"),
        (set_back(6, by=2, ticks=2), "moved by 1 in 3 ticks, before update 7"),
        (set_back(4, by=1, ticks=0), "moved by 0 in 1 tick, before update 5"),
        # after a resume last_epoch goes on, and ticks count from 0
        ([(n, e + 70) for n, e in set_back(5, by=2, ticks=1)], "0 in 2 ticks, before update 6"),
        # after the last update
        (set_back(9, by=2, ticks=1, updates=10), "moved by 0 in 2 ticks, at the end"),
    ],
)
@pytest.mark.parametrize("interval", ["step", None])
def test_a_counter_that_falls_behind_its_ticks_is_a_warning(states, told, interval):
    found = judged(scheduled(interval=interval), counted(*states))
    assert list(found) == [REWOUND]
    assert found[REWOUND].severity == "warning"
    assert found[REWOUND].measured.endswith(told)


def test_each_time_a_counter_falls_behind_is_counted():
    twice = [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (7, 3), (8, 4)]
    measured = judged(scheduled(), counted(*twice))[REWOUND].measured
    assert measured.endswith("moved by 0 in 2 ticks, before update 4; 2 times in all")
    in_a_row = [(0, 0), (1, 1), (2, 2), (4, 2), (6, 2), (7, 3), (8, 4)]
    measured = judged(scheduled(), counted(*in_a_row))[REWOUND].measured
    assert measured.endswith("moved by 0 in 2 ticks, before update 4; 2 times in all")


def test_ticks_that_are_undone_around_every_skipped_step_are_counted():
    def steps():
        yield from (update(n, scheduler=at(n - 1)) for n in (1, 2, 3))
        for n in range(4, 8):
            yield skip(2 * n)
            yield update(n, scheduler=at(3 * n - 7, n - 1))
        yield end(scheduler=at(15, 7))

    measured = judged(scheduled(), list(steps()))[REWOUND].measured
    assert measured.endswith(
        "moved by 1 in 3 ticks around a skipped step, before update 4; 4 times in all"
    )


@pytest.mark.parametrize(
    "states",
    [
        [(n, n / 10) for n in range(40)],  # step(n / 10)
        [(n, n / 2) for n in range(40)],
        [(n, n // 2) for n in range(40)],  # the same, of CosineAnnealingWarmRestarts
        [(n, (n + 1) // 2) for n in range(40)],  # resumed between two whole epochs
        [(n, (n + 3) // 4) for n in range(40)],
        [(n, (n + 9) // 10) for n in range(40)],
        [(2 * n - n % 2, (2 * n - n % 2 + 2) // 3) for n in range(20)],  # a tick per micro-batch
        [(n, min(n, 7)) for n in range(20)],  # another scheduler takes over inside of it
        [(4 * n, min(4 * n, 18)) for n in range(20)],
        [(0, n) for n in range(10)],  # ticks that are not heard
        [*((n, n) for n in range(5)), *((4, n) for n in range(5, 9)), (6, 9), (7, 10)],
        [(min(n, 6), n) for n in range(12)],
        [(3 * n, 3 * n) for n in range(9)],  # several ticks per update
        [(n // 5, n // 5) for n in range(30)],  # one per epoch
        [(n, 1000 + n) for n in range(9)],
        [*((n, n) for n in range(5)), *((4 + 2 * n, 4 + n) for n in range(1, 9))],  # windows of 2
    ],
)
@pytest.mark.parametrize("interval", ["step", "epoch", None])
@pytest.mark.parametrize("ended", [True, False])
def test_a_counter_that_counts_something_else_is_silent(states, interval, ended):
    assert judged(scheduled(interval=interval), counted(*states, ended=ended)) == {}


def test_a_resume_and_another_fit_and_another_scheduler_begin_their_ticks_anew():
    first = counted(*((n, n) for n in range(6)))
    again = counted(*((n, 5 + n) for n in range(6)), start=6)
    assert judged(scheduled(), first, resumed(5, schedulers=[scheduler()]), again) == {}
    segment = event("segment", fit=2, global_step=5)
    assert judged(scheduled(), first, segment, counted(*((5 + n, n) for n in range(6)))) == {}
    other = event("scheduler_swapped", id=0, before=STEP_LR, after="a.SWALR", by="a.SWA")
    late = counted(*((n, 0) for n in range(1, 6)), start=6)
    assert REWOUND not in judged(scheduled(), first[:-1], other, late)


def test_a_counter_that_fell_behind_in_what_a_resume_supersedes_is_taken_back():
    lost = [scheduled(), *counted(*set_back(5, by=2, ticks=1), ended=False)]
    again = counted(*((n, 4 + n) for n in range(9)), start=5)
    assert REWOUND in judged(lost)
    assert REWOUND not in judged(lost, resumed(4, schedulers=[scheduler()]), again)
    kept = counted(*((n, 4 + n) for n in range(9)), start=7)
    assert REWOUND in judged(lost, resumed(6, schedulers=[scheduler()]), kept)


def test_a_schedule_whose_counter_is_slower_than_its_ticks_is_silent():
    # CosineAnnealingWarmRestarts.step(epoch + batch / batches)
    records = [update(n, scheduler=at(n - 1, (n - 1) // 4)) for n in range(1, 12)]
    assert judged(scheduled(), records, skip(12), update(12, scheduler=at(11, 2))).keys() == {
        "TG-RECORD-SKIPPED"
    }


@pytest.mark.parametrize(
    "between",
    [resumed(1, schedulers=[scheduler()]), event("segment", fit=2, global_step=5)],
    ids=["resume", "another fit"],
)
def test_what_begins_anew_is_not_rewound(between):
    records = [update(1, scheduler=at(0, 0)), update(2, scheduler=at(9, 9))]
    again = [update(2, scheduler=at(0, 1)), update(3, scheduler=at(1, 2))]
    found = judged(scheduled(), records, end(), between, again)
    assert REWOUND not in found
    assert TICKED not in found


def test_windows_of_two_optimizers_begin_at_different_times():
    # the second optimizer steps every other batch: its window began before the first one's last
    records = [
        update(1, scheduler=at(0)), update(2, scheduler=at(1)),
        update(1, optimizer=1, scheduler=at(0), global_step=3), update(3, scheduler=at(2)),
    ]  # fmt: skip
    found = judged(run(optimizers=2, schedulers=[scheduler()]), records, end(scheduler=at(3)))
    assert REWOUND not in found


def test_each_scheduler_is_told_by_its_own_name():
    run_line = run(schedulers=[scheduler(0), scheduler(1, class_path="torch.X.OneCycleLR")])
    records = [
        update(n, scheduler=[*at(n), *at(n, epoch, number=1)])
        for n, epoch in enumerate([5, 4], start=1)
    ]
    assert judged(run_line, records)[REWOUND].measured.startswith("OneCycleLR (scheduler 1): ")


# ---- schedulers that change ---------------------------------------------------------------------


def swapped(by: str | None, before: str | None = "torch.optim.lr_scheduler.StepLR"):
    after = "torch.optim.swa_utils.SWALR"
    return event("scheduler_swapped", id=1, before=before, after=after, by=by)


def averaged(by: str | None):
    """The schedule ends at 5, the one that takes over counts from 12."""
    first = [update(n, scheduler=at(n - 1)) for n in range(1, 7)]
    return [*first, swapped(by), update(7, scheduler=at(0, 12, number=1))]


@pytest.mark.parametrize(
    "by", ["lightning.pytorch.callbacks.StochasticWeightAveraging", "own.package.MyAveraging"]
)
def test_a_swap_that_is_announced_is_told_and_no_fault(by):
    found = judged(scheduled(), averaged(by))
    assert list(found) == ["TG-RECORD-SWAPPED"]
    assert found["TG-RECORD-SWAPPED"].severity == "info"
    assert found["TG-RECORD-SWAPPED"].measured == (
        f"after update 6: StepLR gave way to SWALR, by {by.rpartition('.')[2]}"
    )


def test_a_swap_by_nobody_who_is_known_is_an_error():
    found = judged(scheduled(), averaged(None))
    assert list(found) == ["TG-RECORD-REPLACED"]
    assert found["TG-RECORD-REPLACED"].severity == "error"


def test_a_scheduler_that_comes_to_a_run_without_one_is_named():
    found = judged(run(), update(1), swapped("a.StochasticWeightAveraging", before=None))
    assert found["TG-RECORD-SWAPPED"].measured.startswith("after update 1: SWALR came, by ")


def test_schedulers_that_stay_are_silent():
    assert judged(scheduled(), stepped("uuuuuuu", ticks_on_skipped=True)) == {}


# ---- what a resume supersedes -------------------------------------------------------------------


def ticking(first: int, last: int, *, skips: tuple[int, ...] = (), ticks: int = 0):
    """Updates that tick once each; before those in `skips` a step was skipped and ticked too."""
    for number in range(first, last + 1):
        if number in skips:
            yield skip(number)
            ticks += 1
        yield update(number, scheduler=at(ticks))
        ticks += 1
    yield end(scheduler=at(ticks))


@pytest.mark.parametrize(
    ("completed", "told"), [(6, "2 of 14 ticks"), (9, "2 of 14 ticks"), (4, "1 of 13 ticks")]
)
def test_ticks_are_those_that_stand(completed, told):
    """Each attempt counts its own from 0."""
    first = [*ticking(1, 10, skips=(2, 5))][:-1]
    again = ticking(completed + 1, 12)
    found = judged(scheduled(), first, resumed(completed, schedulers=[scheduler()]), again)
    assert f"StepLR (scheduler 0): {told} came" in found[TICKED].measured
    healthy = judged(scheduled(), first, resumed(1, schedulers=[scheduler()]), ticking(2, 12))
    assert TICKED not in healthy


@pytest.mark.parametrize(("skips", "told"), [((), "1 of 10 ticks"), ((6,), "1 of 11 ticks")])
def test_ticks_of_a_second_fit_are_counted_with_those_of_the_first(skips, told):
    """What it had ticked before its first update is known, but not why."""
    fit = event("segment", fit=2, global_step=5)
    found = judged(scheduled(), ticking(1, 5, skips=(3,)), fit, ticking(6, 9, skips=skips))
    assert told in found[TICKED].measured


@pytest.mark.parametrize("completed", [3, 6])
def test_a_swap_after_a_resume_says_what_ran_before_it(completed):
    """The resumed process found no scheduler: its run names none."""
    came = event("scheduler_swapped", id=0, before=None, after="a.SWALR", by="a.Averaging")
    first = [update(n, scheduler=at(n - 1)) for n in range(1, 7)]
    on = [resumed(completed), came, update(completed + 1, scheduler=at(0, 12))]
    found = judged(scheduled(), first, on)["TG-RECORD-SWAPPED"]
    assert found.measured == (
        f"after update {completed}: SWALR came, by Averaging; the last in effect before it: StepLR"
    )
    swap = event("scheduler_swapped", id=0, before=STEP_LR, after="b.CosineLR", by="a.Averaging")
    late = judged(scheduled(), first[:5], swap, first[5], on)["TG-RECORD-SWAPPED"]
    assert late.measured.startswith("after update 5: StepLR" if completed > 5 else found.measured)
    alone = judged(on)["TG-RECORD-SWAPPED"]
    assert alone.measured.endswith("by Averaging; what was before it is not known")
    none = judged(run(), update(1), came)["TG-RECORD-SWAPPED"]
    assert none.measured.endswith("by Averaging; there was none before it")

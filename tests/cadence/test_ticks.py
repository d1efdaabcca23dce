"""The watch on ticks: told a training event by event, it speaks once where a tick is wrong."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from traingen.cadence import kinds
from traingen.cadence.plan import Cadence, RunPlan, is_due, iter_spans
from traingen.cadence.schedule import Schedule
from traingen.cadence.ticks import TickWatch
from traingen.compare.findings import Finding

STEP, EPOCH = Cadence(interval="step"), Cadence(interval="epoch")


@dataclass
class Counter:
    """A scheduler, as far as its ticks can be counted."""

    last_epoch: int | None = 0


@dataclass
class Told:
    """A watch, the schedulers it follows, and what it said."""

    watch: TickWatch
    found: list[Finding]
    schedules: dict[int, Schedule] = field(default_factory=dict)

    def follow(
        self, index: int = 0, *, expected: str = "auto", judged: bool = True, **facts: Any
    ) -> None:
        defaults = {"optimizer": 0, "interval": "step", "frequency": 1, "scheduler": Counter()}
        self.schedules[index] = Schedule(index=index, **(defaults | facts))
        self.watch.follow(self.schedules[index], expected, judged=judged)

    def update(self, optimizer: int = 0, times: int = 1) -> None:
        for _ in range(times):
            self.watch.updated(optimizer)

    def tick(self, index: int = 0, *, by: int = 1, **options: Any) -> None:
        scheduler = self.schedules[index].scheduler
        if scheduler.last_epoch is not None:
            scheduler.last_epoch += by
        self.watch.ticked(index, **options)

    def over(self, *due: int) -> None:
        """A batch is over; these schedulers had to tick."""
        automatic = self.watch.automatic
        self.watch.batch_over({index: index in due for index in self.schedules if automatic})

    def ids(self) -> list[str]:
        return [finding.id.removeprefix("TG-SCHED-") for finding in self.found]


def make(*, automatic: bool = True, scaled: bool = False, **facts: Any) -> Told:
    """A watch that follows one scheduler."""
    found: list[Finding] = []
    told = Told(TickWatch(emit=found.append, automatic=automatic, scaled=scaled), found)
    told.follow(**facts)
    return told


def healthy(told: Told, updates: int) -> None:
    for _ in range(updates):
        told.update()
        told.tick()
        told.over(0)


# ---- any automatic training ---------------------------------------------------------------------

Event = tuple[str, Any]  # ("update", None), ("tick", index) or ("over", {index: whether due})

plans = st.builds(
    RunPlan,
    batches=st.integers(1, 6),
    epochs=st.integers(1, 4),
    max_steps=st.none() | st.integers(1, 15),
    accumulation=st.builds(lambda a, b: {0: a, 1: b}, st.integers(1, 4), st.integers(1, 7)),
    batch=st.just(0),
    epoch=st.integers(0, 1),
)
cadences = st.lists(
    st.builds(Cadence, interval=st.sampled_from(["step", "epoch"]), frequency=st.integers(1, 3)),
    min_size=1,
    max_size=3,
)
words = st.sampled_from(["auto", "step", "epoch"])


def events_of(plan: RunPlan, cadences: list[Cadence]) -> Iterator[Event]:
    """What a watch is told of a healthy training: update, ticks, end of batch."""
    for span in iter_spans(plan):
        for batch in range(span.done + 1, span.last + 1):
            steps = batch % span.accumulation == 0 or batch == span.batches
            if steps:
                yield "update", None
            due = {
                index: is_due(
                    cadence, epoch=span.epoch, batch=batch, batches=span.batches, steps=steps
                )
                for index, cadence in enumerate(cadences)
            }
            for index in (0, 2, 1):
                if due.get(index):
                    yield "tick", index
            yield "over", due


def replay(events: list[Event], cadences: list[Cadence], expected: str) -> Told:
    found: list[Finding] = []
    told = Told(TickWatch(emit=found.append), found)
    for index, cadence in enumerate(cadences):
        told.follow(
            index, expected=expected, interval=cadence.interval, frequency=cadence.frequency
        )
    for kind, what in events:
        match kind:
            case "update":
                told.update()
            case "tick":
                told.tick(what)
            case "over":
                told.watch.batch_over(what)
    told.watch.end()
    return told


@given(plans, cadences, words)
def test_a_healthy_training_of_any_cadence_is_silent(plan, cadences, expected):
    events = list(events_of(plan, cadences))
    told = replay(events, cadences, expected)
    assert told.found == []
    for index, count in told.watch.counts.items():
        ticks = events.count(("tick", index))
        assert (count.ticks, count.due) == (ticks, ticks)


@given(plans, cadences, words, st.data())
def test_one_tick_left_out_is_one_error(plan, cadences, expected, data):
    events = list(events_of(plan, cadences))
    ticks = [at for at, event in enumerate(events) if event[0] == "tick"]
    assume(ticks)
    at = data.draw(st.sampled_from(ticks))
    told = replay([*events[:at], *events[at + 1 :]], cadences, expected)
    (finding,) = told.found
    assert (finding.id, finding.severity) == (kinds.UPDATE_WITHOUT_TICK.id, "error")
    assert f"(scheduler {events[at][1]})" in finding.measured


@given(plans, cadences, words, st.data())
def test_one_tick_too_many_is_one_error(plan, cadences, expected, data):
    events = list(events_of(plan, cadences))
    ticks = [at for at, event in enumerate(events) if event[0] == "tick"]
    assume(ticks)
    at = data.draw(st.sampled_from(ticks))
    told = replay([*events[:at], events[at], *events[at:]], cadences, expected)
    (finding,) = told.found
    assert (finding.id, finding.severity) == (kinds.TICK_WITHOUT_UPDATE.id, "error")
    assert f"(scheduler {events[at][1]})" in finding.measured


@given(plans, cadences, st.data())
def test_all_ticks_left_out_or_doubled_are_one_error_for_each_scheduler(plan, cadences, data):
    events = list(events_of(plan, cadences))
    ticking = sorted({what for kind, what in events if kind == "tick"})
    times = data.draw(st.sampled_from([0, 2, 3]))
    changed = [one for event in events for one in [event] * (times if event[0] == "tick" else 1)]
    told = replay(changed, cadences, "auto")
    id_ = kinds.TICK_WITHOUT_UPDATE.id if times else kinds.UPDATE_WITHOUT_TICK.id
    assert [one.id for one in told.found] == [id_] * len(ticking)


# ---- automatic ----------------------------------------------------------------------------------


def test_a_missing_tick_is_told_with_its_update_and_both_counts():
    told = make()
    healthy(told, 3)
    told.update()
    told.over(0)
    assert told.found[0].measured == (
        "Counter (scheduler 0): no tick after update 4, where one was due; "
        "expected 4 ticks so far, saw 3"
    )


def test_a_tick_too_many_is_told_with_its_number_and_the_updates():
    told = make()
    healthy(told, 2)
    told.tick()
    told.over()
    assert told.found[0].measured == (
        "Counter (scheduler 0): tick 3 came after 2 updates, "
        "and its optimizer had applied none since the tick before"
    )


def test_a_batch_at_which_nothing_is_due_needs_no_tick():
    told = make()
    for _ in range(3):
        told.update()
        told.over()
    assert told.found == []
    assert told.watch.counts[0].due == 0


@pytest.mark.parametrize("before", [0, 2])
def test_a_batch_that_applied_nothing_needs_no_tick(before):
    told = make()
    healthy(told, before)
    told.over(0)
    assert told.found == []


def test_a_tick_may_come_late_in_its_batch_but_not_in_the_next():
    told = make()
    told.update()
    told.tick()
    told.over(0)
    told.update()
    told.over(0)
    told.tick()
    assert told.ids() == ["UPDATE-WITHOUT-TICK"]


def test_what_a_scheduler_did_before_the_watch_is_not_counted():
    told = make(scheduler=Counter(last_epoch=500))
    healthy(told, 4)
    told.watch.end()
    count = told.watch.counts[0]
    assert told.found == []
    assert (count.ticks, count.due, count.last_epoch) == (4, 4, 504)


def test_ticks_before_the_first_update_are_told_when_it_comes():
    told = make()
    told.tick()
    told.tick()
    told.over()
    assert told.found == []
    told.update()
    assert told.ids() == ["TICK-WITHOUT-UPDATE"]
    assert "2 ticks came before the first update" in told.found[0].measured


def test_ticks_without_any_update_are_those_of_an_optimizer_that_is_not_heard():
    told = make()
    for _ in range(5):
        told.tick()
        told.over(0)
    told.watch.end()
    assert told.ids() == ["NOT-HEARD"]
    assert "5 ticks and no update was heard" in told.found[0].measured


@pytest.mark.parametrize(
    "wrong",
    [
        lambda told: told.tick(),
        lambda told: (told.update(), told.over(0)),
        lambda told: (told.update(), told.tick(by=-3), told.over(0)),
    ],
)
def test_a_scheduler_that_is_not_judged_is_only_counted(wrong):
    told = make(judged=False)
    healthy(told, 3)
    for _ in range(2):
        wrong(told)
    told.watch.end()
    assert [one for one in told.found if one.severity == "error"] == []
    assert told.watch.counts[0].due == 0


def test_with_a_reference_its_rates_say_whether_a_tick_is_missing():
    told = make(expected="reference")
    healthy(told, 2)
    told.update()
    told.over(0)
    assert told.found == []
    told.tick()
    told.tick()
    assert told.ids() == ["TICK-WITHOUT-UPDATE"]


def test_a_scheduler_that_nobody_follows_is_passed_over():
    told = make()
    told.update()
    told.tick()
    told.watch.batch_over({0: True, 7: True})
    assert told.found == []


def test_a_scheduler_in_the_place_of_another_is_counted_from_there():
    told = make()
    healthy(told, 3)
    told.follow(0, scheduler=Counter(last_epoch=90))
    healthy(told, 2)
    told.watch.end()
    assert told.found == []
    assert [one.ticks for one in told.watch.retired] == [3]
    assert told.watch.counts[0].ticks == 2


# ---- several ------------------------------------------------------------------------------------


def test_two_optimizers_are_counted_apart():
    told = make(automatic=False, expected="step")
    told.follow(1, optimizer=1, expected="step")
    for batch in range(12):
        told.update(0)
        told.tick(0)
        if batch % 3 == 0:
            told.update(1)
            told.tick(1)
        told.over()
    told.watch.end()
    assert told.found == []
    assert told.watch.updates == {0: 12, 1: 4}


@pytest.mark.parametrize(("late", "early"), [(0, 1), (1, 0)])
def test_of_two_optimizers_the_one_that_goes_wrong_is_named(late, early):
    told = make(automatic=False, expected="step")
    told.follow(1, optimizer=1, expected="step")
    for batch in range(4):
        for optimizer in (0, 1):
            told.update(optimizer)
        told.tick(early)
        if batch != 2:
            told.tick(late)
    told.tick(early)
    assert told.ids() == ["UPDATE-WITHOUT-TICK", "TICK-WITHOUT-UPDATE"]
    assert f"(scheduler {late})" in told.found[0].measured
    assert f"(scheduler {early})" in told.found[1].measured


def test_an_update_of_another_optimizer_pays_for_no_tick():
    told = make(automatic=False)
    told.follow(1, optimizer=1)
    told.update(0)
    told.tick(0)
    told.update(1)
    told.tick(0)
    assert told.ids() == ["TICK-WITHOUT-UPDATE"]


def test_each_kind_is_said_once_for_each_scheduler():
    told = make()
    told.follow(1)
    told.follow(2)
    for _ in range(4):
        told.update()
        told.tick(0)
        told.tick(0)
        told.tick(1)
        told.tick(1)
        told.over(0, 1, 2)
    assert sorted((one.id[9:], one.measured[19]) for one in told.found) == [
        ("TICK-WITHOUT-UPDATE", "0"),
        ("TICK-WITHOUT-UPDATE", "1"),
        ("UPDATE-WITHOUT-TICK", "2"),
    ]


# ---- manual -------------------------------------------------------------------------------------


def by_hand(told: Told, ticks: list[int]) -> None:
    """Updates in manual optimization, each followed by so many ticks."""
    for number in ticks:
        told.update()
        for _ in range(number):
            told.tick()
        told.over()
    told.watch.end()


@pytest.mark.parametrize("expected", ["auto", "step"])
def test_ticking_by_hand_after_every_update_is_silent(expected):
    told = make(automatic=False, expected=expected)
    by_hand(told, [1] * 6)
    assert told.found == []
    assert told.watch.counts[0].due == (6 if expected == "step" else 0)


@given(st.integers(2, 12), st.data())
def test_of_ticks_by_hand_one_left_out_or_doubled_is_one_error(updates, data):
    at = data.draw(st.integers(0, updates - 2))  # the next update shows that one is missing
    for ticks, kind in ((0, kinds.UPDATE_WITHOUT_TICK), (2, kinds.TICK_WITHOUT_UPDATE)):
        told = make(automatic=False, expected="step")
        by_hand(told, [ticks if one == at else 1 for one in range(updates)])
        assert [one.id for one in told.found] == [kind.id]


def test_a_tick_by_hand_may_come_any_time_before_the_next_update():
    told = make(automatic=False, expected="step")
    for _ in range(5):
        told.update()
        told.over()
        told.tick()
    told.watch.end()
    assert told.found == []


def test_a_tick_by_hand_that_was_left_out_is_told_where_it_was_expected():
    told = make(automatic=False, expected="step")
    for batch in range(5):
        told.update()
        if batch != 2:
            told.tick()
    assert [one.severity for one in told.found] == ["error"]
    assert told.found[0].measured == (
        "Counter (scheduler 0): no tick between update 3 and update 4; expected one per update"
    )


def test_without_a_word_ticks_by_hand_may_be_as_far_apart_as_one_likes():
    told = make(automatic=False, expected="auto")
    for _ in range(3):
        told.update(times=4)
        told.tick()
        told.over()
    told.watch.end()
    assert told.found == []


def test_ticking_by_hand_for_every_micro_batch_is_told():
    told = make(automatic=False)
    for batch in range(8):
        if batch % 4 == 3:
            told.update()
        told.tick()
        told.over()
    assert set(told.ids()) == {"TICK-WITHOUT-UPDATE"}
    assert [one.severity for one in told.found].count("error") == 1


@pytest.mark.parametrize("expected", ["auto", "step", "epoch"])
def test_a_scheduler_that_nobody_ticks_by_hand_is_told_at_the_end(expected):
    told = make(automatic=False, expected=expected)
    told.update(times=7)
    assert "NEVER-STEPPED" not in told.ids()
    told.watch.end()
    assert told.ids()[-1] == "NEVER-STEPPED"
    assert told.found[-1].measured == "Counter (scheduler 0): 0 ticks in 7 updates of its optimizer"


@pytest.mark.parametrize("facts", [{"expected": "reference"}, {"judged": False}, {"optimizer": 1}])
def test_a_scheduler_without_ticks_is_not_told_where_that_may_be_right(facts):
    told = make(automatic=False, **facts)
    told.update(times=7)
    told.watch.end()
    assert told.found == []


# ---- manual, by epoch ---------------------------------------------------------------------------


def epochs_by_hand(told: Told, ticks: Callable[[int, int], int], *, epochs: int = 3) -> None:
    """Epochs of four updates; after update u of epoch e come so many ticks."""
    for epoch in range(epochs):
        for update in range(4):
            told.update()
            for _ in range(ticks(epoch, update)):
                told.tick()
            told.over()
        told.watch.epoch_over(epoch)
    told.watch.end()


def test_ticking_by_hand_once_per_epoch_is_silent_where_it_is_expected():
    told = make(automatic=False, expected="epoch")
    epochs_by_hand(told, lambda epoch, update: update == 3)
    assert told.found == []
    assert (told.watch.counts[0].ticks, told.watch.counts[0].due) == (3, 3)


def test_an_epoch_without_a_tick_by_hand_is_told():
    told = make(automatic=False, expected="epoch")
    epochs_by_hand(told, lambda epoch, update: update == 3 and epoch != 1)
    assert [(one.id[9:], one.severity) for one in told.found] == [("UPDATE-WITHOUT-TICK", "error")]
    assert told.found[0].measured == ("Counter (scheduler 0): 0 ticks in epoch 1, expected one")


@pytest.mark.parametrize("expected", ["auto", "step", "reference"])
def test_the_end_of_an_epoch_means_nothing_where_no_tick_per_epoch_is_expected(expected):
    told = make(automatic=False, expected=expected)
    epochs_by_hand(told, lambda epoch, update: 1)
    assert told.found == []


def test_ticking_by_hand_at_every_update_is_told_where_one_per_epoch_is_expected():
    told = make(automatic=False, expected="epoch")
    epochs_by_hand(told, lambda epoch, update: 1)
    assert [one.severity for one in told.found] == ["error"]


def test_by_hand_an_epoch_with_two_ticks_does_not_pay_for_one_without():
    told = make(automatic=False, expected="epoch")
    epochs_by_hand(told, lambda epoch, update: (epoch, update) in ((0, 1), (0, 3), (2, 3)))
    assert "error" in [one.severity for one in told.found]


# ---- plateaus -----------------------------------------------------------------------------------


def plateau(**facts: Any) -> Told:
    return make(plateau=True, monitor="val_loss", **facts)


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_plateau_fed_after_every_validation_is_silent(interval):
    told = plateau(interval=interval)
    for _ in range(5):
        told.update()
        told.watch.validated()
        told.tick(on_validation=True)
        told.over(0)
    told.watch.end()
    assert told.found == []


@pytest.mark.parametrize(
    ("interval", "kind"), [("step", kinds.PLATEAU_STEPS), ("epoch", kinds.PLATEAU_STALE)]
)
def test_a_plateau_fed_the_same_validation_again_is_warned_of_once(interval, kind):
    told = plateau(interval=interval)
    told.watch.validated()
    for _ in range(4):
        told.update()
        told.tick(on_validation=True)
        told.over(0)
    (finding,) = told.found
    assert (finding.id, finding.severity) == (kind.id, "warning")
    assert finding.measured == (
        "Counter (scheduler 0), monitoring 'val_loss', was fed the same validation result again "
        "(tick 2)"
    )


def test_a_plateau_fed_what_training_measures_may_be_fed_at_every_update():
    told = plateau()
    for _ in range(4):
        told.update()
        told.tick(on_validation=False)
        told.over(0)
    assert told.found == []


@pytest.mark.parametrize(
    ("interval", "kind"), [("step", kinds.PLATEAU_STEPS), ("epoch", kinds.PLATEAU_STALE)]
)
def test_a_plateau_that_was_due_without_its_metric_is_warned_of_once(interval, kind):
    told = plateau(interval=interval)
    for _ in range(3):
        told.update()
        told.over(0)
    told.watch.end()
    assert [(one.id, one.severity) for one in told.found] == [(kind.id, "warning")]
    assert "was due and the metric was missing" in told.found[0].measured


def test_a_plateau_needs_no_update_for_a_tick():
    told = plateau()
    told.watch.validated()
    told.tick(on_validation=True)
    told.watch.validated()
    told.tick(on_validation=True)
    assert told.found == []


def test_a_plateau_is_not_asked_for_a_tick_per_update_in_manual_optimization():
    told = plateau(automatic=False, expected="step")
    for _ in range(3):
        told.update(times=4)
        told.watch.validated()
        told.tick(on_validation=True)
    told.watch.end()
    assert [one for one in told.found if one.severity == "error"] == []


# ---- skipped by a scaler ------------------------------------------------------------------------


def with_skips(told: Told, skips: Mapping[int, bool], *, batches: int = 6) -> None:
    """Batches of which the scaler skips some; Lightning ticks all the same."""
    for batch in range(batches):
        if not skips.get(batch):
            told.update()
        told.tick()
        told.over(0)
    told.watch.end()


@pytest.mark.parametrize("skips", [{0: True}, {0: True, 1: True}, {2: True, 5: True}])
def test_ticks_on_skipped_steps_are_one_warning_at_the_end(skips):
    told = make(scaled=True)
    with_skips(told, skips)
    (finding,) = told.found
    assert (finding.id, finding.severity) == ("TG-SCHED-SKIPPED", "warning")
    assert finding.measured == (
        f"Counter (scheduler 0): {len(skips)} of 6 ticks came on steps that applied nothing; "
        f"{6 - len(skips)} updates were applied"
    )


def test_a_scaler_that_skips_nothing_is_silent():
    told = make(scaled=True)
    with_skips(told, {})
    assert told.found == []


def test_steps_that_the_module_itself_left_out_are_summed_up_too():
    told = make()
    with_skips(told, {2: True})
    assert told.ids() == ["SKIPPED"]
    assert "1 of 6 ticks" in told.found[0].measured


def test_with_a_scaler_two_ticks_in_one_batch_are_an_error_still():
    told = make(scaled=True)
    healthy(told, 2)
    told.update()
    told.tick()
    told.tick()
    assert told.ids() == ["TICK-WITHOUT-UPDATE"]


def test_with_a_scaler_an_update_without_a_tick_is_an_error_still():
    told = make(scaled=True)
    healthy(told, 2)
    told.update()
    told.over(0)
    assert told.ids() == ["UPDATE-WITHOUT-TICK"]


def test_with_a_scaler_a_tick_in_a_batch_that_was_not_to_step_is_no_skipped_step():
    told = make(scaled=True)
    for _ in range(3):
        told.tick()  # a micro-batch: nothing is due
        told.over()
        told.update()
        told.tick()
        told.over(0)
    told.watch.end()
    assert told.ids() == ["TICK-WITHOUT-UPDATE"]


@pytest.mark.parametrize("automatic", [True, False])
def test_with_a_scaler_skips_before_the_first_update_are_skips(automatic):
    told = make(scaled=True, automatic=automatic)
    for batch in range(5):
        if batch > 1:
            told.update()
        told.tick()
        told.over(0)
    told.watch.end()
    assert told.ids() == ["SKIPPED"]
    assert "2 of 5 ticks" in told.found[0].measured


def test_updates_that_turn_out_to_be_skipped_are_taken_back():
    told = make(scaled=True)
    healthy(told, 6)
    told.watch.skipped(0, 2)
    told.watch.end()
    assert told.watch.updates == {0: 4}
    assert told.found[0].measured.endswith(
        "2 of 6 ticks came on steps that applied nothing; 4 updates were applied"
    )


def test_updates_of_another_optimizer_that_were_skipped_are_its_own():
    told = make(scaled=True, automatic=False)
    healthy(told, 3)
    told.watch.updated(1)
    told.watch.skipped(1, 1)
    told.watch.end()
    assert told.found == []


def test_a_schedule_by_epoch_did_not_tick_on_the_steps_that_were_skipped():
    told = make(scaled=True, interval="epoch")
    for _ in range(2):
        for batch in range(5):
            told.update()
            if batch == 4:
                told.tick()
            told.over(*[0] * (batch == 4))
    told.watch.skipped(0, 4)
    told.watch.end()
    assert told.found == []


# ---- rewound ------------------------------------------------------------------------------------


def test_a_scheduler_set_back_is_warned_of_once_with_both_values():
    told = make(scheduler=Counter(last_epoch=20))
    healthy(told, 2)
    for _ in range(3):
        told.update()
        told.tick(by=-4)
        told.over(0)
    (finding,) = told.found
    assert (finding.id, finding.severity) == ("TG-SCHED-REWOUND", "warning")
    assert finding.measured == "Counter (scheduler 0): last_epoch went from 22 back to 18"


@pytest.mark.parametrize("by", [0, 1, 7])
def test_a_scheduler_that_stays_or_leaps_is_not_rewound(by):
    told = make()
    for _ in range(3):
        told.update()
        told.tick(by=by)
        told.over(0)
    assert told.found == []


def test_a_scheduler_without_a_count_cannot_be_rewound():
    told = make(scheduler=Counter(last_epoch=None))
    healthy(told, 3)
    assert told.found == []
    assert told.watch.counts[0].last_epoch is None

"""What is said of a scheduler before the first update: each rule on a broken case and beside it."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as schedules

from traingen.cadence import kinds
from traingen.cadence.check import Setting, check_schedule
from traingen.cadence.plan import Cadence, RunPlan, count_steps, count_ticks, iter_ticks
from traingen.cadence.schedule import Schedule
from traingen.compare.findings import Finding

RUN = RunPlan(batches=20, epochs=5, max_steps=None)  # 100 updates
Make = Callable[[Any], Any]


def make_optimizer(groups: int = 1) -> torch.optim.Optimizer:
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(groups)]
    return torch.optim.SGD([{"params": [one]} for one in parameters], lr=0.1, momentum=0.9)


def cosine(horizon: Any) -> Make:
    return lambda o: schedules.CosineAnnealingLR(o, T_max=horizon)


def falling(horizon: int) -> Make:
    return lambda o: schedules.LinearLR(o, 1.0, 0.1, total_iters=horizon)


def one_cycle(horizon: int) -> Make:
    return lambda o: schedules.OneCycleLR(o, 0.3, total_steps=horizon)


def endless(optimizer: Any) -> Any:
    return schedules.ExponentialLR(optimizer, gamma=0.9)


def check(
    make: Make,
    *,
    expected: str = "auto",
    plan: RunPlan | None = RUN,
    ticked: int = 0,
    outlook: str = "",
    setting: dict[str, Any] | None = None,
    **facts: Any,
) -> list[Finding]:
    """The findings about a scheduler that has ticked so often, by default once per epoch."""
    scheduler = make(make_optimizer())
    scheduler.last_epoch += ticked
    defaults = {"index": 0, "optimizer": 0, "interval": "epoch", "frequency": 1}
    schedule = Schedule(**(defaults | {"scheduler": scheduler} | facts))
    within = Setting(plan=plan, **(setting or {}))
    return check_schedule(schedule, within, expected=expected, outlook=outlook)


def ids(findings: list[Finding]) -> list[str]:
    return [finding.id.removeprefix("TG-SCHED-") for finding in findings]


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


# ---- expected × interval × horizon --------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "interval", "horizon", "found"),
    [
        ("auto", "epoch", 5, []),
        ("auto", "epoch", 12, ["UNSURE"]),
        ("auto", "epoch", 100, ["EPOCH"]),
        ("auto", "epoch", 300, ["EPOCH"]),
        ("auto", "step", 100, []),
        ("auto", "step", 5, ["RISING"]),
        ("auto", "step", 300, ["HORIZON"]),
        ("step", "epoch", 5, ["EPOCH"]),
        ("step", "epoch", 12, ["EPOCH"]),
        ("step", "epoch", 100, ["EPOCH"]),
        ("step", "step", 100, []),
        ("step", "step", 300, ["HORIZON"]),
        ("epoch", "epoch", 5, []),
        ("epoch", "epoch", 12, ["HORIZON"]),
        ("epoch", "epoch", 100, ["HORIZON"]),
        ("epoch", "step", 5, ["STEP"]),
        ("epoch", "step", 100, ["STEP"]),
        ("reference", "epoch", 5, []),
        ("reference", "epoch", 100, ["HORIZON"]),
        ("reference", "step", 100, []),
        ("reference", "step", 300, ["HORIZON"]),
    ],
)
def test_what_is_found_follows_from_expected_interval_and_horizon(
    expected, interval, horizon, found
):
    findings = check(cosine(horizon), expected=expected, interval=interval)
    assert ids(findings) == found
    errors = {"EPOCH", "STEP"}
    assert all((one.severity == "error") == (one.id[9:] in errors) for one in findings)


@pytest.mark.parametrize(
    ("make", "kind", "facts"),
    [
        (cosine(100), kinds.EPOCH, {}),
        (cosine(100), kinds.STEP, {"interval": "step", "expected": "epoch"}),
        (endless, kinds.UNSURE, {}),
        (cosine(-1), kinds.UNKNOWN_HORIZON, {"interval": "step"}),
        (endless, kinds.FREQUENCY_NEVER, {"interval": "step", "frequency": 21}),
        (endless, kinds.FREQUENCY_BATCHES, {"interval": "step", "frequency": 2}),
        (cosine(40), kinds.RISING, {"interval": "step"}),
        (falling(40), kinds.HORIZON, {"interval": "step"}),
        (
            endless,
            kinds.INVALID_INTERVAL,
            {"interval": "steps", "setting": {"automatic": False}},
        ),
    ],
)
def test_a_finding_is_told_as_its_kind_says_and_names_the_scheduler(make, kind, facts):
    finding = only(check(make, index=3, **facts))
    assert (finding.id, finding.severity, finding.meaning) == (kind.id, kind.severity, kind.meaning)
    assert "(scheduler 3)" in finding.measured


plans = st.builds(
    RunPlan,
    batches=st.integers(1, 9),
    epochs=st.integers(1, 5),
    max_steps=st.none() | st.integers(1, 30),
    accumulation=st.builds(lambda a, b: {0: a, 2: b}, st.integers(1, 4), st.integers(1, 4)),
)
intervals = st.sampled_from(["step", "epoch"])


@given(plans, intervals, st.integers(1, 4))
def test_a_schedule_as_expected_and_as_long_as_the_run_is_never_an_error(plan, interval, frequency):
    ticks = count_ticks(plan, Cadence(interval=interval, frequency=frequency))
    assume(ticks > 0)
    facts = {"interval": interval, "frequency": frequency, "plan": plan}
    findings = check(cosine(ticks), expected=interval, **facts)
    assert [one for one in findings if one.severity == "error"] == []
    assert set(ids(findings)) <= {"FREQUENCY-BATCHES"}
    assert findings == [] or (frequency > 1 and interval == "step")


@given(plans, intervals, st.booleans(), st.integers(1, 200))
def test_the_other_interval_than_expected_is_an_error_wherever_an_update_would_notice(
    plan, interval, stated, horizon
):
    by_step, by_epoch = (
        {step for step in iter_ticks(plan, Cadence(interval=one)) if step < count_steps(plan)}
        for one in ("step", "epoch")
    )
    expected = "epoch" if interval == "step" else "step"
    facts = {"interval": interval, "plan": plan, "stated": stated}
    findings = check(cosine(horizon), expected=expected, **facts)
    errors = [one for one in findings if one.severity == "error"]
    assert ids(errors) == ([] if by_step == by_epoch else [expected_id(expected)])


def expected_id(expected: str) -> str:
    """The finding where this was expected and is not so."""
    return {"step": "EPOCH", "epoch": "STEP"}[expected]


# ---- the wrong interval -------------------------------------------------------------------------


def test_too_few_ticks_are_told_with_both_numbers_and_the_horizon():
    finding = only(check(cosine(100)))
    assert finding.measured == (
        "CosineAnnealingLR (scheduler 0) ticks once per epoch (5 of 100 expected ticks), but "
        "T_max=100 is exactly the 100 updates of the run"
    )
    assert finding.fix == kinds.WRITE_STEP


def test_the_case_of_the_report_is_told_with_its_numbers():
    plan = RunPlan(batches=5, epochs=2, max_steps=None)
    finding = only(check(cosine(10), plan=plan))
    assert "(2 of 10 expected ticks)" in finding.measured


def test_the_forecast_and_the_way_out_of_the_run_are_in_the_finding():
    finding = only(
        check(cosine(100), outlook="LR 0.1 → 0.09", setting={"write_step": "Add a line."})
    )
    assert finding.measured.endswith("updates of the run; LR 0.1 → 0.09")
    assert finding.fix == "Add a line."


@pytest.mark.parametrize(("horizon", "found"), [(49, "UNSURE"), (50, "EPOCH"), (51, "EPOCH")])
def test_a_horizon_of_ten_times_the_epochs_cannot_be_meant_in_epochs(horizon, found):
    finding = only(check(cosine(horizon)))
    assert ids([finding]) == [found]
    assert ("far exceeds the 5 epochs" in finding.measured) == (found == "EPOCH")


@pytest.mark.parametrize(
    ("horizon", "found"), [(4, []), (5, []), (6, ["UNSURE"]), (11, ["UNSURE"])]
)
def test_a_schedule_that_ends_with_the_epochs_is_meant_in_epochs(horizon, found):
    assert ids(check(cosine(horizon))) == found


@pytest.mark.parametrize("make", [endless, cosine(12), lambda o: schedules.StepLR(o, 30)])
def test_an_interval_that_somebody_wrote_is_not_asked_about(make):
    assert "UNSURE" in ids(check(make, stated=False))
    assert not {"UNSURE", "EPOCH"} & set(ids(check(make, stated=True)))


def test_a_trial_of_a_long_schedule_is_an_error_until_somebody_says_by_epoch():
    trial = replace(RUN, epochs=3)
    assert ids(check(cosine(100), plan=trial)) == ["EPOCH"]
    assert ids(check(cosine(100), plan=trial, stated=True)) == ["HORIZON"]
    assert ids(check(cosine(100), plan=trial, expected="epoch")) == ["HORIZON"]


@pytest.mark.parametrize(
    "make", [lambda o: schedules.StepLR(o, 30), lambda o: schedules.MultiStepLR(o, [30, 60])]
)
def test_a_trial_that_ends_before_the_first_drop_is_silent_where_by_epoch_was_said(make):
    trial = replace(RUN, epochs=3)
    assert ids(check(make, plan=trial, stated=True)) == []
    assert ids(check(make, plan=trial, expected="epoch")) == []
    assert ids(check(make, plan=trial)) == ["UNSURE"]


def test_a_part_of_a_schedule_that_is_as_long_as_the_run_proves_nothing():
    warmup = functools.partial(lambda tick, warmup: min(1.0, tick / warmup), warmup=100)
    for make in (
        lambda o: schedules.LambdaLR(o, warmup),
        lambda o: schedules.CosineAnnealingWarmRestarts(o, 100),
    ):
        assert "EPOCH" not in ids(check(make, stated=True))


def test_in_a_trial_run_one_cycle_on_the_default_interval_is_still_an_error():
    one_cycle = lambda o: schedules.OneCycleLR(o, 0.1, total_steps=3000)  # noqa: E731
    trial = RunPlan(batches=1, epochs=1, max_steps=1)
    short = {"shortened": True}
    assert ids(check(one_cycle, plan=trial, setting=short)) == ["EPOCH"]
    assert ids(check(one_cycle, plan=trial, setting=short, stated=True)) == []


def test_a_schedule_of_exactly_the_updates_is_an_error_even_where_the_interval_was_written():
    assert ids(check(cosine(100), stated=True)) == ["EPOCH"]
    assert ids(check(falling(99), plan=replace(RUN, epochs=12), stated=True)) == ["HORIZON"]


@pytest.mark.parametrize("interval", ["step", "epoch"])
@pytest.mark.parametrize("expected", ["auto", "step", "epoch"])
@pytest.mark.parametrize(
    "plan",
    [
        RunPlan(batches=1, epochs=30, max_steps=None),
        RunPlan(batches=7, epochs=30, max_steps=None, accumulation={0: 7}),
        RunPlan(batches=7, epochs=30, max_steps=None, accumulation={0: 8, 20: 100}),
    ],
)
def test_where_every_epoch_is_one_update_the_interval_does_not_matter(interval, expected, plan):
    assert check(cosine(30), expected=expected, interval=interval, plan=plan) == []


def test_where_only_most_epochs_are_one_update_it_does():
    plan = RunPlan(batches=7, epochs=30, max_steps=None, accumulation={0: 7, 29: 6})
    assert ids(check(cosine(31), expected="step", plan=plan)) == ["EPOCH"]


def test_a_frequency_of_all_batches_ticks_once_per_epoch_as_expected():
    told = check(cosine(5), expected="epoch", interval="step", frequency=20)
    assert "STEP" not in ids(told)
    assert "STEP" in ids(check(cosine(10), expected="epoch", interval="step", frequency=10))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda o: schedules.SequentialLR(o, [endless(o), cosine(90)(o)], [10]), ["EPOCH"]),
        (lambda o: schedules.SequentialLR(o, [endless(o), cosine(3)(o)], [2]), []),
        (
            lambda o: schedules.LambdaLR(
                o, functools.partial(lambda tick, max_iters: 1.0, max_iters=100)
            ),
            ["EPOCH"],
        ),
        (lambda o: schedules.MultiStepLR(o, [2, 4]), []),
        (lambda o: schedules.MultiStepLR(o, [2, 100]), ["UNSURE"]),
        (lambda o: schedules.MultiStepLR(o, [2, 300]), ["UNSURE"]),  # drops a trial does not reach
        (lambda o: schedules.StepLR(o, 80), ["UNSURE"]),
        (lambda o: schedules.LambdaLR(o, lambda tick: 0.9**tick), ["UNSURE"]),
    ],
)
def test_every_kind_of_schedule_is_judged_by_its_horizon(make, found):
    assert ids(check(make)) == found


class Mine(schedules.LRScheduler):
    def __init__(self, optimizer: Any, **attributes: Any) -> None:
        vars(self).update(attributes)
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return list(self.base_lrs)


@pytest.mark.parametrize(
    ("attributes", "found"),
    [({}, ["UNSURE"]), ({"total_steps": 100}, ["EPOCH"]), ({"total_steps": 5}, [])],
)
def test_somebodys_class_is_asked_about_unless_its_attributes_tell(attributes, found):
    assert ids(check(lambda o: Mine(o, **attributes))) == found


# ---- one cycle ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({}, ["EPOCH"]),
        ({"stated": True}, ["EPOCH"]),
        ({"interval": "step", "plan": replace(RUN, max_steps=31)}, []),
        ({"plan": replace(RUN, epochs=30)}, []),
        ({"plan": replace(RUN, epochs=29), "stated": True}, []),
        ({"plan": replace(RUN, epochs=15), "stated": True}, ["EPOCH"]),
        ({"plan": None}, ["EPOCH"]),
        ({"plan": None, "stated": True}, []),
        ({"setting": {"shortened": True}}, ["EPOCH"]),
        ({"setting": {"shortened": True}, "stated": True}, []),
    ],
)
def test_one_cycle_by_epoch_is_a_mistake_unless_it_is_as_long_as_the_epochs(facts, found):
    assert ids(check(one_cycle(30), **facts)) == found


def test_one_cycle_by_epoch_is_told_by_its_length():
    finding = only(check(one_cycle(30)))
    assert "(5 of 100 expected ticks)" in finding.measured
    assert finding.measured.endswith("OneCycleLR is one cycle over updates (total_steps=30)")


# ---- frequency ----------------------------------------------------------------------------------


@pytest.mark.parametrize("frequency", [0, None, 2.5, "1", float("nan")])
@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_frequency_that_is_no_whole_number_is_an_error_and_the_only_one(frequency, interval):
    finding = only(check(cosine(-1), frequency=frequency, interval=interval))
    assert (finding.id, finding.severity) == ("TG-SCHED-FREQUENCY-NEVER", "error")
    assert finding.measured.endswith(f"must be a whole number from 1, got {frequency!r}")


@pytest.mark.parametrize("frequency", [1, True])
def test_every_batch_is_the_ordinary_frequency(frequency):
    assert check(cosine(100), interval="step", frequency=frequency) == []


@pytest.mark.parametrize(
    ("interval", "frequency", "found"),
    [
        ("step", 21, ["FREQUENCY-NEVER"]),
        ("step", 20, ["FREQUENCY-BATCHES"]),
        ("step", 3, ["FREQUENCY-BATCHES"]),
        ("epoch", 6, ["FREQUENCY-NEVER"]),
        ("epoch", 5, []),
        ("epoch", 2, []),
    ],
)
def test_a_frequency_that_never_comes_is_an_error_and_one_in_batches_a_warning(
    interval, frequency, found
):
    findings = check(endless, interval=interval, frequency=frequency, stated=True)
    assert ids(findings) == found
    severities = {"FREQUENCY-NEVER": "error", "FREQUENCY-BATCHES": "warning"}
    assert [one.severity for one in findings] == [severities[one] for one in found]


def test_a_frequency_that_never_comes_is_told_in_numbers():
    never = only(check(endless, interval="step", frequency=25))
    assert never.measured == (
        "ExponentialLR (scheduler 0): frequency 25 counts batches of an epoch and there are 20: "
        "0 ticks in 100 updates; LR will be constant"
    )
    assert "epochs and there are 5:" in only(check(endless, frequency=9, stated=True)).measured


def test_a_frequency_in_batches_is_told_with_its_ticks():
    told = only(check(endless, interval="step", frequency=3)).measured
    assert told.endswith("frequency 3 counts batches of an epoch: 30 ticks in 100 updates")
    unknown = only(check(endless, interval="step", frequency=3, plan=None)).measured
    assert unknown.endswith("frequency 3 counts batches of an epoch")


def test_a_frequency_may_be_locked_out_by_accumulation():
    plan = RunPlan(batches=5, epochs=4, max_steps=None, accumulation={0: 2})  # steps at 2, 4, 5
    facts = {"interval": "step", "plan": plan}
    assert ids(check(endless, frequency=3, **facts)) == ["FREQUENCY-NEVER"]
    assert ids(check(endless, frequency=4, **facts)) == ["FREQUENCY-BATCHES"]


@pytest.mark.parametrize(
    ("interval", "frequency", "rest"),
    [
        ("epoch", 10, RunPlan(batches=20, epochs=95, max_steps=None, epoch=92, step=1840)),
        ("step", 15, RunPlan(batches=20, epochs=4, max_steps=None, epoch=3, batch=16, step=76)),
    ],
)
def test_a_resume_after_the_last_tick_of_a_frequency_is_no_error(interval, frequency, rest):
    facts = {"interval": interval, "frequency": frequency, "stated": True}
    whole = replace(rest, epoch=0, batch=0, step=0)
    assert "FREQUENCY-NEVER" not in ids(check(endless, plan=whole, **facts))
    assert "FREQUENCY-NEVER" not in ids(check(endless, plan=rest, ticked=9, **facts))


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_trial_run_says_nothing_about_a_frequency(interval):
    trial = RunPlan(batches=1, epochs=1, max_steps=1)
    facts = {"plan": trial, "interval": interval, "frequency": 5, "stated": True}
    told = check(endless, setting={"shortened": True}, **facts)
    assert [one for one in told if one.severity == "error"] == []
    assert ids(check(endless, **facts)) == ["FREQUENCY-NEVER"]


def test_a_fit_without_an_update_has_no_frequency_to_miss():
    over = replace(RUN, epoch=5, step=100)
    assert check(endless, plan=over, frequency=7, stated=True) == []


# ---- horizons -----------------------------------------------------------------------------------


@pytest.mark.parametrize("horizon", [-1, 0, float("inf"), float("nan")])
@pytest.mark.parametrize("facts", [{"interval": "step"}, {}, {"setting": {"automatic": False}}])
def test_a_horizon_that_is_no_length_is_an_error_in_every_mode(horizon, facts):
    findings = check(cosine(horizon), expected="auto", stated=True, **facts)
    assert ids(findings) == ["UNKNOWN-HORIZON"]
    assert f"T_max={horizon} is no number of ticks" in findings[0].measured


@pytest.mark.parametrize(
    "make",
    [
        lambda o: Mine(o, total_steps=-1),  # a guess
        lambda o: schedules.LinearLR(o, 0.1, 1.0, total_iters=0),  # a warmup that is off
        lambda o: schedules.LambdaLR(o, functools.partial(lambda t, warmup: 1.0, warmup=0)),
    ],
)
def test_a_length_of_none_is_no_error_where_it_may_be_meant(make):
    assert "UNKNOWN-HORIZON" not in ids(check(make, interval="step"))


def test_every_group_with_the_same_function_is_one_finding():
    def make(optimizer: Any) -> Any:
        function = functools.partial(lambda tick, max_iters: 1.0, max_iters=-1)
        return schedules.LambdaLR(make_optimizer(groups=3), function)

    assert ids(check(make, interval="step")) == ["UNKNOWN-HORIZON"]


@pytest.mark.parametrize(
    ("horizon", "found"),
    [
        (1000, []),
        (1010, []),
        (991, []),
        (1011, ["HORIZON"]),
        (989, ["RISING"]),
    ],
)
def test_horizons_within_a_hundredth_match_the_run(horizon, found):
    plan = RunPlan(batches=100, epochs=10, max_steps=None)
    assert ids(check(cosine(horizon), interval="step", plan=plan)) == found


@pytest.mark.parametrize(
    ("horizon", "found"), [(8, ["RISING"]), (9, []), (10, []), (11, []), (12, ["HORIZON"])]
)
def test_a_horizon_off_by_one_matches_the_run(horizon, found):
    plan = RunPlan(batches=5, epochs=2, max_steps=None)
    assert ids(check(cosine(horizon), interval="step", plan=plan)) == found


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (falling(40), ["HORIZON"]),
        (falling(100), []),
        (lambda o: schedules.PolynomialLR(o, total_iters=400), ["HORIZON"]),
        (lambda o: schedules.LinearLR(o, 0.1, 1.0, total_iters=40), []),  # a warmup
        (lambda o: schedules.LinearLR(o, 0.1, 1.0, total_iters=150), ["HORIZON"]),
        (lambda o: schedules.StepLR(o, 30), []),
        (lambda o: schedules.StepLR(o, 130), ["HORIZON"]),
        (lambda o: schedules.MultiStepLR(o, [60, 80]), []),
        (lambda o: schedules.CosineAnnealingWarmRestarts(o, T_0=7), []),
        (lambda o: schedules.CyclicLR(o, 0.1, 0.3, step_size_up=7), []),
        (lambda o: schedules.SequentialLR(o, [endless(o), cosine(20)(o)], [10]), ["RISING"]),
        (lambda o: Mine(o, total_steps=70), ["HORIZON"]),
    ],
)
def test_a_schedule_is_held_against_the_run_as_far_as_it_is_meant_to_last(make, found):
    assert ids(check(make, interval="step")) == found


@pytest.mark.parametrize(
    ("make", "plan", "why"),
    [
        (cosine(250), RUN, "T_max=250, and it ticks 100 times: 2.5 times as long as the run"),
        (falling(40), RUN, "total_iters=40, and it ticks 100 times: over after 40.0% of the run"),
        (cosine(5), RUN, "T_max=5, and it ticks 100 times: the horizon counts epochs, the ticks "
                         "updates"),
        (
            cosine(100),
            replace(RUN, accumulation={0: 4}),
            "T_max=100, and it ticks 25 times: the horizon counts batches, the ticks updates "
            "(accumulation 4)",
        ),
        (
            cosine(100),
            replace(RUN, accumulation={0: 2, 3: 5}),
            "T_max=100, and it ticks 38 times: the horizon counts batches, the ticks updates "
            "(accumulation 2, 5)",
        ),
        (
            falling(130),
            replace(RUN, accumulation={0: 4}),
            "total_iters=130, and it ticks 25 times: 5.2 times as long as the run",
        ),
    ],
)  # fmt: skip
def test_a_horizon_that_does_not_match_is_told_with_what_it_would_match(make, plan, why):
    finding = only(check(make, interval="step", plan=plan))
    assert finding.measured.partition(": ")[2] == why


def test_the_forecast_stands_with_a_horizon_that_does_not_match():
    assert (
        only(check(cosine(40), interval="step", outlook="LR falls")).measured[-10:] == "; LR falls"
    )


@pytest.mark.parametrize(("accumulation", "ticks"), [(1, 100), (4, 25)])
def test_a_resumed_run_is_held_against_the_horizon_as_the_whole_is(accumulation, ticks):
    whole = replace(RUN, accumulation={0: accumulation})
    done = ticks * 3 // 5
    rest = replace(whole, epoch=3, step=done)
    for horizon in (ticks, 250):
        told = [
            [one.measured for one in check(cosine(horizon), interval="step", plan=plan, ticked=n)]
            for plan, n in ((whole, 0), (rest, done))
        ]
        assert told[0] == told[1]


def test_a_resumed_run_names_accumulation_as_the_whole_does():
    whole = replace(RUN, accumulation={0: 4})
    rest = replace(whole, epoch=3, step=15)
    told = only(check(cosine(100), interval="step", plan=rest, ticked=15)).measured
    assert told.endswith("the horizon counts batches, the ticks updates (accumulation 4)")


def test_a_resumed_run_is_exact_by_the_updates_of_the_whole():
    rest = replace(RUN, epoch=3, step=60)
    finding = only(check(cosine(100), plan=rest, ticked=3))
    assert finding.measured.endswith("T_max=100 is exactly the 100 updates of the run")


# ---- where little can be said -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "facts", "found"),
    [
        (cosine(100), {}, ["UNSURE"]),
        (cosine(100), {"stated": True}, []),
        (cosine(5), {}, ["UNSURE"]),
        (cosine(100), {"interval": "step"}, []),
        (cosine(100), {"expected": "step"}, ["EPOCH"]),
        (cosine(100), {"expected": "epoch", "interval": "step"}, ["STEP"]),
        (cosine(100), {"expected": "epoch"}, []),
    ],
)
def test_without_a_length_to_trust_only_what_is_expected_decides(make, facts, found):
    assert ids(check(make, **facts, plan=None)) == found
    trial = check(make, **facts, setting={"shortened": True})
    assert ids(trial) == [one for one in found if one != "UNSURE"]  # nobody is asked in a trial


def test_without_a_length_no_number_is_made_up():
    told = only(check(cosine(100), expected="step", plan=None)).measured
    assert told == (
        "CosineAnnealingLR (scheduler 0) ticks once per epoch, but it is expected to tick at "
        "every update"
    )


@pytest.mark.parametrize("expected", ["auto", "step", "epoch"])
@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_a_plateau_may_tick_at_any_interval(expected, interval):
    plateau = schedules.ReduceLROnPlateau
    assert check(plateau, expected=expected, interval=interval, plateau=True, monitor="x") == []
    facts = {"interval": interval, "plateau": True, "frequency": 25, "monitor": "x"}
    assert ids(check(plateau, expected=expected, **facts)) == ["FREQUENCY-NEVER"]


@pytest.mark.parametrize("expected", ["auto", "step", "epoch", "reference"])
@pytest.mark.parametrize("make", [endless, cosine(100), one_cycle(30)])
@pytest.mark.parametrize("frequency", [1, 0, 99])
def test_where_the_users_code_ticks_neither_interval_nor_frequency_is_judged(
    expected, make, frequency
):
    manual = {"setting": {"automatic": False}, "frequency": frequency}
    assert check(make, expected=expected, **manual) == []


@pytest.mark.parametrize("interval", ["steps", "Step", "", "batch"])
def test_an_interval_that_is_none_is_an_error_where_lightning_lets_it_pass(interval):
    finding = only(check(endless, interval=interval, setting={"automatic": False}))
    assert (finding.id, finding.severity) == ("TG-SCHED-INVALID-INTERVAL", "error")
    assert finding.measured.endswith(f"must be step or epoch, got {interval!r}")

"""What is wrong with a scheduler's cadence before the first update, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.optim.lr_scheduler import OneCycleLR

from traingen.cadence import kinds
from traingen.cadence.forecast import Forecast
from traingen.cadence.horizons import Horizon, horizons_of
from traingen.cadence.plan import (
    RunPlan,
    count_batches,
    count_epochs,
    count_steps,
    count_ticks,
    iter_runs,
    whole,
)
from traingen.cadence.schedule import Schedule
from traingen.compare.findings import Finding

FAR = 10  # a horizon of so many times the epochs cannot be meant in epochs
CLOSE = 0.01  # horizons this near to the run's length match: off by one, a dropped batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a scheduler is judged against."""

    plan: RunPlan | None  # None: the length of an epoch is not known
    updates: int | None = None  # of the whole training, where `plan` is None and they are known
    automatic: bool = True  # Lightning ticks, not the user's code
    shortened: bool = False  # a trial run: its length says nothing about the schedule
    write_step: str = kinds.WRITE_STEP  # the lines that make it tick by update


def check_schedule(
    schedule: Schedule, setting: Setting, *, expected: str, outlook: str = ""
) -> list[Finding]:
    """Every finding about `schedule` that needs no update.

    Args:
        schedule: as it is in effect.
        setting: the run it is part of.
        expected: "step", "epoch", "reference" (its rates are compared later), or "auto": an error
            only where a mistake is provable.
        outlook: the predicted rates in words, for the findings that they belong to.
    """
    rules = _automatic_rules if setting.automatic else _manual_rules
    return list(rules(schedule, setting, expected, outlook))


def announce(schedule: Schedule, setting: Setting, forecast: Forecast | str) -> str:
    """What is about to happen, right or wrong: how often it ticks and which rates follow."""
    pace = f"interval {schedule.interval}, frequency {schedule.frequency}"
    if not setting.automatic:
        pace = "ticked by the module's own code"
    elif setting.plan is not None and schedule.cadence is not None:
        most = "at most " if schedule.plateau else ""
        ticks = count_ticks(setting.plan, schedule.cadence)
        pace += f", {most}{ticks} ticks in {_updates(setting.plan)}"
    rates = forecast if isinstance(forecast, str) else forecast.describe()
    return f"{schedule.label}: {pace}; {rates}"


def _manual_rules(
    schedule: Schedule, setting: Setting, expected: str, outlook: str
) -> Iterator[Finding]:
    if schedule.interval not in ("step", "epoch"):
        yield kinds.INVALID_INTERVAL.found(
            f"{schedule.label}: interval must be step or epoch, got {schedule.interval!r}"
        )
    yield from _unknown_horizon(schedule)


def _automatic_rules(
    schedule: Schedule, setting: Setting, expected: str, outlook: str
) -> Iterator[Finding]:
    if schedule.cadence is None:
        yield kinds.FREQUENCY_NEVER.found(
            f"{schedule.label}: frequency must be a whole number from 1, got {schedule.frequency!r}"
        )
        return
    unknown = list(_unknown_horizon(schedule))
    wrong = list(_interval(schedule, setting, expected, outlook))
    yield from [*unknown, *wrong, *_frequency(schedule, setting)]
    if not unknown and not wrong and not schedule.plateau and not setting.shortened:
        yield from _length(schedule, setting, outlook)


def _unknown_horizon(schedule: Schedule) -> Iterator[Finding]:
    for horizon in horizons_of(schedule.scheduler):
        if horizon.whole and not horizon.guessed and not horizon.is_length:
            yield kinds.UNKNOWN_HORIZON.found(
                f"{schedule.label}: {horizon} is no number of ticks; was the length of the "
                f"training data known when it was computed?"
            )


def _interval(
    schedule: Schedule, setting: Setting, expected: str, outlook: str
) -> Iterator[Finding]:
    plan = None if setting.shortened else setting.plan
    if schedule.plateau or expected == "reference" or _every_epoch_is_one_update(plan):
        return
    if expected == "epoch":
        if not _ticks_by_epoch(schedule, setting.plan):
            told = f"{schedule.label} ticks by the batch, expected once per epoch"
            yield kinds.STEP.found(told)
        return
    if schedule.interval != "epoch":
        return
    reason = "it is expected to tick at every update"
    if expected == "auto":
        reason = _proof(schedule, setting)
    if reason:
        told = f"{schedule.label} ticks once per epoch{_few_ticks(schedule, setting)}, but {reason}"
        yield kinds.EPOCH.found(_with(told, outlook), fix=setting.write_step)
    elif not (schedule.stated or setting.shortened or _fits_epochs(schedule, setting)):
        told = f"{schedule.label} ticks once per epoch{_few_ticks(schedule, setting)}"
        yield kinds.UNSURE.found(_with(told, outlook))


def _ticks_by_epoch(schedule: Schedule, plan: RunPlan | None) -> bool:
    """Whether it ticks at the ends of epochs: by interval, or because an epoch has no more."""
    if schedule.interval == "epoch":
        return True
    return plan is not None and schedule.frequency == plan.batches > 1


def _proof(schedule: Schedule, setting: Setting) -> str:
    """Why ticking once per epoch is certainly a mistake, in words; empty if it is not certain."""
    plan = None if setting.shortened else setting.plan
    horizons = [h for h in horizons_of(schedule.scheduler) if h.is_length]
    if isinstance(schedule.scheduler, OneCycleLR):
        over_epochs = plan is not None and _near(horizons[0].ticks, _epochs_of(plan))
        if not over_epochs and not (plan is None and schedule.stated):
            return f"OneCycleLR is one cycle over updates ({horizons[0]})"
    if plan is not None:
        return _proof_by_length(horizons, plan, stated=schedule.stated)
    updates = None if setting.shortened else setting.updates
    exact = [h for h in horizons if h.whole and h.ticks == updates]
    return f"{exact[0]} is exactly the {updates} updates of the run" if exact else ""


def _proof_by_length(horizons: Sequence[Horizon], plan: RunPlan, *, stated: bool) -> str:
    """A long schedule whose author wrote "epoch" may be a trial of a long training."""
    updates, epochs = plan.step + count_steps(plan), _epochs_of(plan)
    batches = count_batches(whole(plan))
    exact = [h for h in horizons if h.whole and h.ticks in (updates, batches) and h.ticks != epochs]
    far = [h for h in horizons if not h.drop and h.ticks >= FAR * max(epochs, 1) and not stated]
    if exact:
        what = f"{updates} updates" if exact[0].ticks == updates else f"{batches} batches"
        return f"{exact[0]} is exactly the {what} of the run"
    return f"{far[0]} far exceeds the {epochs} epochs of the run" if far else ""


def _fits_epochs(schedule: Schedule, setting: Setting) -> bool:
    """Whether the schedule ends within the epochs of the run, which says it is meant in epochs."""
    if setting.plan is None or setting.shortened:
        return False
    ends = [h.ticks for h in horizons_of(schedule.scheduler) if h.is_length]
    return bool(ends) and max(ends) <= _epochs_of(setting.plan) * (1 + CLOSE)


def _frequency(schedule: Schedule, setting: Setting) -> Iterator[Finding]:
    cadence, plan = schedule.cadence, None if setting.plan is None else whole(setting.plan)
    if cadence is None or cadence.frequency == 1 or setting.shortened:
        return
    every = f"{schedule.label}: frequency {cadence.frequency} counts"
    unit = "batches of an epoch" if cadence.interval == "step" else "epochs"
    steps = 0 if setting.plan is None else count_steps(setting.plan)
    if plan is not None and steps and count_ticks(plan, cadence) == 0:
        has = plan.batches if cadence.interval == "step" else _epochs_of(plan)
        yield kinds.FREQUENCY_NEVER.found(
            f"{every} {unit} and there are {has}: 0 ticks in {count_steps(plan)} updates; "
            f"LR will be constant"
        )
    elif cadence.interval == "step":
        told = "" if plan is None else f": {count_ticks(plan, cadence)} ticks in {_updates(plan)}"
        yield kinds.FREQUENCY_BATCHES.found(f"{every} {unit}{told}")


def _length(schedule: Schedule, setting: Setting, outlook: str) -> Iterator[Finding]:
    """Whether the schedule and the run end together."""
    cadence, ticks = schedule.cadence, _total_ticks(schedule, setting)
    if cadence is None or ticks is None:
        return
    by_epoch = cadence.interval == "epoch"
    for horizon in horizons_of(schedule.scheduler):
        if not horizon.is_length or _near(ticks, horizon.ticks) or ticks == 0:
            continue
        why = _explain(horizon, ticks, setting.plan, cadence.interval)
        told = f"{schedule.label}: {horizon}, and it ticks {ticks} times: {why}"
        if horizon.periodic and ticks > horizon.ticks:
            yield kinds.RISING.found(_with(told, outlook))
        elif horizon.whole or (horizon.ticks > ticks and not (horizon.drop and by_epoch)):
            yield kinds.HORIZON.found(_with(told, outlook))


def _total_ticks(schedule: Schedule, setting: Setting) -> int | None:
    """How often it will have ticked when the training is over; None if that is not known."""
    if schedule.cadence is None:
        return None
    if setting.plan is not None:
        done = getattr(schedule.scheduler, "last_epoch", None) or 0
        return int(done + count_ticks(setting.plan, schedule.cadence))
    each = schedule.cadence.interval == "step" and schedule.cadence.frequency == 1
    return setting.updates if each else None


def check_ticked(schedule: Schedule, ticks: int) -> list[Finding]:
    """A finding if a training is over and a schedule that should last for all of it is not.

    For manual optimization, where only the end shows how often the module's code ticks.
    """
    return [
        kinds.HORIZON.found(f"{schedule.label}: {horizon}, and it has ticked {ticks} times")
        for horizon in horizons_of(schedule.scheduler)
        if horizon.whole and horizon.is_length and not _near(ticks, horizon.ticks)
    ]


def _explain(horizon: Horizon, ticks: int, given: RunPlan | None, interval: str) -> str:
    """The ratio of horizon and ticks, and what has just that ratio."""
    ratio = horizon.ticks / ticks
    if given is None:
        return f"{ratio:.4g} times as long as the run"
    plan = whole(given)
    batches = count_batches(plan)
    factors = {span.accumulation for span, _ in iter_runs(plan)}
    if interval == "step" and factors != {1} and _near(horizon.ticks, batches):
        shown = ", ".join(map(str, sorted(factors)))
        return f"the horizon counts batches, the ticks updates (accumulation {shown})"
    if interval == "step" and _near(horizon.ticks, _epochs_of(plan)):
        return "the horizon counts epochs, the ticks updates"
    if ratio < 1:
        return f"over after {ratio:.1%} of the run"
    return f"{ratio:.4g} times as long as the run"


def _few_ticks(schedule: Schedule, setting: Setting) -> str:
    if setting.plan is None or schedule.cadence is None:
        return ""
    ticks, updates = count_ticks(setting.plan, schedule.cadence), count_steps(setting.plan)
    return f" ({ticks} of {updates} expected ticks)"


def _every_epoch_is_one_update(plan: RunPlan | None) -> bool:
    return plan is not None and all(span.steps == 1 for span, _ in iter_runs(plan))


def _epochs_of(plan: RunPlan) -> int:
    """Epochs of the whole training, those before this fit included; a started one counts."""
    return plan.epoch + count_epochs(plan, started=True)


def _updates(plan: RunPlan) -> str:
    return f"{count_steps(plan)} updates"


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= max(1, CLOSE * b)


def _with(told: str, outlook: str) -> str:
    return f"{told}; {outlook}" if outlook else told

"""The ticks worked out beforehand are those of a walk batch by batch, and of real fits."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import lightning.pytorch as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from tests.callbacks.small import BATCHES, Small, fit, make_loader, make_trainer
from traingen.cadence.plan import (
    Cadence,
    RunPlan,
    count_epochs,
    count_steps,
    count_ticks,
    is_due,
    iter_spans,
    iter_ticks,
    whole,
)

cadences = st.builds(
    Cadence, interval=st.sampled_from(["step", "epoch"]), frequency=st.integers(1, 7)
)


@st.composite
def plans(draw: st.DrawFn) -> RunPlan:
    """Any training that ends, begun anywhere."""
    batches = draw(st.integers(1, 12))
    epochs = draw(st.none() | st.integers(0, 6))
    later = st.dictionaries(st.integers(1, 6), st.integers(1, 14), max_size=2)
    return RunPlan(
        batches=batches,
        epochs=epochs,
        max_steps=draw(st.integers(0, 40) | (st.nothing() if epochs is None else st.none())),
        accumulation={0: draw(st.integers(1, 14)), **draw(later)},
        epoch=draw(st.integers(0, 3)),
        batch=draw(st.integers(0, batches - 1)),
        step=draw(st.integers(0, 20)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch as Lightning's loops go through it."""

    epoch: int
    number: int  # in its epoch, from 1
    last: bool
    step: int  # trainer.global_step after it
    stepped: bool

    def ticks(self, cadence: Cadence) -> int:
        if cadence.interval == "epoch":
            return int(self.last and (self.epoch + 1) % cadence.frequency == 0)
        return int(self.stepped and self.number % cadence.frequency == 0)


def walk(plan: RunPlan) -> Iterator[Batch]:
    """fit_loop.py and training_epoch_loop.py, with nothing in them but their counters."""
    epoch, ready, step = plan.epoch, plan.batch, plan.step
    while not (reached(step, plan.max_steps) or reached(epoch, plan.epochs)):
        accumulate = [n for first, n in sorted(plan.accumulation.items()) if first <= epoch][-1]
        last = False
        while not (last or reached(step, plan.max_steps)):
            ready += 1
            last = ready == plan.batches
            stepped = last or ready % accumulate == 0
            step += stepped
            yield Batch(epoch=epoch, number=ready, last=last, step=step, stepped=stepped)
        epoch, ready = epoch + 1, 0


def reached(count: int, limit: int | None) -> bool:
    return limit is not None and count >= limit


def ticks_of(batches: Iterable[Batch], cadence: Cadence) -> list[int]:
    return [batch.step for batch in batches if batch.ticks(cadence)]


# ---- against a walk batch by batch --------------------------------------------------------------


@given(plans(), cadences)
def test_ticks_are_those_of_a_walk_batch_by_batch(plan, cadence):
    expected = ticks_of(walk(plan), cadence)
    assert list(iter_ticks(plan, cadence)) == expected
    assert count_ticks(plan, cadence) == len(expected)


@given(plans())
def test_counted_steps_are_those_of_a_walk(plan):
    assert count_steps(plan) == sum(batch.stepped for batch in walk(plan))


@given(plans())
def test_epochs_are_those_whose_last_batch_runs(plan):
    assert count_epochs(plan) == sum(batch.last for batch in walk(plan))


@given(plans())
def test_spans_hold_every_batch_of_the_walk_once(plan):
    covered = [
        (span.epoch, number)
        for span in iter_spans(plan)
        for number in range(span.done + 1, span.last + 1)
    ]
    assert covered == [(batch.epoch, batch.number) for batch in walk(plan)]


@given(plans(), cadences, st.integers(0, 200))
def test_a_run_cut_anywhere_and_resumed_ticks_as_the_whole_does(plan, cadence, cut):
    before = list(walk(plan))[:cut]
    if not before:
        return
    end = before[-1]
    rest = replace(
        plan,
        epoch=end.epoch + end.last,
        batch=0 if end.last else end.number,
        step=end.step,
    )
    done = ticks_of(before, cadence)
    assert done + list(iter_ticks(rest, cadence)) == list(iter_ticks(plan, cadence))
    assert len(done) + count_ticks(rest, cadence) == count_ticks(plan, cadence)


@given(plans())
def test_the_whole_of_a_resumed_run_is_the_same_training_from_its_beginning(plan):
    assert whole(plan) == replace(plan, epoch=0, batch=0, step=0)
    assert whole(whole(plan)) == whole(plan)


@given(plans(), cadences)
def test_the_rule_for_one_batch_agrees_with_the_plan(plan, cadence):
    due = [
        batch.step
        for batch in walk(plan)
        if is_due(
            cadence,
            epoch=batch.epoch,
            batch=batch.number,
            batches=plan.batches,
            steps=batch.stepped,
        )
    ]
    assert due == list(iter_ticks(plan, cadence))


def test_a_batch_that_is_known_not_to_be_the_last_ends_no_epoch():
    epoch = Cadence(interval="epoch")
    assert not is_due(epoch, epoch=0, batch=6, batches=None, steps=True)
    assert is_due(epoch, epoch=0, batch=6, batches=6, steps=True)


def test_counting_does_not_go_through_the_batches():
    plan = RunPlan(batches=10**15, epochs=3, max_steps=None, accumulation={0: 1000})
    assert count_steps(plan) == 3 * 10**12
    assert count_ticks(plan, Cadence(interval="step", frequency=250)) == 3 * 10**12


def test_a_training_without_an_end_is_walked_as_far_as_one_asks():
    plan = RunPlan(batches=4, epochs=None, max_steps=None)
    ticks = iter_ticks(plan, Cadence(interval="epoch", frequency=2))
    assert [next(ticks) for _ in range(3)] == [8, 16, 24]


def test_accumulation_holds_until_a_later_epoch_changes_it():
    plan = RunPlan(batches=6, epochs=9, max_steps=None, accumulation={0: 3, 2: 1, 5: 6})
    assert [plan.accumulation_in(epoch) for epoch in range(7)] == [3, 3, 1, 1, 1, 6, 6]
    assert count_steps(plan) == 2 * 2 + 3 * 6 + 4 * 1


# ---- numbers from public reports, measured on Lightning -----------------------------------------


def planned(
    *, batches: int, epochs: int, frequency: int, accumulation: int = 1
) -> tuple[int, list[int]]:
    plan = RunPlan(batches=batches, epochs=epochs, max_steps=None, accumulation={0: accumulation})
    ticks = list(iter_ticks(plan, Cadence(interval="step", frequency=frequency)))
    return count_steps(plan), ticks


def test_a_frequency_above_the_batches_of_an_epoch_never_ticks():
    assert planned(batches=2, epochs=3, frequency=3) == (6, [])
    assert planned(batches=2, epochs=3, frequency=2) == (6, [2, 4, 6])


@pytest.mark.parametrize(
    ("run", "ticks"),
    [
        ({"batches": 8, "epochs": 1, "frequency": 2, "accumulation": 4}, [1, 2]),
        ({"batches": 12, "epochs": 1, "frequency": 3, "accumulation": 2}, [3, 6]),
        ({"batches": 5, "epochs": 2, "frequency": 2}, [2, 4, 7, 9]),
        # The last window of an epoch is partial and its batch no multiple of the frequency.
        ({"batches": 10, "epochs": 3, "frequency": 4, "accumulation": 4}, [1, 2, 4, 5, 7, 8]),
        # It is partial and its batch is a multiple: it ticks, a full window does not.
        ({"batches": 9, "epochs": 2, "frequency": 9, "accumulation": 2}, [5, 10]),
    ],
)
def test_frequency_counts_batches_of_the_epoch_behind_the_gate_of_accumulation(run, ticks):
    _, found = planned(**run)
    assert found == ticks


# ---- against Lightning --------------------------------------------------------------------------


class Noted(Small):
    """Notes the counted step after which each tick comes, and writes a checkpoint if told where."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.noted: list[int] = []

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        self.noted.append(self.trainer.global_step)
        super().lr_scheduler_step(scheduler, metric)


@pytest.mark.parametrize(
    ("cadence", "options"),
    [
        (Cadence(interval="step", frequency=2), {"accumulate_grad_batches": 2, "max_epochs": 3}),
        (Cadence(interval="step", frequency=5), {"accumulate_grad_batches": 3, "max_epochs": 2}),
        (Cadence(interval="step", frequency=3), {"max_epochs": -1, "max_steps": 13}),
        (Cadence(interval="epoch", frequency=2), {"max_epochs": 9, "max_steps": 23}),
        (Cadence(interval="epoch"), {"accumulate_grad_batches": 9, "max_steps": 3}),
    ],
)
def test_a_real_fit_ticks_where_the_plan_says(cadence, options):
    model = Noted(interval=cadence.interval, frequency=cadence.frequency)
    trainer = fit([], model=model, **{"max_epochs": -1, **options})
    plan = RunPlan(
        batches=BATCHES,
        epochs=None if trainer.max_epochs == -1 else trainer.max_epochs,
        max_steps=None if trainer.max_steps == -1 else trainer.max_steps,
        accumulation={0: trainer.accumulate_grad_batches},
    )
    assert model.noted == list(iter_ticks(plan, cadence)) != []
    assert trainer.global_step == count_steps(plan)


@pytest.mark.parametrize("frequency", [1, 2])
def test_a_real_fit_whose_accumulation_changes_ticks_where_the_plan_says(frequency):
    scheduling = {1: 2, 3: 4}
    model = Noted(interval="step", frequency=frequency)
    trainer = fit([GradientAccumulationScheduler(dict(scheduling))], model=model, max_epochs=5)
    plan = RunPlan(batches=BATCHES, epochs=5, max_steps=None, accumulation={0: 1, **scheduling})
    assert model.noted == list(iter_ticks(plan, Cadence(interval="step", frequency=frequency)))
    assert trainer.global_step == count_steps(plan) == 5 + 3 + 3 + 2 + 2


class SavesAt(pl.Callback):
    def __init__(self, path: Any, *, batch: int) -> None:
        self.path, self.batch = path, batch

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.current_epoch == 1 and batch_idx + 1 == self.batch:
            trainer.save_checkpoint(self.path)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
def test_a_real_fit_resumed_within_an_epoch_ticks_where_the_plan_says(tmp_path):
    cadence, options = Cadence(interval="step", frequency=2), {"accumulate_grad_batches": 2}
    through, path = Noted(frequency=2), tmp_path / "half.ckpt"
    fit([SavesAt(path, batch=3)], model=through, max_epochs=3, **options)
    rest = Noted(frequency=2)
    make_trainer([], max_epochs=3, **options).fit(
        rest, make_loader(), ckpt_path=path, weights_only=True
    )
    plan = RunPlan(
        batches=BATCHES, epochs=3, max_steps=None, accumulation={0: 2}, epoch=1, batch=3, step=4
    )
    assert rest.noted == list(iter_ticks(plan, cadence)) == [5, 7, 8]
    assert rest.noted == through.noted[-3:]

"""Which step a call of the loop counts for, and what is said of those that it does not."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.callbacks.recorded import Manual
from tests.callbacks.small import Small, make_loader, make_trainer
from traingen.callbacks.step_count import StepCount, counted_calls


@dataclass
class Loop:
    """Counts as Lightning's loops do."""

    ready: int = 0
    completed: int = 0

    def call(self) -> None:
        self.ready += 1

    def leave(self) -> None:
        self.completed += 1


def take(steps: StepCount, index: int) -> bool:
    """A step of one optimizer; whether the loop counts it."""
    counted = steps.takes(index)
    steps.applied(index, counted=counted)
    return counted


def test_a_call_counts_for_one_step_of_the_optimizer_it_is_made_for():
    loop = Loop()
    steps = StepCount(loop, automatic=True)
    loop.call()
    assert steps.global_step == 1  # as it will be once the call is done
    assert [take(steps, 1), take(steps, 0), take(steps, 0)] == [False, True, False]
    loop.leave()
    assert steps.global_step == 1
    told = [(name, details["optimizer"], details["count"]) for name, details in steps.settle()]
    assert told == [("uncounted_update", 0, 1), ("uncounted_update", 1, 1)]


def test_steps_outside_of_a_call_are_not_counted():
    loop = Loop()
    steps = StepCount(loop, automatic=True)
    assert not take(steps, 0)
    assert steps.global_step == 0
    assert list(steps.settle()) == [
        ("uncounted_update", {"optimizer": 0, "count": 1, "global_step": 0})
    ]


def test_every_optimizer_is_told_of_once_and_then_forgotten():
    loop = Loop()
    steps = StepCount(loop, automatic=True)
    for index in (2, 1, 2):
        take(steps, index)
    assert list(steps.settle()) == [
        ("uncounted_update", {"optimizer": 1, "count": 1, "global_step": 0}),
        ("uncounted_update", {"optimizer": 2, "count": 2, "global_step": 0}),
    ]
    assert list(steps.settle()) == []


def test_calls_without_a_step_are_told_of_and_then_forgotten():
    loop = Loop()
    steps = StepCount(loop, automatic=True)
    for _ in range(2):
        loop.call()
        loop.leave()
    assert list(steps.settle()) == [("counted_without_update", {"count": 2, "global_step": 2})]
    assert list(steps.settle()) == []


def test_by_hand_a_call_counts_for_the_optimizer_that_is_announced():
    loop = Loop()
    steps = StepCount(loop, automatic=False)
    loop.call()
    assert not take(steps, 0)  # in the closure, say
    steps.announce(1)
    assert take(steps, 1)
    loop.leave()
    loop.call()
    assert not take(steps, 1)  # the announcement was for the call before
    steps.announce(0)
    assert take(steps, 0)
    loop.leave()
    told = [(details["optimizer"], details["count"]) for _, details in steps.settle()]
    assert told == [(0, 1), (1, 1)]


def test_an_optimizer_without_a_number_is_never_counted():
    loop = Loop()
    for automatic in (True, False):
        steps = StepCount(loop, automatic=automatic)
        loop.call()
        steps.announce(None)
        assert not steps.takes(None)
        loop.leave()


def test_a_call_that_an_earlier_attempt_never_left_is_none_of_ours():
    loop = Loop(ready=4, completed=3)
    steps = StepCount(loop, automatic=True)
    assert steps.global_step == 3
    assert not steps.takes(0)
    loop.call()
    assert steps.takes(0)
    assert steps.global_step == 4


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_is_counted_is_lightnings_global_step(by_hand):
    class ByHand(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.manual_backward(self.loss(batch))
            self.optimizers().step()

    trainer = make_trainer([], max_epochs=1, limit_train_batches=3)
    trainer.fit(ByHand() if by_hand else Small(), make_loader())
    calls = counted_calls(trainer)
    assert calls.ready == calls.completed == trainer.global_step == 3

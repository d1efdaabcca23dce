"""What counts as an update, as a micro-batch and as a step, and what is said where these differ.

Every report has a sibling with other numbers and a healthy neighbour that must stay silent. The
numbers are those of the reports' issues in Lightning's tracker.
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from torch import nn

from tests.callbacks.recorded import Manual, Recorded, train
from tests.callbacks.small import BATCHES, MOMENTUM, RATE, Small, make_loader, norm_of, replay

returns_none = pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
ticks_early = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step..` before")


# ---- Lightning#19987: the last window of an epoch is cut short, its divisor is not ---------------


@pytest.mark.parametrize(("accumulate", "partial"), [(2, 1), (3, 2), (4, 1)])
def test_a_partial_window_is_found_with_what_is_missing(tmp_path, accumulate, partial):
    done = train(tmp_path, Small(), accumulate_grad_batches=accumulate, max_epochs=2)
    expected = replay(Small(), accumulate=accumulate)
    for update, by_hand in zip(done.updates, expected, strict=True):
        assert (update.micro_batches, update.divisor) == (len(by_hand.losses), accumulate)
        assert update.objective == sum(by_hand.roots)
        assert update.micro_losses == pytest.approx(by_hand.losses, rel=1e-6)
    assert {update.micro_batches for update in done.updates} == {accumulate, partial}
    assert done.found == {"PARTIAL-WINDOW": "warning"}
    share = f"{partial} micro-batch{'es' if partial > 1 else ''} divided by {accumulate}"
    assert share in done.measured("PARTIAL-WINDOW")


@pytest.mark.parametrize(
    "options",
    [{"accumulate_grad_batches": 5}, {"accumulate_grad_batches": 2, "limit_train_batches": 4}],
    ids=["all", "limited"],
)
def test_whole_windows_are_silent(tmp_path, options):
    assert train(tmp_path, Small(), **options).found == {}


# ---- Lightning#13243, #15315, #18464: a callback's loss is divided, also by one that changes --


class Outputs(pl.Callback):
    """Keeps the loss that Lightning hands to callbacks."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
        self.losses.append(outputs["loss"].item())


@pytest.mark.parametrize("factors", [{0: 1, 1: 2}, {0: 2, 1: 4, 2: 1}])
def test_loss_is_whole_whatever_the_factor_is_that_callbacks_see_it_divided_by(tmp_path, factors):
    outputs, epochs = Outputs(), len(factors)
    done = train(
        tmp_path,
        Small(),
        callbacks=[GradientAccumulationScheduler(factors), outputs],
        max_epochs=epochs,
        limit_train_batches=4,
    )
    by_epoch = [[u for u in done.updates if u.epoch == epoch] for epoch in range(epochs)]
    assert [len(updates) for updates in by_epoch] == [4 // factor for factor in factors.values()]
    for (epoch, factor), updates in zip(factors.items(), by_epoch, strict=True):
        assert {(u.divisor, u.micro_batches) for u in updates} == {(factor, factor)}
        seen = [loss for u in updates for loss in u.micro_losses]
        divided = outputs.losses[4 * epoch : 4 * epoch + 4]
        assert seen == [loss * factor for loss in divided]
        assert [u.loss for u in updates] == [sum(u.micro_losses) / factor for u in updates]
        assert [u.objective for u in updates] == pytest.approx([u.loss for u in updates], rel=1e-6)
    assert done.found == {}


# ---- Lightning#17903, #5405: counts of batches, of steps and of updates, side by side ------------


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_every_line_has_all_the_counts(tmp_path, accumulate):
    checkpoints = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1)
    done = train(
        tmp_path / "run",
        Small(),
        callbacks=[checkpoints],
        enable_checkpointing=True,
        accumulate_grad_batches=accumulate,
        max_epochs=2,
    )
    ends = [i for i in range(BATCHES) if (i + 1) % accumulate == 0 or i + 1 == BATCHES]
    assert [u.total_batch_idx for u in done.updates] == [
        e * BATCHES + i for e in (0, 1) for i in ends
    ]
    numbers = list(range(1, 2 * len(ends) + 1))
    assert [u.update for u in done.updates] == [u.global_step for u in done.updates] == numbers
    assert [u.batches_that_stepped for u in done.updates] == [number - 1 for number in numbers]
    saved = [details["global_step"] for details in done.events("checkpoint")]
    assert saved == [number for number in numbers if number % 2 == 0]  # steps, not batches
    assert [d["updates"] for d in done.events("checkpoint")] == [[step] for step in saved]


# ---- Lightning#3491, #6753, #9352, #4956: `return None` to leave a batch out ---------------------


class LeavesOut(Small):
    """Returns no loss for some batches."""

    def __init__(self, *batches: int) -> None:
        super().__init__()
        self.batches = batches

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx in self.batches else super().training_step(batch, batch_idx)


@returns_none
@pytest.mark.parametrize("left_out", [(1,), (0, 3), (0, 1, 2, 3, 4)])
def test_an_update_without_a_backward_has_no_gradient_and_is_found(tmp_path, left_out):
    done = train(tmp_path, LeavesOut(*left_out))
    net = Small().net
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
    for update, batch in zip(done.updates, make_loader(), strict=True):
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"] = update.lr[0]
        if update.batch_idx in left_out:
            stated = update.loss, update.objective, update.grad_norm, update.grad_norm_clipped
            assert stated == (None, None, None, None)
        else:
            loss = (net(batch[0]) - batch[1]).square().mean()
            loss.backward()
            assert update.loss == loss.item()
            whole = norm_of(p.grad for p in net.parameters())
            assert update.grad_norm == pytest.approx(whole, rel=1e-12)
        assert (update.micro_batches, update.global_step) == (1, update.batch_idx + 1)
        optimizer.step()
    every = len(left_out) == BATCHES  # then nothing has been trained
    assert done.found == {"NO-GRADIENT": "error" if every else "warning"}
    assert f"{len(left_out)} of {BATCHES} updates are such" in done.measured("NO-GRADIENT")


@returns_none
def test_a_window_of_which_one_batch_is_left_out_has_a_gradient(tmp_path):
    done = train(tmp_path, LeavesOut(1), accumulate_grad_batches=5)
    (update,) = done.updates
    losses = [Small().loss(batch).item() for batch in make_loader()]
    assert update.loss == pytest.approx(sum(losses[:1] + losses[2:]) / 4, rel=1e-6)
    assert update.objective == pytest.approx(sum(losses[:1] + losses[2:]) / 5, rel=1e-6)
    assert done.found == {"PARTIAL-WINDOW": "warning"}  # four are divided by five


# ---- Lightning#12169: an overridden `optimizer_step` is counted, whether it steps or not ---------


class Overrides(Small):
    """Steps at the batches that `steps` allows; Lightning insists that the closure is called."""

    def __init__(self, steps: Any) -> None:
        super().__init__()
        self.steps = steps

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        if self.steps(batch_idx):
            optimizer.step(closure=closure)
        else:
            closure()


@ticks_early
@pytest.mark.parametrize(
    "steps", [lambda i: i % 2 == 0, lambda i: i == 3], ids=["every-other", "one"]
)
def test_counted_steps_without_an_update_are_found(tmp_path, steps):
    done = train(tmp_path, Overrides(steps))
    stepped = [i for i in range(BATCHES) if steps(i)]
    left_out = [i for i in range(BATCHES) if not steps(i)]
    assert done.trainer.global_step == BATCHES
    assert [(u.batch_idx, u.global_step, u.micro_batches) for u in done.updates] == [
        (i, i + 1, 1) for i in stepped
    ]
    assert done.events("counted_without_update") == [
        {"count": 1, "global_step": i + 1} for i in left_out
    ]
    assert done.found["NO-UPDATE"] == "warning"
    assert f"{len(left_out)} counted steps" in done.measured("NO-UPDATE")
    first = list(make_loader())[stepped[0]]  # what was not applied before it has no part in it
    assert done.updates[0].objective == Small().loss(first).item()


class Accumulates(Small):
    """Accumulates two batches by itself: Lightning is told to step and to clear at each."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        if batch_idx % 2:
            optimizer.step(closure=closure)
            optimizer.zero_grad()
        else:
            closure()

    def optimizer_zero_grad(self, *args: Any) -> None:
        pass


@ticks_early
def test_a_module_that_accumulates_by_itself_keeps_both_batches(tmp_path):
    done = train(tmp_path, Accumulates(), limit_train_batches=4)
    assert [(u.batch_idx, u.micro_batches) for u in done.updates] == [(1, 2), (3, 2)]
    losses = [Small().loss(batch).item() for batch in make_loader()]
    assert done.updates[0].objective == pytest.approx(sum(losses[:2]), rel=1e-6)


def test_an_override_that_always_steps_is_silent(tmp_path):
    done = train(tmp_path, Overrides(lambda batch_idx: True))
    assert len(done.updates) == BATCHES
    assert done.found == {}


# ---- Steps that Lightning does not know of -------------------------------------------------------


class Raw(Manual):
    """Steps the optimizer itself, which Lightning does not see."""

    def __init__(self, *, raw: bool = True) -> None:
        super().__init__()
        self.raw = raw

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers(use_pl_optimizer=not self.raw)
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()


@pytest.mark.parametrize("epochs", [1, 2])
def test_raw_steps_are_recorded_and_found(tmp_path, epochs):
    done = train(tmp_path, Raw(), max_epochs=epochs)
    same = train(tmp_path / "seen", Raw(raw=False), max_epochs=epochs)
    assert done.trainer.global_step == 0
    assert same.trainer.global_step == epochs * BATCHES
    assert [u.global_step for u in done.updates] == [0] * epochs * BATCHES
    assert [u.global_step for u in same.updates] == list(range(1, epochs * BATCHES + 1))
    assert [(u.objective, u.grad_norm) for u in done.updates] == [
        (u.objective, u.grad_norm) for u in same.updates
    ]
    assert done.found == {"UNCOUNTED": "warning"}
    assert f"{epochs * BATCHES} updates of optimizer 0 were" in done.measured("UNCOUNTED")
    assert same.found == {}


class StepsTwice(Small):
    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        optimizer.step(closure=closure)
        if batch_idx in (1, 2):
            optimizer.optimizer.step()


def test_a_second_step_with_one_batch_is_an_update_of_no_micro_batch(tmp_path):
    done = train(tmp_path, StepsTwice())
    assert [u.micro_batches for u in done.updates] == [1, 1, 0, 1, 0, 1, 1]
    assert [u.global_step for u in done.updates] == [1, 2, 2, 3, 3, 4, 5]
    assert [u.objective is None for u in done.updates] == [n in (2, 4) for n in range(7)]
    again = [done.updates[2].grad_norm, done.updates[4].grad_norm]  # the same gradient, once more
    assert again == [done.updates[1].grad_norm, done.updates[3].grad_norm]
    assert done.events("uncounted_update") == [
        {"optimizer": 0, "count": 1, "global_step": 2},
        {"optimizer": 0, "count": 1, "global_step": 3},
    ]
    assert done.found == {"UNCOUNTED": "warning"}


class StepsLate(Small):
    """Steps once more where the batch is done, or where the epoch is."""

    def __init__(self, hook: str) -> None:
        super().__init__()
        setattr(self, hook, self.again)

    def again(self, *args: Any) -> None:
        self.trainer.optimizers[0].step()


@pytest.mark.parametrize(
    ("hook", "times"),
    [("on_train_batch_end", BATCHES), ("on_train_epoch_end", 1), ("on_train_start", 1)],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_between_batches_is_not_taken_for_one_that_counts(tmp_path, hook, times, accumulate):
    done = train(tmp_path, StepsLate(hook), accumulate_grad_batches=accumulate)
    counted = -(-BATCHES // accumulate)
    assert done.trainer.global_step == counted
    assert len(done.updates) == counted + times
    assert sum(event["count"] for event in done.events("uncounted_update")) == times
    assert done.events("counted_without_update") == []
    assert done.updates[-1].global_step == counted
    assert done.found["UNCOUNTED"] == "warning"


class Inner(Small):
    """Trains a part of itself within `training_step`, with an optimizer of its own."""

    def __init__(self, *, given: bool) -> None:
        super().__init__(interval=None)
        self.head = nn.Linear(1, 1)
        self.inner = torch.optim.SGD(self.head.parameters(), lr=0.5)
        self.given = given

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.given:
            self.inner.zero_grad()
            (self.head(batch[1]) - 1).square().mean().backward()
            self.inner.step()
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), lr=RATE)


def head_losses() -> list[float]:
    """What the inner optimizer differentiates."""
    head = Inner(given=True).head
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5)
    losses = []
    for batch in make_loader():
        optimizer.zero_grad()
        loss = (head(batch[1]) - 1).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("accumulate", [1, 2])
def test_an_optimizer_inside_the_closure_of_another_is_one_of_its_own(tmp_path, accumulate):
    done = train(tmp_path / "a", Inner(given=True), accumulate_grad_batches=accumulate)
    assert [u.objective for u in done.of(1)] == head_losses()
    assert [u.lr for u in done.of(1)] == [[0.5]] * BATCHES
    (found,) = done.events("optimizer_found")
    assert (found["optimizer"], found["parameters"]) == (1, 2)
    assert {event["optimizer"] for event in done.events("uncounted_update")} == {1}
    assert done.found["OPTIMIZER-FOUND"] == done.found["UNCOUNTED"] == "warning"
    alone = train(tmp_path / "b", Inner(given=False), accumulate_grad_batches=accumulate)
    seen = [
        (u.update, u.global_step, u.objective, u.grad_norm, u.micro_batches) for u in done.of(0)
    ]
    assert seen == [
        (u.update, u.global_step, u.objective, u.grad_norm, u.micro_batches) for u in alone.updates
    ]
    assert not {"OPTIMIZER-FOUND", "UNCOUNTED"} & set(alone.found)


class Skips(Manual):
    """Accumulates two batches, and leaves a batch out that it does not like."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            return
        optimizer = self.optimizers()
        self.manual_backward(self.loss(batch) / 2)
        if batch_idx % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()


def test_a_batch_without_a_backward_has_no_part_in_a_manual_update(tmp_path):
    done = train(tmp_path, Skips())
    assert [(u.batch_idx, u.micro_batches) for u in done.updates] == [(2, 2), (4, 2)]
    losses = [Small().loss(batch).item() for batch in make_loader()]
    assert done.updates[0].objective == pytest.approx(sum(losses[1:3]) / 2, rel=1e-6)
    assert [u.divisor for u in done.updates] == [None, None]  # only the module knows it
    assert done.found == {}


def recorded_counts(done: Recorded) -> tuple[int, int]:
    return len(done.updates), done.trainer.global_step


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_healthy_training_counts_alike_and_is_silent(tmp_path, accumulate):
    options = {"accumulate_grad_batches": accumulate, "limit_train_batches": 3, "max_epochs": 2}
    done = train(tmp_path, Small(), **options)
    assert recorded_counts(done) == (6 // accumulate, 6 // accumulate)
    assert done.recording.events == ()
    assert done.found == {}

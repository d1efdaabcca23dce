"""Loops with optimizers of their own kind: several of them, closures, one that wraps another.

Every report has a sibling with other numbers and a healthy neighbour that must stay silent. The
numbers are those of the reports' issues in Lightning's tracker.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.callbacks.recorded import Gan, Manual, train
from tests.callbacks.small import BATCHES, RATE, Small, make_loader, norm_of
from traingen.records import ClosureFacts, SchedulerState

# ---- Lightning#17958: global_step counts every optimizer -----------------------------------------


@pytest.mark.parametrize(("steps", "batches"), [(10, 5), (6, 3)])
def test_two_optimizers_share_one_counter_which_is_said(tmp_path, steps, batches):
    done = train(tmp_path, Gan(), max_steps=steps, max_epochs=9)
    assert len(done.of(0)) == len(done.of(1)) == batches
    assert [(u.optimizer, u.update, u.global_step) for u in done.updates] == [
        (step % 2, step // 2 + 1, step + 1) for step in range(steps)
    ]
    assert done.found == {"GLOBAL-STEP": "info"}
    rose = f"rose by {steps - 1} over {batches - 1} of optimizer 0 and {batches} of optimizer 1"
    assert rose in done.measured("GLOBAL-STEP")  # since the first one


def test_one_optimizer_by_hand_has_a_counter_of_its_own(tmp_path):
    class One(Manual):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    done = train(tmp_path, One())
    assert [u.global_step for u in done.updates] == [1, 2, 3, 4, 5]
    assert done.found == {}


# ---- Several optimizers: each has its own numbers ------------------------------------------------

Seen = tuple[int, float, float, float]  # batch, objective, norm, rate


def gan_by_hand(model: Gan, *, fall: float = 1.0) -> tuple[list[Seen], list[Seen]]:
    """The updates of both optimizers in a plain loop; the second's rate falls at each of them."""
    own = copy.deepcopy(model)
    generator, discriminator = own.configure_optimizers()
    seen: tuple[list[Seen], list[Seen]] = ([], [])

    def apply(number: int, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
        (group,) = optimizer.param_groups
        norm = norm_of(p.grad for p in group["params"])
        seen[number].append((batch_idx, sum(losses), norm, group["lr"]))
        optimizer.step()

    for batch_idx, batch in enumerate(make_loader()):
        if batch_idx % own.every == 0:
            generator.zero_grad()
            loss = own.generator_loss(batch)
            loss.backward()
            apply(0, generator, [loss.item()])
        discriminator.zero_grad()
        losses = []
        for loss in own.discriminator_losses(batch):
            loss.backward()
            losses.append(loss.item())
        apply(1, discriminator, losses)
        discriminator.param_groups[0]["lr"] *= fall
    return seen


@pytest.mark.parametrize("every", [1, 2, 3])
def test_each_optimizer_has_the_objective_and_the_norm_of_a_plain_loop(tmp_path, every):
    done = train(tmp_path, Gan(every=every))
    for optimizer, by_hand in enumerate(gan_by_hand(Gan(every=every))):
        updates = done.of(optimizer)
        assert [u.update for u in updates] == list(range(1, len(by_hand) + 1))
        assert [u.batch_idx for u in updates] == [batch for batch, *_ in by_hand]
        assert [u.micro_batches for u in updates] == [1] * len(by_hand)
        assert [u.objective for u in updates] == [objective for _, objective, *_ in by_hand]
        assert [u.loss for u in updates] == [u.objective for u in updates]
        norms = [norm for *_, norm, _ in by_hand]
        assert [u.grad_norm for u in updates] == pytest.approx(norms, rel=1e-12)
        assert [u.lr for u in updates] == [[rate] for *_, rate in by_hand]
    assert [u.batch.digest for u in done.of(0)] == [u.batch.digest for u in done.of(1)][::every]
    assert done.recording.events == ()
    assert done.found == {"GLOBAL-STEP": "info"}


class Logs(Gan):
    """Logs each loss before its own step; the generator may step after several batches."""

    def __init__(self, *, accumulate: int = 1) -> None:
        super().__init__()
        self.accumulate = accumulate
        self.logged: tuple[list[float], list[float]] = [], []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        generator, discriminator = self.optimizers()
        loss = self.discriminator_losses(batch)[0]
        self.note("d_loss", loss, 1)
        discriminator.zero_grad()
        self.manual_backward(loss)
        discriminator.step()
        loss = self.generator_loss(batch)
        self.note("g_loss", loss, 0)
        if batch_idx % self.accumulate == 0:
            generator.zero_grad()
        self.manual_backward(loss)
        if (batch_idx + 1) % self.accumulate == 0:
            generator.step()

    def note(self, name: str, loss: torch.Tensor, optimizer: int) -> None:
        self.log(name, loss)
        self.logged[optimizer].append(loss.item())


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_term_goes_to_the_first_step_that_follows_it_in_its_batch(tmp_path, accumulate):
    model = Logs(accumulate=accumulate)
    done = train(tmp_path, model, limit_train_batches=4)
    generator, discriminator = model.logged
    assert [u.loss_terms for u in done.of(1)] == [{"d_loss": one} for one in discriminator]
    windows = [generator[k : k + accumulate] for k in range(0, 4, accumulate)]
    assert [u.loss_terms for u in done.of(0)] == [
        {"g_loss": pytest.approx(sum(own) / len(own), rel=1e-12)} for own in windows
    ]


class Twice(Manual):
    """Two steps of one optimizer on each batch, with a term before each."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        for name in ("one", "other"):
            loss = self.loss(batch)
            self.log(name, loss)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()


def test_each_of_two_steps_on_a_batch_has_its_own_terms_and_the_place_of_the_batch(tmp_path):
    done = train(tmp_path, Twice(), max_epochs=2)
    assert [list(u.loss_terms) for u in done.updates] == [["one"], ["other"]] * 2 * BATCHES
    assert [next(iter(u.loss_terms.values())) for u in done.updates] == [
        u.objective for u in done.updates
    ]
    assert [(u.epoch, u.batch_idx, u.total_batch_idx) for u in done.updates] == [
        (epoch, batch, epoch * BATCHES + batch)
        for epoch in range(2)
        for batch in range(BATCHES)
        for _ in range(2)
    ]
    assert [u.micro_batches for u in done.updates] == [1, 0] * 2 * BATCHES
    stepped = [u.batches_that_stepped for u in done.updates]
    assert stepped[::2] == stepped[1::2]
    assert None not in stepped


class AfterTheEpoch(Manual):
    """Steps once more when an epoch has ended, on the gradients that still stand."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()

    def on_train_epoch_end(self) -> None:
        self.optimizers().step()


def test_a_step_on_no_batch_has_no_place(tmp_path):
    done = train(tmp_path, AfterTheEpoch())
    assert [u.batch_idx for u in done.updates] == [*range(BATCHES), None]
    assert [u.micro_batches for u in done.updates] == [1] * BATCHES + [0]


class Scheduled(Gan):
    """The second optimizer's rate falls after each of its updates, the first's stays."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        self.lr_schedulers()[1].step()

    def configure_optimizers(self) -> Any:
        optimizers = super().configure_optimizers()
        lr_scheduler = torch.optim.lr_scheduler
        return optimizers, [
            lr_scheduler.ConstantLR(optimizers[0], factor=1.0),
            lr_scheduler.ExponentialLR(optimizers[1], 0.5),
        ]


def test_each_optimizer_has_its_own_scheduler(tmp_path):
    done = train(tmp_path, Scheduled())
    assert [scheduler.optimizer for scheduler in done.recording.run.schedulers] == [0, 1]
    by_hand = gan_by_hand(Gan(), fall=0.5)
    for optimizer in (0, 1):
        rates = [rate for *_, rate in by_hand[optimizer]] if optimizer else [0.1] * BATCHES
        assert [u.lr for u in done.of(optimizer)] == [[pytest.approx(rate)] for rate in rates]
        assert [u.scheduler for u in done.of(optimizer)] == [
            [
                SchedulerState(id=0, last_epoch=0, ticks=0),
                SchedulerState(id=1, last_epoch=n, ticks=n),
            ]
            for n in range(BATCHES)
        ]
    assert done.found == {"GLOBAL-STEP": "info"}


class Critic(Gan):
    """Several updates of the discriminator for one of the generator, all with one batch."""

    TIMES = 3

    def training_step(self, batch: Any, batch_idx: int) -> None:
        generator, critic = self.optimizers()
        for _ in range(self.TIMES):
            critic.zero_grad()
            for loss in self.discriminator_losses(batch):
                self.manual_backward(loss)
            critic.step()
        generator.zero_grad()
        self.manual_backward(self.generator_loss(batch))
        generator.step()


def test_several_updates_with_one_batch_have_their_own_objective(tmp_path):
    done = train(tmp_path, Critic(), limit_train_batches=2)
    model = Critic()
    _, optimizer = model.configure_optimizers()
    batch = next(iter(make_loader()))
    for number, update in enumerate(done.of(1)[: Critic.TIMES]):
        optimizer.zero_grad()
        losses = model.discriminator_losses(batch)
        for loss in losses:
            loss.backward()
        optimizer.step()
        assert update.micro_batches == (1 if number == 0 else 0)
        assert update.objective == sum(loss.item() for loss in losses)
        assert update.loss == update.objective  # both are parts of the loss of one batch
        assert update.micro_losses == [update.loss]
    assert [u.update for u in done.of(1)] == [1, 2, 3, 4, 5, 6]
    assert [u.micro_batches for u in done.of(0)] == [1, 1]
    assert done.recording.events == ()


# ---- Lightning#4083, #4188: closures that are evaluated several times ----------------------------


class Lbfgs(Small):
    def __init__(self, *, evaluations: int) -> None:
        super().__init__(interval=None)
        self.evaluations = evaluations

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("mse", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=self.evaluations)


def lbfgs_by_hand(evaluations: int) -> tuple[list[list[float]], list[float], torch.nn.Module]:
    """The losses and the last norm of each update, and the trained module."""
    model = Lbfgs(evaluations=evaluations)
    optimizer = model.configure_optimizers()
    losses: list[list[float]] = []
    norms = []
    for batch in make_loader():
        losses.append([])

        def closure(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            losses[-1].append(loss.item())
            return loss

        optimizer.step(closure)
        norms.append(norm_of(p.grad for p in model.parameters()))
    return losses, norms, model


@pytest.mark.parametrize("evaluations", [4, 7])
def test_lbfgs_is_one_update_that_says_how_often_its_closure_ran(tmp_path, evaluations):
    model = Lbfgs(evaluations=evaluations)
    done = train(tmp_path, model)
    losses, norms, by_hand = lbfgs_by_hand(evaluations)
    assert {len(each) for each in losses} == {evaluations}
    assert [u.closure for u in done.updates] == [
        ClosureFacts(evaluations=evaluations, first_objective=each[0], last_objective=each[-1])
        for each in losses
    ]
    assert [u.global_step for u in done.updates] == [1, 2, 3, 4, 5]
    assert [u.micro_batches for u in done.updates] == [1] * BATCHES
    assert [u.objective for u in done.updates] == [each[-1] for each in losses]
    assert [u.loss_terms for u in done.updates] == [{"mse": each[-1]} for each in losses]
    assert [u.grad_norm for u in done.updates] == pytest.approx(norms, rel=1e-12)
    for one, other in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert torch.equal(one, other)
    assert done.found == {"CLOSURE": "info"}
    assert f"{evaluations} evaluations" in done.measured("CLOSURE")


class OwnClosure(Manual):
    """Gives an optimizer a closure that it evaluates once."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.loss(batch)
            self.manual_backward(loss)
            return loss

        optimizer.step(closure=closure)


def test_a_closure_that_is_evaluated_once_is_an_ordinary_update(tmp_path):
    done = train(tmp_path, OwnClosure())
    assert [u.closure for u in done.updates] == [None] * BATCHES
    assert [u.global_step for u in done.updates] == [1, 2, 3, 4, 5]
    first = next(iter(make_loader()))
    assert done.updates[0].objective == Small().loss(first).item()
    assert done.found == {}


# ---- An optimizer that wraps another: SAM, whole and in two steps --------------------------------


class Sam(torch.optim.Optimizer):
    """Sharpness-aware: the gradient of a second evaluation, uphill from the weights, is applied."""

    def __init__(self, parameters: Any, *, rho: float = 0.05) -> None:
        super().__init__(parameters, {"rho": rho, "lr": RATE})
        self.base = torch.optim.SGD(self.param_groups, lr=RATE)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        parameters = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            uphill = p.grad * (self.param_groups[0]["rho"] / norm)
            self.state[p]["uphill"] = uphill
            p.add_(uphill)

    @torch.no_grad()
    def second_step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(self.state[p]["uphill"])
        self.base.step()

    def step(self, closure: Any = None) -> Any:
        evaluate = torch.enable_grad()(closure)
        loss = evaluate()
        self.first_step()
        evaluate()
        self.second_step()
        return loss


def sam_by_hand() -> list[tuple[float, float, float]]:
    """First objective, second objective and its norm, of each update."""
    model = Small()
    sam = Sam(model.parameters())
    seen: list[tuple[float, float, float]] = []
    for batch in make_loader():
        objectives = []
        for finish in (sam.first_step, sam.second_step):
            sam.zero_grad()
            loss = model.loss(batch)
            loss.backward()
            objectives.append(loss.item())
            norm = norm_of(p.grad for p in model.parameters())
            finish()
        seen.append((objectives[0], objectives[1], norm))
    return seen


class WholeSam(Small):
    def configure_optimizers(self) -> Any:
        return Sam(self.parameters())


class HalvedSam(Manual):
    """Calls both halves itself: what steps is the optimizer inside, which Lightning cannot see."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        sam = self.optimizers()
        for finish in (sam.first_step, sam.second_step):
            sam.zero_grad()
            self.manual_backward(self.loss(batch))
            finish()

    def configure_optimizers(self) -> Any:
        return Sam(self.parameters())


def test_an_optimizer_that_wraps_another_is_counted_once(tmp_path):
    done = train(tmp_path, WholeSam())
    by_hand = sam_by_hand()
    assert [u.global_step for u in done.updates] == [1, 2, 3, 4, 5]
    assert [u.closure for u in done.updates] == [
        ClosureFacts(evaluations=2, first_objective=first, last_objective=second)
        for first, second, _ in by_hand
    ]
    norms = [norm for *_, norm in by_hand]
    assert [u.grad_norm for u in done.updates] == pytest.approx(norms, rel=1e-12)
    assert done.recording.events == ()
    assert done.found == {"CLOSURE": "info"}


def test_two_halves_of_a_step_behind_the_loops_back_are_found(tmp_path):
    done = train(tmp_path, HalvedSam())
    by_hand = sam_by_hand()
    assert done.trainer.global_step == 0
    assert [(u.optimizer, u.update, u.micro_batches) for u in done.updates] == [
        (0, number, 1) for number in range(1, BATCHES + 1)
    ]
    assert [u.objective for u in done.updates] == [second for _, second, _ in by_hand]
    norms = [norm for *_, norm in by_hand]
    assert [u.grad_norm for u in done.updates] == pytest.approx(norms, rel=1e-12)
    assert done.found == {"UNCOUNTED": "warning"}


class Bare(torch.optim.Optimizer):
    """Wraps an optimizer without being made as one: torch calls no hook of its own step."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups, self.defaults, self.state = inner.param_groups, {}, inner.state

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)

    def state_dict(self) -> Any:
        return self.inner.state_dict()


class Wrapped(Small):
    def configure_optimizers(self) -> Any:
        return Bare(torch.optim.SGD(self.parameters(), lr=RATE))


class WrappedByHand(Wrapped):
    automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()


@pytest.mark.parametrize("model", [Wrapped, WrappedByHand])
def test_an_optimizer_whose_own_step_is_not_heard_counts_by_the_one_inside(tmp_path, model):
    done = train(tmp_path, model())
    assert [u.global_step for u in done.updates] == [1, 2, 3, 4, 5]
    first = next(iter(make_loader()))
    assert done.updates[0].objective == Small().loss(first).item()
    assert done.recording.events == ()
    assert done.found == {}

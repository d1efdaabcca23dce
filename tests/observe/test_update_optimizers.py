"""Each optimizer's update states the objective that its own gradients came from."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.observe.training import EPOCHS, UPDATES, loop_with_everything, train
from tests.observe.watched import Watched, counts, norm_of, watching


def make_batches(count: int = 3) -> list[torch.Tensor]:
    return list(torch.randn(count, 4, 2, generator=torch.Generator().manual_seed(7)))


def make_net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))


def make_sgd(*models: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(itertools.chain(*(m.parameters() for m in models)), lr=lr)


# One optimizer: which backwards are in the objective


def differentiate_list(loss: torch.Tensor) -> list[float]:
    torch.autograd.backward([loss, 2 * loss])
    return [loss.item(), 2 * loss.item()]


def differentiate_weighed(loss: torch.Tensor) -> list[float]:
    several = torch.stack([loss, 3 * loss])
    several.backward(gradient=torch.tensor([1.0, 0.5]))
    return [loss.item() + 1.5 * loss.item()]


def differentiate_twice(loss: torch.Tensor) -> list[float]:
    loss.backward(retain_graph=True)
    (3 * loss).backward()
    return [loss.item(), 3 * loss.item()]


@pytest.mark.parametrize(
    "differentiate", [differentiate_list, differentiate_weighed, differentiate_twice]
)
def test_the_objective_is_the_sum_of_what_was_differentiated(differentiate):
    model = make_net()
    optimizer, sums = make_sgd(model), []
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            optimizer.zero_grad()
            sums.append(sum(differentiate(model(batch).square().mean())))
            optimizer.step()
    updates = watched.updates()
    assert [u.objective for u in updates] == pytest.approx(sums, rel=1e-6)
    assert [u.loss for u in updates] == pytest.approx(sums, rel=1e-6)
    assert [u.micro_batches for u in updates] == [1, 1, 1]


def test_recomputing_in_the_backward_adds_no_root():
    model = make_net()
    optimizer, losses = make_sgd(model), []
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            optimizer.zero_grad()
            inputs = batch.clone().requires_grad_()
            loss = checkpoint(model, inputs, use_reentrant=True).square().mean()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
    assert [u.objective for u in watched.updates()] == losses
    assert [u.loss for u in watched.updates()] == losses


def by_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    optimizer.zero_grad()


def by_optimizer_in_place(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    optimizer.zero_grad(set_to_none=False)


def by_module(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    nn.ModuleList([model, nn.Linear(1, 1)]).zero_grad(set_to_none=False)


def by_hand(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None


CLEARS = [by_optimizer, by_optimizer_in_place, by_module, by_hand]


@pytest.mark.parametrize("clear", CLEARS)
def test_what_was_cleared_before_the_step_is_in_no_objective(clear):
    model = make_net()
    optimizer = make_sgd(model)
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            clear(optimizer, model)
            model(batch).sum().backward()  # a trial, whose gradients are thrown away
            clear(optimizer, model)
            loss = model(batch).square().mean()
            loss.backward()
            norm = norm_of(model.parameters())
            optimizer.step()
            update = watched.updates()[-1]
            assert (update.objective, update.loss, update.micro_batches) == (
                loss.item(), loss.item(), 1,
            )  # fmt: skip
            assert update.grad_norm == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("clear", CLEARS)
def test_a_batch_whose_gradients_were_thrown_away_is_no_micro_batch(clear):
    model = make_net()
    optimizer = make_sgd(model)
    with watching(optimizer) as watched:
        for number, batch in enumerate(watched.over(make_batches(4))):
            loss = model(batch).square().mean()
            loss.backward()
            if number == 1:  # a loss that the loop does not trust
                clear(optimizer, model)
                continue
            if number == 3:
                optimizer.step()
                clear(optimizer, model)
            else:
                first = loss.item() if number == 2 else None
        (update,) = watched.updates()
    assert update.micro_batches == 2
    assert update.objective == pytest.approx(first + loss.item(), rel=1e-6)


def test_without_clearing_both_backwards_are_in_the_objective():
    model = make_net()
    optimizer = make_sgd(model)
    with watching(optimizer) as watched:
        losses = []
        for batch in watched.over(make_batches(2)):
            loss = model(batch).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    (update,) = watched.updates()
    assert update.objective == pytest.approx(sum(losses), rel=1e-6)
    assert (update.micro_batches, update.loss) == (2, None)


def test_clearing_a_part_of_the_gradients_takes_nothing_out():
    model = make_net()
    optimizer = make_sgd(model)
    with watching(optimizer) as watched:
        watched.begin()
        first = model(make_batches(1)[0]).sum()
        first.backward()
        model[0].zero_grad()
        second = model(make_batches(1)[0]).square().sum()
        second.backward()
        optimizer.step()
    (update,) = watched.updates()
    assert update.objective == pytest.approx(first.item() + second.item(), rel=1e-6)


def test_a_backward_that_reaches_only_other_gradients_is_not_ours():
    model, other = make_net(), make_net(1)
    optimizer = make_sgd(model)
    with watching(optimizer) as watched:
        watched.begin()
        other(make_batches(1)[0]).sum().backward()
        loss = model(make_batches(1)[0]).square().mean()
        loss.backward()
        (7 * model(make_batches(1)[0]).sum()).backward(inputs=list(other.parameters()))
        optimizer.step()
    assert [u.objective for u in watched.updates()] == [loss.item()]


def test_a_penalty_on_gradients_is_a_part_of_its_root():
    model = make_net()
    optimizer, losses = make_sgd(model), []
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            optimizer.zero_grad()
            inputs = batch.clone().requires_grad_()
            output = model(inputs).sum()
            (slope,) = torch.autograd.grad(output, inputs, create_graph=True)
            loss = output + 10 * (slope.norm(dim=1) - 1).square().mean()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
    assert [u.objective for u in watched.updates()] == losses
    assert [u.micro_batches for u in watched.updates()] == [1, 1, 1]


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
def test_gradients_that_can_be_differentiated_again_are_read_like_others():
    model = make_net()
    optimizer = make_sgd(model)
    with watching(optimizer, layer_norms=True) as watched:
        watched.begin()
        loss = model(make_batches(1)[0]).square().mean()
        loss.backward(create_graph=True)
        norm = norm_of(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
    (update,) = watched.updates()
    assert (update.objective, len(update.layer_norms)) == (loss.item(), 4)
    assert update.grad_norm == pytest.approx(norm, rel=1e-6)


def test_one_optimizer_of_several_models_is_one():
    models = [make_net(), make_net(1)]
    optimizer = make_sgd(*models)
    with watching(optimizer) as watched:
        watched.begin()
        losses = [model(make_batches(1)[0]).square().mean() for model in models]
        for loss in losses:
            loss.backward()
        norm = norm_of(p for m in models for p in m.parameters())
        optimizer.step()
    (update,) = watched.updates()
    assert update.objective == pytest.approx(sum(loss.item() for loss in losses), rel=1e-6)
    assert update.grad_norm == pytest.approx(norm, rel=1e-6)


def test_sparse_gradients_are_counted_and_measured():
    table = nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    sums, norms = [], []
    with watching(optimizer) as watched:
        for number in watched.over([1, 2]):
            optimizer.zero_grad()
            halves = [table(torch.tensor([number, 0, 0])).square().sum() for _ in range(2)]
            for half in halves:
                half.backward()
            sums.append(sum(half.item() for half in halves))
            norms.append(norm_of(table.parameters()))
            optimizer.step()
    assert [u.objective for u in watched.updates()] == pytest.approx(sums, rel=1e-6)
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(norms, rel=1e-6)
    assert [u.clipped for u in watched.updates()] == [False, False]


# Closures


class Closure:
    """Clears, differentiates and counts; clips if it is told to."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, clip: Any = None):
        self.model, self.optimizer, self.clip = model, optimizer, clip
        self.batch = torch.zeros(1, 2)
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.told: Callable[[torch.Tensor], None] = lambda loss: None

    def __call__(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.losses.append(loss.item())
        self.norms.append(norm_of(self.model.parameters()))
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.told(loss)
        return loss


def descend(clip: float | None = None, iterations: int = 3) -> tuple[Watched, list[Closure]]:
    """LBFGS over three batches, a closure for each."""
    model = make_net()
    optimizer, closures = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=iterations), []
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            closure = Closure(model, optimizer, clip)
            closure.batch = batch
            closure.told = lambda loss: watched.observer.term("fit", loss)
            optimizer.step(closure)
            closures.append(closure)
    return watched, closures


@pytest.mark.parametrize("iterations", [2, 4])
def test_an_update_of_several_evaluations_tells_the_first_and_the_last(iterations):
    watched, closures = descend(iterations=iterations)
    assert counts(watched.updates()) == [(0, 1), (0, 2), (0, 3)]
    for update, closure in zip(watched.updates(), closures, strict=True):
        assert update.closure.evaluations == len(closure.losses) == iterations
        assert update.closure.first_objective == closure.losses[0]
        assert update.closure.last_objective == update.objective == closure.losses[-1]
        assert update.objective < closure.losses[0]
        assert update.loss == closure.losses[-1]
        assert update.grad_norm == pytest.approx(closure.norms[-1], rel=1e-6)
        assert (update.micro_batches, update.clipped) == (1, False)


def test_terms_are_those_of_the_last_evaluation():
    watched, closures = descend()
    told = [update.loss_terms for update in watched.updates()]
    assert told == [{"fit": closure.losses[-1]} for closure in closures]


def test_a_clip_in_the_closure_is_that_of_the_last_evaluation():
    watched, closures = descend(clip=0.01)
    for update, closure in zip(watched.updates(), closures, strict=True):
        assert update.grad_norm == pytest.approx(closure.norms[-1], rel=1e-5)
        assert (update.grad_norm_source, update.clipped) == ("clip", True)
        assert update.grad_norm_clipped == pytest.approx(0.01, rel=1e-3)
    assert watched.events == []


def test_a_closure_that_is_evaluated_once_is_nothing_special():
    model = make_net()
    optimizer = make_sgd(model)
    closure = Closure(model, optimizer, clip=0.01)
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            closure.batch = batch
            closure.told = lambda loss: watched.observer.term("fit", loss)
            optimizer.step(closure)
    updates = watched.updates()
    assert [u.closure for u in updates] == [None] * 3
    assert [u.objective for u in updates] == closure.losses
    assert [u.loss_terms for u in updates] == [{"fit": loss} for loss in closure.losses]
    assert [u.grad_norm for u in updates] == pytest.approx(closure.norms, rel=1e-5)


def test_a_closure_that_clears_nothing_sums_up_its_evaluations():
    model, batch = make_net(), make_batches(1)[0]
    optimizer, losses = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=3), []

    def closure() -> torch.Tensor:
        loss = model(batch).square().mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    with watching(optimizer) as watched:
        watched.begin(batch)
        optimizer.step(closure)
    (update,) = watched.updates()
    assert update.objective == pytest.approx(sum(losses), rel=1e-6)
    assert update.closure.last_objective == losses[-1]


# Several optimizers


class Gan:
    """A generator and a discriminator with an optimizer each, trained by hand."""

    def __init__(self) -> None:
        torch.manual_seed(2)
        self.generator, self.discriminator = nn.Linear(2, 2), make_net()
        self.optimizers = [make_sgd(self.generator), make_sgd(self.discriminator, lr=0.05)]
        self.objectives: list[list[float]] = [[], []]
        self.norms: list[list[float]] = [[], []]

    def step(self, which: int, *losses: torch.Tensor) -> None:
        for loss in losses:
            loss.backward()
        model = (self.generator, self.discriminator)[which]
        self.objectives[which].append(sum(loss.item() for loss in losses))
        self.norms[which].append(norm_of(model.parameters()))
        self.optimizers[which].step()

    def train_discriminator(self, batch: torch.Tensor, *, detach: bool = True) -> None:
        self.optimizers[1].zero_grad()
        made = self.generator(batch)
        made = made.detach() if detach else made
        self.step(
            1, (self.discriminator(batch) - 1).square().mean(), self.discriminator(made).mean()
        )

    def train_generator(self, batch: torch.Tensor) -> None:
        self.optimizers[0].zero_grad()
        self.step(0, -self.discriminator(self.generator(batch)).mean())


def assert_told(gan: Gan, watched: Watched) -> None:
    for index in (0, 1):
        updates = watched.updates(index)
        assert [u.objective for u in updates] == pytest.approx(gan.objectives[index], rel=1e-6)
        assert [u.loss for u in updates] == pytest.approx(gan.objectives[index], rel=1e-6)
        assert [u.grad_norm for u in updates] == pytest.approx(gan.norms[index], rel=1e-6)
        assert [u.update for u in updates] == list(range(1, len(gan.norms[index]) + 1))
        assert {u.micro_batches for u in updates} <= {1}
    assert watched.events == []


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("generator_first", [True, False])
def test_each_of_two_optimizers_has_its_own_objective(generator_first, detach):
    gan = Gan()
    with watching(*gan.optimizers) as watched:
        for batch in watched.over(make_batches()):
            if generator_first:
                gan.train_generator(batch)
            gan.train_discriminator(batch, detach=detach)
            if not generator_first:
                gan.train_generator(batch)
    assert_told(gan, watched)
    assert len(watched.updates()) == 6
    assert [u.batch_idx for u in watched.updates()] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("detach", [True, False])
@pytest.mark.parametrize("every", [2, 3])
def test_a_generator_that_steps_now_and_then_takes_only_its_own_batch(every, detach):
    gan = Gan()
    with watching(*gan.optimizers) as watched:
        for number, batch in enumerate(watched.over(make_batches(7))):
            gan.train_discriminator(batch, detach=detach)
            if number % every == every - 1:
                gan.train_generator(batch)
    assert_told(gan, watched)
    assert [u.batch_idx for u in watched.updates(0)] == list(range(every - 1, 7, every))
    assert len(watched.updates(1)) == 7


def test_two_steps_on_one_batch_are_two_updates():
    gan = Gan()
    with watching(*gan.optimizers) as watched:
        for batch in watched.over(make_batches(2)):
            gan.train_discriminator(batch)
            gan.train_discriminator(batch)
            gan.train_generator(batch)
    assert counts(watched.updates()) == [(1, 1), (1, 2), (0, 1), (1, 3), (1, 4), (0, 2)]
    objectives = [u.objective for u in watched.updates(1)]
    assert objectives == pytest.approx(gan.objectives[1], rel=1e-6)
    assert [u.micro_batches for u in watched.updates(1)] == [1, 0, 1, 0]


def test_one_clip_over_all_gradients_belongs_to_who_has_some():
    gan = Gan()
    both = [*gan.generator.parameters(), *gan.discriminator.parameters()]
    with watching(*gan.optimizers) as watched:
        for batch in watched.over(make_batches()):
            for optimizer in gan.optimizers:
                optimizer.zero_grad()
            gan.discriminator(batch).square().mean().backward()
            nn.utils.clip_grad_norm_(both, 0.01)
            gan.optimizers[1].step()
            for optimizer in gan.optimizers:
                optimizer.zero_grad()
            (-gan.discriminator(gan.generator(batch)).mean()).backward()
            nn.utils.clip_grad_norm_(both, 0.01)
            gan.optimizers[0].step()
    assert [u.clipped for u in watched.updates()] == [True] * 6
    assert [u.grad_norm_source for u in watched.updates(1)] == ["clip"] * 3
    assert [u.grad_norm_source for u in watched.updates(0)] == ["measured"] * 3
    assert watched.events == []


@pytest.mark.parametrize("reaches", [False, True], ids=["not reached", "reached and cleared"])
@pytest.mark.parametrize("idle", [1, 3], ids=["every batch", "every third batch"])
def test_the_window_of_an_optimizer_that_does_not_step_stays_small(reaches, idle):
    first, second = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    optimizers = [torch.optim.SGD([p], lr=0.0) for p in (first, second)]
    watched = Watched(*optimizers, generators=(), digest_batches=False)
    windows = watched.observer._windows
    for number in range(300):
        watched.begin()
        watched.observer.term("fit", torch.ones(()))
        if number % idle:
            continue  # a batch that the loop leaves out
        watched.observer.backward_entered([torch.ones(())])
        for parameter in (first, second) if reaches else (first,):
            parameter.grad = torch.ones(1)
        watched.observer.backward_left()
        watched.observer.applied(optimizers[0], global_step=None)
        for optimizer in optimizers:
            optimizer.zero_grad()
            watched.observer.gradients_cleared(optimizer)
    assert watched.observer.updates_by_optimizer[1] == 0
    held = [len(w.batches) + len(w.roots) + len(w.clips) for w in windows]
    assert max(held) <= 1 + idle
    assert len(watched.observer._loose) <= 1


# Which optimizer it is


class Averaging:
    """A wrapper like Lookahead that is no optimizer of torch's: only the inner one is heard."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.param_groups = inner, inner.param_groups

    def step(self) -> None:
        self.inner.step()


class Sharing(torch.optim.Optimizer):
    """A wrapper that is one, with groups of its own, and whose inner one is stepped directly."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__([p for g in inner.param_groups for p in g["params"]], {"lr": 0.5})

    def step(self, closure: Any = None) -> None:
        raise AssertionError("the loop steps the inner one")


@pytest.mark.parametrize("wrap", [Averaging, Sharing])
def test_an_inner_optimizer_counts_as_the_one_that_wraps_it(wrap):
    model = make_net()
    inner = make_sgd(model)
    outer = wrap(inner)
    with watching(outer) as watched:
        for batch in watched.over(make_batches()):
            inner.zero_grad()
            model(batch).square().mean().backward()
            outer.inner.step()
    assert counts(watched.updates()) == [(0, 1), (0, 2), (0, 3)]
    assert [u.lr for u in watched.updates()] == [[g["lr"] for g in outer.param_groups]] * 3
    assert all(u.objective is not None for u in watched.updates())
    assert watched.events == []


def test_an_optimizer_that_nobody_named_is_found_once():
    model, other = make_net(), make_net(1)
    known, foreign = make_sgd(model), make_sgd(other, lr=0.7)
    foreign.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    losses = []
    with watching(known) as watched:
        for batch in watched.over(make_batches()):
            foreign.zero_grad()
            loss = other(batch).square().mean()
            loss.backward()
            foreign.step()
            losses.append(loss.item())
            model(batch).square().mean().backward()
            known.step()
            known.zero_grad()
    assert [name for name, _ in watched.events] == ["optimizer_found"]
    assert watched.events[0][1] == {
        "optimizer": 1, "class_path": "torch.optim.sgd.SGD", "groups": 2, "parameters": 15,
    }  # fmt: skip
    assert counts(watched.updates()) == [(1, 1), (0, 1), (1, 2), (0, 2), (1, 3), (0, 3)]
    assert [u.lr for u in watched.updates(1)] == [[0.7, 0.7]] * 3
    assert [u.objective for u in watched.updates(1)] == losses
    assert all(u.grad_norm > 0 for u in watched.updates(1))
    assert [(u.batch_idx, u.micro_batches) for u in watched.updates(1)] == [(0, 1), (1, 1), (2, 1)]
    assert watched.observer.updates_by_optimizer == [3, 3]


def test_an_optimizer_of_a_part_and_another_parameter_is_not_the_same():
    model, extra = make_net(), nn.Parameter(torch.ones(1))
    known = make_sgd(model)
    foreign = torch.optim.SGD([*model[0].parameters(), extra], lr=0.1)
    with watching(known) as watched:
        watched.begin()
        (model(make_batches(1)[0]).sum() + extra.sum()).backward()
        foreign.step()
    assert counts(watched.updates()) == [(1, 1)]
    assert [name for name, _ in watched.events] == ["optimizer_found"]


# Training is not changed


class OfEveryBatch(Watched):
    """Begins with every batch that is fetched; what steps is found."""

    def batch_fetched(self, loader: Any, iteration: int, batch: Any) -> None:
        self.begin(batch)


def test_training_whose_updates_are_recorded_ends_in_the_same_bits():
    everything = {
        "layer_norms": True, "update_ratios": True, "moment_norms": True, "digest_parameters": True,
    }  # fmt: skip
    watched = OfEveryBatch(generators=("torch", "python", "numpy"), **everything)
    assert train([watched], loop=loop_with_everything) == train(loop=loop_with_everything)
    assert [len(watched.updates(i)) for i in (0, 1)] == [UPDATES - 1, EPOCHS]
    assert [name for name, _ in watched.events] == [
        "optimizer_found", "skipped_step", "optimizer_found",
    ]  # fmt: skip
    assert [u.closure.evaluations for u in watched.updates(1)[1:]] == [3] * (EPOCHS - 1)
    assert all(u.clipped for u in watched.updates(0)[1:])  # its first clip was not yet its own


def test_an_observer_that_changes_gradients_is_caught():
    class Careless(OfEveryBatch):
        def backward_left(self) -> None:
            super().backward_left()
            for window in self.observer._windows:
                for gradient in window.gradients:
                    gradient.mul_(1 + 1e-6)

    watched, alone = (train(those, loop=loop_with_everything) for those in ([Careless()], []))
    assert watched["model.layers.0.weight"] != alone["model.layers.0.weight"]


# Times


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_seconds_of_an_update_are_those_of_its_work_without_its_waits():
    model, clock = make_net(), Clock()
    optimizer = make_sgd(model)
    with watching(optimizer, clock=clock) as watched:
        for wait, work in [(7.0, 1.0), (0.5, 2.0), (0.25, 3.0), (0.125, 4.0)]:
            clock.now += wait
            watched.begin()
            model(make_batches(1)[0]).sum().backward()
            clock.now += work
            if watched.batches % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
            clock.now += 0.0625  # of the loop's own, which is neither
            watched.observer.idle()
    # of the first batch it is not known since when it was waited for
    assert watched.times == [(1, 0, 3.0625, 0.5), (2, 0, 7.0625, 0.375)]


def test_without_a_batch_no_times_are_told():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with watching(optimizer, clock=Clock()) as watched:
        optimizer.step()
    assert (len(watched.updates()), watched.times) == (1, [])

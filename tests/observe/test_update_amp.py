"""Under a gradient scaler an update is told without its scale, and a step left out is no update."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.observe.watched import Watched, counts, norm_of, watching

SCALE = 8.0


def make_scaler(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **{"init_scale": SCALE, "growth_interval": 100} | options)


def make_net(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(2, 1)


def make_optimizer(model: nn.Module, *, fused: bool = False) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)


def make_batches(count: int = 3, *, bad: Sequence[int] = ()) -> list[torch.Tensor]:
    """Batches of which those numbered in `bad` make the gradients overflow."""
    batches = list(torch.randn(count, 4, 2, generator=torch.Generator().manual_seed(7)))
    for number in bad:
        batches[number] *= math.inf
    return batches


class Seen:
    """What the loop itself knows of its updates."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []  # of the gradients without the scale


def train(
    *,
    bad: Sequence[int] = (),
    unscale: bool = False,
    clip: float | None = None,
    fused: bool = False,
    scaler: torch.amp.GradScaler | None = None,
    update: bool = True,
) -> tuple[Watched, Seen, torch.amp.GradScaler]:
    """Three batches under a scaler; with `unscale` that happens before the clip."""
    model, seen = make_net(), Seen()
    optimizer, scaler = make_optimizer(model, fused=fused), scaler or make_scaler()
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches(bad=bad)):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            scaler.scale(loss).backward()
            scale = scaler.get_scale() if scaler.is_enabled() else 1.0
            seen.losses.append(loss.item())
            seen.norms.append(norm_of(model.parameters()) / scale)
            if unscale:
                scaler.unscale_(optimizer)
            if clip is not None:
                clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            if update:
                scaler.update()
    return watched, seen, scaler


def without(values: Sequence[float], bad: Sequence[int]) -> list[float]:
    return [value for number, value in enumerate(values) if number not in bad]


# Updates


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("scale", [8.0, 65536.0])
def test_objective_and_norm_are_told_without_the_scale(scale, unscale, fused):
    watched, seen, _ = train(scaler=make_scaler(init_scale=scale), unscale=unscale, fused=fused)
    updates = watched.updates()
    assert [u.objective for u in updates] == pytest.approx(seen.losses, rel=1e-6)
    assert [u.loss for u in updates] == pytest.approx(seen.losses, rel=1e-6)
    assert [u.grad_norm for u in updates] == pytest.approx(seen.norms, rel=1e-6)
    assert [u.grad_norm_clipped for u in updates] == [u.grad_norm for u in updates]
    assert [u.clipped for u in updates] == [False] * 3
    assert [u.amp_scale for u in updates] == [scale] * 3
    assert [u.amp_growth for u in updates] == [0, 1, 2]
    assert watched.events == []


@pytest.mark.parametrize("fused", [False, True])
def test_updates_under_a_scaler_are_those_of_the_same_training_without(fused):
    scaled = train(fused=fused)[0].updates()
    plain = train(fused=fused, scaler=make_scaler(enabled=False))[0].updates()
    for name in ("objective", "loss", "grad_norm", "lr", "clipped", "micro_batches", "rng"):
        ours, theirs = ([getattr(u, name) for u in side] for side in (scaled, plain))
        assert ours == theirs, name  # a power of two is no rounding
    assert [u.amp_scale for u in plain] == [None] * 3


def test_a_disabled_scaler_leaves_no_step_out():
    watched, seen, _ = train(scaler=make_scaler(enabled=False), clip=1e-3)
    assert [u.objective for u in watched.updates()] == seen.losses
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(seen.norms, rel=1e-6)
    assert watched.events == []


def test_a_scale_that_grows_is_told_as_it_was_at_begin():
    watched, seen, _ = train(scaler=make_scaler(growth_interval=1))
    assert [u.amp_scale for u in watched.updates()] == [8.0, 16.0, 32.0]
    assert [u.objective for u in watched.updates()] == pytest.approx(seen.losses, rel=1e-6)
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(seen.norms, rel=1e-6)


# Steps left out


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("bad", [[0], [1], [0, 1], [2]])
def test_a_step_that_is_left_out_is_an_event_and_no_update(bad, unscale, fused):
    watched, seen, scaler = train(bad=bad, unscale=unscale, fused=fused)
    updates = watched.updates()
    assert [u.objective for u in updates] == pytest.approx(without(seen.losses, bad), rel=1e-6)
    assert [u.grad_norm for u in updates] == pytest.approx(without(seen.norms, bad), rel=1e-6)
    assert [u.batch_idx for u in updates] == [n for n in range(3) if n not in bad]
    assert [u.micro_batches for u in updates] == [1] * len(updates)
    assert watched.events == [
        (
            "skipped_step",
            {
                "optimizer": 0,
                "reason": "scaler",
                "amp_scale": SCALE / 2**n,
                "amp_scale_after": SCALE / 2 ** (n + 1),
                "global_step": None,
            },
        )
        for n in range(len(bad))
    ]
    assert scaler.get_scale() == SCALE / 2 ** len(bad)


def test_a_step_left_out_is_told_after_the_updates_before_it():
    watched, _, _ = train(bad=[1])
    told = [(getattr(r, "event", "update"), r.update) for r in watched.records[:3]]
    assert told == [("update", 1), ("skipped_step", 1), ("update", 2)]


def test_a_scale_that_is_never_updated_is_told_as_unknown():
    model = make_net()
    optimizer, scaler = make_optimizer(model), make_scaler()
    with watching(optimizer) as watched:
        watched.begin()
        (scaler.scale(model(torch.ones(1, 2)).sum()) * math.inf).backward()
        scaler.step(optimizer)
    ((name, details),) = watched.events
    assert (name, details["amp_scale"], details["amp_scale_after"]) == ("skipped_step", 8.0, None)
    assert watched.updates() == []


def test_only_the_optimizer_whose_gradients_overflow_is_left_out():
    models = [make_net(), make_net(1)]
    optimizers, scaler = [make_optimizer(m) for m in models], make_scaler()
    with watching(*optimizers) as watched:
        for number, batch in enumerate(watched.over(make_batches())):
            for index, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
                optimizer.zero_grad()
                factor = math.inf if (number, index) == (1, 1) else 1.0
                scaler.scale(model(batch).square().mean() * factor).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
    assert counts(watched.updates()) == [(0, 1), (1, 1), (0, 2), (0, 3), (1, 2)]
    assert [(name, details["optimizer"]) for name, details in watched.events] == [
        ("skipped_step", 1)
    ]


def test_accumulated_batches_of_a_step_left_out_are_in_no_update():
    model = make_net()
    optimizer, scaler, losses = make_optimizer(model), make_scaler(), []
    with watching(optimizer) as watched:
        for number, batch in enumerate(watched.over(make_batches(6, bad=[2]))):
            loss = model(batch).square().mean() / 2
            scaler.scale(loss).backward()
            losses.append(loss.item())
            if number % 2:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    updates = watched.updates()
    assert [u.objective for u in updates] == pytest.approx(
        [sum(losses[:2]), sum(losses[4:])], rel=1e-6
    )
    assert [(u.micro_batches, u.batch_idx) for u in updates] == [(2, 1), (2, 5)]
    assert [name for name, _ in watched.events] == ["skipped_step"]


# Which roots have the scale in them


def separately(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    scaler.scale(first).backward(retain_graph=True)
    scaler.scale(second).backward()
    return [first, second]


def kept_and_separately(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    one, other = scaler.scale(first), scaler.scale(second)
    other.backward(retain_graph=True)
    one.backward()
    return [first, second]


def as_a_list(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    torch.autograd.backward(scaler.scale([first, second]))
    return [first, second]


def together(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    scaler.scale(first + second).backward()
    return [first, second]


def summed_after(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    (scaler.scale(first) + scaler.scale(second)).backward()
    return [first, second]


def divided_after(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    (scaler.scale(first) / 2).backward(retain_graph=True)
    (scaler.scale(second) / 2).backward()
    return [first / 2, second / 2]


def kept_and_divided(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    one, other = scaler.scale(first), scaler.scale(second)
    (one / 2).backward(retain_graph=True)
    (other / 2).backward()
    return [first / 2, second / 2]


def weighed(scaler: torch.amp.GradScaler, first: Any, second: Any) -> list[Any]:
    scaler.scale(torch.stack([first, second])).backward(gradient=torch.tensor([1.0, 3.0]))
    return [first, 3 * second]


SCALED = [
    separately, kept_and_separately, as_a_list, together, summed_after, divided_after,
    kept_and_divided, weighed,
]  # fmt: skip


@pytest.mark.parametrize("differentiate", SCALED)
def test_the_scale_is_divided_out_of_whatever_was_made_of_a_scaled_loss(differentiate):
    model = make_net()
    optimizer, scaler = make_optimizer(model), make_scaler()
    sums, norms = [], []
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            optimizer.zero_grad()
            output = model(batch)
            losses = differentiate(scaler, output.square().mean(), output.mean())
            sums.append(sum(loss.item() for loss in losses))
            norms.append(norm_of(model.parameters()) / SCALE)
            scaler.step(optimizer)
            scaler.update()
    assert [u.objective for u in watched.updates()] == pytest.approx(sums, rel=1e-5)
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(norms, rel=1e-5)


@pytest.mark.parametrize("kept", [False, True], ids=["then", "while a scaled loss waits"])
def test_a_root_that_was_never_scaled_is_told_as_it_is(kept):
    models = [make_net(), make_net(1)]
    optimizers, scaler, losses = [make_optimizer(m) for m in models], make_scaler(), []
    with watching(*optimizers) as watched:
        for batch in watched.over(make_batches()):
            scaled, plain = (model(batch).square().mean() for model in models)
            for optimizer in optimizers:
                optimizer.zero_grad()
            waiting = scaler.scale(scaled)
            if not kept:
                waiting.backward()
            plain.backward()
            norm = norm_of(models[1].parameters())
            optimizers[1].step()
            assert watched.updates(1)[-1].grad_norm == pytest.approx(norm, rel=1e-6)
            if kept:
                waiting.backward()
            scaler.step(optimizers[0])
            scaler.update()
            losses.append((scaled.item(), plain.item()))
    told = zip(*([u.objective for u in watched.updates(i)] for i in (0, 1)), strict=True)
    assert [one for pair in told for one in pair] == pytest.approx(
        [one for pair in losses for one in pair], rel=1e-6
    )


def test_a_penalty_on_scaled_gradients_is_not_scaled_twice():
    model = make_net()
    optimizer, scaler, losses = make_optimizer(model), make_scaler(), []
    with watching(optimizer) as watched:
        for batch in watched.over(make_batches()):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            scaled = torch.autograd.grad(
                scaler.scale(loss), list(model.parameters()), create_graph=True
            )
            total = loss + sum((g / scaler.get_scale()).square().sum() for g in scaled)
            scaler.scale(total).backward()
            losses.append(total.item())
            scaler.step(optimizer)
            scaler.update()
    assert [u.objective for u in watched.updates()] == pytest.approx(losses, rel=1e-6)


def test_each_of_two_scalers_divides_by_its_own_scale():
    models = [make_net(), make_net(1)]
    optimizers = [make_optimizer(m) for m in models]
    scalers = [make_scaler(init_scale=4.0), make_scaler(init_scale=64.0)]
    losses, norms = [], []
    with watching(*optimizers) as watched:
        watched.begin()
        scaled = []
        for model, scaler in zip(models, scalers, strict=True):
            loss = model(make_batches(1)[0]).square().mean()
            losses.append(loss.item())
            scaled.append(scaler.scale(loss))
        for one in scaled:
            one.backward()
        for model, optimizer, scaler in zip(models, optimizers, scalers, strict=True):
            norms.append(norm_of(model.parameters()) / scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
    assert [u.objective for u in watched.updates()] == pytest.approx(losses, rel=1e-6)
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(norms, rel=1e-6)


# Clips


@pytest.mark.parametrize("fused", [False, True])
def test_a_clip_of_gradients_without_the_scale_is_told_as_any_other(fused):
    watched, seen, _ = train(unscale=True, clip=0.01, fused=fused)
    updates = watched.updates()
    assert [u.grad_norm for u in updates] == pytest.approx(seen.norms, rel=1e-5)
    assert [u.grad_norm_clipped for u in updates] == pytest.approx([0.01] * 3, rel=1e-3)
    assert {u.grad_norm_source for u in updates} == {"clip"}
    assert watched.events == []


@pytest.mark.parametrize("fused", [False, True])
def test_a_clip_of_gradients_with_the_scale_in_them_is_an_event(fused):
    watched, seen, _ = train(clip=0.04, fused=fused)
    details = {"optimizer": 0, "max_norm": 0.04, "amp_scale": SCALE}
    assert watched.events == [("clip_on_scaled_gradients", details)] * 3
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(seen.norms, rel=1e-5)
    clipped = [u.grad_norm_clipped for u in watched.updates()]
    assert clipped == pytest.approx([0.04 / SCALE] * 3, rel=1e-3)


def test_a_clip_on_a_scale_of_one_is_no_event():
    watched, seen, _ = train(clip=0.04, scaler=make_scaler(init_scale=1.0))
    assert watched.events == []
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(seen.norms, rel=1e-5)


def test_sparse_gradients_are_told_without_the_scale():
    table = nn.Embedding(5, 2, sparse=True)
    optimizer, scaler = torch.optim.SparseAdam(table.parameters(), lr=0.1), make_scaler()
    losses, norms = [], []
    with watching(optimizer) as watched:
        for number in watched.over([1, 2]):
            optimizer.zero_grad()
            loss = table(torch.tensor([number, 0, 0])).square().sum()
            scaler.scale(loss).backward()
            losses.append(loss.item())
            norms.append(norm_of(table.parameters()) / SCALE)
            scaler.step(optimizer)
            scaler.update()
    assert [u.objective for u in watched.updates()] == pytest.approx(losses, rel=1e-6)
    assert [u.grad_norm for u in watched.updates()] == pytest.approx(norms, rel=1e-6)

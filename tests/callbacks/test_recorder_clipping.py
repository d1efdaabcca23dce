"""Norms before and after every way to clip, and clips that do not do what they are meant for.

Every report has a sibling with other numbers and a healthy neighbour that must stay silent. The
numbers are those of the reports' issues in Lightning's tracker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tests.callbacks.recorded import Gan, Manual, Recorded, train
from tests.callbacks.small import BATCHES, Expected, Small, make_loader, norm_of, replay

Gradients = list[torch.Tensor]


def by_norm(gradients: Gradients, *, limit: float) -> None:
    total = norm_of(gradients)
    for gradient in gradients:
        gradient.mul_(min(1.0, limit / (total + 1e-6)))


def by_value(gradients: Gradients, *, limit: float) -> None:
    for gradient in gradients:
        gradient.clamp_(-limit, limit)


def each_by_norm(gradients: Gradients, *, limit: float) -> None:
    for gradient in gradients:
        by_norm([gradient], limit=limit)


def assert_norms(done: Recorded, by_hand: list[Expected]) -> None:
    """Both norms and what follows from them are those of the plain loop."""
    assert [u.grad_norm for u in done.updates] == pytest.approx(
        [one.grad_norm for one in by_hand], rel=1e-5
    )
    assert [u.grad_norm_clipped for u in done.updates] == pytest.approx(
        [one.grad_norm_clipped for one in by_hand], rel=1e-5
    )
    cut = [one.grad_norm_clipped < one.grad_norm * (1 - 1e-6) for one in by_hand]
    assert [u.clipped for u in done.updates] == cut


# ---- Lightning#18669, #12595: "the norm exceeds the limit", which is that before the clip --------


@pytest.mark.parametrize("limit", [0.01, 0.5])
def test_norm_is_stated_on_both_sides_of_the_clip_and_the_limit_holds(tmp_path, limit):
    done = train(tmp_path, Small(), gradient_clip_val=limit, max_epochs=2)
    assert_norms(done, replay(Small(), clip=lambda gradients: by_norm(gradients, limit=limit)))
    assert all(u.grad_norm > limit for u in done.updates)
    assert [u.grad_norm_clipped for u in done.updates] == pytest.approx([limit] * 10, rel=1e-5)
    assert [u.clip_coefficient for u in done.updates] == pytest.approx(
        [limit / u.grad_norm for u in done.updates], rel=1e-5
    )
    assert done.found == {}


def test_a_limit_that_is_never_reached_changes_nothing(tmp_path):
    done = train(tmp_path, Small(), gradient_clip_val=100.0)
    assert [(u.clipped, u.clip_coefficient) for u in done.updates] == [(False, 1.0)] * BATCHES
    assert [u.grad_norm for u in done.updates] == [u.grad_norm_clipped for u in done.updates]
    assert done.found == {}


# ---- An overridden configure_gradient_clipping ---------------------------------------------------


class OwnClip(Small):
    """Clips as it is told to, in Lightning's hook."""

    def __init__(self, clip: Callable[[Small], None]) -> None:
        super().__init__()
        self.clip = clip

    def configure_gradient_clipping(self, *args: Any, **options: Any) -> None:
        self.clip(self)


def gradients_of(model: Small) -> Gradients:
    return [p.grad for p in model.parameters() if p.grad is not None]


def norm_of_each_parameter(model: Small) -> None:
    for parameter in model.parameters():
        clip_grad_norm_(parameter, 0.7)


def norm_of_the_first_layer(model: Small) -> None:
    clip_grad_norm_(model.net[0].parameters(), 0.7)


def value_and_then_norm(model: Small) -> None:
    clip_grad_value_(model.parameters(), 1.0)
    clip_grad_norm_(model.parameters(), 1.5)


def norm_in_the_maximum(model: Small) -> None:
    clip_grad_norm_(model.parameters(), 0.7, norm_type=torch.inf)


def norm_and_then_others(model: Small) -> None:
    clip_grad_norm_(model.parameters(), 0.7)
    for parameter in model.parameters():
        parameter.grad = parameter.grad * 0.5


def half_of_everything(model: Small) -> None:
    for gradient in gradients_of(model):
        gradient.mul_(0.5)


def by_maximum(gradients: Gradients, *, limit: float) -> None:
    total = max(float(gradient.abs().max()) for gradient in gradients)
    for gradient in gradients:
        gradient.mul_(min(1.0, limit / (total + 1e-6)))


def by_norm_and_half(gradients: Gradients, *, limit: float) -> None:
    by_norm(gradients, limit=limit)
    for gradient in gradients:
        gradient.mul_(0.5)


def both(gradients: Gradients) -> None:
    by_value(gradients, limit=1.0)
    by_norm(gradients, limit=1.5)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("clip", "by_hand"),
    [
        (norm_of_each_parameter, lambda gradients: each_by_norm(gradients, limit=0.7)),
        (norm_of_the_first_layer, lambda gradients: by_norm(gradients[:2], limit=0.7)),
        (value_and_then_norm, both),
        (norm_in_the_maximum, lambda gradients: by_maximum(gradients, limit=0.7)),
        (norm_and_then_others, lambda gradients: by_norm_and_half(gradients, limit=0.7)),
        (half_of_everything, lambda gradients: [g.mul_(0.5) for g in gradients]),
        (lambda model: None, lambda gradients: None),
    ],
    ids=["each", "first-layer", "value-and-norm", "maximum", "others", "by-hand", "none"],
)
def test_an_own_clip_has_both_norms(tmp_path, clip, by_hand, accumulate):
    done = train(tmp_path, OwnClip(clip), accumulate_grad_batches=accumulate, max_epochs=2)
    assert_norms(done, replay(Small(), accumulate=accumulate, clip=by_hand))
    if any(u.clipped for u in done.updates):
        assert {u.grad_norm_source for u in done.updates} == {"measured"}
    assert done.events("clip_without_gradients") == []
    assert not [name for name in done.found if name.startswith("CLIP")]


class ClipsAsTold(Small):
    """Overrides the hook to do what Lightning would do."""

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)


@pytest.mark.parametrize("limit", [0.01, 1.0])
def test_a_declared_limit_that_an_own_clip_ignores_is_an_error(tmp_path, limit):
    done = train(tmp_path / "own", OwnClip(lambda model: None), gradient_clip_val=limit)
    assert done.found == {"CLIP-LIMIT": "error"}
    assert f"a clip by norm at {limit}" in done.measured("CLIP-LIMIT")
    right = train(tmp_path / "right", ClipsAsTold(), gradient_clip_val=limit)
    assert right.found == {}
    assert all(u.grad_norm_clipped <= limit * (1 + 1e-6) for u in right.updates)


def undo(model: Small) -> None:
    """Clips, and takes the clip back."""
    before = [gradient.clone() for gradient in gradients_of(model)]
    clip_grad_norm_(model.parameters(), 0.1)
    for gradient, one in zip(gradients_of(model), before, strict=True):
        gradient.copy_(one)


def test_a_clip_that_is_undone_is_an_error(tmp_path):
    done = train(tmp_path, OwnClip(undo), gradient_clip_val=0.1, max_epochs=2)
    assert_norms(done, replay(Small()))
    assert done.found == {"CLIP-LIMIT": "error"}


# ---- nano-world-model#22: a clip in training_step, where there are no gradients yet --------------


class ClipsEarly(Small):
    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        clip_grad_norm_(self.parameters(), self.limit)
        return loss


@pytest.mark.parametrize(("limit", "severity"), [(0.1, "error"), (1.5, "error"), (50.0, "warning")])
def test_a_clip_before_the_backward_is_found(tmp_path, limit, severity):
    done = train(tmp_path, ClipsEarly(limit), max_epochs=2)
    assert_norms(done, replay(Small()))  # it had no effect
    early = {"optimizer": 0, "max_norm": limit}
    assert done.events("clip_without_gradients") == [early] * 2 * BATCHES
    assert done.found == {"CLIP-BEFORE-BACKWARD": severity}
    assert f"a clip at {limit:g} was called" in done.measured("CLIP-BEFORE-BACKWARD")


class ByHand(Manual):
    """Clips in manual optimization, at the right time or before the backward."""

    def __init__(self, clip: Any, *, early: bool = False) -> None:
        super().__init__()
        self.clip, self.early = clip, early

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.loss(batch)
        if self.early:
            self.clip(self.parameters())
        self.manual_backward(loss)
        if not self.early:
            self.clip(self.parameters())
        optimizer.step()


def value_half(parameters: Any) -> None:
    clip_grad_value_(parameters, 0.5)


def norm_half(parameters: Any) -> None:
    clip_grad_norm_(parameters, 0.5)


@pytest.mark.parametrize("clip", [norm_half, value_half])
def test_a_clip_by_hand_is_heard(tmp_path, clip):
    done = train(tmp_path, ByHand(clip))
    model = Small()
    model.loss(next(iter(make_loader()))).backward()
    before = norm_of(gradients_of(model))
    clip(model.parameters())
    first = done.updates[0]
    assert first.grad_norm == pytest.approx(before, rel=1e-6)
    assert first.grad_norm_clipped == pytest.approx(norm_of(gradients_of(model)), rel=1e-6)
    assert first.clipped
    assert done.recording.events == ()
    assert done.found == {}


def test_a_clip_by_hand_before_the_backward_is_found(tmp_path):
    done = train(tmp_path, ByHand(norm_half, early=True))
    assert not any(u.clipped for u in done.updates)
    assert len(done.events("clip_without_gradients")) == BATCHES
    assert done.found == {"CLIP-BEFORE-BACKWARD": "error"}


# ---- One of several optimizers -------------------------------------------------------------------


class ClipsOne(Gan):
    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, torch.optim.SGD):
            self.clip_gradients(optimizer, 0.05, "norm")


def test_a_clip_of_one_optimizer_leaves_the_other_alone(tmp_path):
    done = train(tmp_path, ClipsOne())
    free = train(tmp_path / "free", Gan())
    assert [u.grad_norm_clipped for u in done.of(0)] == pytest.approx([0.05] * BATCHES, rel=1e-4)
    assert done.of(0)[0].grad_norm == pytest.approx(free.of(0)[0].grad_norm, rel=1e-6)
    assert done.of(0)[0].grad_norm > 0.05
    assert {(u.clipped, u.clip_coefficient) for u in done.of(1)} == {(False, 1.0)}
    assert done.found == {"GLOBAL-STEP": "info"}


# ---- Clips within a closure that is evaluated several times --------------------------------------


class Lbfgs(Small):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=3)


def test_the_clip_of_the_last_evaluation_is_the_one_stated(tmp_path):
    norms: list[tuple[float, float]] = []

    class Watches(Lbfgs):
        def configure_gradient_clipping(self, optimizer: Any, *args: Any, **options: Any) -> None:
            before = norm_of(gradients_of(self))
            self.clip_gradients(optimizer, 1.0, "norm")
            norms.append((before, norm_of(gradients_of(self))))

    done = train(tmp_path, Watches())
    assert len(norms) == 3 * BATCHES
    for update, (before, after) in zip(done.updates, norms[2::3], strict=True):
        assert update.grad_norm == pytest.approx(before, rel=1e-6)
        assert update.grad_norm_clipped == pytest.approx(after, rel=1e-6)


# ---- Gradients that change after the clip --------------------------------------------------------


class Changes(Small):
    """Clips by norm before the step, and then changes the gradients; keeps what they were."""

    def __init__(self, change: Callable[[Small], None], *, limit: float = 0.5) -> None:
        super().__init__()
        self.change, self.limit = change, limit
        self.norms: list[tuple[float, float]] = []

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        before = norm_of(gradients_of(self))
        clip_grad_norm_(self.parameters(), self.limit)
        self.change(self)
        self.norms.append((before, norm_of(gradients_of(self))))


def thrice(model: Small) -> None:
    for parameter in model.parameters():
        parameter.grad *= 3


def noisy(model: Small) -> None:
    for number, gradient in enumerate(gradients_of(model)):
        gradient.add_(torch.full_like(gradient, 0.1 * (1 + number)))


def frozen_rows(model: Small) -> None:
    model.net[0].weight.grad[:2] = 0


def frozen_layer(model: Small) -> None:
    for parameter in model.net[0].parameters():
        parameter.grad = None


def clipped_by_value(model: Small) -> None:
    clip_grad_value_(model.parameters(), 0.02)


@pytest.mark.parametrize("recorder", [{}, {"layer_norms": True}], ids=["plain", "layers"])
@pytest.mark.parametrize("limit", [0.5, 100.0])
@pytest.mark.parametrize("change", [thrice, noisy, frozen_rows, frozen_layer, clipped_by_value])
def test_what_changes_after_a_clip_is_in_the_norm_that_was_applied(
    tmp_path, change, limit, recorder
):
    model = Changes(change, limit=limit)
    done = train(tmp_path, model, recorder=recorder)
    assert len(model.norms) == BATCHES
    for update, (before, after) in zip(done.updates, model.norms, strict=True):
        assert update.grad_norm == pytest.approx(before, rel=1e-6)
        assert update.grad_norm_clipped == pytest.approx(after, rel=1e-6)
        assert (update.clipped, update.clip_coefficient) == (True, None)
    assert done.recording.events == ()


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_what_changes_nothing_after_a_clip_leaves_what_the_clip_has_told(tmp_path, limit):
    model = Changes(lambda model: [g.mul_(1.0) for g in gradients_of(model)] and None, limit=limit)
    still = Changes(lambda model: None, limit=limit)
    for number, one in enumerate((model, still)):
        done = train(tmp_path / str(number), one)
        for update, (before, after) in zip(done.updates, one.norms, strict=True):
            assert update.grad_norm == pytest.approx(before, rel=1e-6)
            assert update.grad_norm_clipped == pytest.approx(after, rel=1e-5)
            assert update.clipped == (limit == 0.5)
            assert update.clip_coefficient == pytest.approx(after / before, rel=1e-5)
        if limit == 100.0:
            assert [u.grad_norm for u in done.updates] == [
                u.grad_norm_clipped for u in done.updates
            ]


class NoisyByHand(Manual):
    """Clips in manual optimization and adds noise."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        before = norm_of(gradients_of(self))
        self.clip_gradients(optimizer, 0.5, "norm")
        noisy(self)
        self.norms.append((before, norm_of(gradients_of(self))))
        optimizer.step()

    def __init__(self) -> None:
        super().__init__()
        self.norms: list[tuple[float, float]] = []


def test_noise_after_a_clip_by_hand_is_in_the_norm_that_was_applied(tmp_path):
    model = NoisyByHand()
    done = train(tmp_path, model)
    for update, (before, after) in zip(done.updates, model.norms, strict=True):
        assert update.grad_norm == pytest.approx(before, rel=1e-6)
        assert update.grad_norm_clipped == pytest.approx(after, rel=1e-9)
    assert done.updates[0].grad_norm_clipped != pytest.approx(0.5, rel=1e-3)


class Scaling(torch.optim.SGD):
    """Multiplies the gradients after its closure and steps on them."""

    def __init__(self, parameters: Any, *, factor: float) -> None:
        super().__init__(parameters, lr=0.01)
        self.factor = factor

    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad.mul_(self.factor)
        super().step()
        return loss


class WithScaling(Small):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def configure_optimizers(self) -> Any:
        return Scaling(self.parameters(), factor=self.factor)


@pytest.mark.parametrize(("factor", "applied"), [(3.0, 1.5), (0.5, 0.25), (1.0, 0.5)])
def test_an_optimizer_that_scales_its_gradients_is_told_by_what_it_applied(
    tmp_path, factor, applied
):
    done = train(tmp_path, WithScaling(factor), gradient_clip_val=0.5)
    assert all(u.grad_norm > 0.5 for u in done.updates)
    assert [u.grad_norm_clipped for u in done.updates] == pytest.approx(
        [applied] * BATCHES, rel=1e-5
    )
    assert [u.clip_coefficient is None for u in done.updates] == [factor != 1.0] * BATCHES


class ClipsEachAndAdds(Manual):
    """Clips the gradient of each micro-batch alone and steps on the mean of two of them."""

    def __init__(self, *, replaces: bool, micro_batches: int = 2) -> None:
        super().__init__()
        self.replaces, self.micro_batches = replaces, micro_batches
        self.kept: list[Gradients] = []
        self.applied: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        for parameter in self.parameters():
            parameter.grad = None
        self.manual_backward(self.loss(batch))
        clip_grad_norm_(self.parameters(), 0.2)
        if self.replaces:
            self.kept.append([g.clone() for g in gradients_of(self)])
            if len(self.kept) < self.micro_batches:
                return
            sums = [torch.stack(several).mean(0) for several in zip(*self.kept, strict=True)]
            for parameter, mean in zip(self.parameters(), sums, strict=True):
                parameter.grad = mean
            self.kept = []
        self.applied.append(norm_of(gradients_of(self)))
        optimizer.step()


@pytest.mark.parametrize("micro_batches", [2, 3])
@pytest.mark.parametrize("recorder", [{}, {"layer_norms": True}], ids=["plain", "layers"])
def test_gradients_that_others_have_taken_the_place_of_have_no_norm_before(
    tmp_path, micro_batches, recorder
):
    model = ClipsEachAndAdds(replaces=True, micro_batches=micro_batches)
    done = train(tmp_path / "mean", model, recorder=recorder)
    assert [u.grad_norm_clipped for u in done.updates] == pytest.approx(model.applied, rel=1e-9)
    assert len(model.applied) == BATCHES // micro_batches
    known = {(u.grad_norm, u.grad_norm_source, u.clipped, u.layer_norms) for u in done.updates}
    assert known == {(None, None, None, None)}
    assert {u.clip_coefficient for u in done.updates} == {None}
    one = ClipsEachAndAdds(replaces=False)
    own = train(tmp_path / "own", one)
    assert [u.grad_norm_clipped for u in own.updates] == pytest.approx(one.applied, rel=1e-5)
    assert all(u.clipped and u.grad_norm > 0.2 for u in own.updates)


# ---- A clip of a micro-batch that is not the last of its window ----------------------------------


class ClipsAt(Small):
    """Clips after the backward of some micro-batches."""

    def __init__(self, clip: Callable[[Any], Any], batches: set[int]) -> None:
        super().__init__()
        self.clip, self.batches = clip, batches
        self.seen = 0

    def on_after_backward(self) -> None:
        if self.seen in self.batches:
            self.clip(self.parameters())
        self.seen += 1


@pytest.mark.parametrize(
    ("clip", "limit"),
    [
        (norm_half, 0.5),
        (lambda parameters: clip_grad_norm_(parameters, 0.1), 0.1),
        (value_half, None),
    ],
    ids=["norm", "smaller-norm", "value"],
)
def test_a_clip_within_a_window_is_no_clip_before_its_backward(tmp_path, clip, limit):
    options = {"accumulate_grad_batches": 2, "limit_train_batches": 4}
    done = train(tmp_path / "first", ClipsAt(clip, {0, 2}), **options)
    assert done.events("clip_within_window") == [{"optimizer": 0, "max_norm": limit}] * 2
    assert done.events("clip_without_gradients") == []
    assert done.found == {}
    last = train(tmp_path / "last", ClipsAt(clip, {1, 3}), **options)
    assert last.recording.events == ()
    assert last.found == {}


# ---- An infinite limit only measures -------------------------------------------------------------


class Measures(Small):
    """Logs the norm of the gradients by an infinite clip, in time or before the backward."""

    def __init__(self, *, early: bool = False) -> None:
        super().__init__()
        self.early = early

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.early and batch_idx:
            clip_grad_norm_(self.parameters(), torch.inf)
        return self.loss(batch)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        clip_grad_norm_(self.parameters(), torch.inf)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("limit", [0.5, 1.2])
def test_an_infinite_limit_is_no_clip_beside_lightnings_own(tmp_path, limit, early):
    done = train(tmp_path, Measures(early=early), gradient_clip_val=limit)
    assert_norms(
        done, replay(Small(), epochs=1, clip=lambda gradients: by_norm(gradients, limit=limit))
    )
    assert [u.clip_coefficient for u in done.updates] == pytest.approx(
        [min(1.0, limit / u.grad_norm) for u in done.updates], rel=1e-5
    )
    assert {u.grad_norm_source for u in done.updates} == {"clip"}
    assert done.recording.events == ()
    assert done.found == {}


@pytest.mark.parametrize("early", [False, True])
def test_an_infinite_limit_alone_is_no_clip_at_all(tmp_path, early):
    done = train(tmp_path, Measures(early=early))
    assert [(u.clipped, u.clip_coefficient) for u in done.updates] == [(False, 1.0)] * BATCHES
    assert {u.grad_norm_source for u in done.updates} == {"measured"}
    assert done.recording.events == ()


# ---- Several clips of everything -----------------------------------------------------------------


@pytest.mark.parametrize("limits", [(1.0, 0.3), (0.7, 0.35, 0.1), (1.0, 50.0)])
def test_the_factor_of_several_clips_by_norm_is_their_product(tmp_path, limits):
    def clip(model: Small) -> None:
        for limit in limits:
            clip_grad_norm_(model.parameters(), limit)

    def by_hand(gradients: Gradients) -> None:
        for limit in limits:
            by_norm(gradients, limit=limit)

    done = train(tmp_path / "all", OwnClip(clip))
    assert_norms(done, replay(Small(), epochs=1, clip=by_hand))
    assert [u.clip_coefficient for u in done.updates] == pytest.approx(
        [u.grad_norm_clipped / u.grad_norm for u in done.updates], rel=1e-5
    )

    def clip_parts(model: Small) -> None:
        clip_grad_norm_(model.parameters(), 1.0)
        clip_grad_norm_(model.net[0].parameters(), 0.1)

    parts = train(tmp_path / "parts", OwnClip(clip_parts))
    assert {u.clip_coefficient for u in parts.updates} == {None}


# ---- What Lightning refuses it still refuses -----------------------------------------------------


@pytest.mark.parametrize("options", [{"gradient_clip_val": 0.5}, {"accumulate_grad_batches": 2}])
def test_manual_optimization_with_automatic_options_is_lightnings_to_refuse(tmp_path, options):
    with pytest.raises(MisconfigurationException, match="manual optimization"):
        train(tmp_path, ByHand(norm_half), **options)
    assert not list(tmp_path.rglob("*.jsonl*"))

"""Training with a gradient scaler, on the CPU: skipped steps, scales, and norms without them.

Every report has a sibling with other numbers and a healthy neighbour that must stay silent. The
numbers are those of the reports' issues in Lightning's and torch's trackers.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.nn.utils import clip_grad_norm_

from tests.callbacks.recorded import Gan, Manual, Recorded, judged, train
from tests.callbacks.small import (
    BATCHES,
    MOMENTUM,
    RATE,
    Small,
    fall,
    make_loader,
    make_trainer,
    norm_of,
)
from traingen import StepRecorder

SCALE, GROWTH = 256.0, 3

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step..` before")


def make_scaler(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler(
        "cpu", **{"init_scale": SCALE, "growth_interval": GROWTH, **options}
    )


def scaled(**options: Any) -> dict[str, Any]:
    """Options of a trainer that scales on the CPU, where Lightning's own choice would be bf16."""
    return {"plugins": [MixedPrecision("16-mixed", device="cpu", scaler=make_scaler(**options))]}


class Overflows(Small):
    """The loss of some batches, counted over all epochs, is infinite."""

    def __init__(self, *batches: int, fused: bool | None = None) -> None:
        super().__init__()
        self.batches, self.fused, self.count = batches, fused, 0

    def loss(self, batch: Any) -> torch.Tensor:
        self.count += 1
        return super().loss(batch) * (torch.inf if self.count - 1 in self.batches else 1.0)

    def configure_optimizers(self) -> Any:
        if self.fused is None:
            return super().configure_optimizers()
        return torch.optim.AdamW(self.net.parameters(), lr=0.01, fused=self.fused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One step of a plain loop."""

    taken: bool
    losses: list[float]
    grad_norm: float  # without the scale
    scale: float  # at its begin
    after: float


def by_hand(
    model: Small, *, accumulate: int = 1, clip: float | None = None, epochs: int = 1
) -> list[Seen]:
    """Train a copy of `model` with autocast and a scaler, as torch's documentation does it."""
    own = copy.deepcopy(model)
    scaler, parameters = make_scaler(), list(own.net.parameters())
    if getattr(own, "fused", None) is None:
        optimizer: torch.optim.Optimizer = torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM)
    else:
        optimizer = torch.optim.AdamW(parameters, lr=0.01)
    seen: list[Seen] = []
    for _ in range(epochs):
        losses: list[float] = []
        for batch_idx, batch in enumerate(make_loader()):
            with torch.autocast("cpu", torch.float16, cache_enabled=False):
                loss = own.loss(batch)
            if not losses:
                optimizer.zero_grad()
                scale = scaler.get_scale()
            scaler.scale(loss / accumulate).backward()
            losses.append(loss.item())
            if (batch_idx + 1) % accumulate and batch_idx + 1 < BATCHES:
                continue
            scaler.unscale_(optimizer)
            norm = norm_of(p.grad for p in parameters)
            if clip is not None:
                clip_grad_norm_(parameters, clip)
            before = parameters[0].detach().clone()
            if isinstance(optimizer, torch.optim.SGD):
                optimizer.param_groups[0]["lr"] = RATE * fall(len(seen))
            scaler.step(optimizer)
            scaler.update()
            taken = not torch.equal(before, parameters[0])
            seen.append(
                Seen(
                    taken=taken, losses=losses, grad_norm=norm, scale=scale,
                    after=scaler.get_scale(),
                )
            )  # fmt: skip
            losses = []
    return seen


def assert_as_by_hand(done: Recorded, steps: list[Seen]) -> None:
    """Updates are the steps that were taken, events those that were not, each with its numbers."""
    taken = [(number, step) for number, step in enumerate(steps, start=1) if step.taken]
    assert [u.update for u in done.updates] == list(range(1, len(taken) + 1))
    for update, (number, step) in zip(done.updates, taken, strict=True):
        assert update.global_step == number
        assert update.amp_scale == step.scale
        assert update.micro_losses == pytest.approx(step.losses, rel=1e-5)
        assert update.grad_norm == pytest.approx(step.grad_norm, rel=1e-5)
    assert done.events("skipped_step") == [
        {
            "optimizer": 0, "reason": "scaler", "amp_scale": step.scale,
            "amp_scale_after": step.after, "global_step": number,
        }
        for number, step in enumerate(steps, start=1)
        if not step.taken
    ]  # fmt: skip


# ---- Lightning#5558, #16228, #18828, #21339, torch#67590, #44511: the schedule goes on -----------


@pytest.mark.parametrize("batches", [(1,), (0, 3), (2, 3, 6)])
def test_skipped_steps_are_no_updates_and_ticks_on_them_are_found(tmp_path, batches):
    done = train(tmp_path, Overflows(*batches), max_epochs=2, **scaled())
    assert_as_by_hand(done, by_hand(Overflows(*batches), epochs=2))
    skipped, steps = len(batches), 2 * BATCHES
    assert done.trainer.global_step == steps
    assert len(done.updates) == steps - skipped
    assert done.events("counted_without_update") == []
    assert done.recording.end.scheduler[0].ticks == steps
    assert done.found == {"TICKED-ON-SKIPPED": "warning", "SKIPPED": "info"}
    assert f"{skipped} of {steps} steps were skipped" in done.measured("SKIPPED")
    assert f"at scale {SCALE:g}" in done.measured("SKIPPED")


def test_a_scale_that_only_grows_is_silent(tmp_path):
    done = train(tmp_path, Overflows(), max_epochs=2, **scaled())
    steps = by_hand(Overflows(), epochs=2)
    assert_as_by_hand(done, steps)
    assert [u.amp_growth for u in done.updates] == [n % GROWTH for n in range(2 * BATCHES)]
    assert done.updates[-1].amp_scale == SCALE * 2**3
    assert done.found == {}


def test_a_schedule_by_epoch_does_not_tick_on_skipped_steps(tmp_path):
    model = Overflows(1)
    model.interval = "epoch"
    done = train(tmp_path, model, **scaled())
    assert done.found == {"SKIPPED": "info"}


@pytest.mark.parametrize(("accumulate", "batches"), [(2, (1,)), (2, (4,)), (3, (0, 3))])
def test_a_skipped_window_has_no_part_in_the_next_update(tmp_path, accumulate, batches):
    options = {"accumulate_grad_batches": accumulate, "max_epochs": 2}
    done = train(tmp_path, Overflows(*batches), **options, **scaled())
    steps = by_hand(Overflows(*batches), accumulate=accumulate, epochs=2)
    assert_as_by_hand(done, steps)
    taken = [step for step in steps if step.taken]
    assert [u.micro_batches for u in done.updates] == [len(step.losses) for step in taken]
    assert len(done.events("skipped_step")) == len(batches)


class Gaps(Overflows):
    """Has no loss for the first batch and an infinite one for the second."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == 0 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
def test_all_of_a_skipped_window_is_dropped_also_a_batch_without_loss(tmp_path):
    done = train(tmp_path, Gaps(0), accumulate_grad_batches=2, **scaled())
    assert [(u.batch_idx, u.micro_batches, u.global_step) for u in done.updates] == [
        (3, 2, 2), (4, 1, 3),
    ]  # fmt: skip
    assert [skip["global_step"] for skip in done.events("skipped_step")] == [1]


def test_a_scale_that_falls_and_falls_is_found(tmp_path):
    batches = tuple(range(1, 20))
    done = train(tmp_path, Overflows(*batches), max_epochs=5, **scaled())
    assert done.found["SCALE-COLLAPSED"] == "warning"
    assert f"{len(batches)} skipped in a row" in done.measured("SCALE-COLLAPSED")


# ---- Lightning#21720: fused optimizers unscale by themselves -------------------------------------


@pytest.mark.parametrize("batches", [(), (1,), (0, 3)])
def test_a_fused_optimizer_has_the_norm_without_the_scale(tmp_path, batches):
    done = train(tmp_path, Overflows(*batches, fused=True), max_epochs=2, **scaled())
    plain = train(tmp_path / "plain", Overflows(*batches, fused=False), max_epochs=2, **scaled())
    assert_as_by_hand(done, by_hand(Overflows(*batches, fused=True), epochs=2))
    assert [u.grad_norm for u in done.updates] == pytest.approx(
        [u.grad_norm for u in plain.updates], rel=1e-4
    )
    assert [u.grad_norm_clipped for u in done.updates] == [u.grad_norm for u in done.updates]
    assert done.events("skipped_step") == plain.events("skipped_step")
    assert done.found == plain.found == ({"SKIPPED": "info"} if batches else {})


def test_norms_of_the_layers_of_a_fused_optimizer_are_unscaled_too(tmp_path):
    done = train(tmp_path, Overflows(fused=True), recorder={"layer_norms": True}, **scaled())
    steps = by_hand(Overflows(fused=True))
    for update, step in zip(done.updates, steps, strict=True):
        squares = sum(norm**2 for norm in update.layer_norms.values())
        assert squares**0.5 == pytest.approx(step.grad_norm, rel=1e-5)
        assert list(update.layer_norms) == [
            "net.0.weight",
            "net.0.bias",
            "net.3.weight",
            "net.3.bias",
        ]


# ---- Lightning#9330, #9599, #9694: the clip comes after the scale is divided out -----------------


@pytest.mark.parametrize("limit", [0.5, 2.0])
def test_automatic_clipping_acts_on_unscaled_gradients(tmp_path, limit):
    done = train(tmp_path, Overflows(1), gradient_clip_val=limit, **scaled())
    assert_as_by_hand(done, by_hand(Overflows(1), clip=limit))
    expected = [min(u.grad_norm, limit) for u in done.updates]
    assert [u.grad_norm_clipped for u in done.updates] == pytest.approx(expected, rel=1e-5)
    assert any(u.clipped for u in done.updates)
    assert "CLIP-SCALED" not in done.found


class ClipsScaled(Manual):
    """Clips in manual optimization, where Lightning unscales within `step`."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        self.clip_gradients(optimizer, self.limit, "norm")
        optimizer.step()


@pytest.mark.parametrize("limit", [1.0, 100.0])
def test_a_clip_of_scaled_gradients_is_found_and_norms_are_without_the_scale(tmp_path, limit):
    done = train(tmp_path, ClipsScaled(limit), **scaled())
    free = train(tmp_path / "free", ClipsScaled(1e9), **scaled())
    first, same = done.updates[0], free.updates[0]
    assert first.grad_norm == pytest.approx(by_hand(Small())[0].grad_norm, rel=1e-5)
    assert first.grad_norm == pytest.approx(same.grad_norm, rel=1e-5)
    assert first.grad_norm_clipped == pytest.approx(limit / SCALE, rel=1e-5)
    assert (first.clipped, same.clipped) == (True, False)
    assert done.events("clip_on_scaled_gradients")[0] == {
        "optimizer": 0, "max_norm": limit, "amp_scale": SCALE,
    }  # fmt: skip
    assert done.found["CLIP-SCALED"] == "error"
    assert f"clipped at {limit:g} with the scale {SCALE:g}" in done.measured("CLIP-SCALED")


def test_a_clip_with_a_scale_of_one_is_silent(tmp_path):
    done = train(tmp_path, ClipsScaled(0.5), **scaled(init_scale=1.0, growth_interval=1000))
    assert [u.grad_norm_clipped for u in done.updates] == pytest.approx([0.5] * BATCHES, rel=1e-5)
    assert done.found == {}


# ---- One scaler, several optimizers --------------------------------------------------------------


class OverflowingGan(Gan):
    """The generator's loss of one batch is infinite; the discriminator's never is."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch, self.count = batch, 0

    def generator_loss(self, batch: Any) -> torch.Tensor:
        self.count += 1
        factor = torch.inf if self.count - 1 == self.batch else 1.0
        return super().generator_loss(batch) * factor


@pytest.mark.parametrize("batch", [0, 2])
def test_only_the_optimizer_that_overflowed_is_skipped(tmp_path, batch):
    done = train(tmp_path, OverflowingGan(batch), **scaled())
    assert [u.batch_idx for u in done.of(0)] == [i for i in range(BATCHES) if i != batch]
    assert [u.batch_idx for u in done.of(1)] == list(range(BATCHES))
    (skip,) = done.events("skipped_step")
    assert (skip["optimizer"], skip["global_step"]) == (0, 2 * batch + 1)
    assert skip["amp_scale_after"] == skip["amp_scale"] / 2
    assert [u.micro_batches for u in done.updates] == [1] * (2 * BATCHES - 1)
    assert done.found == {"GLOBAL-STEP": "info", "SKIPPED": "info"}


# ---- No loss, no step ----------------------------------------------------------------------------


class LeavesOut(Small):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx in (1, 2) else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
def test_a_batch_without_loss_is_a_counted_step_without_an_update(tmp_path):
    done = train(tmp_path, LeavesOut(), **scaled())
    assert [(u.batch_idx, u.global_step, u.micro_batches) for u in done.updates] == [
        (0, 1, 1), (3, 4, 1), (4, 5, 1),
    ]  # fmt: skip
    assert done.events("counted_without_update") == [
        {"count": 1, "global_step": 2}, {"count": 1, "global_step": 3},
    ]  # fmt: skip
    assert done.events("skipped_step") == []
    assert done.found["NO-UPDATE"] == "warning"


# ---- NVIDIA-NeMo/Speech#3293: the schedule is set back to undo a tick ----------------------------


class Rewinds(Overflows):
    """Ticks once more, from two before, when a step was skipped."""

    def on_train_batch_end(self, *args: Any) -> None:
        scale = self.trainer.precision_plugin.scaler.get_scale()
        before, self.scale = getattr(self, "scale", SCALE), scale
        if scale < before:
            scheduler = self.lr_schedulers()
            scheduler.last_epoch -= 2
            scheduler.step()


def test_a_schedule_that_is_set_back_is_found(tmp_path):
    done = train(tmp_path, Rewinds(2), **scaled(growth_interval=1000))
    assert done.found["REWOUND"] == "warning"
    assert "REWOUND" not in train(tmp_path / "b", Overflows(2), **scaled()).found


# ---- Without a scaler ----------------------------------------------------------------------------


def bf16_by_hand() -> list[tuple[float, float]]:
    """Loss and norm of each update of a plain loop."""
    model = Small()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    seen: list[tuple[float, float]] = []
    for batch in make_loader():
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            loss = model.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = RATE * fall(len(seen))
        seen.append((loss.item(), norm_of(p.grad for p in model.parameters())))
        optimizer.step()
    return seen


def test_bf16_has_no_scale_and_the_numbers_of_a_plain_loop(tmp_path):
    done = train(tmp_path, Small(), precision="bf16-mixed")
    losses, norms = zip(*bf16_by_hand(), strict=True)
    assert [u.loss for u in done.updates] == list(losses)
    assert [u.grad_norm for u in done.updates] == pytest.approx(norms, rel=1e-12)
    assert {(u.amp_scale, u.amp_growth) for u in done.updates} == {(None, None)}
    assert "amp_scale" in done.recording.run.observes
    assert done.found == {}


# ---- Lightning#21435: a clip beside a fused optimizer is refused by Lightning --------------------


@pytest.mark.parametrize("scales", [True, False])
def test_what_lightning_refuses_in_a_step_ends_the_recording_with_its_words(tmp_path, scales):
    precision = scaled() if scales else {"precision": "bf16-mixed"}
    trainer = make_trainer([StepRecorder(str(tmp_path))], gradient_clip_val=0.5, **precision)
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping"):
        trainer.fit(Overflows(fused=True), make_loader())
    done = judged(tmp_path, trainer)
    assert (done.recording.end.reason, done.updates) == ("exception", ())
    assert "does not allow for gradient clipping" in done.recording.end.message

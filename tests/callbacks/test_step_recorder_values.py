"""The values StepRecorder states, each computed here a second time without it."""

import functools
import hashlib
from typing import Any

import pytest
import torch

from tests.callbacks.small import BATCHES, RATE, Small, make_loader, record, replay
from traingen.observe.digests import digest_batch
from traingen.records import SchedulerState


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_updates_state_what_a_plain_loop_computes(tmp_path, accumulate):
    expected = replay(Small(), accumulate=accumulate)
    recording = record(tmp_path, accumulate_grad_batches=accumulate)
    assert len(recording.updates) == len(expected) == 2 * -(-BATCHES // accumulate)
    for number, (update, by_hand) in enumerate(
        zip(recording.updates, expected, strict=True), start=1
    ):
        assert (update.update, update.optimizer, update.global_step) == (number, 0, number)
        assert (update.epoch, update.batch_idx) == (by_hand.epoch, by_hand.batch_idx)
        assert update.micro_batches == len(by_hand.losses)
        assert update.divisor == accumulate
        assert update.objective == sum(by_hand.roots)
        mean = sum(by_hand.losses) / len(by_hand.losses)
        assert update.loss == pytest.approx(mean, rel=1e-6)  # the root was divided in float32
        assert update.lr == pytest.approx([by_hand.lr], rel=1e-12)
        assert update.grad_norm == pytest.approx(by_hand.grad_norm, rel=1e-6)


def test_unclipped_norm_is_measured_and_stands_twice(tmp_path):
    for update in record(tmp_path).updates:
        assert update.grad_norm_source == "measured"
        assert update.grad_norm_clipped == update.grad_norm
        assert update.clipped is False


def clip_by_norm(gradients: list[torch.Tensor], *, limit: float) -> None:
    total = torch.cat([g.flatten() for g in gradients]).norm()
    for gradient in gradients:
        gradient.mul_(min(1.0, limit / (float(total) + 1e-6)))


def clip_by_value(gradients: list[torch.Tensor], *, limit: float) -> None:
    for gradient in gradients:
        gradient.clamp_(-limit, limit)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    ("algorithm", "clip", "limit", "source"),
    [("norm", clip_by_norm, 2.0, "clip"), ("value", clip_by_value, 1.5, "measured")],
    ids=["norm", "value"],
)
def test_norm_is_stated_before_and_after_the_clip(
    tmp_path, algorithm, clip, limit, source, accumulate
):
    by_hand = replay(Small(), accumulate=accumulate, clip=functools.partial(clip, limit=limit))
    recording = record(
        tmp_path,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=limit,
        gradient_clip_algorithm=algorithm,
    )
    updates = recording.updates
    before, after = [e.grad_norm for e in by_hand], [e.grad_norm_clipped for e in by_hand]
    assert [u.grad_norm for u in updates] == pytest.approx(before, rel=1e-5)
    assert [u.grad_norm_clipped for u in updates] == pytest.approx(after, rel=1e-5)
    assert {u.grad_norm_source for u in updates} == {source}
    cut = [a < b * (1 - 1e-6) for a, b in zip(after, before, strict=True)]
    assert [u.clipped for u in updates] == cut
    assert set(cut) == {True, False}  # else this test has seen one half only
    assert recording.run.clipping == {"value": limit, "algorithm": algorithm}


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_rate_is_the_one_used_and_scheduler_is_as_found_at_begin(tmp_path, interval):
    recording = record(tmp_path, model=Small(interval=interval), accumulate_grad_batches=2)
    updates = recording.updates
    ticks = [0, 1, 2, 3, 4, 5] if interval == "step" else [0, 0, 0, 1, 1, 1]
    assert [u.lr for u in updates] == [[pytest.approx(RATE / (1 + n))] for n in ticks]
    assert [u.scheduler for u in updates] == [
        [SchedulerState(id=0, last_epoch=n, ticks=n)] for n in ticks
    ]
    last = len(updates) if interval == "step" else 2
    assert recording.end.scheduler == [SchedulerState(id=0, last_epoch=last, ticks=last)]


class Seen(Small):
    """Digests the torch generator itself where the recorder is said to."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.begin: list[str] = []  # per micro-batch
        self.applied: list[str] = []

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.begin.append(digest_of_torch())

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.applied.append(digest_of_torch())


def digest_of_torch() -> str:
    return hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_rng_is_digested_at_begin_and_when_applied(tmp_path, accumulate):
    model = Seen(dropout=0.5)
    recording = record(tmp_path, model=model, accumulate_grad_batches=accumulate)
    starts, ends = [], []
    for epoch in (0, BATCHES):
        for first in range(0, BATCHES, accumulate):
            starts.append(epoch + first)
            ends.append(epoch + min(first + accumulate, BATCHES) - 1)
    assert [u.rng for u in recording.updates] == [{"torch": model.begin[i]} for i in starts]
    assert [u.rng_after for u in recording.updates] == [{"torch": model.applied[i]} for i in ends]
    assert all(u.rng != u.rng_after for u in recording.updates)
    assert recording.end.rng == {"torch": model.applied[-1]}


def test_rng_stands_still_without_dropout(tmp_path):
    recording = record(tmp_path, rng=("python", "numpy", "torch"))
    for update in recording.updates:
        assert update.rng == update.rng_after
        assert list(update.rng) == ["python", "numpy", "torch"]


def test_batch_digest_is_that_of_the_batch(tmp_path):
    batches = [digest_batch(batch) for batch in make_loader()]
    assert len(set(batches)) == BATCHES
    recording = record(tmp_path / "single")
    assert [u.batch.digest for u in recording.updates] == 2 * batches
    recording = record(tmp_path / "accumulated", accumulate_grad_batches=2)
    of_two = hashlib.sha256((batches[0] + batches[1]).encode()).hexdigest()
    assert recording.updates[0].batch.digest == of_two
    assert recording.updates[2].batch.digest == batches[4]  # the partial last window


def test_hyper_parameters_are_those_of_the_optimizer(tmp_path):
    (group,) = record(tmp_path).updates[0].hyper_parameters
    assert (group["momentum"], group["nesterov"], group["weight_decay"]) == (0.9, False, 0)
    assert "lr" not in group and "params" not in group


class SkipsEpochs(Small):
    """Ends each epoch early, in the middle of an accumulation window."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 3 else None


def test_batches_the_loop_refuses_or_drops_belong_to_no_update(tmp_path):
    # Batch 2 is accumulated but never applied (its gradient is zeroed), batch 3 is refused.
    recording = record(tmp_path, model=SkipsEpochs(), accumulate_grad_batches=2)
    assert [(u.epoch, u.micro_batches) for u in recording.updates] == [(0, 2), (1, 2)]
    assert recording.updates[0].batch == recording.updates[1].batch
    root = recording.updates[1].objective
    assert root == pytest.approx(recording.updates[1].loss, rel=1e-6)


class WithoutLoss(Small):
    """Returns no loss for the second micro-batch of each window."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor | None:
        return None if batch_idx % 2 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
def test_loss_is_the_mean_of_the_micro_batches_that_have_one(tmp_path):
    recording = record(tmp_path, model=WithoutLoss(), accumulate_grad_batches=2, max_epochs=1)
    first = next(iter(make_loader()))
    assert recording.updates[0].loss == pytest.approx(Small().loss(first).item(), rel=1e-6)
    assert recording.updates[0].micro_batches == 2

"""Ranks that train together record for themselves, and merged they tell what one process does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from lightning.pytorch import seed_everything
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from tests.callbacks.small import make_trainer, norm_of, record_everything
from tests.callbacks.trainings import Keeps
from tests.ranks import (
    BATCH,
    BATCHES,
    SAMPLES,
    WORLD,
    collectives,
    dealt_loader,
    on_ranks,
    samples,
    whole_loader,
)
from traingen import StepRecorder
from traingen.records import (
    MergedRecording,
    Recording,
    UpdateRecord,
    merge_ranks,
    read_ranks,
    read_recording,
)

INFINITE = 2  # the batch whose loss is infinite on rank 1, where that is asked for
CLOSE = 1e-6  # relative: float32 sums in another order

Options = dict[str, Any]


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        value: Tensor = (self.net(batch[0]) - batch[1]).square().mean()
        return value

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("twice", 2 * loss)
        return loss

    def validation_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


class PartlyUsed(Model):
    """A part that no rank uses, and one that only rank 0 does."""

    def __init__(self) -> None:
        super().__init__()
        self.idle, self.first = nn.Linear(3, 1), nn.Linear(3, 1)

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        return super().loss(batch) + (self.first(batch[0]).mean() if dist.get_rank() == 0 else 0)


class InfiniteOnRank1(Model):
    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Any:
        loss = self.loss(batch)
        return loss * torch.inf if batch_idx == INFINITE and dist.get_rank() == 1 else loss


class ByHand(Model):
    """Two optimizers; the second one steps every other batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.critic = nn.Linear(3, 1)

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        one, two = self.optimizers()  # type: ignore[misc]
        one.zero_grad()
        self.manual_backward(self.loss(batch))
        one.step()
        if batch_idx % 2:
            two.zero_grad()
            self.manual_backward(self.critic(batch[0]).square().mean())
            two.step()

    def configure_optimizers(self) -> Any:
        parts = self.net.parameters(), self.critic.parameters()
        return [torch.optim.SGD(parts[0], lr=0.1), torch.optim.Adam(parts[1], lr=0.01)], []


class Asks(pl.Callback):
    """What the tests below must notice: a collective of its own, per batch."""

    def on_train_batch_end(self, *args: Any) -> None:
        dist.all_reduce(torch.zeros(1))


def with_amp() -> Options:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    return {"plugins": [MixedPrecision("16-mixed", device="cpu", scaler=scaler)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: Callable[[], Model] = Model
    strategy: Callable[[], Any] = lambda: "ddp"
    options: Callable[[], Options] = dict


ACCUMULATED = functools.partial(dict, accumulate_grad_batches=4, gradient_clip_val=0.5)
VIEWS = functools.partial(DDPStrategy, gradient_as_bucket_view=True)

CASES = {
    "plain": Case(),
    "accumulated and clipped": Case(options=ACCUMULATED),
    "bucket views": Case(strategy=VIEWS, options=ACCUMULATED),
    "static graph": Case(strategy=functools.partial(DDPStrategy, static_graph=True)),
    "static graph, bucket views": Case(strategy=functools.partial(VIEWS, static_graph=True)),
    "unused parameters": Case(
        model=PartlyUsed,
        strategy=functools.partial(VIEWS, find_unused_parameters=True),
        options=ACCUMULATED,
    ),
    "AMP": Case(model=InfiniteOnRank1, options=with_amp),
    "several optimizers": Case(
        model=ByHand, strategy=functools.partial(DDPStrategy, find_unused_parameters=True)
    ),
}
AS_ONE = [  # those that a single process can do as well, and give the same
    "plain", "accumulated and clipped", "bucket views", "static graph",
    "static graph, bucket views", "several optimizers",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    weights: dict[str, Tensor]
    collectives: int


def train(case: Case, callbacks: list[pl.Callback], **options: Any) -> Outcome:
    before = collectives()
    seed_everything(7, verbose=False)
    model = case.model()
    ckpt_path = options.pop("ckpt_path", None)
    trainer = make_trainer(
        callbacks,
        **{
            "strategy": case.strategy(),
            "devices": WORLD,
            "max_epochs": 1,
            "logger": Keeps(),
            **case.options(),
            **options,
        },
    )
    resumed = {} if ckpt_path is None else {"ckpt_path": ckpt_path, "weights_only": False}
    trainer.fit(model, dealt_loader(), dealt_loader(), **resumed)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return Outcome(weights=weights, collectives=collectives() - before)


class SavesAt(pl.Callback):
    def __init__(self, path: str, step: int) -> None:
        self.path = path
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


def train_all(rank: int, folder: str) -> dict[str, Outcome]:
    """Everything that the tests look at, on one rank."""
    done = {}
    for name, case in CASES.items():
        done[f"{name}, unrecorded"] = train(case, [])
        done[name] = train(case, [record_everything(f"{folder}/{name}")])
    accumulated = CASES["accumulated and clipped"]
    done["asking"] = train(accumulated, [Asks()])
    for only in range(WORLD):
        recorder = [record_everything(f"{folder}/only {only}")] if rank == only else []
        done[f"only rank {only}"] = train(
            accumulated, [*recorder, SavesAt(f"{folder}/only {only}.ckpt", 1)]
        )
    resumed = f"{folder}/resumed"
    for options in (  # 4 updates, a checkpoint after the third; then on from there
        {"max_steps": 4},
        {"max_epochs": 2, "ckpt_path": f"{resumed}.ckpt"},
    ):
        callbacks = [StepRecorder(resumed), SavesAt(f"{resumed}.ckpt", 3)]
        done["resumed"] = train(CASES["plain"], callbacks, **options)
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    folder: Path
    by_rank: list[dict[str, Outcome]]

    def ranks(self, name: str) -> tuple[Recording, ...]:
        return read_ranks(self.folder / name)

    def merged(self, name: str) -> MergedRecording:
        return merge_ranks(self.ranks(name))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("ddp")
    return Trained(folder=folder, by_rank=on_ranks(train_all, str(folder)))


pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended before the epoch ended:UserWarning"
)


def dense(case: Case, path: Path) -> Recording:
    """The same training by one process, on the batches of all ranks together."""
    options = {"max_epochs": 1, "logger": Keeps(), **case.options()}
    trainer = make_trainer([StepRecorder(str(path))], **options)
    trainer.fit(case.model(), whole_loader(), whole_loader())
    return read_recording(path)


# Together they are one training


@pytest.mark.parametrize("name", AS_ONE)
def test_merged_ranks_tell_what_one_process_does(name: str, trained: Trained, tmp_path: Path):
    merged, whole = trained.merged(name), dense(CASES[name], tmp_path / "dense")
    assert (merged.ranks, merged.disagreements, merged.unequal) == (WORLD, (), ())
    assert [numbers_of(one) for one in merged.updates] == [numbers_of(u) for u in whole.updates]
    for one, other in zip(merged.updates, whole.updates, strict=True):
        assert values_of(one) == pytest.approx(values_of(other), rel=CLOSE)
        assert one.micro_losses == pytest.approx(other.micro_losses, rel=CLOSE)
        assert one.loss_terms == (other.loss_terms and pytest.approx(other.loss_terms, rel=CLOSE))


def numbers_of(update: UpdateRecord) -> tuple[Any, ...]:
    return (
        update.update, update.optimizer, update.global_step, update.epoch, update.batch_idx,
        update.micro_batches, update.divisor, update.clipped, update.lr, update.scheduler,
    )  # fmt: skip


def values_of(update: UpdateRecord) -> dict[str, Any]:
    names = ("loss", "objective", "grad_norm", "grad_norm_clipped", "clip_coefficient")
    values = {name: getattr(update, name) for name in names}
    assert None not in values.values()
    return values


def test_one_rank_alone_does_not_tell_it(trained: Trained, tmp_path: Path):
    whole = dense(CASES["plain"], tmp_path / "dense").updates[0]
    for rank in trained.ranks("plain"):
        assert rank.updates[0].loss != pytest.approx(whole.loss, rel=1e-2)


# Each for itself


def test_the_loss_is_this_rank_s_own(trained: Trained):
    """https://github.com/Lightning-AI/pytorch-lightning/issues/12407"""
    for rank, recording in enumerate(trained.ranks("accumulated and clipped")):
        first = recording.updates[0]
        own = [Model().loss(batch_of(rank, idx)).item() for idx in range(4)]
        assert first.micro_losses == pytest.approx(own, rel=CLOSE)
        assert first.loss_terms == pytest.approx({"twice": 2 * sum(own) / 4}, rel=CLOSE)


def batch_of(rank: int, idx: int) -> tuple[Tensor, ...]:
    """A batch as the distributed sampler deals it out."""
    own = range(rank, SAMPLES, WORLD)[idx * BATCH // WORLD : (idx + 1) * BATCH // WORLD]
    return samples()[list(own)]


@pytest.mark.parametrize("name", CASES)
def test_norms_are_those_of_the_reduced_gradients_and_alike(name: str, trained: Trained):
    one, other = trained.ranks(name)
    assert len(one.updates) == len(other.updates) > 0
    for a, b in zip(one.updates, other.updates, strict=True):
        assert a.grad_norm is not None
        assert (a.grad_norm, a.grad_norm_clipped) == (b.grad_norm, b.grad_norm_clipped)
        assert (a.layer_norms, a.moment_norms, a.parameters) == (
            b.layer_norms, b.moment_norms, b.parameters,
        )  # fmt: skip


def test_the_gradients_of_one_rank_have_other_norms(trained: Trained):
    """Else the test above could not tell a norm that is taken before ranks are reduced."""
    norms = []
    for rank in range(WORLD):
        model = Model()
        model.loss(batch_of(rank, 0)).backward()
        norms.append(norm_of(p.grad for p in model.parameters() if p.grad is not None))
    recorded = trained.ranks("plain")[0].updates[0].grad_norm
    assert recorded not in [pytest.approx(norm, rel=1e-2) for norm in norms]


@pytest.mark.parametrize("name", CASES)
def test_every_update_has_its_objective_on_every_rank(name: str, trained: Trained):
    for recording in trained.ranks(name):
        for update in recording.updates:
            assert update.objective is not None
            assert update.loss is not None


def test_data_and_generators_are_this_rank_s_own(trained: Trained):
    one, other = (recording.updates[0] for recording in trained.ranks("plain"))
    assert one.batch is not None
    assert other.batch is not None
    assert one.batch.digest != other.batch.digest
    assert one.rng == other.rng  # seeded alike: they draw the same noise
    sampler = {"class_path": "torch.utils.data.distributed.DistributedSampler", "epoch": 0}
    assert one.data_sampler is not None
    assert one.data_sampler.items() >= sampler.items()


def test_each_rank_has_files_of_its_own(trained: Trained):
    files = {path.name for path in (trained.folder / "plain").iterdir()}
    assert files == {
        "updates.rank0.jsonl", "updates.rank1.jsonl", "times.jsonl", "times.rank1.jsonl",
    }  # fmt: skip
    assert [(r.run.rank, r.run.world_size) for r in trained.ranks("plain")] == [(0, 2), (1, 2)]


def test_a_step_that_amp_leaves_out_is_left_out_on_all_ranks(trained: Trained):
    for recording in trained.ranks("AMP"):
        [skip] = [event for event in recording.events if event.event == "skipped_step"]
        assert skip.update == INFINITE
        assert len(recording.updates) == BATCHES - 1
    assert trained.merged("AMP").disagreements == ()


def test_a_resumed_training_is_the_next_attempt_on_every_rank(trained: Trained):
    for recording in trained.ranks("resumed"):
        assert [run.attempt for run in recording.runs] == [1, 2]
        assert len({run.run_id for run in recording.runs}) == 1
        assert [update.update for update in recording.updates] == list(range(1, 2 * BATCHES + 1))
        [superseded] = recording.superseded
        assert (superseded.first, superseded.last) == (4, 4)
        assert recording.missing == ()
    merged = trained.merged("resumed")
    assert (len(merged.updates), merged.disagreements) == (2 * BATCHES, ())


# No collective


@pytest.mark.parametrize("name", CASES)
def test_recording_asks_no_other_rank(name: str, trained: Trained):
    for done in trained.by_rank:
        assert done[name].collectives == done[f"{name}, unrecorded"].collectives > BATCHES // 2


def test_one_collective_more_would_be_noticed(trained: Trained):
    for done in trained.by_rank:
        without = done["accumulated and clipped, unrecorded"].collectives
        assert done["asking"].collectives == without + BATCHES


@pytest.mark.parametrize("only", range(WORLD))
def test_a_recorder_on_one_rank_only_holds_nobody_up(only: int, trained: Trained):
    """https://github.com/Lightning-AI/pytorch-lightning/issues/17600"""
    recording = read_recording(trained.folder / f"only {only}", rank=only)
    assert (recording.end and recording.end.reason, len(recording.updates)) == ("finished", 2)
    assert any(event.event == "checkpoint" for event in recording.events)
    assert_same_weights(trained, f"only rank {only}", "accumulated and clipped, unrecorded")


@pytest.mark.parametrize("name", CASES)
def test_the_training_ends_in_the_same_bits(name: str, trained: Trained):
    assert_same_weights(trained, name, f"{name}, unrecorded")


def assert_same_weights(trained: Trained, name: str, without: str) -> None:
    for done in trained.by_rank:
        assert done[name].weights.keys() == done[without].weights.keys()
        for key, weight in done[name].weights.items():
            assert torch.equal(weight, done[without].weights[key])

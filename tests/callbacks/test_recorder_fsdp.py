"""Ranks that hold a part of the parameters each record their share: merged, the dense model's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from tests.callbacks.small import make_trainer, record_everything
from tests.ranks import (
    BATCHES,
    WORLD,
    collectives,
    dealt_loader,
    on_ranks,
    whole_loader,
)
from traingen import StepRecorder
from traingen.observe.forwarding import ObserverListener
from traingen.observe.listening import listening
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.update import Options, UpdateObserver
from traingen.records import (
    MemorySink,
    Recording,
    UpdateRecord,
    merge_ranks,
    read_ranks,
    read_recording,
)
from traingen.records.ranks import merge_updates

CLOSE = 1e-6  # relative: float32 sums in another order
HALF = 2e-2  # relative, where the model computes in bfloat16

Clip = Callable[[Any], Any]


class Net(nn.Sequential):
    """On two ranks: rows of 5 are uneven, and of the single row one rank has nothing."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        super().__init__(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        value: Tensor = (self(x).float() - y).square().mean()
        return value


def shard(net: nn.Module, **options: Any) -> None:
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, **options)
    fully_shard(net, **options)


# A loop by hand


class Hears(ObserverListener):
    def __init__(self, observer: UpdateObserver) -> None:
        self.observer = observer

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        assert self.observer is not None
        self.observer.applied(optimizer, global_step=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A training by hand, of one model or of two that take turns in every micro-batch."""

    accumulate: int = 1
    clip: Clip = lambda parameters: None
    synchronized: bool = True  # also where no step follows
    models: int = 1
    sharding: Callable[[], dict[str, Any]] = dict
    tolerance: float = CLOSE

    def run(self, *, sharded: bool, recorded: bool) -> tuple[list[UpdateRecord], list[Tensor]]:
        """The records, if any, and what this rank holds of the parameters in the end."""
        nets = [Net() for _ in range(self.models)]
        for net in nets if sharded else ():
            shard(net, **self.sharding())
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets]
        sink = MemorySink()
        observer = UpdateObserver(
            optimizers,
            emit=sink.write,
            schedulers=SchedulerBook(),
            options=Options(world_size=WORLD if sharded else 1),
        )
        with listening(Hears(observer)) if recorded else nullcontext():
            for idx, (x, y) in enumerate(dealt_loader() if sharded else whole_loader()):
                observer.begin(idx, epoch=0, batch_idx=idx, divisor=self.accumulate)
                steps = (idx + 1) % self.accumulate == 0
                for position, (net, optimizer) in enumerate(zip(nets, optimizers, strict=True)):
                    if sharded:
                        net.set_requires_gradient_sync(steps or self.synchronized)
                    ((position + 1) * net.loss(x, y) / self.accumulate).backward()
                    if steps:
                        self.clip(net.parameters())
                        optimizer.step()
                        optimizer.zero_grad()
        held = [p.detach() for net in nets for p in net.parameters()]
        records = [one for one in sink.records if isinstance(one, UpdateRecord)]
        return records, [getattr(p, "_local_tensor", p).clone() for p in held]


CLIP_NORM = functools.partial(clip_grad_norm_, max_norm=0.5)
CLIP_VALUE = functools.partial(clip_grad_value_, clip_value=0.05)
WAITING = functools.partial(Loop, accumulate=3, clip=CLIP_NORM, synchronized=False)

LOOPS = {
    "plain": Loop(),
    "clipped by norm": Loop(clip=CLIP_NORM),
    "clip that changes nothing": Loop(clip=functools.partial(clip_grad_norm_, max_norm=1e3)),
    "clipped by value": Loop(clip=CLIP_VALUE),
    "accumulated": Loop(accumulate=3, clip=CLIP_NORM),
    "accumulated, synchronized before the step only": WAITING(),
    "gradients that wait in another type": WAITING(
        sharding=lambda: {
            "mp_policy": MixedPrecisionPolicy(
                param_dtype=torch.bfloat16, reduce_dtype=torch.float32
            )
        },
        tolerance=HALF,
    ),
    "two models that wait": WAITING(models=2),
    "kept whole after forward": WAITING(sharding=lambda: {"reshard_after_forward": False}),
}


# The same with Lightning


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = self.net.loss(*batch)
        self.log("twice", 2 * loss)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class ShardedModule(Module):
    def configure_model(self) -> None:
        assert self.device_mesh is not None
        if not hasattr(self.net[0], "unshard"):  # Lightning calls it once per trainer
            shard(self.net, mesh=self.device_mesh["data_parallel"])


class SavesAt(pl.Callback):
    def __init__(self, path: str, step: int) -> None:
        self.path = path
        self.step = step

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)


OPTIONS: dict[str, dict[str, Any]] = {
    "Lightning": {},
    "Lightning, accumulated and clipped": {
        "accumulate_grad_batches": 4,
        "gradient_clip_val": 0.5,
    },
}


def train(options: dict[str, Any], callbacks: list[pl.Callback]) -> list[Tensor]:
    """Train with Lightning and return what this rank holds of the parameters in the end."""
    seed_everything(7, verbose=False)
    strategy = ModelParallelStrategy(
        data_parallel_size=WORLD, tensor_parallel_size=1, save_distributed_checkpoint=False
    )
    options = {"max_epochs": 1, "strategy": strategy, "devices": WORLD, **options}
    ckpt_path = options.pop("ckpt_path", None)
    model = ShardedModule()
    make_trainer(callbacks, **options).fit(model, dealt_loader(), ckpt_path=ckpt_path)
    return [p.detach()._local_tensor.clone() for p in model.parameters()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    held: list[Tensor]  # of the parameters, by this rank
    collectives: int
    records: list[UpdateRecord] | None = None


def train_all(rank: int, folder: str) -> dict[str, Outcome]:
    """Everything that the tests look at, on one rank."""
    return {name: outcome for name, outcome in iter_outcomes(rank, folder)}


def iter_outcomes(rank: int, folder: str) -> Iterator[tuple[str, Outcome]]:
    for name, loop in LOOPS.items():
        for recorded in (False, True):
            before = collectives()
            records, held = loop.run(sharded=True, recorded=recorded)
            asked = collectives() - before
            outcome = Outcome(held=held, collectives=asked, records=records)
            yield (name if recorded else f"{name}, unrecorded"), outcome
    for name, options in OPTIONS.items():
        yield f"{name}, unrecorded", counted(train, options, [])
        yield name, counted(train, options, [record_everything(f"{folder}/{name}")])
    for only in range(WORLD):
        recorder = [record_everything(f"{folder}/only {only}")] if rank == only else []
        yield f"only {only}", counted(train, OPTIONS["Lightning"], recorder)
    saves = functools.partial(SavesAt, f"{folder}/resumed.ckpt", 3)
    for options in ({"max_steps": 4}, {"max_epochs": 2, "ckpt_path": f"{folder}/resumed.ckpt"}):
        recorder = [record_everything(f"{folder}/resumed"), saves()]
        yield "resumed", counted(train, options, recorder)


def counted(work: Callable[..., list[Tensor]], *args: Any) -> Outcome:
    before = collectives()
    held = work(*args)
    return Outcome(held=held, collectives=collectives() - before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    folder: Path
    by_rank: list[dict[str, Outcome]]

    def records(self, name: str) -> list[tuple[UpdateRecord, ...]]:
        """Of each update what every rank has recorded."""
        if name in LOOPS:
            by_rank = [done[name].records or [] for done in self.by_rank]
        else:
            by_rank = [list(ranks.updates) for ranks in self.ranks(name)]
        return list(zip(*by_rank, strict=True))

    def ranks(self, name: str) -> tuple[Recording, ...]:
        return read_ranks(self.folder / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("fsdp")
    return Trained(folder=folder, by_rank=on_ranks(train_all, str(folder)))


pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint that ended before the epoch ended:UserWarning"
)


def dense(name: str, path: Path) -> list[UpdateRecord]:
    """The same training by one process that holds everything, on the batches of all ranks."""
    if name in LOOPS:
        return LOOPS[name].run(sharded=False, recorded=True)[0]
    options = {"max_epochs": 1, **OPTIONS[name]}
    make_trainer([StepRecorder(str(path))], **options).fit(Module(), whole_loader())
    return list(read_recording(path).updates)


ALL = [*LOOPS, *OPTIONS]


@pytest.mark.parametrize("name", ALL)
def test_merged_norms_are_those_of_the_dense_model(name: str, trained: Trained, tmp_path: Path):
    tolerance = LOOPS[name].tolerance if name in LOOPS else CLOSE
    by_value = name == "clipped by value"
    merged = [merge_updates(ranks, by_value=by_value) for ranks in trained.records(name)]
    expected = dense(name, tmp_path)
    assert len(merged) == len(expected) > 0
    for one, other in zip(merged, expected, strict=True):
        assert (one.update, one.optimizer) == (other.update, other.optimizer)
        assert (one.micro_batches, one.clipped) == (other.micro_batches, other.clipped)
        assert values_of(one) == pytest.approx(values_of(other), rel=tolerance)
        assert (one.clip_coefficient is None) == (other.clip_coefficient is None) == by_value


def values_of(update: UpdateRecord) -> dict[str, Any]:
    names = ("loss", "objective", "grad_norm", "grad_norm_clipped")
    values = {name: getattr(update, name) for name in names}
    assert None not in values.values()
    return values | {"ratio": update.grad_norm_clipped / update.grad_norm}


@pytest.mark.parametrize("name", ALL)
def test_a_rank_records_its_share_and_no_norm_that_it_cannot_know(name: str, trained: Trained):
    for ranks in trained.records(name):
        whole = merge_updates(ranks).grad_norm
        for record in ranks:
            assert record.shard is not None
            assert 0 < record.shard.grad_norm_squared < 0.999 * whole**2
            known = record.grad_norm, record.grad_norm_clipped, record.clip_coefficient
            assert known == (None, None, None)


@pytest.mark.parametrize("name", ALL)
def test_every_update_has_its_objective_on_every_rank(name: str, trained: Trained):
    for ranks in trained.records(name):
        for record in ranks:
            assert record.objective is not None
            assert len(record.micro_losses or ()) == record.micro_batches


def test_only_what_is_clipped_says_so(trained: Trained):
    clipped = {
        name: {merge_updates(ranks).clipped for ranks in trained.records(name)}
        for name in ("plain", "clip that changes nothing", "clipped by norm", "clipped by value")
    }
    assert clipped == {
        "plain": {False},
        "clip that changes nothing": {False},
        "clipped by norm": {True},
        "clipped by value": {True},
    }


def test_the_files_of_all_ranks_merge(trained: Trained):
    merged = merge_ranks(trained.ranks("Lightning, accumulated and clipped"))
    assert (merged.ranks, merged.disagreements, merged.unequal) == (WORLD, (), ())
    assert [update.grad_norm_clipped for update in merged.updates] == pytest.approx(
        [0.5] * 2,
        rel=1e-5,  # torch adds 1e-6 to the norm it divides by
    )


def test_a_resumed_training_is_the_next_attempt_on_every_rank(trained: Trained):
    for recording in trained.ranks("resumed"):
        assert [run.attempt for run in recording.runs] == [1, 2]
        assert [update.update for update in recording.updates] == list(range(1, 2 * BATCHES + 1))
        [superseded] = recording.superseded
        assert (superseded.first, superseded.last) == (4, 4)
    merged = merge_ranks(trained.ranks("resumed"))
    assert (len(merged.updates), merged.disagreements) == (2 * BATCHES, ())


# No collective


@pytest.mark.parametrize("name", ALL)
def test_recording_asks_no_other_rank(name: str, trained: Trained):
    for done in trained.by_rank:
        assert done[name].collectives == done[f"{name}, unrecorded"].collectives > 0


@pytest.mark.parametrize("only", range(WORLD))
def test_a_recorder_on_one_rank_only_holds_nobody_up(only: int, trained: Trained):
    recording = read_recording(trained.folder / f"only {only}", rank=only)
    assert (recording.end and recording.end.reason) == "finished"
    assert len(recording.updates) == BATCHES
    assert_same_parts(trained, f"only {only}", "Lightning, unrecorded")


@pytest.mark.parametrize("name", ALL)
def test_the_training_ends_in_the_same_bits(name: str, trained: Trained):
    assert_same_parts(trained, name, f"{name}, unrecorded")


def assert_same_parts(trained: Trained, name: str, without: str) -> None:
    for done in trained.by_rank:
        assert len(done[name].held) == len(done[without].held) > 0
        assert all(map(torch.equal, done[name].held, done[without].held))


def test_ranks_hold_different_parts(trained: Trained):
    shapes = [[tuple(p.shape) for p in done["plain"].held] for done in trained.by_rank]
    assert shapes[0] != shapes[1]

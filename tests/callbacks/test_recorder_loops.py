"""Ways to go through the data, and a compiled module: the same updates as a plain loop makes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

from tests.callbacks.recorded import Recorded, train
from tests.callbacks.small import BATCH, BATCHES, Expected, Small, make_loader, replay
from traingen.observe.digests import digest_batch


def assert_as_by_hand(done: Recorded, by_hand: list[Expected]) -> None:
    """Place, loss, norm and rate of every update are those of the plain loop."""
    assert [(u.epoch, u.batch_idx, u.micro_batches) for u in done.updates] == [
        (one.epoch, one.batch_idx, one.micro_batches) for one in by_hand
    ]
    assert [u.objective for u in done.updates] == [sum(one.roots) for one in by_hand]
    assert [u.grad_norm for u in done.updates] == pytest.approx(
        [one.grad_norm for one in by_hand], rel=1e-6
    )
    assert [u.lr for u in done.updates] == [[pytest.approx(one.lr)] for one in by_hand]
    assert [u.global_step for u in done.updates] == list(range(1, len(by_hand) + 1))


# ---- Data without a length -----------------------------------------------------------------------


class Stream(IterableDataset[tuple[Tensor, ...]]):
    """The batches of `make_loader`, one by one."""

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return iter([tuple(batch) for batch in make_loader()])


@pytest.mark.parametrize("accumulate", [1, 2, 5])
def test_data_without_a_length_are_recorded_batch_by_batch(tmp_path, accumulate):
    stream = DataLoader(Stream(), batch_size=None)
    options = {"accumulate_grad_batches": accumulate, "max_epochs": 2}
    done = train(tmp_path, Small(), data=stream, **options)
    by_hand = replay(Small(), accumulate=accumulate)
    assert_as_by_hand(done, by_hand)
    if accumulate == 1:  # Lightning fetches one ahead: each update has its own batch all the same
        digests = [digest_batch(list(batch)) for batch in Stream()]
        assert [u.batch.digest for u in done.updates] == 2 * digests
    assert set(done.found) == ({"PARTIAL-WINDOW"} if accumulate == 2 else set())


# ---- A part of the data --------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "batches"), [(3, 3), (0.4, 2), (1, 1)])
def test_a_limited_epoch_ends_where_it_is_limited(tmp_path, limit, batches):
    done = train(tmp_path, Small(), limit_train_batches=limit, max_epochs=3)
    assert [(u.epoch, u.batch_idx) for u in done.updates] == [
        (epoch, batch) for epoch in range(3) for batch in range(batches)
    ]
    assert [u.total_batch_idx for u in done.updates] == list(range(3 * batches))
    first = replay(Small(), epochs=1)[:batches]
    assert [u.objective for u in done.updates[:batches]] == [sum(one.roots) for one in first]
    assert done.found == {}


@pytest.mark.parametrize(("limit", "windows"), [(3, [2, 1]), (4, [2, 2])])
def test_a_limit_that_cuts_a_window_is_found(tmp_path, limit, windows):
    options = {"limit_train_batches": limit, "accumulate_grad_batches": 2, "max_epochs": 2}
    done = train(tmp_path, Small(), **options)
    assert [u.micro_batches for u in done.updates] == 2 * windows
    assert set(done.found) == ({"PARTIAL-WINDOW"} if 1 in windows else set())


@pytest.mark.filterwarnings("ignore:You requested to overfit but enabled train dataloader")
@pytest.mark.parametrize("batches", [1, 2])
def test_overfitting_repeats_the_same_batches_and_names_the_sampler_in_effect(tmp_path, batches):
    data = TensorDataset(torch.randn(BATCHES * BATCH, 3), torch.randn(BATCHES * BATCH, 1))
    loader = DataLoader(data, batch_size=BATCH, sampler=RandomSampler(data))
    done = train(tmp_path, Small(), data=loader, overfit_batches=batches, max_epochs=3)
    digests = [u.batch.digest for u in done.updates]
    assert digests == digests[:batches] * 3
    assert len(set(digests)) == batches
    assert done.recording.run.loader["sampler"].endswith("SequentialSampler")
    same = train(tmp_path / "all", Small(), data=loader, max_epochs=1)
    assert same.recording.run.loader["sampler"].endswith("RandomSampler")
    assert done.found == same.found == {}


# ---- Validations within an epoch -----------------------------------------------------------------


class Validates(Small):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("valid", self.loss(batch))

    def val_dataloader(self) -> Any:
        return make_loader()


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"val_check_interval": 2}, [2, 4, 7, 9]),
        ({"val_check_interval": 3, "check_val_every_n_epoch": None}, [3, 6, 9]),
        ({"val_check_interval": 1.0}, [5, 10]),
        ({"limit_val_batches": 0}, []),
    ],
)
def test_validations_are_events_between_updates_that_stay_the_same(tmp_path, options, steps):
    done = train(tmp_path, Validates(), max_epochs=2, **options)
    assert_as_by_hand(done, replay(Small()))
    assert [details["global_step"] for details in done.events("validation")] == steps
    assert [one.update for one in done.recording.events] == steps
    assert done.found == {}


# ---- Several loaders at once ---------------------------------------------------------------------


class FromTwo(Small):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        value: Tensor = (self.loss(batch["one"]) + self.loss(batch["other"])) / 2
        return value


def test_a_batch_of_several_loaders_is_one_micro_batch(tmp_path):
    data = {"one": make_loader(), "other": make_loader()}
    done = train(tmp_path, FromTwo(), data=data, max_epochs=2)
    assert_as_by_hand(done, replay(Small()))
    assert done.found == {}


# ---- torch.compile -------------------------------------------------------------------------------


def compiled_module() -> Any:
    return torch.compile(Small(), backend="aot_eager")


def compiled_part() -> Any:
    model = Small()
    model.net.compile(backend="aot_eager")
    return model


@pytest.mark.parametrize("make", [compiled_module, compiled_part], ids=["module", "part"])
def test_a_compiled_module_makes_the_same_updates(tmp_path, make):
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 2.0, "max_epochs": 2}
    done = train(tmp_path / "compiled", make(), **options)
    plain = train(tmp_path / "plain", Small(), **options)
    assert [u.micro_batches for u in done.updates] == [2, 2, 1] * 2
    for one, other in zip(done.updates, plain.updates, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-6)
        assert one.grad_norm_clipped == pytest.approx(other.grad_norm_clipped, rel=1e-6)
        assert (one.global_step, one.lr, one.batch) == (other.global_step, other.lr, other.batch)
    assert done.found == plain.found == {"PARTIAL-WINDOW": "warning"}


# ---- The end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "batches"), [(3, 6), (1, 2)])
def test_training_that_ends_by_steps_has_exactly_these_updates(tmp_path, steps, batches):
    done = train(tmp_path, Small(), max_steps=steps, max_epochs=-1, accumulate_grad_batches=2)
    by_hand = replay(Small(), accumulate=2)[:steps]
    assert_as_by_hand(done, by_hand)
    assert (done.recording.end.reason, done.recording.end.updates) == ("finished", steps)
    assert done.trainer.global_step == steps

"""Loaders and samplers are described without being asked for anything that could draw."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from traingen.observe.loaders import describe_loader, describe_sampler, sample_ids

DATA = TensorDataset(torch.arange(10))
SAMPLERS = "torch.utils.data.sampler."


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        raise AssertionError("it was iterated")

    def __len__(self) -> int:
        raise AssertionError("its length was asked for")


class Buckets(Sampler[list[int]]):
    """Makes its batches when it is asked how many there are."""

    batch_size, drop_last = 3, True

    def __init__(self) -> None:
        self.batch_size, self.drop_last, self.seed, self.epoch = 3, True, 11, 2

    def __iter__(self) -> Iterator[list[int]]:
        raise AssertionError("it was iterated")

    def __len__(self) -> int:
        raise AssertionError("it works out its batches")


def test_a_plain_loader_is_described():
    assert describe_loader(DataLoader(DATA, batch_size=4)) == {
        "num_workers": 0,
        "batch_size": 4,
        "drop_last": False,
        "sampler": SAMPLERS + "SequentialSampler",
        "sampler_seed": None,
        "batches": 3,
    }


def test_workers_and_dropped_batches_are_told():
    found = describe_loader(DataLoader(DATA, batch_size=4, num_workers=2, drop_last=True))
    assert (found["num_workers"], found["drop_last"], found["batches"]) == (2, True, 2)


def test_a_shuffled_loader_has_a_seed_only_if_it_has_a_generator():
    seeded = DataLoader(DATA, shuffle=True, generator=torch.Generator().manual_seed(7))
    plain = DataLoader(DATA, shuffle=True)
    name = SAMPLERS + "RandomSampler"
    assert describe_sampler(seeded) == {"class_path": name, "seed": 7, "epoch": None}
    assert describe_sampler(plain) == {"class_path": name, "seed": None, "epoch": None}
    assert describe_loader(seeded)["sampler_seed"] == 7


def test_a_distributed_sampler_tells_seed_and_epoch_as_they_are_now():
    sampler = DistributedSampler(DATA, num_replicas=2, rank=1, seed=5)
    loader = DataLoader(DATA, batch_size=2, sampler=sampler)
    found = [describe_sampler(loader)]
    sampler.set_epoch(3)
    found.append(describe_sampler(loader))
    name = "torch.utils.data.distributed.DistributedSampler"
    assert found == [{"class_path": name, "seed": 5, "epoch": epoch} for epoch in (0, 3)]
    assert describe_loader(loader)["batches"] == 3


@pytest.mark.parametrize(
    ("inner", "name"),
    [
        (RandomSampler(DATA), "RandomSampler"),
        (WeightedRandomSampler([1.0] * 10, 10), "WeightedRandomSampler"),
        (SequentialSampler(DATA), "SequentialSampler"),
    ],
)
def test_in_a_batch_sampler_the_inner_one_decides(inner: Any, name: str):
    batches = BatchSampler(inner, batch_size=3, drop_last=True)
    loader = DataLoader(DATA, batch_sampler=batches)
    found = describe_loader(loader)
    assert found["sampler"] == describe_sampler(loader)["class_path"] == SAMPLERS + name
    assert (found["batch_size"], found["drop_last"], found["batches"]) == (3, True, 3)


def test_a_batch_sampler_of_its_own_kind_is_the_sampler_and_its_length_is_not_asked_for():
    loader = DataLoader(DATA, batch_sampler=Buckets())
    found = describe_loader(loader)
    assert describe_sampler(loader) == {
        "class_path": f"{__name__}.Buckets" if __name__ != "__main__" else "Buckets",
        "seed": 11,
        "epoch": 2,
    }
    assert (found["batch_size"], found["drop_last"]) == (3, True)
    assert (found["sampler_seed"], found["batches"]) == (11, None)


def test_a_stream_is_not_touched():
    loader = DataLoader(Stream(), batch_size=2)
    found = describe_loader(loader)
    assert found["sampler"].endswith("_InfiniteConstantSampler")
    assert (found["batch_size"], found["batches"]) == (2, None)
    assert describe_sampler(loader)["seed"] is None


def test_a_loader_without_batching_counts_its_samples():
    found = describe_loader(DataLoader(DATA, batch_size=None))
    assert (found["batch_size"], found["batches"]) == (None, 10)


@pytest.mark.parametrize(
    "other", [[1, 2], iter([1]), object(), None], ids=lambda o: type(o).__name__
)
def test_what_is_no_loader_has_nothing_to_tell(other: Any):
    assert set(describe_loader(other).values()) == {None}
    assert describe_sampler(other) is None


def test_describing_draws_nothing_and_leaves_the_order_alone():
    generator = torch.Generator().manual_seed(7)
    loader = DataLoader(DATA, batch_size=3, shuffle=True, generator=generator)
    states = torch.get_rng_state(), generator.get_state()
    describe_loader(loader)
    describe_sampler(loader)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(generator.get_state(), states[1])
    fresh = DataLoader(DATA, batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(7))
    assert [b.tolist() for [b] in loader] == [b.tolist() for [b] in fresh]


X = torch.zeros(3, 2)
Named = namedtuple("Named", "x idx")


@dataclass
class Plain:
    x: torch.Tensor
    sample_id: Any


@dataclass(slots=True)
class Slotted:
    x: torch.Tensor
    ids: Any


class Bag:
    """Acts like a mapping without being one, as graph batches do."""

    def keys(self) -> list[str]:
        return ["x", "index"]

    def __getitem__(self, key: str) -> torch.Tensor:
        return {"x": X, "index": torch.tensor([3, 1, 2])}[key]


@pytest.mark.parametrize("key", ["sample_id", "sample_ids", "id", "ids", "index", "indices", "idx"])
@pytest.mark.parametrize(
    "ids",
    [torch.tensor([3, 1, 2]), np.array([3, 1, 2], dtype=np.int32), [3, 1, 2], (3, 1, 2)],
    ids=lambda value: type(value).__name__,
)
def test_ids_are_found_under_every_known_key(key: str, ids: Any):
    assert sample_ids({"x": X, key: ids}) == [3, 1, 2]
    assert sample_ids({"x": X, f"my_{key}": ids}) is None


@pytest.mark.parametrize(
    "batch",
    [
        Named(X, torch.tensor([3, 1, 2])), Plain(X, torch.tensor([3, 1, 2])),
        Slotted(X, [3, 1, 2]), Bag(), {"idx": torch.tensor([3, 1, 2], dtype=torch.uint8)},
    ],
    ids=lambda batch: type(batch).__name__,
)  # fmt: skip
def test_ids_are_found_in_every_kind_of_batch(batch: Any):
    assert sample_ids(batch) == [3, 1, 2]


@pytest.mark.parametrize("ids", [["a", "b", "c"], np.array(["a", "b", "c"])])
def test_ids_may_be_texts(ids: Any):
    assert sample_ids({"id": ids, "label": [0, 1, 0]}) == ["a", "b", "c"]


def test_the_first_key_that_holds_ids_counts():
    assert sample_ids({"x": X, "idx": [1, 2, 3], "sample_id": [7, 8, 9]}) == [7, 8, 9]
    assert sample_ids({"x": X, "idx": [1, 2, 3], "sample_id": torch.zeros(3)}) == [1, 2, 3]


@pytest.mark.parametrize(
    "ids",
    [
        torch.tensor([1, 2]), torch.zeros(3), torch.zeros(3, dtype=torch.bool), torch.tensor(1),
        torch.zeros(3, 2, dtype=torch.int64), [1.0, 2.0, 3.0], [True, False, True], "abc", 3, None,
        np.zeros(3), [[1], [2], [3]], {"a": 1},
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'shape', '')}",
)  # fmt: skip
def test_what_is_no_id_for_each_sample_is_none(ids: Any):
    assert sample_ids({"x": X, "index": ids}) is None


@pytest.mark.parametrize(
    "batch", [X, [X, [1, 2, 3]], (X, X), "index", None, 3, np.zeros(3)], ids=type
)
def test_a_batch_without_names_tells_no_ids(batch: Any):
    assert sample_ids(batch) is None

"""Of all batches a loop fetches, those it trains on are found."""

from typing import Any

from torch.utils.data import DataLoader

from traingen.loops.batches import Fetch, TrainingBatches


def make_loader() -> DataLoader[Any]:
    return DataLoader([0, 1], batch_size=1)


def places(fetches: list[Fetch]) -> list[tuple[int, int, Any]]:
    return [(f.iteration, f.index, f.batch) for f in fetches]


def test_the_batches_before_the_first_training_call_are_returned_then():
    batches, loader = TrainingBatches(), make_loader()
    assert batches.fetched(loader, 0, "a") is None
    assert batches.fetched(loader, 0, "b") is None
    assert places(batches.settle()) == [(0, 0, "a"), (0, 1, "b")]
    assert batches.loader is loader


def test_later_batches_are_known_at_once_and_numbered_within_their_epoch():
    batches, loader = TrainingBatches(), make_loader()
    batches.fetched(loader, 0, "a")
    batches.settle()
    later = [batches.fetched(loader, i, b) for i, b in [(0, "b"), (1, "c"), (1, "d"), (2, "e")]]
    assert places(later) == [(0, 1, "b"), (1, 0, "c"), (1, 1, "d"), (2, 0, "e")]
    assert batches.settle() == []


def test_a_peek_at_the_training_loader_is_no_training():
    batches, loader = TrainingBatches(), make_loader()
    batches.fetched(loader, 0, "peek")
    batches.fetched(loader, 1, "a")
    assert places(batches.settle()) == [(1, 0, "a")]


def test_a_validation_before_training_is_no_training():
    batches, training, validation = TrainingBatches(), make_loader(), make_loader()
    batches.fetched(validation, 0, "v")
    batches.fetched(training, 0, "a")
    assert places(batches.settle()) == [(0, 0, "a")]
    assert batches.loader is training


def test_batches_of_another_loader_are_never_training_batches():
    batches, training, validation = TrainingBatches(), make_loader(), make_loader()
    batches.fetched(training, 0, "a")
    batches.settle()
    assert batches.fetched(validation, 0, "v") is None
    assert places([batches.fetched(training, 0, "b")]) == [(0, 1, "b")]


def test_a_fetch_keeps_the_loops_own_batch_and_loader():
    batches, loader, batch = TrainingBatches(), make_loader(), object()
    batches.fetched(loader, 0, batch)
    (fetch,) = batches.settle()
    assert fetch.batch is batch
    assert fetch.loader is loader


def test_nothing_is_settled_before_a_batch_was_fetched():
    batches, loader = TrainingBatches(), make_loader()
    assert batches.settle() == []
    assert batches.loader is None
    batches.fetched(loader, 0, "a")
    assert places(batches.settle()) == [(0, 0, "a")]

"""The batches of one system, handed to the other: order, epochs, copies, and draws."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from traingen.errors import SystemFailed
from traingen.lockstep.feed import Draws, Feed, FeedExhausted
from traingen.loops.batches import Fetch
from traingen.observe.rng import capture_rng, digest_rng, restore_rng, seed_rng


def fetch(batch: Any, *, epoch: int = 0, length: int = 2) -> Fetch:
    loader: Any = [None] * length  # all that a feed asks of a loader is its length
    return Fetch(loader=loader, iteration=epoch, index=0, batch=batch)


def make_feed(*batches: tuple[int, Any], length: int = 2) -> Feed:
    feed = Feed(lambda: None)
    for epoch, batch in batches:
        feed.offer(fetch(batch, epoch=epoch, length=length), None)
    return feed


def draw() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def draws_of_a_loader(seed: int) -> Draws:
    """What a loader draws that starts at `seed`; the outside streams stay where they are."""
    outside = capture_rng()
    seed_rng(seed)
    before = capture_rng()
    draw()
    after = capture_rng()
    restore_rng(outside)
    return Draws(before=before, after=after)


def test_batches_come_in_the_order_of_the_original():
    feed = make_feed((0, "a"), (0, "b"), (0, "c"), length=3)
    assert list(feed) == ["a", "b", "c"]


def test_an_epoch_is_as_long_as_the_originals():
    feed = make_feed((0, "a"), (0, "b"), (1, "c"), (1, "d"))
    assert list(feed) == ["a", "b"]
    assert list(feed) == ["c", "d"]


def test_an_epoch_that_was_cut_short_ends_where_it_was():
    feed = make_feed((0, "a"), (1, "b"), (1, "c"))
    assert list(feed) == ["a"]
    assert list(feed) == ["b", "c"]


def test_length_is_that_of_the_originals_loader():
    feed = make_feed((0, "a"), length=5)
    assert len(feed) == 5


def test_there_is_no_length_before_the_first_batch():
    with pytest.raises(SystemFailed, match="has loaded no batch yet"):
        len(Feed(lambda: None))


def test_asking_for_more_than_the_original_used_is_refused():
    batches = iter(make_feed((0, "a")))
    assert next(batches) == "a"
    with pytest.raises(FeedExhausted, match="same number of micro-batches"):
        next(batches)


def test_batches_that_arrive_later_are_handed_out_too():
    feed = make_feed((0, "a"))
    batches = iter(feed)
    assert next(batches) == "a"
    feed.offer(fetch("b"), None)
    assert next(batches) == "b"
    assert next(batches, "over") == "over"


def test_what_the_original_does_to_a_batch_later_is_not_seen():
    batch = {"x": torch.zeros(3), "ids": [1]}
    feed = make_feed((0, batch))
    batch["x"].add_(1)
    batch["ids"].append(2)
    fed = next(iter(feed))
    assert fed["ids"] == [1]
    assert fed["x"].tolist() == [0, 0, 0]


def test_what_the_package_does_to_a_batch_is_not_seen_by_the_original():
    batch = torch.zeros(3)
    feed = make_feed((0, batch))
    next(iter(feed)).add_(1)
    assert batch.tolist() == [0, 0, 0]


def test_arrival_is_told_before_each_batch_is_handed_out():
    seen: list[Any] = []
    feed = Feed(lambda: seen.append("arrives"))
    feed.offer(fetch("a"), None)
    feed.offer(fetch("b"), None)
    for batch in feed:
        seen.append(batch)
    assert seen == ["arrives", "a", "arrives", "b"]


def test_nothing_is_taken_before_the_first_batch_is_asked_for():
    seen: list[str] = []
    feed = Feed(lambda: seen.append("arrives"))
    feed.offer(fetch("a"), None)
    batches = iter(feed)
    assert seen == []
    assert next(batches) == "a"


def test_draws_of_the_loader_are_repeated_where_it_found_the_generators():
    draws = draws_of_a_loader(5)
    feed = Feed(lambda: None)
    feed.offer(fetch("a"), draws)
    seed_rng(5)
    draw()
    expected = draw()

    seed_rng(5)
    next(iter(feed))

    assert draw() == expected


def test_draws_are_not_repeated_where_the_generators_stand_elsewhere():
    feed = Feed(lambda: None)
    feed.offer(fetch("a"), draws_of_a_loader(5))
    seed_rng(6)
    before = digest_rng()
    next(iter(feed))
    assert digest_rng() == before


def test_each_generator_is_looked_at_by_itself():
    feed = Feed(lambda: None)
    feed.offer(fetch("a"), draws_of_a_loader(5))
    seed_rng(5)
    random.seed(99)
    before = digest_rng()

    next(iter(feed))

    after = digest_rng()
    assert after["python"] == before["python"]
    assert after["numpy"] != before["numpy"]
    assert after["torch"] != before["torch"]


def test_batches_without_known_draws_leave_the_generators_alone():
    before = digest_rng()
    assert list(make_feed((0, "a"), (0, "b"))) == ["a", "b"]
    assert digest_rng() == before

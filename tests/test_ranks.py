"""Ranks started by a test work together, and what goes wrong on one of them is told."""

from __future__ import annotations

import os
import time
import warnings

import pytest
import torch
import torch.distributed as dist

from tests.ranks import WORLD, collectives, on_ranks


def test_each_rank_returns_its_own_and_all_are_one_group() -> None:
    def add_up(rank: int, factor: int) -> tuple[int, float, int]:
        total = torch.tensor(float(rank + 1))
        before = collectives()
        dist.all_reduce(total)
        dist.broadcast(torch.zeros(1), src=0)
        return factor * rank, total.item(), collectives() - before

    assert on_ranks(add_up, 10) == [(0, 3.0, 2), (10, 3.0, 2)]


def test_what_autograd_reduces_is_counted_in_any_group() -> None:
    def train(rank: int) -> int:
        group = dist.new_group(list(range(WORLD)))
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(1, 1), process_group=group
        )
        before = collectives()
        model(torch.ones(1, 1)).sum().backward()
        return collectives() - before

    assert on_ranks(train) == [1, 1]


def test_what_one_rank_raises_is_raised_though_the_other_waits() -> None:
    def fail(rank: int) -> None:
        if rank == 1:
            raise ValueError("rank 1 has no data")
        dist.barrier()

    start = time.monotonic()
    with pytest.raises(AssertionError, match=r"(?s)rank 1:.*rank 1 has no data"):
        on_ranks(fail)
    assert time.monotonic() - start < 30


def test_a_rank_that_dies_is_told() -> None:
    def die(rank: int) -> None:
        if rank == 1:
            os._exit(3)
        dist.barrier()

    with pytest.raises(AssertionError, match=r"rank [01]( died|:)"):
        on_ranks(die)


def test_ranks_that_are_not_done_in_time_are_told_and_ended() -> None:
    def hang(rank: int) -> None:
        if rank == 0:
            time.sleep(60)

    with pytest.raises(AssertionError, match=r"ranks \[0\] were not done in time"):
        on_ranks(hang, seconds=1)


def test_a_warning_on_a_rank_is_an_error_as_in_any_test() -> None:
    with pytest.raises(AssertionError, match="UserWarning: careful"):
        on_ranks(lambda rank: warnings.warn("careful", stacklevel=1))

"""Several processes of one training, started from within a test.

They are forked: torch and Lightning are imported once, and the launch costs a fraction of a
second. A fork inherits locks and thread pools that it must not use, so each runs on one thread.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORLD = 2
SAMPLES, BATCH = 24, 4  # of all ranks together
BATCHES = SAMPLES // BATCH


def on_ranks(work: Callable[..., Any], *args: Any, seconds: float = 120) -> list[Any]:
    """What `work(rank, *args)` returns on each of `WORLD` ranks of one gloo group.

    Lightning finds the group there and itself started as one process of several. Raises
    AssertionError with the traceback of the rank that failed first, or with the ranks that were
    not done after so many seconds.
    """
    started: list[BaseProcess] = []
    receivers: list[Connection] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for rank in range(WORLD):
                process, receiver = _start(rank, f"{folder}/store", work, args)
                started.append(process)
                receivers.append(receiver)
            return _collect(receivers, until=time.monotonic() + seconds)
        except BaseException:
            for process in started:  # the other rank may wait for the one that failed
                process.kill()
            raise
        finally:
            for process in started:
                process.join()


def samples() -> TensorDataset:
    """Three features and a target each, the same on every rank."""
    drawn = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(5))
    return TensorDataset(drawn[:, :3] * 2, drawn[:, 3:])


def whole_loader() -> DataLoader[Any]:
    """The batches of one process that trains alone."""
    return DataLoader(samples(), batch_size=BATCH)


def dealt_loader() -> DataLoader[Any]:
    """This rank's part of each batch; left to itself Lightning would shuffle."""
    dealt: DistributedSampler[Any] = DistributedSampler(samples(), shuffle=False)
    return DataLoader(samples(), batch_size=BATCH // WORLD, sampler=dealt)


def collectives() -> int:
    """How many collectives all groups have seen so far, also those that torch starts in C++."""
    return sum(
        group._get_sequence_number_for_group() for group in dist.distributed_c10d._world.pg_map
    )


def _start(
    rank: int, store: str, work: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(rank, sender, store, work, args))
    with warnings.catch_warnings():
        # from Python 3.12 on, of a fork while other threads exist
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()  # else the end of the rank would not end the pipe
    return process, receiver


def _collect(receivers: list[Connection], *, until: float) -> list[Any]:
    results: dict[int, Any] = {}
    while len(results) < len(receivers):
        awaited = [one for rank, one in enumerate(receivers) if rank not in results]
        ready = wait(awaited, timeout=max(until - time.monotonic(), 0))
        late = [rank for rank in range(len(receivers)) if rank not in results]
        assert ready, f"ranks {late} were not done in time"
        for receiver in ready:
            rank = receivers.index(receiver)  # type: ignore[arg-type]
            try:
                failure, results[rank] = pickle.loads(receiver.recv_bytes())  # type: ignore[union-attr]
            except EOFError:
                raise AssertionError(f"rank {rank} died") from None
            assert failure is None, f"rank {rank}:\n{failure}"
    return [results[rank] for rank in range(len(receivers))]


def _run(
    rank: int, sender: Connection, store: str, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(WORLD))
    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, WORLD),
            rank=rank,
            world_size=WORLD,
            timeout=timedelta(seconds=60),  # a rank that waits in vain is an error, soon
        )
        answer = None, work(rank, *args)
        dist.destroy_process_group()
    except BaseException:
        answer = traceback.format_exc(), None
    sender.send_bytes(pickle.dumps(answer))

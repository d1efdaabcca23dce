"""What two processes see of sharded gradients; each rank writes its findings as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard

from traingen.observe.moments import digest_parameters, moment_norms
from traingen.observe.norms import is_sharded, measure_norm, norm_by_name, shard_share

WORLD = 2


def observe_shards(rank: int, folder: str) -> None:
    """Run in each of `WORLD` processes: collect every case and write `<rank>.json`."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", WORLD)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORLD, timeout=timedelta(seconds=60)
    )
    try:
        found = {name: case() for name, case in CASES.items()}
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


def observe(tensors: list[torch.Tensor], whole: list[torch.Tensor]) -> dict[str, Any]:
    """What is read of `tensors`, beside the exact square of the norm of `whole`."""
    with CommDebugMode() as collectives:
        share = shard_share(tensors, world_size=WORLD)
        sharded = is_sharded(tensors)
        names = norm_by_name({str(i): one for i, one in enumerate(tensors)})
    return {
        "share": share,
        "sharded": sharded,
        "by_name": names,
        "exact": math.fsum(float(one.double().square().sum()) for one in whole),
        "collectives": collectives.get_total_counts(),
    }


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def line() -> DeviceMesh:
    return init_device_mesh("cpu", (WORLD,))


def case_sharded() -> dict[str, Any]:
    whole = numbers(8, 3)
    return observe([distribute_tensor(whole, line(), [Shard(0)])], [whole])


def case_large() -> dict[str, Any]:
    whole = numbers(300, 1001)
    return observe([distribute_tensor(whole, line(), [Shard(1)])], [whole])


def case_uneven() -> dict[str, Any]:
    whole = numbers(5, 3)
    return observe([distribute_tensor(whole, line(), [Shard(0)])], [whole])


def case_empty_shard() -> dict[str, Any]:
    whole = numbers(1, 3)
    return observe([distribute_tensor(whole, line(), [Shard(0)])], [whole])


def case_replicated() -> dict[str, Any]:
    whole = numbers(4, 3)
    return observe([distribute_tensor(whole, line(), [Replicate()])], [whole])


def case_plain() -> dict[str, Any]:
    whole = numbers(4, 3)
    return observe([whole], [whole])


def case_mixed() -> dict[str, Any]:
    whole = [numbers(4, 3, seed=seed) for seed in range(3)]
    placed = [distribute_tensor(whole[0], line(), [Shard(0)])]
    placed += [distribute_tensor(whole[1], line(), [Replicate()]), whole[2]]
    return observe(placed, whole)


def case_mesh_of_two_dimensions() -> dict[str, Any]:
    whole = numbers(6, 4)
    mesh = init_device_mesh("cpu", (WORLD, 1))
    return observe([distribute_tensor(whole, mesh, [Replicate(), Shard(0)])], [whole])


def case_mesh_over_one_rank() -> dict[str, Any]:
    """A part of the model that lives on rank 1 alone; rank 0 has an empty piece of it."""
    whole = numbers(4, 3)
    mesh = DeviceMesh("cpu", [1])
    return observe([distribute_tensor(whole, mesh, [Shard(0)])], [whole])


def case_partial() -> dict[str, Any]:
    whole = numbers(4, 3)
    return observe([DTensor.from_local(whole / WORLD, line(), [Partial()])], [whole])


def case_half() -> dict[str, Any]:
    whole = (numbers(8, 3) * 1e4).to(torch.float16)
    return observe([distribute_tensor(whole, line(), [Shard(0)])], [whole])


def case_strided() -> dict[str, Any]:
    """Every second pair of rows on a rank, the last one short: what FSDP over split rows leaves."""
    whole = numbers(7, 2)
    rows = [[0, 1, 4, 5], [2, 3, 6]][dist.get_rank()]
    placed = DTensor.from_local(
        whole[rows],
        line(),
        [_StridedShard(0, split_factor=2)],
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )
    return observe([placed], [whole])


def case_fully_shard_of_a_split_layer() -> dict[str, Any]:
    whole = numbers(7, 2)
    mesh = init_device_mesh("cpu", (1, WORLD), mesh_dim_names=("dp", "tp"))
    layer = nn.Linear(2, 7, bias=False)
    layer.weight = nn.Parameter(distribute_tensor(whole, mesh["tp"], [Shard(0)]))
    fully_shard(layer, mesh=mesh["dp"])
    [weight] = layer.parameters()
    found = observe([weight], [whole])
    return found | {"placements": [type(one).__name__ for one in weight.placements]}


def model() -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    for seed, parameter in enumerate(layers.parameters()):
        parameter.data.copy_(numbers(*parameter.shape, seed=seed))
    return layers


def train_step(layers: nn.Module) -> torch.optim.Optimizer:
    """One Adam update on the same batch on every rank, so that the mean gradient is the plain."""
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.1)
    layers(numbers(4, 5, seed=9)).square().mean().backward()
    optimizer.step()
    return optimizer


def gradients(layers: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in layers.parameters()]


def case_fully_shard() -> dict[str, Any]:
    plain, sharded = model(), model()
    fully_shard(sharded)
    optimizers = train_step(plain), train_step(sharded)
    found = observe(gradients(sharded), gradients(plain))
    moments = [
        state["exp_avg"] for state in optimizers[1].state.values() if is_sharded([state["exp_avg"]])
    ]
    try:
        measure_norm(gradients(sharded))
    except TypeError as error:
        found["refused"] = str(error)
    return found | {
        "measured": measure_norm(gradients(plain)),
        "moments": moment_norms(optimizers[1]),
        "moments_plain": moment_norms(optimizers[0]),
        "sharded_moments": len(moments),
        "digest": digest_parameters(sharded.parameters()),
        "digest_again": digest_parameters(sharded.parameters()),
        "digest_of_locals": digest_parameters([p.to_local() for p in sharded.parameters()]),
    }


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    name.removeprefix("case_"): case
    for name, case in sorted(globals().items())
    if name.startswith("case_")
}

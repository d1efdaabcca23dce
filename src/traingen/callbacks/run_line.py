"""State in the `run` line what a Lightning trainer is about to train, and with what."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl

from traingen.callbacks.begin_state import FIELDS
from traingen.callbacks.guest import unwrap
from traingen.callbacks.lightning_run import optimizers_of
from traingen.callbacks.place import Place
from traingen.observe.environment import describe_run
from traingen.observe.optimizers import class_path, identify_optimizer
from traingen.records import RunRecord, SchedulerIdentity

ALWAYS = (
    "update", "optimizer", "global_step", "epoch", "batch_idx", "total_batch_idx",
    "batches_that_stepped", "micro_batches", "loss", "micro_losses", "objective", "divisor",
    "closure", "grad_norm", "grad_norm_source", "grad_norm_clipped", "clipped", "clip_coefficient",
    "shard", "lr", "hyper_parameters", "scheduler", "amp_scale", "amp_growth", *FIELDS,
)  # fmt: skip
ON_REQUEST = {
    "rng": "rng",
    "rng_after": "rng",
    "batch": "digest_batches",
    "parameters": "digest_parameters",
    "layer_norms": "layer_norms",
    "update_ratios": "update_ratios",
    "moment_norms": "moment_norms",
}  # field of an update: the argument of the recorder that asks for it


WHOLE = ("layer_norms", "update_ratios", "moment_norms")


def observed_fields(
    settings: Mapping[str, Any], *, terms: bool, probes: bool, sharded: bool
) -> list[str]:
    """The fields of an update that a recorder of these settings can see.

    Norms by parameter or by state take all of a tensor: where it is `sharded` nobody sees them.
    """
    asked = [name for name, setting in ON_REQUEST.items() if settings[setting]]
    asked = [name for name in asked if not (sharded and name in WHOLE)]
    return [*ALWAYS, *asked, *(["loss_terms"] if terms else []), *(["user"] if probes else [])]


def describe_fit(
    trainer: pl.Trainer,
    *,
    place: Place,
    schedulers: Sequence[SchedulerIdentity],
    observes: list[str],
    loader: dict[str, Any] | None,
    seed_source: str,
) -> RunRecord:
    """The `run` line of the attempt that `trainer` begins at `place`."""
    seed = os.environ.get("PL_GLOBAL_SEED")
    clip, algorithm = trainer.gradient_clip_val, trainer.gradient_clip_algorithm
    return describe_run(
        run_id=place.run_id,
        attempt=place.attempt,
        attempt_id=place.attempt_id,
        resumed=place.resumed,
        observes=observes,
        optimizers=[identify_optimizer(o, index=i) for i, o in enumerate(optimizers_of(trainer))],
        schedulers=list(schedulers),
        seed=None if seed is None else int(seed),
        seed_source=None if seed is None else seed_source,
        clipping={"value": clip, "algorithm": algorithm.value if algorithm else "norm"}
        if clip
        else None,
        accumulation=trainer.accumulate_grad_batches,
        precision=str(trainer.precision),
        world_size=trainer.world_size,
        rank=trainer.global_rank,
        callbacks=[class_path(unwrap(one)) for one in trainer.callbacks],  # type: ignore[attr-defined]
        loader=loader,
    )

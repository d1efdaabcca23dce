"""Make the record of one update from what was seen of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from traingen.observe.digests import combine_digests
from traingen.observe.gradients import Applied
from traingen.observe.moments import digest_parameters, moment_norms, update_ratios
from traingen.observe.optimizers import hyper_parameters_of, rates_of
from traingen.observe.rng import digest_rng
from traingen.observe.window import Batch, Term, Window, total
from traingen.records import BatchFacts, UpdateRecord

_STATE: Mapping[str, Any] = {"sampler": None, "data_sampler": None, "ema": None}
_NOTHING = Batch(epoch=None, batch_idx=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is read of an update beyond what every record has."""

    generators: Sequence[str] = ("torch",)  # random generators that are digested at each moment
    digest_batches: bool = True  # the content of every batch, on the CPU
    digest_parameters: bool = False  # after every update
    layer_norms: bool = False
    update_ratios: bool = False  # keeps one copy of the parameters
    moment_norms: bool = False
    names: Mapping[int, str] = field(default_factory=dict)  # id of a parameter: its name
    world_size: int | None = None  # None: what torch.distributed says
    only_whole_terms: bool = False  # the loop may log a term after the step it belongs to
    flat_shards: bool = False  # plain tensors are parts of the parameters


def build_record(
    window: Window,
    applied: Applied,
    *,
    options: Options,
    loose: Sequence[Term],
    current: Batch | None,
    global_step: int | None,
) -> UpdateRecord:
    """The record of the update that the optimizer of `window` has just applied.

    Args:
        window: what was seen of it; `updates` counts it already.
        applied: norms of its gradients.
        options: what is read beyond the basics.
        loose: terms of the loss that belong to none of its micro-batches.
        current: the micro-batch in work, on which a loop may step again.
        global_step: the loop's own counter after it.
    """
    first = window.batches[0] if window.batches else _NOTHING
    last = window.batches[-1] if window.batches else current or _NOTHING
    loss, micro_losses = window.losses()
    ratios = None
    if window.before is not None:
        ratios = update_ratios(window.before, dict(window.named_parameters())) or None
    return UpdateRecord(
        update=window.updates,
        optimizer=window.index,
        global_step=global_step,
        epoch=last.epoch,
        batch_idx=last.batch_idx,
        total_batch_idx=last.total_batch_idx,
        batches_that_stepped=last.batches_that_stepped,
        micro_batches=len(window.batches),
        loss=loss,
        micro_losses=micro_losses,
        loss_terms=window.terms(loose, only_whole=options.only_whole_terms),
        objective=total(window.roots),
        divisor=window.divisor,
        closure=window.closure(),
        grad_norm=applied.before,
        grad_norm_source=applied.source,
        grad_norm_clipped=applied.after,
        clipped=applied.clipped,
        clip_coefficient=applied.coefficient,
        shard=applied.shard,
        lr=rates_of(window.optimizer),
        hyper_parameters=hyper_parameters_of(window.optimizer),
        scheduler=first.scheduler,
        amp_scale=first.amp_scale,
        amp_growth=first.amp_growth,
        rng=first.rng,
        rng_forward=first.rng_forward,
        rng_after=digest_generators(options),
        batch=_batch_facts(window.batches),
        parameters=digest_parameters(window.parameters) if options.digest_parameters else None,
        layer_norms=applied.layers,
        update_ratios=ratios,
        moment_norms=(moment_norms(window.optimizer) or None) if options.moment_norms else None,
        **{**_STATE, **first.state},
    )


def digest_generators(options: Options) -> dict[str, str] | None:
    """Digests of the generators that are asked for, now; None for none."""
    return digest_rng(options.generators) if options.generators else None


def _batch_facts(batches: Sequence[Batch]) -> BatchFacts | None:
    digests = [batch.digest for batch in batches if batch.digest is not None]
    if not digests or len(digests) < len(batches):
        return None
    ids = [one for batch in batches for one in batch.ids or ()]
    return BatchFacts(digest=combine_digests(digests), ids=ids or None)

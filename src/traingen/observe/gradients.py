"""The norms of an optimizer's gradients before and after they were clipped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from traingen.observe.events import Clip
from traingen.observe.norms import is_sharded, measure_norm, norm_by_name, shard_share
from traingen.observe.window import Norms, Window
from traingen.records import ShardFacts

HALVES = (torch.float16, torch.bfloat16)  # a norm that a clip computes in them is off by 4e-3


class Wanted(Protocol):
    """What is to be measured beyond the norm of all gradients together."""

    @property
    def layer_norms(self) -> bool:
        """The norm of each parameter's gradient."""

    @property
    def world_size(self) -> int | None:
        """How many ranks hold a parameter that is not sharded."""

    @property
    def flat_shards(self) -> bool:
        """Whether plain tensors are this rank's parts of the parameters (FSDP's first version)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """Norms of the gradients that an update used; AMP's scale divided out."""

    before: float | None  # None without gradients, where they are sharded, and if it is not known
    source: Any  # Literal["measured", "clip"] | None
    after: float | None
    clipped: bool | None  # None if it is not known
    coefficient: float | None  # the one factor of the clip; 1.0 without one
    limit: float | None = None  # the max_norm of one clip that covered all
    shard: ShardFacts | None = None
    layers: dict[str, float] | None = None

    @classmethod
    def nothing(cls) -> Applied:
        """Of an update without any gradient."""
        return cls(before=None, source=None, after=None, clipped=False, coefficient=1.0)


def measure_before(window: Window, wanted: Wanted, clip: Clip | None = None) -> Norms | None:
    """Norms of the whole gradients, now; None where `clip` will tell them."""
    tells = clip is not None and clip.norm_type == 2.0 and clip.covers(window.parameters)
    exact = clip is not None and clip.total_norm.dtype not in HALVES
    sharded = wanted.flat_shards or is_sharded(window.gradients)
    if tells and exact and not sharded and not wanted.layer_norms:
        return None
    layers = _layers(window, wanted)
    if sharded:
        return Norms(whole=None, share=_share(window, wanted), layers=layers)
    whole = None if tells and exact else measure_norm(window.gradients) / _scale(window)
    return Norms(whole=whole, share=None, layers=layers)


def measure_applied(window: Window, wanted: Wanted) -> Applied:
    """Norms before and after clipping; the gradients are read as the optimizer uses them."""
    own = window.gradients
    if not own:
        return Applied.nothing()
    known = window.norms
    lost = window.was_replaced() and (known is None or not known.last)
    layers = _layers(window, wanted) if known is None else known.layers
    if lost:
        layers = None
    if wanted.flat_shards or is_sharded(own):
        return _sharded(window, wanted, layers, lost=lost)
    measured = None if known is None else known.whole
    if measured is None and len(window.clips) == 1 and window.is_as_clipped():
        return _told(window, window.clips[0], layers)
    after = measure_norm(own) / _scale(window)
    if lost:  # nobody knows what they were made of
        return Applied(before=None, source=None, after=after, clipped=None, coefficient=None)
    if measured is None and not window.clips:
        return _untouched(after, layers)
    if measured is None:
        return _partly_told(window, after, layers)
    return Applied(
        before=measured, source="measured", after=after, clipped=after != measured,
        coefficient=_factor(window, measured, after), layers=layers,
    )  # fmt: skip


def _untouched(norm: float, layers: dict[str, float] | None) -> Applied:
    return Applied(
        before=norm, source="measured", after=norm, clipped=False, coefficient=1.0, layers=layers
    )


def _partly_told(window: Window, after: float, layers: dict[str, float] | None) -> Applied:
    """The norm that the first clip has computed, and what was measured when all was done.

    The two differ in their last digits where nothing was changed.
    """
    first, before = window.clips[0], _told_by(window, window.clips[0])
    factor = _factor(window, before, after)
    if factor == 1.0:
        return _untouched(after, layers)
    alone = factor is not None and len(window.clips) == 1
    return Applied(
        before=before, source="clip", after=after, clipped=True, coefficient=factor,
        limit=first.max_norm if alone else None, layers=layers,
    )  # fmt: skip


def _factor(window: Window, before: float, after: float) -> float | None:
    """The one factor that lies between two norms; None if it was not one.

    That of clips by norm is torch's own, all of them multiplied, if it explains what was measured:
    a hook may clip by hand as well, or clip only some of the parameters.
    """
    if after == before:
        return 1.0
    factors = [clip.coefficient() for clip in window.clips]
    if not factors or not all(clip.spans(window.parameters) for clip in window.clips):
        return None
    if any(factor is None for factor in factors):
        return None
    factor = math.prod(factor for factor in factors if factor is not None)
    half = any(clip.total_norm.dtype in HALVES for clip in window.clips)
    explained = math.isclose(before * factor, after, rel_tol=1e-2 if half else 1e-3)
    return factor if explained else None


def _told(window: Window, clip: Clip, layers: dict[str, float] | None) -> Applied:
    """What one clip by norm that covered all has computed: no second pass is needed."""
    before, coefficient = _told_by(window, clip), clip.coefficient()
    assert coefficient is not None  # it has a norm
    return Applied(
        before=before, source="clip", after=before * coefficient, clipped=coefficient != 1.0,
        coefficient=coefficient, limit=clip.max_norm, layers=layers,
    )  # fmt: skip


def _sharded(
    window: Window, wanted: Wanted, layers: dict[str, float] | None, *, lost: bool
) -> Applied:
    """What this rank can tell without asking the others: its share of the squares."""
    after = _share(window, wanted)
    unclipped = after if window.norms is None else window.norms.share
    shard = None
    if unclipped is not None and after is not None and not lost:
        shard = ShardFacts(grad_norm_squared=unclipped, grad_norm_clipped_squared=after)
    return Applied(
        before=None, source="measured" if shard else None, after=None, clipped=None,
        coefficient=None, shard=shard, layers=layers,
    )  # fmt: skip


def _share(window: Window, wanted: Wanted) -> float | None:
    held_by = 1 if wanted.flat_shards else wanted.world_size
    share = shard_share(window.gradients, world_size=held_by)
    return None if share is None else share / _scale(window) ** 2


def _layers(window: Window, wanted: Wanted) -> dict[str, float] | None:
    if not wanted.layer_norms:
        return None
    gradients = {name: p.grad for name, p in window.named_parameters() if p.grad is not None}
    scale = _scale(window)
    return {name: norm / scale for name, norm in norm_by_name(gradients).items()} or None


def _told_by(window: Window, clip: Clip) -> float:
    """The norm that the first clip has computed; AMP's scale may have been divided out since."""
    scale = 1.0 if window.scale_at_clip is None else float(window.scale_at_clip)
    return float(clip.total_norm) / scale


def _scale(window: Window) -> float:
    return 1.0 if window.scale is None else float(window.scale)

"""Build the record of every optimizer update from what a training loop is seen to do.

This is the only maker of `UpdateRecord`s: a Lightning callback and the hooks on any torch loop both
call it, so that a field means the same whoever watched. Moments within an update:

* begin: a micro-batch is handed to the loop. Schedulers and generators as found here belong to the
  tail of the previous update (ticks, validation, logging).
* root: a backward is entered; its scalar is (part of) the objective.
* complete: the gradients are whole: at the entry of the clip, else in the optimizer's post-hook.
* applied: the outermost post-hook of the optimizer; rates and hyper-parameters are those it used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from traingen.observe.digests import combine_digests, digest_batch
from traingen.observe.events import Clip
from traingen.observe.norms import measure_norm
from traingen.observe.optimizers import hyper_parameters_of, parameters_of, rates_of
from traingen.observe.rng import digest_rng
from traingen.observe.schedulers import SchedulerBook
from traingen.records import (
    BatchFacts,
    EndRecord,
    EventRecord,
    Record,
    SchedulerState,
    UpdateRecord,
)

Emit = Callable[[Record], None]


@dataclass(slots=True)
class _Window:
    """What was seen since the last update was applied."""

    epoch: int | None = None
    batch_idx: int | None = None
    micro_batches: int = 0
    scheduler: list[SchedulerState] | None = None
    rng: dict[str, str] | None = None
    rng_forward: dict[str, str] | None = None
    digests: list[str] = field(default_factory=list)
    roots: list[torch.Tensor] = field(default_factory=list)
    divisor: float | int | None = None
    terms: dict[str, list[torch.Tensor]] = field(default_factory=dict)
    clips: list[Clip] = field(default_factory=list)
    grad_norm: float | None = None  # measured at the entry of a first clip that does not tell it


class UpdateObserver:
    """Watch the updates of one optimizer and emit a record of each.

    Args:
        optimizer: whose updates are counted.
        emit: takes each record, at once; for an update that is inside the optimizer's post-hook.
        schedulers: those whose counters are recorded.
        generators: which random generators are digested at each moment, of `rng.GENERATORS`.
        digest_batches: whether the content of every batch is digested (on the CPU).
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        emit: Emit,
        schedulers: SchedulerBook,
        generators: Sequence[str] = ("torch",),
        digest_batches: bool = True,
    ) -> None:
        self._optimizer = optimizer
        self._emit = emit
        self._schedulers = schedulers
        self._generators = tuple(generators)
        self._digest_batches = digest_batches
        self._window = _Window()
        self._closed = False
        self.updates = 0
        self.clip_coefficient: float | None = 1.0  # of the last update; None: not one factor
        self.clip_limit: float | None = None  # its max_norm, if one clip by norm covered it all

    def begin(self, batch: Any, *, epoch: int | None, batch_idx: int | None) -> None:
        """A micro-batch was handed to the loop and nothing was computed from it yet."""
        window = self._window
        if window.micro_batches == 0:
            window.scheduler = self._schedulers.states()
            window.rng = self._digest_rng()
        window.micro_batches += 1
        window.epoch, window.batch_idx = epoch, batch_idx
        if self._digest_batches:
            self._digest(batch)

    def drop_window(self) -> None:
        """What was begun since the last update will be in none: its gradients are cleared."""
        self._window = _Window()

    def forward(self) -> None:
        """A module is about to be called in training mode; the first call of an update counts."""
        if self._window.micro_batches and self._window.rng_forward is None:
            self._window.rng_forward = self._digest_rng()

    def term(self, name: str, value: torch.Tensor) -> None:
        """One named part of the loss, for the micro-batch that is in work."""
        kept = value.detach().clone()  # the loop may go on to add to it in place
        self._window.terms.setdefault(name, []).append(kept)

    def root(self, value: torch.Tensor, *, divisor: float | int | None) -> None:
        """A backward is entered at `value`, which the loop has divided by `divisor`."""
        self._window.roots.append(value.detach().clone())
        self._window.divisor = divisor

    def before_clip(self, clip: Clip) -> None:
        """A clip is about to change gradients."""
        window = self._window
        own = parameters_of(self._optimizer)
        if clip.parameters and not {id(p) for p in clip.parameters} & {id(p) for p in own}:
            return  # of somebody else's gradients
        if not window.clips and not (clip.norm_type == 2.0 and clip.covers(own)):
            window.grad_norm = measure_norm(_gradients(own))
        window.clips.append(clip)

    def applied(self, *, global_step: int | None) -> None:
        """The optimizer has applied an update: emit its record and open the next window."""
        window, self._window = self._window, _Window()
        self.updates += 1
        norms = self._norms(window)
        roots = [float(root) for root in window.roots]
        factor = 1 if window.divisor is None else window.divisor
        # several backwards of one micro-batch are parts of its loss; one may also have had none
        parts = min(len(roots), window.micro_batches or len(roots))
        known = window.divisor is not None or window.micro_batches <= 1
        self._emit(
            UpdateRecord(
                update=self.updates,
                optimizer=0,
                global_step=global_step,
                epoch=window.epoch,
                batch_idx=window.batch_idx,
                micro_batches=window.micro_batches,
                loss=sum(roots) * factor / parts if roots and known else None,
                loss_terms=_means(window.terms),
                objective=sum(roots) if roots else None,
                divisor=window.divisor,
                grad_norm=norms.before,
                grad_norm_source=norms.source,
                grad_norm_clipped=norms.after,
                clipped=bool(window.clips) and norms.after != norms.before,
                lr=rates_of(self._optimizer),
                hyper_parameters=hyper_parameters_of(self._optimizer),
                scheduler=window.scheduler,
                sampler=None,
                data_sampler=None,
                ema=None,
                amp_scale=None,
                rng=window.rng,
                rng_forward=window.rng_forward,
                rng_after=self._digest_rng(),
                batch=BatchFacts(digest=combine_digests(window.digests), ids=None)
                if window.digests
                else None,
            )
        )

    def close(self, reason: Any, *, message: str | None = None) -> None:
        """Emit the `end` line with the tail of the last update; the second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._emit(
            EndRecord(
                reason=reason,
                updates=self.updates,
                scheduler=self._schedulers.states(),
                rng=self._digest_rng(),
                message=message,
            )
        )

    def _norms(self, window: _Window) -> _Norms:
        """Norms before and after clipping; the gradients are read as the optimizer used them."""
        own = _gradients(parameters_of(self._optimizer))
        if not window.clips:
            self.clip_coefficient, self.clip_limit = 1.0, None
            norm = measure_norm(own)
            return _Norms(norm, "measured", norm)
        clip = window.clips[0]
        if len(window.clips) == 1 and window.grad_norm is None:
            self.clip_coefficient, self.clip_limit = clip.coefficient(), clip.max_norm
            before = float(clip.total_norm)
            return _Norms(before, "clip", before * self.clip_coefficient)
        self.clip_coefficient = self.clip_limit = None
        before = float(clip.total_norm) if window.grad_norm is None else window.grad_norm
        source = "clip" if window.grad_norm is None else "measured"
        return _Norms(before, source, measure_norm(own))

    def _digest(self, batch: Any) -> None:
        """Add the digest of `batch`; one that has none ends digesting, which an event states."""
        try:
            self._window.digests.append(digest_batch(batch))
        except TypeError as error:
            self._digest_batches = False
            self._window.digests.clear()
            details = {"message": str(error)}
            self._emit(
                EventRecord(event="batch_not_digested", update=self.updates, details=details)
            )

    def _digest_rng(self) -> dict[str, str] | None:
        return digest_rng(self._generators) if self._generators else None


@dataclass(frozen=True, slots=True)
class _Norms:
    before: float
    source: Any  # Literal["measured", "clip"]
    after: float


def _gradients(parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


def _means(terms: dict[str, list[torch.Tensor]]) -> dict[str, float] | None:
    """The mean of each term over its micro-batches."""
    if not terms:
        return None
    return {name: sum(map(float, values)) / len(values) for name, values in terms.items()}

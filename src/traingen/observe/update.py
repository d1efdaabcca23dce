"""Build the record of every optimizer update from what a training loop is seen to do.

This is the only maker of `UpdateRecord`s: a Lightning callback and the hooks on any torch loop both
call it, so that a field means the same whoever watched. Moments within an update:

* begin: a micro-batch is handed to the loop. Schedulers and generators as found here belong to the
  tail of the previous update (ticks, validation, logging).
* root: a backward is entered; its scalar is (part of) the objective of every optimizer whose
  gradients it then changes.
* complete: the gradients are whole: at the entry of the clip, else in the optimizer's post-hook.
* applied: the outermost post-hook of the optimizer; rates and hyper-parameters are those it used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from traingen.observe.attribution import Signature, are_absent, have_changed, sign_gradients
from traingen.observe.build import Options, build_record, digest_generators
from traingen.observe.digests import digest_batch
from traingen.observe.events import Clip
from traingen.observe.gradients import Applied, measure_applied, measure_before
from traingen.observe.loaders import sample_ids
from traingen.observe.optimizers import rewrites_gradients
from traingen.observe.scaling import mark_scaled, read_scaler, scale_in
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.skips import SkipWatch, was_left_out
from traingen.observe.window import Batch, Root, Term, Window
from traingen.observe.windows import Windows
from traingen.records import EndRecord, EventRecord, Record

Emit = Callable[[Record], None]
EmitTimes = Callable[[int, int, float, float], None]  # update, optimizer, seconds: step, wait


NOT_SHOWN = object()  # stands for a batch that the loop does not show


class UpdateObserver:
    """Watch the updates of a loop's optimizers and emit a record of each.

    Args:
        optimizers: those that the loop is known to have, in its order. One that steps without
            being among them is numbered after them, and an event says so; one that holds only
            parameters of another (a wrapped optimizer) counts as that one.
        emit: takes each record, at once; for an update that is inside the optimizer's post-hook.
        schedulers: those whose counters are recorded.
        options: what is read beyond the basics.
        read_state: called at begin; further fields of the record and their values.
        updates: completed by each optimizer before this attempt or fit.
        clock: seconds; with `emit_times`, which takes those of each update.
    """

    def __init__(
        self,
        optimizers: Iterable[torch.optim.Optimizer],
        *,
        emit: Emit,
        schedulers: SchedulerBook,
        options: Options | None = None,
        read_state: Callable[[], Mapping[str, Any]] = dict,
        updates: Sequence[int] = (),
        clock: Callable[[], float] | None = None,
        emit_times: EmitTimes | None = None,
    ) -> None:
        self._emit = emit
        self._schedulers = schedulers
        self._options = options or Options()
        self._digests_batches = self._options.digest_batches
        self._read_state = read_state
        self._windows = Windows(optimizers, names=self._options.names, updates=updates)
        self._batch: Batch | None = None  # the last that was handed to the loop
        self._works = False  # on it
        self._backward: list[tuple[Window, Signature]] | None = None  # while one runs
        self._roots: list[Root] = []
        self._unclaimed: list[Root] = []  # of this batch, that have reached no known optimizer
        self._loose: list[Term] = []  # terms of no micro-batch
        self._terms = 0  # seen
        self._skips = SkipWatch(self.event)
        self._early: Applied | None = None  # of the running step, which will change its gradients
        self._as_clipped: list[Window] = []  # while a clip only measures
        self._clock = clock or (lambda: 0.0)
        self._emit_times = emit_times
        self._idle_since: float | None = None
        self._closed = False
        self._applied = Applied.nothing()

    @property
    def updates(self) -> int:
        """Updates completed, of all optimizers together."""
        return sum(self.updates_by_optimizer)

    @property
    def updates_by_optimizer(self) -> list[int]:
        """Updates completed by each."""
        return self._windows.updates

    @property
    def clip_coefficient(self) -> float | None:
        """The factor of the last update's clip; 1.0 without one, None if it was not one factor."""
        return self._applied.coefficient

    @property
    def clip_limit(self) -> float | None:
        """The max_norm of the last update's clip, if one clip by norm covered it all."""
        return self._applied.limit

    def index_of(self, optimizer: torch.optim.Optimizer) -> int | None:
        """The number of `optimizer`, or of the one that it is a part of; None if it has none."""
        window = self._windows.find(optimizer)
        return None if window is None else window.index

    def watch_scaler(self, scaler: torch.amp.GradScaler | None) -> None:
        """Read `scaler` at begin."""
        self._skips.scaler = scaler

    # Begin

    def begin(self, batch: Any, *, epoch: int | None, batch_idx: int | None, **place: Any) -> None:
        """A micro-batch was handed to the loop and nothing was computed from it yet.

        `place`: `total_batch_idx`, `batches_that_stepped`, and the `divisor` of the accumulation,
        where the loop has them.
        """
        self._skips.flush()
        self._unclaimed.clear()
        found = Batch(epoch=epoch, batch_idx=batch_idx, **place)
        found.begun_at = self._clock()
        if self._idle_since is not None:
            found.waited = found.begun_at - self._idle_since
        found.scheduler = self._schedulers.states()
        found.rng = digest_generators(self._options)
        found.amp_scale, found.amp_growth = read_scaler(self._skips.scaler)
        for window in self._windows:
            window.begin(found)
        if any(window.batches[0] is found for window in self._windows):
            found.state = self._read_state()
        if self._options.update_ratios:
            for window in self._windows:
                if window.before is None and not any(map(is_lazy, window.parameters)):
                    window.before = [p.detach().clone() for p in window.parameters]
        self._batch, self._works = found, True
        if self._digests_batches and batch is not NOT_SHOWN:
            self._digest(batch, found)

    def idle(self) -> None:
        """The work on a micro-batch is done: from here to the next begin its data is waited for."""
        self._idle_since, self._works = self._clock(), False

    def leave_out(self) -> None:
        """What is in work is done: micro-batches from which nothing came are in no update."""
        if self._batch is not None and not self._batch.reached:
            for window in self._windows:
                window.batches = [one for one in window.batches if one.reached]

    def drop_window(self) -> None:
        """What was begun since the last update will be in none: its gradients are cleared."""
        for window in self._windows:
            window.empty()

    def forward(self) -> None:
        """A module is about to be called in training mode; the first call of an update counts."""
        batch = self._batch
        if batch is None or batch.rng_forward is not None:
            return
        if any(window.batches[:1] == [batch] for window in self._windows):
            batch.rng_forward = digest_generators(self._options)

    def term(self, name: str, value: torch.Tensor) -> None:
        """One named part of the loss, for the micro-batch that is in work."""
        kept = value.detach().clone()  # the loop may go on to add to it in place
        terms = self._loose if self._batch is None else self._batch.terms
        terms.append(Term(self._terms, name, kept))
        self._terms += 1

    def loss(self, value: torch.Tensor) -> None:
        """What the loop calls its loss, as it hands it to backward: divided, AMP scale included."""
        if self._batch is not None:
            self._batch.loss = self._root(value)

    # Gradients

    def root(
        self, value: torch.Tensor, *, divisor: float | int | None = None, optimizer: int = 0
    ) -> None:
        """A backward at `value`, divided by `divisor`, reaches the gradients of one optimizer."""
        window = self._windows[optimizer]
        window.reach([Root(value.detach().clone(), None, self._batch)], self._batch)
        if divisor is not None:
            window.divisor = divisor

    def backward_entered(self, values: Iterable[torch.Tensor]) -> None:
        """A backward is entered at `values`; whose gradients it changes is seen when it is left."""
        self._roots = [self._root(value) for value in values]
        self._backward = []
        for window in self._windows:
            signature = sign_gradients(window.parameters)
            if window.roots and are_absent(signature):
                window.clear(self._batch)  # set to None by hand
            self._backward.append((window, signature))

    def backward_left(self) -> None:
        """The backward has returned."""
        watched, self._backward = self._backward or [], None
        reached = [w for w, signature in watched if have_changed(signature, w.parameters)]
        for window in reached:
            self._note_early_clip(window)
            window.reach(self._roots, self._batch)
        if not reached:
            self._unclaimed += self._roots
        self._roots = []

    def gradients_cleared(self, owner: torch.optim.Optimizer | torch.nn.Module) -> None:
        """`owner.zero_grad()` has returned."""
        for window in self._windows.cleared_by(owner):
            window.clear(self._batch)

    def complete(self, optimizer: torch.optim.Optimizer) -> None:
        """Its gradients are whole and about to be changed in a way that may not be heard."""
        window = self._windows.find(optimizer)
        if window is not None and not window.clips and window.norms is None:
            window.norms = measure_before(window, self._options)
            if window.norms is not None:
                window.norms.last = True

    def before_clip(self, clip: Clip) -> None:
        """A clip is about to change gradients."""
        if clip.only_measures:  # it multiplies them by 1
            self._as_clipped = [window for window in self._windows if window.is_as_clipped()]
            return
        touched = [window for window in self._windows if clip.touches(window.parameters)]
        if not touched and not clip.gradients and not clip.parameters:
            self._event("clip_without_gradients", optimizer=None, max_norm=None)
        in_time = any(window.roots for window in touched)  # others are clipped along with it
        for window in touched:
            # one that has not been heard yet may have gradients from before
            if window.roots or (window.gradients and not window.updates):
                self._clip(window, clip)
            elif not in_time:
                self._event(
                    "clip_without_gradients", optimizer=window.index, max_norm=clip.max_norm
                )

    def after_clip(self, clip: Clip) -> None:
        """The clip that was said last to be about to change gradients has returned."""
        signed, self._as_clipped = self._as_clipped, []
        if not clip.only_measures:
            signed = [one for one in self._windows if one.clips and one.clips[-1] is clip]
        for window in signed:
            window.sign_clip()

    def _clip(self, window: Window, clip: Clip) -> None:
        """The whole gradients of `window` are about to be clipped."""
        if window.scale is not None and float(window.scale) != 1.0:
            self._event(
                "clip_on_scaled_gradients",
                optimizer=window.index,
                max_norm=clip.max_norm,
                amp_scale=float(window.scale),
            )
        if not window.clips and window.norms is None:
            window.norms = measure_before(window, self._options, clip)
        window.clip(clip)

    # AMP

    def loss_scaled(self, scaler: torch.amp.GradScaler, scaled: Any) -> None:
        """A loss was multiplied by the scale, to be differentiated."""
        scale, growth = read_scaler(scaler)
        if scale is None:
            return
        if self._skips.scaler is None:  # it stood so at begin, when it was not known yet
            for batch in (one for window in self._windows for one in window.batches):
                batch.amp_scale, batch.amp_growth = scale, growth
        self._skips.scaler = scaler
        mark_scaled(scaled, scale)

    def gradients_unscaled(self, optimizer: torch.optim.Optimizer) -> None:
        """The gradients of `optimizer` were divided by the scale."""
        window = self._windows.find(optimizer)
        if window is not None:
            window.scale = None

    def scaler_step_entered(self, optimizer: torch.optim.Optimizer) -> None:
        """`scaler.step(optimizer)` was called; it may leave the step out."""
        window = self._windows.find(optimizer)
        if window is not None:
            self._skips.entered(window)

    def scaler_step_left(
        self, optimizer: torch.optim.Optimizer, *, global_step: int | None
    ) -> int | None:
        """`scaler.step(optimizer)` has returned.

        Returns:
            the optimizer's index if the step was left out; None if it was taken.
        """
        window = self._windows.find(optimizer)
        if window is None or not self._skips.is_left_out(window):
            return None
        self._skips.skipped(window, reason="scaler", global_step=global_step)
        self._take_terms()
        return window.index

    def scaler_updated(self, scaler: torch.amp.GradScaler) -> None:
        """The scale is that of the next step."""
        self._skips.updated(scaler)

    # Applied

    def step_entered(self, optimizer: torch.optim.Optimizer) -> None:
        """`optimizer.step()` was called; with a closure, before that runs."""
        self._measure_early(optimizer)

    def closure_entered(self, optimizer: torch.optim.Optimizer) -> None:
        """The closure of `optimizer.step()` is about to be evaluated."""
        window = self._windows.find(optimizer)
        if window is not None:
            window.evaluate(terms=self._terms)

    def closure_left(self, optimizer: torch.optim.Optimizer) -> None:
        """The closure has returned, and the optimizer goes on."""
        self._measure_early(optimizer)

    def applied(
        self, optimizer: torch.optim.Optimizer | None = None, *, global_step: int | None
    ) -> int | None:
        """An optimizer has applied an update: emit its record and open its next window.

        Returns:
            the optimizer's index; None for a fused step that AMP has left out.
        """
        window = self._windows[0] if optimizer is None else self._windows.find(optimizer)
        if window is None:
            assert optimizer is not None
            window = self._windows.add(optimizer, current=self._batch, say=self.event)
            window.reach(self._unclaimed, self._batch)  # not known better before its first step
        early, self._early = self._early, None
        if was_left_out(window.optimizer if optimizer is None else optimizer):
            return None  # scaler_step_left says so
        window.updates += 1
        self._applied = applied = early or measure_applied(window, self._options)
        self._emit(
            build_record(
                window,
                applied,
                options=self._options,
                loose=self._terms_besides(window),
                current=self._batch if self._works else None,
                global_step=global_step,
            )
        )
        if self._emit_times is not None and window.batches:
            first, *rest = window.batches
            between = sum(batch.waited for batch in rest)
            work = self._clock() - first.begun_at - between
            self._emit_times(window.updates, window.index, work, first.waited + between)
        self._unclaimed.clear()
        window.empty()
        window.terms_from = self._terms
        self._take_terms()
        self._loose.clear()
        return window.index

    def close(self, reason: Any, *, message: str | None = None) -> None:
        """Emit the `end` line with the tail of the last update; the second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._skips.flush()
        self._emit(
            EndRecord(
                reason=reason,
                updates=self.updates,
                scheduler=self._schedulers.states(),
                rng=digest_generators(self._options),
                message=message,
            )
        )

    def event(self, name: str, details: dict[str, Any]) -> None:
        """Emit an event between updates."""
        self._emit(EventRecord(event=name, update=self.updates, details=details))

    def _terms_besides(self, window: Window) -> list[Term]:
        """Terms of no micro-batch of the update: a loop may step again on the one in work."""
        batch = self._batch
        return self._loose if batch is None or batch in window.batches else batch.terms

    def _take_terms(self) -> None:
        """The terms of the micro-batch in work go to the step that follows them."""
        for term in () if self._batch is None else self._batch.terms:
            term.taken = True

    def _measure_early(self, optimizer: torch.optim.Optimizer) -> None:
        """Read now the gradients that the step of `optimizer` will not leave as it uses them.

        A fused one divides AMP's scale out of them.
        """
        window = self._windows.find(optimizer)
        changes = window is not None and (
            window.scale is not None or rewrites_gradients(window.optimizer)
        )
        self._early = measure_applied(window, self._options) if window and changes else None

    def _root(self, value: torch.Tensor) -> Root:
        scale = None if self._skips.scaler is None else scale_in(value)
        kept = value.detach()
        kept = kept.clone() if kept.dim() == 0 else kept.sum()
        return Root(kept, None if scale is None else torch.tensor(scale), self._batch)

    def _note_early_clip(self, window: Window) -> None:
        """A gradient that arrives after the clip was not clipped."""
        if window.clips:
            name = "clip_within_window" if window.clipped_within else "clip_without_gradients"
            self._event(name, optimizer=window.index, max_norm=window.clips[0].max_norm)
            window.forget_clips()

    def _event(self, name: str, **details: Any) -> None:
        self.event(name, details)

    def _digest(self, batch: Any, found: Batch) -> None:
        """Add the digest of `batch`; one that has none ends digesting, which an event states."""
        try:
            found.digest = digest_batch(batch)
            found.ids = sample_ids(batch)
        except Exception as error:  # it may be anything at all, and is not ours to refuse
            self._digests_batches = False
            found.digest = found.ids = None
            self._event("batch_not_digested", message=_first_line(error))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)

"""What has been seen of an optimizer's next update, from its first micro-batch on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from traingen.observe.attribution import Signature, have_changed, sign_gradients, were_replaced
from traingen.observe.events import Clip
from traingen.observe.norms import local_part
from traingen.observe.optimizers import parameters_of
from traingen.records import ClosureFacts, SchedulerState


@dataclass(slots=True, eq=False)
class Term:
    """One named part of the loss, once."""

    number: int  # among all that were seen
    name: str
    value: torch.Tensor
    taken: bool = False  # by a step that followed it in its batch


@dataclass(slots=True, eq=False, kw_only=True)
class Batch:
    """A micro-batch as it was handed to the loop, and what was found then."""

    epoch: int | None
    batch_idx: int | None
    total_batch_idx: int | None = None
    batches_that_stepped: int | None = None
    divisor: float | int | None = None
    scheduler: list[SchedulerState] | None = None
    rng: dict[str, str] | None = None
    amp_scale: float | None = None
    amp_growth: int | None = None
    state: Mapping[str, Any] = field(default_factory=dict)  # other fields of the record at begin
    digest: str | None = None
    ids: list[int | str] | None = None
    rng_forward: dict[str, str] | None = None
    terms: list[Term] = field(default_factory=list)
    loss: Root | None = None  # what the loop calls its loss, divided; the last one evaluated
    reached: set[int] = field(default_factory=set)  # optimizers whose gradients it has changed
    cleared: set[int] = field(default_factory=set)  # optimizers whose gradients were, after that
    begun_at: float = 0.0  # seconds of the observer's clock
    waited: float = 0.0  # seconds between the end of the work before it and its begin

    def is_in(self, optimizer: int) -> bool:
        """Whether the gradients of that optimizer have a part of it."""
        return optimizer in self.reached and optimizer not in self.cleared


@dataclass(slots=True, eq=False)
class Root:
    """A scalar that was differentiated."""

    value: torch.Tensor  # as backward was entered at it, AMP scale included
    scale: torch.Tensor | None  # the AMP scale in it
    batch: Batch | None  # the one in work then

    def __float__(self) -> float:
        value = float(local_part(self.value))
        return value if self.scale is None else value / float(self.scale)


def total(roots: Sequence[Root]) -> float | None:
    """The sum of `roots`; None for none."""
    return sum(map(float, roots)) if roots else None


@dataclass(slots=True, eq=False, kw_only=True)
class Norms:
    """The norm of an optimizer's gradients before they were clipped, and what it is made of."""

    whole: float | None  # None where they are sharded
    share: float | None  # of its square, where they are sharded
    layers: dict[str, float] | None = None
    last: bool = False  # all that changes the gradients after it is a part of the loop's own clip


@dataclass(slots=True, eq=False)
class Window:
    """What belongs to the next update of one optimizer; emptied when that is applied."""

    index: int
    optimizer: torch.optim.Optimizer
    names: Mapping[int, str] = field(default_factory=dict)  # id of a parameter: its name
    updates: int = 0  # completed
    batches: list[Batch] = field(default_factory=list)  # that may still take part
    roots: list[Root] = field(default_factory=list)  # that are in its gradients
    divisor: float | int | None = None
    clips: list[Clip] = field(default_factory=list)
    norms: Norms | None = None  # measured before the first clip, where that does not tell them
    signature: Signature | None = None  # of its gradients, as its last clip has found or left them
    clipped_within: bool = False  # a backward of this window had been seen before its first clip
    scale: torch.Tensor | None = None  # the AMP scale that its gradients still have in them
    scale_at_clip: torch.Tensor | None = None  # the same, when they were first clipped
    evaluations: int = 0
    terms_from: int = 0  # number of the first term that is its own
    first: list[Root] = field(default_factory=list)  # roots of the first evaluation
    last: list[Root] = field(default_factory=list)
    before: list[torch.Tensor] | None = None  # copies of its parameters at begin

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The optimizer's own, in the order of its groups."""
        return parameters_of(self.optimizer)

    def named_parameters(self) -> list[tuple[str, torch.Tensor]]:
        """The same by name; one that the loop has no name for by its number."""
        return [(self.names.get(id(p), str(i)), p) for i, p in enumerate(self.parameters)]

    @property
    def gradients(self) -> list[torch.Tensor]:
        """Those that its parameters have."""
        return [p.grad for p in self.parameters if p.grad is not None]

    def clip(self, clip: Clip) -> None:
        """Its gradients are about to be clipped."""
        if not self.clips:
            self.scale_at_clip, self.clipped_within = self.scale, bool(self.roots)
        self.clips.append(clip)
        self.sign_clip()

    def sign_clip(self) -> None:
        """Its gradients are those that its clip has found or, called again, left."""
        self.signature = sign_gradients(self.parameters)

    def is_as_clipped(self) -> bool:
        """Whether its gradients are known to be what its last clip has left.

        They are not where its return was not heard: it has changed their versions.
        """
        return self.signature is not None and not have_changed(self.signature, self.parameters)

    def was_replaced(self) -> bool:
        """Whether others have taken the place of the gradients that were clipped."""
        return self.signature is not None and were_replaced(self.signature, self.parameters)

    def forget_clips(self) -> None:
        """Its gradients are others than those that were clipped."""
        self.clips, self.norms, self.signature = [], None, None

    def empty(self) -> None:
        """Begin the next update."""
        self.forget_clips()
        self.batches, self.roots = [], []
        self.divisor = self.scale = self.scale_at_clip = self.before = None
        self.evaluations, self.first, self.last = 0, [], []

    def begin(self, batch: Batch) -> None:
        """Take `batch` in; the one before it has no part if all it reached is others' or cleared.

        Nor have those before that one which reached nothing yet.
        """
        before = self.batches[-1] if self.batches else None
        if before is not None and before.reached:
            while self.batches and not self.batches[-1].is_in(self.index):
                self.batches.pop()
        self.batches.append(batch)

    def reach(self, roots: Sequence[Root], batch: Batch | None) -> None:
        """Its gradients have changed by the backward of `roots`."""
        self.roots += roots
        if self.evaluations:
            self.last += roots
        if batch is not None:
            batch.reached.add(self.index)
            batch.cleared.discard(self.index)
            if batch.divisor is not None:
                self.divisor = batch.divisor
        if roots and roots[-1].scale is not None:
            self.scale = roots[-1].scale

    def clear(self, current: Batch | None) -> None:
        """Its gradients were cleared: what had reached them has no part in the update."""
        self.forget_clips()
        self.roots, self.scale = [], None
        if current is not None:
            current.cleared.add(self.index)
        self.batches = [
            batch for batch in self.batches if batch is current or self.index not in batch.reached
        ]

    def evaluate(self, *, terms: int) -> None:
        """Its closure is evaluated (again) after so many terms: only the last one is used.

        The first evaluation may find whole gradients that were clipped, and do nothing: Lightning
        gives every step of manual optimization a closure.
        """
        self.evaluations += 1
        self.last = []
        if self.evaluations == 1:
            self.first = self.last
        else:
            self.terms_from = terms
            self.forget_clips()

    def closure(self) -> ClosureFacts | None:
        """How its closure was used, if it was evaluated more than once."""
        if self.evaluations < 2:
            return None
        return ClosureFacts(
            evaluations=self.evaluations,
            first_objective=total(self.first),
            last_objective=total(self.last),
        )

    def losses(self) -> tuple[float | None, list[float] | None]:
        """The raw loss, mean over the micro-batches that had one, and each; None if not knowable.

        What the loop calls its loss, or else what was differentiated.
        """
        told = [batch for batch in self.batches if batch.loss is not None and batch.divisor]
        if told:
            each = [float(b.loss) * b.divisor for b in told if b.loss and b.divisor]
            return sum(each) / len(each), each
        if not self.roots or (self.divisor is None and len(self.batches) > 1):
            return None, None
        factor = 1 if self.divisor is None else self.divisor
        # several backwards of one micro-batch are parts of its loss; one may also have had none
        each = [value * factor for value in self._by_batch()]
        parts = min(len(self.roots), len(self.batches)) if self.batches else len(each)
        return sum(each) / parts, each if len(each) == parts else None

    def _by_batch(self) -> list[float]:
        if len(self.roots) <= len(self.batches):
            return [float(root) for root in self.roots]
        sums: dict[int, float] = {}
        for root in self.roots:
            of = id(root if root.batch is None else root.batch)
            sums[of] = sums.get(of, 0.0) + float(root)
        return list(sums.values())

    def terms(
        self, loose: Sequence[Term] = (), *, only_whole: bool = False
    ) -> dict[str, float] | None:
        """The mean of each term of the loss over the micro-batches that had it.

        `loose` are those of no micro-batch. A term that a step has taken, be it another
        optimizer's, is that step's. Where a loop may log after its step (`only_whole`), a term
        that the last micro-batch lacks is left out: a mean over the others would be none of the
        update.
        """
        terms = [term for batch in self.batches for term in batch.terms if not term.taken]
        if only_whole and len(self.batches) > 1:
            last = {term.name for term in self.batches[-1].terms if not term.taken}
            terms = [term for term in terms if term.name in last]
        values: dict[str, list[float]] = {}
        for term in (*loose, *terms):
            if term.number >= self.terms_from and not term.taken:
                values.setdefault(term.name, []).append(float(term.value))
        return {name: sum(each) / len(each) for name, each in values.items()} or None

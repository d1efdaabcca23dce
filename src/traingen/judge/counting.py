"""Whether what the loop counts as steps are updates, made of whole windows and of gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.judge.place import Place
from traingen.judge.watch import Watch, count, index, text, times
from traingen.records import EventRecord, UpdateRecord
from traingen.records.attempts import Moment

SOME = 2  # optimizers of which each made an update
SEVERAL = 3  # updates, none of which had a gradient: more than one batch that was left out


class GradientWatch(Watch):
    """Look for updates that were made without any gradient."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._renews = False  # only statistics of batch norms are, by an epoch without backward
        self._reached: dict[int, int] = {}  # by optimizer, updates of all when it first had one

    def began(self) -> None:
        """An attempt begins as a training does."""
        self._renews = False

    restarted = began

    def rewind(self, to: Moment) -> None:
        """Forget gradients that are superseded as well."""
        super().rewind(to)
        self._reached = {one: at for one, at in self._reached.items() if at <= to[0]}

    def happened(self, event: EventRecord) -> None:
        """Stochastic weight averaging adds such an epoch, and Lightning steps at its end."""
        self._renews |= event.event == "batch_norm_epoch"

    def updated(self, record: UpdateRecord) -> None:
        """A gradient that is zero everywhere counts only where a backward would have been heard."""
        norm = record.grad_norm_clipped if record.grad_norm is None else record.grad_norm
        if record.objective is not None or record.shard is not None or norm:
            self._reached.setdefault(record.optimizer, self.place.total)
        if record.objective is not None or record.shard is not None:
            return
        name = self.place.name(record.update, record.optimizer)
        if norm and self._renews:
            told = f"{name} applied a gradient of norm {norm:g} that no backward made"
            self.note(kinds.AVERAGE_MOVED, told)
        if norm or self._renews:
            return
        observes = [] if self.place.run is None else self.place.run.observes
        if not {"grad_norm", "objective"} <= set(observes):
            return
        what = "no gradient" if norm is None else "a gradient of 0"
        told = f"{name} had {what}: no backward, or none that was not cleared again"
        self.note(kinds.NO_GRADIENT, told, of=record.optimizer)

    def findings(self) -> Iterator[Finding]:
        """One over all optimizers; an error if one of them never had any."""
        tallies = dict(self.noted(kinds.NO_GRADIENT))
        if tallies:
            first = min(tallies.values(), key=lambda tally: tally.at[0])
            steps = sum(tally.count for tally in tallies.values())
            never = [one for one, tally in tallies.items() if self._is_idle(one, tally.count)]
            told = f"{first.told}; {steps} of {self.place.seen} updates are such"
            yield kinds.NO_GRADIENT.found(
                told + "".join(f"; optimizer {one} never had one" for one in never),
                severity="error" if never else None,
            )
        for _, tally in self.noted(kinds.AVERAGE_MOVED):
            yield kinds.AVERAGE_MOVED.found(f"{tally.told}, in the epoch for batch norms")

    def _is_idle(self, optimizer: int | None, without: int) -> bool:
        """Whether it never had a gradient; of updates that this file lacks nobody knows."""
        never = optimizer not in self._reached and not self.place.missing
        return never and without >= SEVERAL


@dataclass(slots=True)
class _Counted:
    """What the loop and the optimizers counted in one attempt or fit, from its first update on."""

    first: tuple[int, dict[int, int]]  # global_step, updates by optimizer
    last: tuple[int, dict[int, int]]

    def tell(self) -> str:
        """Whether the loop has counted more than the updates of any one optimizer."""
        made = {i: n - self.first[1].get(i, 0) for i, n in self.last[1].items()}
        steps = self.last[0] - self.first[0]
        if not steps > max(made.values()) > 1 or sum(n > 0 for n in made.values()) < SOME:
            return ""
        each = " and ".join(f"{n} of optimizer {i}" for i, n in sorted(made.items()) if n > 0)
        return f"global_step rose by {steps} over {each}"


class CounterWatch(Watch):
    """Compare what the loop counts with what optimizers do."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._counted: list[_Counted] = []  # what tells something, and the one under way
        self._opens = True

    def began(self) -> None:
        """Count anew."""
        self._opens = True

    restarted = began

    def rewind(self, to: Moment) -> None:
        """Forget what was counted beyond the checkpoint, where the counter is known again."""
        super().rewind(to)
        self._counted = [one for one in self._counted if sum(one.first[1].values()) <= to[0]]
        for one in self._counted:
            if sum(one.last[1].values()) > to[0]:
                one.last = one.first if to[1] is None else (to[1], dict(self.place.updates))

    def happened(self, event: EventRecord) -> None:
        """A step without an update, an update without a step, or a new optimizer."""
        details = event.details
        if event.event == "counted_without_update":
            self.note(kinds.NO_UPDATE, self.place.now(), times=count(details, "count", default=1))
        elif event.event == "uncounted_update":
            steps = count(details, "count", default=1)
            self.note(kinds.UNCOUNTED, self.place.now(), of=index(details), times=steps)
        elif event.event == "optimizer_found":
            number = index(details)
            name = (text(details, "class_path") or "an unknown class").rpartition(".")[2]
            who = f"one of {name}" if number is None else f"optimizer {number} ({name})"
            self.note(kinds.OPTIMIZER_FOUND, f"{who} stepped, first {self.place.now()}", of=number)

    def updated(self, record: UpdateRecord) -> None:
        """Where the loop's counter stands."""
        if record.global_step is None or not self.place.several:
            return
        now = (record.global_step, dict(self.place.updates))
        if self._opens:
            self._counted = [one for one in self._counted if one.tell()]
            self._counted.append(_Counted(first=now, last=now))
        self._opens = False
        self._counted[-1].last = now

    def findings(self) -> Iterator[Finding]:
        """One per kind; updates behind the loop's back one per optimizer."""
        for _, tally in self.noted(kinds.NO_UPDATE):
            none = self.place.fruitless
            where = "and none was ever made" if none else f"first {tally.told}"
            told = f"{times(tally.count, 'counted step')} had no update, {where}"
            yield kinds.NO_UPDATE.found(told, severity="error" if none else None)
        for optimizer, tally in self.noted(kinds.UNCOUNTED):
            who = "an optimizer" if optimizer is None else f"optimizer {optimizer}"
            were = "was" if tally.count == 1 else "were"
            told = f"{times(tally.count, 'update')} of {who} {were} not counted, first {tally.told}"
            yield kinds.UNCOUNTED.found(told)
        for _, tally in self.noted(kinds.OPTIMIZER_FOUND):
            yield kinds.OPTIMIZER_FOUND.found(tally.told)
        telling = [one for one in self._counted if one.tell()]
        if telling:
            yield kinds.GLOBAL_STEP.found(telling[-1].tell())


class WindowWatch(Watch):
    """Look for accumulation windows with fewer micro-batches than the loss was divided by."""

    def updated(self, record: UpdateRecord) -> None:
        """The divisor is the one in effect for this update: a changing factor is no fault."""
        divisor, batches = record.divisor, _count_losses(record)
        if divisor is None or batches < 1 or batches >= divisor:
            return
        name = self.place.name(record.update, record.optimizer)
        if record.batch_idx is not None:
            name += f" (epoch {record.epoch}, batch {record.batch_idx})"
        self.note(
            kinds.PARTIAL_WINDOW,
            f"{name}: {times(batches, 'micro-batch', 'es')}{_left_out(record)} divided by "
            f"{divisor:g}, the gradient is {batches / divisor:.3g} of that of their mean",
        )

    def findings(self) -> Iterator[Finding]:
        """One over all updates."""
        for _, tally in self.noted(kinds.PARTIAL_WINDOW):
            told = f"{tally.told}; {tally.count} of {self.place.seen} updates are such"
            yield kinds.PARTIAL_WINDOW.found(told)


def _count_losses(record: UpdateRecord) -> int:
    """How many micro-batches had a loss; where each is not known, all of them."""
    return record.micro_batches if record.micro_losses is None else len(record.micro_losses)


def _left_out(record: UpdateRecord) -> str:
    """That others had no loss, if so it was."""
    without = record.micro_batches - _count_losses(record)
    return f" ({times(without, 'more', '')} had no loss)" if without > 0 else ""


class ClosureWatch(Watch):
    """Count how often closures were evaluated."""

    def updated(self, record: UpdateRecord) -> None:
        """More than one evaluation per update is worth saying."""
        evaluations = record.closure.evaluations if record.closure else 0
        if evaluations > 1:
            name = self.place.name(record.update, record.optimizer)
            told = f"{name}: {evaluations} evaluations of its closure"
            self.note(kinds.CLOSURE, told, of=evaluations)

    def findings(self) -> Iterator[Finding]:
        """One over all updates."""
        tallies = {evaluations or 0: tally for evaluations, tally in self.noted(kinds.CLOSURE)}
        if tallies:
            first = min(tallies.values(), key=lambda tally: tally.at[0])
            steps = sum(tally.count for tally in tallies.values())
            yield kinds.CLOSURE.found(
                f"{first.told}; {steps} of {self.place.seen} updates took several, at most "
                f"{max(tallies)}"
            )

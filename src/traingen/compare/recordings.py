"""Align two recordings by update and say where they first part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from traingen.compare.alignment import SIDES, Pair, TurnOrder, align_updates
from traingen.compare.causes import LENGTH, ORDER, explain_difference
from traingen.compare.differences import Comparison
from traingen.compare.exercise import RecordExercise
from traingen.compare.findings import Finding
from traingen.compare.gates import Gates
from traingen.compare.records import compare_updates
from traingen.compare.resumes import TickBases
from traingen.compare.runs import RunDifference, compare_runs
from traingen.compare.sides import Side, SideReader
from traingen.compare.summary import ModeResult, Summary, plain_place
from traingen.compare.uncompared import Uncompareds
from traingen.compare.verdict import EXIT_CODES, describe_mode, plain_finding
from traingen.compare.visibility import (
    OF_A_RANK,
    explain_hidden,
    find_hidden,
    find_seen,
    hide_unknown,
)
from traingen.records import UpdateRecord, plain_json
from traingen.records.attempts import find_lineage

MODE = "recordings"
COMPUTED = ("objective", "grad_norm", "parameters")  # a pass must have asserted one of them
NEVER_COMPARED = (
    "tensors: a recording holds norms and digests of gradients, optimizer state and parameters "
    "at most",
    "initial weights, validation results, step times, the tail of the last update",
    "epoch, global_step, batch_idx, total_batch_idx, batches_that_stepped: counted by each loop in "
    "its own way",
    "divisor, micro_losses, ids of samples, data_sampler: what follows from them is: objective, "
    "loss, batch",
    "events, except skipped steps",
)

Span = tuple[int, int]  # first and last update, both included
Skips = tuple[int, int]  # steps that were left out: of the original, of the package


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingsResult:
    """What two recordings share, where they part, and what follows."""

    mode: ModeResult
    original: Side
    package: Side
    findings: tuple[Finding, ...]
    run_differences: tuple[RunDifference, ...]
    not_compared: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Pass, fail or inconclusive."""
        return self.mode.verdict

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 could not judge."""
        return EXIT_CODES[self.verdict]

    @property
    def cause(self) -> str | None:
        """Path of the earliest difference in the causal order, if a gate was left."""
        first = self.mode.first_divergence
        return None if first is None else first.path

    def to_json(self) -> dict[str, Any]:
        """The fields that `--json` prints, as JSON values."""
        plain: dict[str, Any] = plain_json(
            {
                "verdict": self.verdict,
                "exit_code": self.exit_code,
                "updates": self.mode.updates,
                "first_divergence": plain_place(self.mode.first_divergence),
                "cause": self.cause,
                "findings": [plain_finding(finding) for finding in self.findings],
                "not_exercised": list(self.mode.not_exercised),
                "not_compared": list(self.not_compared),
                "original": self.original.describe(),
                "package": self.package.describe(),
                "run_differences": [
                    {"path": d.path, "original": d.original, "package": d.package}
                    for d in self.run_differences
                ],
                "comparison": describe_mode(self.mode),
            }
        )
        return plain


def compare_recordings(
    original: str | os.PathLike[str],
    package: str | os.PathLike[str],
    *,
    gates: Gates | None = None,
    updates: int | None = None,
    rank: int | None = None,
) -> RecordingsResult:
    """Compare the updates that stand in two recordings, each a file or a RUN folder.

    Both are read side by side, a line at a time. Updates are paired by optimizer and number;
    recordings of unequal length fail, unless `updates` says how many of each optimizer to compare.
    What one of the two recorders cannot see is not compared. Several ranks are compared as one
    training, merged as `merge_ranks` does it; with `rank`, that rank of both alone.

    Raises:
        RecordingError: one of them cannot be read, or a rank of it is missing.
    """
    mine = SideReader(SIDES[0], original, rank=rank)
    theirs = SideReader(SIDES[1], package, rank=rank)
    hidden = find_hidden(mine.outline.runs, theirs.outline.runs)
    seen = find_seen(mine.outline.runs, theirs.outline.runs, hidden)
    bases = TickBases((*find_lineage(mine.outline.runs), *find_lineage(theirs.outline.runs)))
    comparing = _Comparing(hidden, seen, bases, gates=gates or Gates(), updates=updates)
    for pair in align_updates(mine.updates(), theirs.updates()):
        comparing.add(pair, _take_skips(pair, mine, theirs))
    return comparing.conclude(mine.side(), theirs.side())


class _Comparing:
    """Compares pair by pair, and concludes."""

    def __init__(
        self,
        hidden: dict[str, str],
        seen: frozenset[str],
        bases: TickBases,
        *,
        gates: Gates,
        updates: int | None,
    ) -> None:
        self._gates = gates
        self._limit = updates
        self._hidden = hidden
        self._seen = seen
        self._bases = bases
        self._summary = Summary(
            mode=MODE,
            asked=0,
            horizon={},
            report_only=frozenset(n for n, limit in gates.limits.items() if limit.report_only),
            needed=(),
            computed=COMPUTED,
        )
        self._exercise = RecordExercise()
        self._uncompared = Uncompareds()
        self._turns = TurnOrder()
        self._optimizers: set[int] = set()
        self._alone: dict[tuple[str, int], list[Span]] = {}  # by side and optimizer
        self._sampler_noted = False

    def add(self, pair: Pair, skipped: Skips | None) -> None:
        """Take the next pair in, with the steps that were left out before it, if known."""
        if self._limit is not None and pair.one.update > self._limit:
            return
        self._optimizers.add(pair.one.optimizer)
        self._turns.add(pair)
        if pair.original is None or pair.package is None:
            key = (SIDES[pair.original is None], pair.one.optimizer)
            _extend(self._alone.setdefault(key, []), pair.one.update)
        elif self._summary.doubt is None:
            self._compare(pair.original, pair.package, skipped)

    def _compare(
        self, original: UpdateRecord, package: UpdateRecord, skipped: Skips | None
    ) -> None:
        if "amp_scale" not in self._seen:  # who sees the scaler sees what it leaves out
            skipped = None
        mine, theirs = self._bases.rebase(*hide_unknown(original, package, self._hidden))
        comparison = compare_updates(mine, theirs, self._gates, seen=self._seen, skipped=skipped)
        if len(comparison.nonfinite) == 2:
            self._summary.doubt = (
                f"both recordings have values that are not finite at update {comparison.update}"
            )
            return
        if original.optimizer > 0:
            comparison = _name_optimizer(comparison, original.optimizer)
        self._summary.add(comparison)
        self._exercise.add(theirs)
        self._uncompared.add(original, package, self._seen)
        self._note_sampler(original, package)

    def _note_sampler(self, original: UpdateRecord, package: UpdateRecord) -> None:
        """A loader's sampler is not judged: what it picks is, as the batch."""
        mine, theirs = original.data_sampler, package.data_sampler
        if mine is None or theirs is None or mine == theirs or self._sampler_noted:
            return
        self._sampler_noted = True
        differing = (
            f"{key} {mine.get(key)} and {theirs.get(key)}"
            for key in dict.fromkeys((*mine, *theirs))
            if mine.get(key) != theirs.get(key)
        )
        self._summary.notes.append(
            f"data samplers differ from update {original.update} on: {', '.join(differing)}"
        )

    def conclude(self, original: Side, package: Side) -> RecordingsResult:
        """The result, once both recordings have been read."""
        summary = self._summary
        uneven, missing = self._judge_alone({"original": original, "package": package})
        broken = [ORDER.found(self._turns.broken)] if self._turns.broken else []
        summary.asked = summary.updates
        if self._limit is not None:
            summary.asked = self._limit * max(len(self._optimizers), 1)
        if summary.updates == 0:
            summary.doubt = summary.doubt or "no update is in both recordings"
            uneven = []
        elif uneven or broken:
            summary.failure = [*broken, *uneven][0].measured
        summary.notes += [
            f"ranks of {side.name}: {line}"
            for side in (original, package)
            for line in (side.fit.tell() if side.fit else ())
        ]
        summary.doubt = summary.doubt or _doubt_ranks(original, package)
        mode = summary.result(not_exercised=self._exercise.missing(), not_synchronized={})
        first = mode.first_divergence
        cause = [] if first is None else [explain_difference(first)]
        return RecordingsResult(
            mode=mode,
            original=original,
            package=package,
            findings=(*cause, *broken, *uneven),
            run_differences=compare_runs(original.runs[-1], package.runs[-1]),
            not_compared=(
                *NEVER_COMPARED,
                *_other_ranks(original, package),
                *missing,
                *explain_hidden(self._hidden),
                *self._uncompared.lines(),
            ),
        )

    def _judge_alone(self, sides: dict[str, Side]) -> tuple[list[Finding], list[str]]:
        """Updates of one recording only: a finding, or missing in the other for a known reason."""
        uneven, missing = [], []
        for (name, optimizer), spans in sorted(self._alone.items()):
            other = sides[SIDES[name == SIDES[0]]]
            holes = [(m.first, m.last) for m in other.missing if m.optimizer == optimizer]
            of_optimizer = f" of optimizer {optimizer}" if len(self._optimizers) > 1 else ""
            missing += [
                f"updates {first} to {last}{of_optimizer}: missing in {other.name}, whose file "
                f"holds a later part of the run"
                for first, last in _shared(spans, holes)
            ]
            left = _outside(spans, holes)
            if left:
                uneven.append(LENGTH.found(_describe_length(sides[name], other, optimizer)))
        return uneven, missing


def _take_skips(pair: Pair, original: SideReader, package: SideReader) -> Skips | None:
    """Steps that AMP has left out before a pair; None without AMP, and if they are not known."""
    mine = None if pair.original is None else original.take_skips(pair.original)
    theirs = None if pair.package is None else package.take_skips(pair.package)
    if mine is None or theirs is None:
        return None
    scaled = any(one is not None and one.amp_scale is not None for one in _both_of(pair))
    return (mine, theirs) if scaled or mine or theirs else None


def _both_of(pair: Pair) -> tuple[UpdateRecord | None, UpdateRecord | None]:
    return pair.original, pair.package


def _other_ranks(*sides: Side) -> Iterator[str]:
    for side in sides:
        run = side.runs[-1]
        if side.fit is not None:
            yield (
                f"other ranks of {side.name} in what each has of its own ({', '.join(OF_A_RANK)}): "
                f"of {side.fit.ranks} ranks it is rank 0's, --rank R compares another's"
            )
        elif run.world_size > 1:
            yield f"other ranks of {side.name}: this is rank {run.rank} of {run.world_size}"


def _doubt_ranks(original: Side, package: Side) -> str | None:
    """Ranks that disagree on one side only: what rank 0 has of it does not speak for them."""
    mine, theirs = (
        () if side.fit is None else side.fit.merger.disagreements for side in (original, package)
    )
    if mine == theirs:
        return None
    one, found = (original, mine) if mine else (package, theirs)
    return (
        f"ranks of {one.name} disagree in {found[0].field}, first at update {found[0].update}: "
        f"rank 0 does not speak for the others"
    )


def _describe_length(longer: Side, shorter: Side, optimizer: int) -> str:
    """How long either is, and whether the shorter one may still grow."""
    counts = f"{longer.name} has {longer.updates.get(optimizer, 0)} updates"
    if len(longer.updates) > 1 or optimizer > 0:
        counts += f" of optimizer {optimizer}"
    counts += f", {shorter.name} has {shorter.updates.get(optimizer, 0)}"
    if shorter.ended is None:
        counts += " and no end line: it is still running, or was killed"
    elif shorter.ended != "finished":
        counts += f" and ended by {shorter.ended!r}"
    return f"{counts} (--updates N compares a common part)"


def _name_optimizer(comparison: Comparison, optimizer: int) -> Comparison:
    """The comparison with paths that say which optimizer; that of the first goes without."""
    differences = tuple(
        replace(difference, path=f"optimizers[{optimizer}].{difference.path}")
        for difference in comparison.differences
    )
    return replace(comparison, differences=differences)


def _extend(spans: list[Span], update: int) -> None:
    if spans and spans[-1][1] + 1 == update:
        spans[-1] = (spans[-1][0], update)
    else:
        spans.append((update, update))


def _shared(spans: list[Span], holes: list[Span]) -> Iterator[Span]:
    """The parts of `spans` that lie in `holes`."""
    for first, last in spans:
        for start, end in holes:
            if max(first, start) <= min(last, end):
                yield max(first, start), min(last, end)


def _outside(spans: list[Span], holes: list[Span]) -> bool:
    """Whether any update of `spans` lies in none of `holes`."""
    return sum(b - a + 1 for a, b in spans) > sum(b - a + 1 for a, b in _shared(spans, holes))

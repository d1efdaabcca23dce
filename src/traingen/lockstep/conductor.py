"""Drive two systems update by update in one mode, compare them, and keep what was found."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import torch

from traingen.compare.differences import Comparison, Difference, combine_comparisons
from traingen.compare.gates import Gates
from traingen.compare.order import gate_name
from traingen.compare.records import compare_updates
from traingen.compare.summary import ModeResult, Summary
from traingen.compare.tensors import TensorComparison, per_quantity
from traingen.compare.visibility import find_hidden, hide_unknown
from traingen.errors import ConfigError, SystemFailed, TraingenError
from traingen.lockstep.exercise import Exercise
from traingen.lockstep.feed import FeedExhausted
from traingen.lockstep.interrupt import deferred_interrupts, raise_if_interrupted
from traingen.lockstep.live_compare import compare_live
from traingen.lockstep.loop_system import LoopSystem
from traingen.lockstep.name_map import NameMap, ResolvedMap
from traingen.lockstep.option_compare import compare_options
from traingen.lockstep.output import ModeOutput
from traingen.lockstep.pair import Mode
from traingen.lockstep.state_copy import (
    Synchronizer,
    check_independent,
    copy_weights,
    named_tensors,
)
from traingen.lockstep.system import Ready, Report, System, Updated
from traingen.lockstep.trainer_system import TrainerSystem
from traingen.lockstep.worker import Ended, Raised
from traingen.observe.rng import seeded_rng
from traingen.records import RunRecord, UpdateRecord

STATE = ("ema", "sampler", "user")

OnUpdate = Callable[[int], None]
Disturb = Callable[[int, System], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How two systems are to be driven."""

    mode: Mode
    updates: int
    seed: int
    name_map: NameMap
    gates: Gates
    horizon: Mapping[str, int] = field(default_factory=dict)  # see `ModeResult`


def seed_of(seed: int, update: int) -> int:
    """The seed for the generators of one update; distinct and the same for both systems."""
    return (seed * 1_000_003 + update) % 2**63


class Conductor:
    """One run of one mode.

    The original goes first in every turn; the package then finds the batches it has used.

    Args:
        plan: what to do.
        original: is fed by its own loader; a `LoopSystem` feeds a `TrainerSystem`.
        package: gets the original's weights before it starts.
        output: is opened with the first update that both systems have completed.
        on_update: called after each compared update.
        disturb: called with the parked package before each of its updates, to measure a floor.
    """

    def __init__(
        self,
        plan: Plan,
        original: System,
        package: System,
        output: ModeOutput,
        *,
        on_update: OnUpdate | None = None,
        disturb: Disturb | None = None,
    ) -> None:
        self._plan = plan
        self._original = original
        self._package = package
        self._output = output
        self._on_update = on_update
        self._disturb = disturb
        self._names: ResolvedMap | None = None
        self._sync: Synchronizer | None = None
        self._exercise: Exercise | None = None
        self._summary = Summary(
            mode=plan.mode,
            asked=plan.updates,
            horizon=dict(plan.horizon),
            report_only=frozenset(n for n, limit in plan.gates.limits.items() if limit.report_only),
        )

    def run(self) -> ModeResult:
        """Run to the end; both threads have ended and all files are closed when this returns.

        Raises:
            TraingenError: a system could not be started, raised, or stalled.
        """
        with deferred_interrupts():
            try:
                self._start()
                for update in range(1, self._plan.updates + 1):
                    if not self._step(update):
                        break
                    if self._on_update is not None:
                        self._on_update(update)
            finally:
                self._finish()
            raise_if_interrupted()
        assert self._exercise is not None
        return self._summary.result(
            not_exercised=self._exercise.missing(),
            not_synchronized=self._sync.not_synchronized if self._sync else {},
            excused=self._exercise.excused,
            excused_trained=self._exercise.excused_trained,
        )

    def _start(self) -> None:
        plan = self._plan
        self._connect()
        self._expect_ready(self._original, self._original.start(seed=plan.seed))
        raise_if_interrupted()
        self._expect_ready(
            self._package, self._package.start(seed=plan.seed, prepare=self._copy_initial_weights)
        )
        raise_if_interrupted()
        self._set_generators(1)
        assert self._names is not None
        original, package = self._original.live(), self._package.live()
        check_independent(original, package)
        fed = isinstance(self._original, LoopSystem) and self._original.feeds is not None
        self._exercise = Exercise(package, self._names, fed=fed)
        if plan.mode == "synchronized":
            self._sync = Synchronizer(self._original, self._package, self._names)

    def _connect(self) -> None:
        """Let the original's loader feed the package, where it can."""
        reseeding = self._plan.mode != "natural"
        for system in (self._original, self._package):
            system.reseed_with = self._seed_of if reseeding else None
        if not isinstance(self._original, LoopSystem):
            return
        package = self._package
        self._original.feeds = package.make_feed() if isinstance(package, TrainerSystem) else None

    def _seed_of(self, update: int) -> int:
        return seed_of(self._plan.seed, update)

    def _copy_initial_weights(self, module: torch.nn.Module) -> None:
        """Runs in the package's thread, before its training has begun."""
        assert self._original.module is not None
        original, package = named_tensors(self._original.module), named_tensors(module)
        self._names = self._plan.name_map.resolve(original, package)
        copy_weights(original, package, self._names)

    def _set_generators(self, update: int) -> None:
        """Before the turns of `update`: the same generators in both, except naturally later on."""
        if self._plan.mode == "natural":
            if update == 1:
                self._package.set_rng(self._original.process_state.rng)
            return
        state = seeded_rng(self._seed_of(update))
        self._original.set_rng(state)
        self._package.set_rng(state)

    def _step(self, update: int) -> bool:
        """Advance and compare one update; False when there is no further one."""
        if update > 1:
            self._set_generators(update)
        if self._disturb is not None:
            self._disturb(update, self._package)
        mine = self._original.advance()
        raise_if_interrupted()
        if isinstance(mine, Raised):
            self._note_raised(self._original, mine.error, update)
            return False
        theirs = self._package.advance()
        raise_if_interrupted()
        exhausted = isinstance(theirs, Raised) and isinstance(theirs.error, FeedExhausted)
        if exhausted and isinstance(mine, Updated):
            self._note_exhausted(update, mine.record)
        elif isinstance(theirs, Raised) and not exhausted:
            self._note_raised(self._package, theirs.error, update)
        elif isinstance(mine, Updated) and isinstance(theirs, Updated):
            return self._compare(mine.record, theirs.record)
        else:
            self._note_end(update, mine, theirs)
        return False

    def _compare(self, mine: UpdateRecord, theirs: UpdateRecord) -> bool:
        """Compare one update and write it down; False when no further one would prove anything."""
        assert self._names is not None and self._exercise is not None
        original, package = self._original.live(), self._package.live()
        tensors = compare_live(mine.update, original, package, self._names, self._plan.gates)
        options = compare_options(mine.update, original, package, self._names, self._plan.gates)
        records = compare_updates(*self._known_to_both(mine, theirs), self._plan.gates)
        comparison = per_quantity(tensors, combine_comparisons(records, options))
        if mine.update == 1:
            self._check_taps(mine, theirs)
        self._write(comparison, tensors, mine, theirs)
        self._exercise.add(theirs, original, package)
        self._summary.doubt = self._doubt(comparison)
        if self._summary.doubt is not None:
            return False
        self._summary.add(comparison)
        self._noted(comparison)
        if self._sync is not None:
            self._sync.synchronize(original, package)
            check_independent(original, package)
        return True

    def _write(
        self,
        comparison: Comparison,
        tensors: list[TensorComparison],
        mine: UpdateRecord,
        theirs: UpdateRecord,
    ) -> None:
        self._output.open()
        self._write_notes()
        self._output.original.write(mine)
        self._output.package.write(theirs)
        report_only = [
            gate for gate, horizon in self._plan.horizon.items() if comparison.update > horizon
        ]
        self._output.write_differences(comparison, tensors, report_only=report_only)

    def _check_taps(self, mine: UpdateRecord, theirs: UpdateRecord) -> None:
        """A tap that nothing has come through by the first update would compare nothing."""
        for system, record in ((self._original, mine), (self._package, theirs)):
            for tap in system.taps:
                if tap.name not in (record.loss_terms or {}):
                    raise ConfigError(
                        f"taps.{tap.name}: nothing came through it in the first update of the "
                        f"{system.name}: is {tap.module or tap.function} called in training?"
                    )

    def _noted(self, comparison: Comparison) -> None:
        """Called with every comparison; for those who measure more than a verdict."""

    def _doubt(self, comparison: Comparison) -> str | None:
        """Why a comparison proves nothing: NaN on both sides, or draws that were not reseeded."""
        if len(comparison.nonfinite) == 2:
            return f"both systems have values that are not finite at update {comparison.update}"
        reseeding = self._plan.mode != "natural" and comparison.update > 1
        unseeded = [
            system.name
            for system in (self._original, self._package)
            if reseeding and not system.seeded_in_turn
        ]
        if unseeded and comparison.left and gate_name(comparison.left[0].quantity) == "rng":
            return (
                f"{' and '.join(unseeded)} fetched no batch in the turn of update "
                f"{comparison.update}, so its generators could not be reseeded there"
            )
        return None

    def _note_raised(self, system: System, error: BaseException, update: int) -> None:
        """A system raised: what was found before it stands, if anything was."""
        failed = _failed(system, error, f"at update {update}")
        if update == 1:
            raise failed
        self._summary.doubt = str(failed)

    def _note_exhausted(self, update: int, mine: UpdateRecord) -> None:
        """The package asked for a batch that the original did not use in this update."""
        used = mine.micro_batches
        more = Difference(
            update=update,
            quantity="batch",
            path="batch.micro_batches",
            original=used,
            package=f"more than {used}",
        )
        self._summary.add(Comparison(update=update, compared={"batch": 1}, differences=(more,)))

    def _note_end(self, update: int, mine: Report, theirs: Report) -> None:
        """One or both have no further update."""
        done = update - 1
        if isinstance(mine, Ended) and isinstance(theirs, Ended):
            self._summary.doubt = (
                f"both systems ended after {done} of {self._plan.updates} updates: let them train "
                "longer, or ask for fewer"
            )
        else:
            early = self._original if isinstance(mine, Ended) else self._package
            self._summary.failure = (
                f"{early.name} ended after {done} updates while the other went on"
            )

    def _expect_ready(self, system: System, report: Report) -> None:
        if isinstance(report, Raised):
            raise _failed(system, report.error, "before its first update")
        if isinstance(report, Ended):
            raise SystemFailed(
                f"{system.name}: ended without training: no optimizer's model was called in "
                "training mode. Does its factory run the whole training?"
            )
        assert isinstance(report, Ready)

    def _known_to_both(
        self, mine: UpdateRecord, theirs: UpdateRecord
    ) -> tuple[UpdateRecord, UpdateRecord]:
        """Without averaged weights, samplers and probes that one side's observer cannot see."""
        assert self._original.run is not None and self._package.run is not None
        hidden = find_hidden([self._original.run], [self._package.run])
        return hide_unknown(mine, theirs, {f: why for f, why in hidden.items() if f in STATE})

    def _write_notes(self) -> None:
        for system, sink in (
            (self._original, self._output.original),
            (self._package, self._output.package),
        ):
            for record in system.take_notes():
                if isinstance(record, RunRecord):
                    record = msgspec.structs.replace(record, system=system.name)
                sink.write(record)

    def _finish(self) -> None:
        """End both threads and close the files, whatever has happened."""
        try:
            for system in (self._original, self._package):
                self._stop(system)
            if self._output.opened:
                self._write_notes()
        finally:
            self._output.close()

    def _stop(self, system: System) -> None:
        """End one thread; what the training raises while it is ended is kept as a note."""
        report = system.stop()
        if isinstance(report, Raised) and self._output.opened:
            error = report.error
            self._summary.notes.append(
                f"{system.name} raised while it was being ended: {type(error).__name__}: {error}"
            )


def _failed(system: System, error: BaseException, when: str) -> BaseException:
    """The error to raise for a system that raised: ours as it is, others with their place."""
    if isinstance(error, TraingenError):
        return error
    hint = ": is its package installed?" if isinstance(error, ImportError) else ""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    failed = SystemFailed(
        f"{system.name} raised {when}: {type(error).__name__}: {error}{hint}{place}"
    )
    failed.__cause__ = error
    return failed

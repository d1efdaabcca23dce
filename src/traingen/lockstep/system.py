"""What a system is to the conductor: a training that advances by one update and stands still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from traingen.errors import SystemFailed
from traingen.lockstep.isolation import ProcessState
from traingen.lockstep.taps import Tap
from traingen.lockstep.worker import STALL_SECONDS, Ended, Raised, Worker
from traingen.observe.live import LiveState, read_live_state
from traingen.observe.rng import RngState, seed_rng
from traingen.observe.update import UpdateObserver
from traingen.records import Record, RunRecord, UpdateRecord

Prepare = Callable[[torch.nn.Module], None]


@dataclass(frozen=True, slots=True)
class Ready:
    """The model exists and its first batch is at hand; nothing was computed from it yet."""


@dataclass(frozen=True, slots=True)
class Updated:
    """One update was applied; the system is parked inside the optimizer's post-hook."""

    record: UpdateRecord


Report = Ready | Updated | Ended | Raised


class System:
    """A training that runs in its own thread, as in production, and parks after every update.

    A system is made from a factory and can be started again and again: every `start` calls the
    factory anew. Between turns its tensors may be read through `live`, and its generators through
    `process_state`.

    Subclasses implement `_body` (the training) and say, while it runs, which module, optimizer and
    schedulers it has; they call `_ready` once and hand every record to `write`.
    """

    def __init__(self, *, name: str, stall_seconds: float = STALL_SECONDS) -> None:
        self.name = name
        self.taps: tuple[Tap, ...] = ()
        self.reseed_with: Callable[[int], int] | None = None  # update number -> seed
        self.module: torch.nn.Module | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.seeded_in_turn = False
        self._stall_seconds = stall_seconds
        self._worker: Worker | None = None
        self._prepare: Prepare | None = None
        self._notes: list[Record] = []
        self._updates = 0
        self.run: RunRecord | None = None  # what its recorder says of the run, once it has begun

    def start(self, *, seed: int, prepare: Prepare | None = None) -> Report:
        """Call the factory in a new thread and run until the system is `Ready`.

        Args:
            seed: of the generators that the factory finds.
            prepare: called once with the model, before anything was computed or copied from it.
        """
        if self._worker is not None and self._worker.alive:
            raise SystemFailed(f"{self.name}: start() while it runs, expected stop() first.")
        self.module = self.optimizer = None
        self._prepare = prepare
        self._notes = []
        self._updates = 0
        self.run = None
        self._reset()
        self._worker = Worker(self.name, self._body, seed=seed, stall_seconds=self._stall_seconds)
        return self._turn()

    def advance(self) -> Report:
        """Run until the next update is applied, the training ends, or it raises."""
        if self._worker is None:
            raise SystemFailed(f"{self.name}: advance() before start().")
        return self._turn()

    def stop(self) -> Report:
        """End the training where it is parked; its thread has ended when this returns.

        Returns `Raised` if the training raised while it was being ended.
        """
        if self._worker is None:
            return Ended()
        report: Report = self._worker.stop()
        return report

    @property
    def process_state(self) -> ProcessState:
        """The process-wide state that this system will find at its next turn."""
        assert self._worker is not None
        return self._worker.state

    def set_rng(self, rng: RngState) -> None:
        """Let the system find these generator states at its next turn."""
        self.process_state.rng = rng

    @property
    def alive(self) -> bool:
        """Whether its thread exists."""
        return self._worker is not None and self._worker.alive

    def live(self) -> LiveState:
        """Views of the parked system's tensors."""
        if self.module is None or self.optimizer is None or self._observer is None:
            raise SystemFailed(f"{self.name}: live() before it was ready or after it has ended.")
        return read_live_state(
            self.module,
            self.optimizer,
            clip_coefficient=self._observer.clip_coefficient,
            clip_limit=self._observer.clip_limit,
        )

    def take_notes(self) -> list[Record]:
        """Records other than updates that the system has made since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def write(self, record: Record) -> None:
        """The sink of this system's recorder: an update parks, anything else is kept."""
        if not isinstance(record, UpdateRecord):
            self._notes.append(record)
            if isinstance(record, RunRecord):
                self.run = record
            return
        self._updates = record.update
        self._park(Updated(record))

    def close(self) -> None:
        """The sink's other half: there is nothing to close."""

    @property
    def schedulers(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        """The learning-rate schedulers of the optimizer."""
        raise NotImplementedError

    def _body(self) -> None:
        raise NotImplementedError

    def _reset(self) -> None:
        """Forget what belongs to the last run."""

    @property
    def _observer(self) -> UpdateObserver | None:
        """The maker of this system's update records, once its training has begun."""
        raise NotImplementedError

    def _deliver(self, name: str, value: torch.Tensor) -> None:
        """A tap has read one term of the loss."""
        if self._observer is not None:
            self._observer.term(name, value)

    def _turn(self) -> Report:
        assert self._worker is not None
        self.seeded_in_turn = False
        report: Report = self._worker.resume()
        return report

    def _park(self, report: Report) -> None:
        assert self._worker is not None
        self._worker.park(report)

    def _ready(self) -> None:
        self._park(Ready())

    def _prepare_model(self, module: torch.nn.Module) -> None:
        self.module = module
        if self._prepare is not None:
            self._prepare(module)

    def _batch_arrived(self) -> None:
        """Seed once per turn, when its first batch is at hand and before the loop has it."""
        if self.reseed_with is not None and not self.seeded_in_turn and self._updates > 0:
            seed_rng(self.reseed_with(self._updates + 1))
            self.seeded_in_turn = True

"""What holds for every kind of system: the conductor relies on all of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tests.lockstep.small import (
    PER_EPOCH,
    UPDATES,
    Trace,
    assert_same_state,
    fit,
    plain_loop,
)
from traingen.lockstep import LoopSystem, System, TrainerSystem
from traingen.lockstep.system import Ready, Updated
from traingen.lockstep.worker import Ended, Raised
from traingen.observe.rng import capture_rng, seed_rng
from traingen.records import EndRecord, RunRecord


@dataclass(frozen=True)
class Kind:
    """How one kind of system is made, and how the same training runs without any system."""

    name: str
    make: Callable[..., System]
    alone: Callable[[Trace], None]


def _loop(trace: Trace, **options: Any) -> System:
    return LoopSystem(lambda: plain_loop(trace, **options))


def _trainer(trace: Trace, **options: Any) -> System:
    return TrainerSystem(lambda: fit(trace, **options))


def _fit_alone(trace: Trace) -> None:
    call = fit(trace)
    call.trainer.fit(call.model, call.train_dataloaders, call.val_dataloaders)


KINDS = [
    Kind("loop", _loop, lambda trace: plain_loop(trace)),
    Kind("trainer", _trainer, _fit_alone),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def run_to_end(system: System, *, seed: int = 0) -> list[Any]:
    """Start and advance until there is no further update; returns the records."""
    assert isinstance(system.start(seed=seed), Ready)
    records = []
    while isinstance(report := system.advance(), Updated):
        records.append(report.record)
    assert isinstance(report, Ended)
    system.stop()
    return records


def test_alone_and_parked_end_in_the_same_bits(kind: Kind) -> None:
    alone, parked = Trace(), Trace()
    seed_rng(0)
    kind.alone(alone)
    records = run_to_end(kind.make(parked))
    assert len(records) == len(alone.losses) == UPDATES
    assert parked.losses == alone.losses
    assert_same_state(parked.state(), alone.state())


def test_another_seed_is_another_training(kind: Kind) -> None:
    alone, parked = Trace(), Trace()
    seed_rng(1)
    kind.alone(alone)
    run_to_end(kind.make(parked), seed=0)
    assert parked.losses != alone.losses


def test_two_systems_in_turns_do_not_touch_each_other(kind: Kind) -> None:
    alone, mine, other = Trace(), Trace(), Trace()
    seed_rng(0)
    kind.alone(alone)
    a, b = kind.make(mine), _loop(other)
    a.start(seed=0)
    b.start(seed=7)
    while isinstance(a.advance(), Updated):
        b.advance()
    a.stop()
    b.stop()
    assert mine.losses == alone.losses
    assert_same_state(mine.state(), alone.state())


def test_it_records_what_the_training_computed(kind: Kind) -> None:
    trace = Trace()
    records = run_to_end(kind.make(trace))
    assert [r.update for r in records] == list(range(1, UPDATES + 1))
    assert [r.loss for r in records] == pytest.approx(trace.losses, rel=0, abs=0)
    assert [r.epoch for r in records] == [i // PER_EPOCH for i in range(UPDATES)]
    assert [r.scheduler[0].ticks for r in records] == list(range(UPDATES))


def test_it_starts_again_with_the_same_bits(kind: Kind) -> None:
    trace = Trace()
    system = kind.make(trace)
    first = run_to_end(system)
    again = run_to_end(system)
    assert again == first
    assert len(trace.models) == 2


def test_it_stands_still_and_live_while_parked(kind: Kind) -> None:
    system = kind.make(Trace())
    system.start(seed=0)
    system.advance()
    live = system.live()
    before = {name: p.clone() for name, p in live.parameters.items()}
    assert live.gradients.keys() == live.parameters.keys()
    assert all(torch.equal(p, before[name]) for name, p in live.parameters.items())
    system.advance()
    assert not all(torch.equal(p, before[name]) for name, p in live.parameters.items())
    system.stop()


def test_stopping_ends_its_thread_and_its_hooks(kind: Kind) -> None:
    backward, init = torch.autograd.backward, torch.optim.Optimizer.__init__
    system = kind.make(Trace())
    system.start(seed=0)
    for _ in range(3):
        system.advance()
    assert system.alive
    system.stop()
    assert not system.alive
    assert not [t for t in threading.enumerate() if t.name.startswith("traingen-")]
    assert torch.autograd.backward is backward
    assert torch.optim.Optimizer.__init__ is init


def test_stopping_before_the_first_update_ends_its_thread(kind: Kind) -> None:
    system = kind.make(Trace())
    system.start(seed=0)
    system.stop()
    assert not system.alive


def test_an_error_of_the_training_is_reported_at_its_update(kind: Kind) -> None:
    system = kind.make(Trace(), raise_at=3)
    system.start(seed=0)
    assert isinstance(system.advance(), Updated)
    assert isinstance(system.advance(), Updated)
    report = system.advance()
    assert isinstance(report, Raised)
    assert isinstance(report.error, ValueError)
    system.stop()
    assert not system.alive


def test_an_error_of_the_factory_is_reported_at_the_start(kind: Kind) -> None:
    system = kind.make(Trace(), nonsense=True)
    report = system.start(seed=0)
    assert isinstance(report, Raised)
    assert "nonsense" in str(report.error)
    system.stop()


def test_a_training_that_ends_by_itself_stays_ended(kind: Kind) -> None:
    system = kind.make(Trace(), epochs=1)
    system.start(seed=0)
    reports = [system.advance() for _ in range(PER_EPOCH + 2)]
    assert all(isinstance(report, Updated) for report in reports[:PER_EPOCH])
    assert all(isinstance(report, Ended) for report in reports[PER_EPOCH:])
    system.stop()


def test_its_recording_opens_with_a_run_and_closes_with_an_end(kind: Kind) -> None:
    system = kind.make(Trace())
    run_to_end(system)
    notes = system.take_notes()
    assert isinstance(notes[0], RunRecord)
    assert notes[0].optimizers[0].class_path.endswith("AdamW")
    assert isinstance(notes[-1], EndRecord)
    assert (notes[-1].reason, notes[-1].updates) == ("finished", UPDATES)
    assert notes[-1].scheduler[0].ticks == UPDATES


def test_the_outside_generators_are_left_alone(kind: Kind) -> None:
    before = capture_rng()
    run_to_end(kind.make(Trace()))
    assert capture_rng().equals(before)


def test_weights_can_be_set_before_anything_is_computed(kind: Kind) -> None:
    def zero(module: torch.nn.Module) -> None:
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()

    untouched = run_to_end(kind.make(Trace()))
    system = kind.make(Trace())
    system.start(seed=0, prepare=zero)
    report = system.advance()
    system.stop()
    assert isinstance(report, Updated)
    assert report.record.loss != untouched[0].loss
    assert report.record.batch == untouched[0].batch

"""The first law, for every callback of the package in every kind of training."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

import traingen.callbacks
from tests.callbacks.small import record_everything
from tests.callbacks.trainings import KINDS, SHARED, Kind
from tests.first_law import Training, assert_same_training, differing_names
from tests.observe.listeners import hooks_on_torch
from tests.ranks import WORLD, on_ranks
from traingen import CadenceGuard, StepRecorder
from traingen.callbacks.attendance import Attendance
from traingen.callbacks.guest import Guest, unwrap
from traingen.records import read_recording

pytestmark = pytest.mark.filterwarnings(
    "ignore::traingen.errors.CadenceWarning",  # the guard takes part, it is not asked
    "ignore:You're resuming from a checkpoint that ended before the epoch ended:UserWarning",
)

Make = Callable[[str], list[pl.Callback]]  # callbacks that record, if they do, at a path


class Probe:
    """Reads the part of a weight that this rank has: the whole may take a collective."""

    name = "first weight"

    def read(self, module: nn.Module) -> float:
        weight = next(module.parameters())
        return float(getattr(weight, "_local_tensor", weight).detach().sum())


def guard() -> CadenceGuard:
    return CadenceGuard(on_violation="warn")


def attend(callback: pl.Callback) -> list[pl.Callback]:
    return [callback, Attendance([callback])]


SETS: dict[str, Make] = {
    "recorder": lambda path: [StepRecorder(path)],
    "recorder of everything": lambda path: [record_everything(path, probes=[Probe()])],
    "guard": lambda path: [guard()],
    "both": lambda path: [guard(), record_everything(path, probes=[Probe()])],
    "guests": lambda path: [Guest(StepRecorder(path)), Guest(guard())],
    "attendance": lambda path: attend(StepRecorder(path)),
}


class Meddles(pl.Callback):
    """Breaks the first law once, after the first update of a fit."""

    def __init__(self) -> None:
        self.done = False

    def meddle(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        raise NotImplementedError

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *rest: Any
    ) -> None:
        if not self.done:
            self.done = True
            self.meddle(trainer, pl_module)


class Draws(Meddles):
    def meddle(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        torch.rand(1)


class Reads(Meddles):
    def meddle(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        next(iter(trainer.train_dataloader))


class Nudges(pl.Callback):
    """Moves one gradient by its last bit, in every update."""

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        held = (p for group in optimizer.param_groups for p in group["params"])
        gradient = next((p.grad for p in held if p.grad is not None), None)
        if gradient is not None:
            local = getattr(gradient, "_local_tensor", gradient)
            local.copy_(torch.nextafter(local, torch.tensor(torch.inf)))


# what breaks the first law, and a name that must show it
BREAKERS: dict[str, tuple[Make, str]] = {
    "draws": (lambda path: [Draws()], "rng.torch"),
    "reads": (lambda path: [Reads()], "data.reads"),
    "nudges": (lambda path: [Nudges()], "parameters."),
}


# Trainings


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A training, and what shows that the callbacks took part in it."""

    trained: Training
    recorded: int | None = None  # updates; None without a recorder
    guarded: bool | None = None  # schedules were judged; None without a guard


def train_with(kind: Kind, make: Make, path: str, *, rank: int = 0) -> Outcome:
    made: list[pl.Callback] = []

    def make_anew() -> list[pl.Callback]:
        made[:] = make(path)
        return list(made)

    trained = kind.train(make_anew)
    takes_part = {type(unwrap(one)): unwrap(one) for one in made}
    judged = takes_part.get(CadenceGuard)
    return Outcome(
        trained=trained,
        recorded=len(read_recording(path, rank=rank).updates)
        if StepRecorder in takes_part
        else None,
        guarded=bool(judged.forecasts) if isinstance(judged, CadenceGuard) else None,
    )


@functools.cache
def train_alone(kind: str) -> Training:
    return KINDS[kind].train(list)


Shared = dict[tuple[str, str], list[Outcome]]  # kind and name of a set or breaker: by rank


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """Every training of several ranks, in one launch."""
    by_rank = on_ranks(train_all_shared, str(tmp_path_factory.mktemp("shared")))
    return {key: [outcomes[key] for outcomes in by_rank] for key in by_rank[0]}


def train_all_shared(rank: int, folder: str) -> dict[tuple[str, str], Outcome]:
    breakers = {name: make for name, (make, _) in BREAKERS.items()}
    return {
        (name, with_what): train_with(kind, make, f"{folder}/{name}/{with_what}", rank=rank)
        for name, kind in SHARED.items()
        for with_what, make in {"": lambda path: [], **SETS, **breakers}.items()
    }


def assert_lawful(without: Training, outcome: Outcome, *, kind: Kind, with_what: str) -> None:
    """The same bits, by callbacks that were at work."""
    assert_same_training(without, outcome.trained)
    records, guards = (
        any(isinstance(unwrap(one), cls) for one in SETS[with_what]("unused"))
        for cls in (StepRecorder, CadenceGuard)
    )
    assert outcome.recorded == (kind.updates if records else None)
    assert outcome.guarded == (True if guards else None)


# The contract


def test_no_callback_of_the_package_is_forgotten() -> None:
    taking_part = {
        cls
        for make in SETS.values()
        for one in make("unused")
        for cls in (type(one), type(unwrap(one)))
    }
    assert taking_part == set(iter_callbacks())
    public = {getattr(traingen.callbacks, name) for name in traingen.callbacks.__all__}
    assert {one for one in public if issubclass(one, pl.Callback)} <= taking_part


def iter_callbacks() -> Iterator[type[pl.Callback]]:
    """Every callback that a module of the package defines, public or not."""
    for found in pkgutil.iter_modules(traingen.callbacks.__path__):
        module = importlib.import_module(f"traingen.callbacks.{found.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, pl.Callback):
                yield value


@pytest.mark.parametrize("with_what", SETS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_training_ends_in_the_same_bits(kind: str, with_what: str, tmp_path: Path) -> None:
    hooks = hooks_on_torch()
    outcome = train_with(KINDS[kind], SETS[with_what], str(tmp_path / "run"))
    assert_lawful(train_alone(kind), outcome, kind=KINDS[kind], with_what=with_what)
    assert hooks_on_torch() == hooks


@pytest.mark.parametrize("with_what", SETS)
@pytest.mark.parametrize("kind", SHARED)
def test_a_training_of_several_ranks_ends_in_the_same_bits_on_each(
    kind: str, with_what: str, shared: Shared
) -> None:
    for without, outcome in zip(shared[kind, ""], shared[kind, with_what], strict=True):
        assert_lawful(without.trained, outcome, kind=SHARED[kind], with_what=with_what)


@pytest.mark.parametrize("breaker", BREAKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_that_breaks_the_law_is_caught(kind: str, breaker: str, tmp_path: Path) -> None:
    make, name = BREAKERS[breaker]
    outcome = train_with(KINDS[kind], make, str(tmp_path))
    assert_caught(train_alone(kind), outcome.trained, name)


@pytest.mark.parametrize("breaker", BREAKERS)
@pytest.mark.parametrize("kind", SHARED)
def test_a_callback_that_breaks_the_law_is_caught_on_each_rank(
    kind: str, breaker: str, shared: Shared
) -> None:
    for without, outcome in zip(shared[kind, ""], shared[kind, breaker], strict=True):
        assert_caught(without.trained, outcome.trained, BREAKERS[breaker][1])


def assert_caught(without: Training, trained: Training, name: str) -> None:
    with pytest.raises(AssertionError, match=r"^\d+ of \d+ differ: "):
        assert_same_training(without, trained)
    assert any(found.startswith(name) for found in differing_names(without, trained))


def test_a_training_repeats_bit_for_bit() -> None:
    """Else the tests above say nothing."""
    for kind in KINDS:
        assert_same_training(train_alone(kind), KINDS[kind].train(list))


def test_trainings_are_of_the_kind_that_they_are_named(shared: Shared) -> None:
    assert (
        train_alone("AMP")["scaler._growth_tracker"] != train_alone("AMP")["counters.global_step"]
    )
    assert float(train_alone("averaged weights")["averaged.0.n_averaged"]) > 0
    for kind in SHARED:
        one, other = (outcome.trained for outcome in shared[kind, ""])
        assert len(shared[kind, ""]) == WORLD
        assert "data.inputs.0" in differing_names(one, other)

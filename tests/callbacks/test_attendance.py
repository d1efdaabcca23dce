"""Attendance warns about callbacks that Lightning has thrown out, and about nothing else."""

import warnings
from typing import Any

import lightning.pytorch as pl
import pytest

from tests import first_law
from tests.callbacks.small import Small, fit, make_loader, make_trainer
from tests.first_law import trained_without
from traingen.callbacks.attendance import Attendance


class Watcher(pl.Callback):
    """Stands for the guard or the recorder."""


class FinerWatcher(Watcher):
    pass


class Bystander(pl.Callback):
    pass


class Returning(Small):
    """Returns these callbacks from configure_callbacks."""

    def __init__(self, *callbacks: pl.Callback) -> None:
        super().__init__()
        self.callbacks = list(callbacks)

    def configure_callbacks(self) -> list[pl.Callback]:
        return self.callbacks


class Removing(pl.Callback):
    """Takes one class of callbacks off the trainer, as code that runs before fit may."""

    def __init__(self, cls: type[pl.Callback]) -> None:
        self.cls = cls

    def setup(self, trainer: Any, pl_module: pl.LightningModule, stage: str) -> None:
        trainer.callbacks = [one for one in trainer.callbacks if not isinstance(one, self.cls)]


def warnings_of(*callbacks: pl.Callback, model: pl.LightningModule | None = None) -> list[str]:
    """Train, and return what Attendance says."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(callbacks, model=model, max_epochs=1)
    texts = [str(warning.message) for warning in caught]
    return [text for text in texts if "TG-CALLBACK-EVICTED" in text]


def test_it_is_silent_when_all_take_part():
    watcher, bystander = Watcher(), Bystander()
    assert warnings_of(watcher, bystander, Attendance([watcher, bystander])) == []


@pytest.mark.parametrize("returned", [Watcher(), FinerWatcher()], ids=["class", "subclass"])
def test_an_evicted_callback_is_reported_with_who_did_it_and_the_way_out(returned):
    watcher = Watcher()
    (text,) = warnings_of(watcher, Attendance([watcher]), model=Returning(returned))
    assert text.startswith(
        "TG-CALLBACK-EVICTED: the Watcher given to the trainer takes no part in this training: "
        f"Returning.configure_callbacks returned a {type(returned).__name__}, which replaced it."
    )
    assert "Fix: Drop the callback from configure_callbacks" in text


def test_every_evicted_callback_is_reported():
    required = [Watcher(), Bystander()]
    model = Returning(Watcher(), Bystander())
    first, second = warnings_of(*required, Attendance(required), model=model)
    assert "the Watcher given" in first
    assert "the Bystander given" in second


@pytest.mark.parametrize("returned", [(), (Bystander(),)], ids=["none", "another class"])
def test_what_the_model_returns_beside_it_is_no_matter(returned):
    watcher = Watcher()
    assert warnings_of(watcher, Attendance([watcher]), model=Returning(*returned)) == []


def test_a_superclass_that_the_model_returns_does_not_evict():
    watcher = FinerWatcher()
    assert warnings_of(watcher, Attendance([watcher]), model=Returning(Watcher())) == []


def test_another_of_the_same_class_does_not_stand_in_for_it():
    (text,) = warnings_of(Watcher(), Attendance([Watcher()]))
    assert "the Watcher given to the trainer takes no part" in text


def test_a_callback_that_was_removed_by_hand_is_reported():
    watcher = Watcher()
    (text,) = warnings_of(watcher, Removing(Watcher), Attendance([watcher]))
    assert "it was removed from trainer.callbacks" in text


def test_the_model_cannot_evict_it_by_what_it_watches():
    watcher = Watcher()
    attendance = Attendance([watcher])
    with pytest.warns(UserWarning, match="TG-CALLBACK-EVICTED"):
        trainer = fit([watcher, attendance], model=Returning(Watcher()), max_epochs=1)
    assert attendance in trainer.callbacks


def test_other_stages_do_without_it():
    class Validating(Returning):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.loss(batch)

    watcher = Watcher()
    trainer = make_trainer([watcher, Attendance([watcher])])
    trainer.validate(Validating(Watcher()), make_loader(), verbose=False)  # a warning is an error
    assert watcher not in trainer.callbacks


def test_training_with_it_ends_in_the_same_bits():
    watcher = Watcher()
    trained = first_law.train([watcher, Attendance([watcher])])
    first_law.assert_same_training(trained_without(), trained)

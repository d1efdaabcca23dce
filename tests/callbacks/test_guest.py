"""A guest forwards what its callback overrides, does nothing twice and never harms the host."""

import copy
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.utilities.model_helpers import is_overridden

from tests import first_law
from tests.callbacks.small import BATCHES, Small, fit, make_loader, make_trainer
from tests.callbacks.test_step_recorder import hooks_in_place
from traingen import CadenceGuard, StepRecorder
from traingen.callbacks.guest import Guest, overridden_hooks, unwrap
from traingen.errors import CadenceViolation
from traingen.observe.events import Listener
from traingen.observe.listening import start_listening
from traingen.records import MemorySink, Record, UpdateRecord, read_recording

HOOKS = [
    name for name, hook in vars(pl.Callback).items() if callable(hook) and not name.startswith("_")
]
IN_TRAINING = (
    "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start",
    "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_train_batch_end",
    "on_train_epoch_end", "on_train_end", "on_fit_end",
)  # fmt: skip


class Notes(pl.Callback):
    """Keeps the hooks that are called and what they are given."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.arguments: dict[str, tuple[Any, ...]] = {}

    def note(self, name: str, *arguments: Any) -> None:
        self.calls.append(name)
        self.arguments[name] = arguments

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.note("setup", trainer, pl_module, stage)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.note("on_fit_start", trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.note("on_train_batch_end", trainer, pl_module, outputs, batch, batch_idx)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.note("on_exception", trainer, pl_module, exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.note("teardown", trainer, pl_module, stage)


class NotesMore(Notes):
    """A subclass: it does what Notes does."""


class Stateful(Notes):
    """Has state, which Lightning wants under a key of its own."""

    def __init__(self, seen: int = 0) -> None:
        super().__init__()
        self.seen = seen

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seen = state_dict["seen"]


def raising(hook: str, error: BaseException) -> Notes:
    """A Notes whose `hook` raises."""

    def raise_it(self: Notes, *args: Any, **kwargs: Any) -> None:
        self.calls.append(hook)
        raise error

    return type("Raises", (Notes,), {hook: raise_it})()


@contextmanager
def warned_once(*parts: str) -> Iterator[None]:
    """Within the block a guest says once that it stands down, and each of `parts` with it."""
    with pytest.warns(UserWarning, match="stands down and the training goes on") as said:
        yield
    (message,) = (text for one in said if "stands down" in (text := str(one.message)))
    assert [part for part in parts if part not in message] == []


# Forwarding ---------------------------------------------------------------------------------


def test_lightning_sees_as_overridden_exactly_what_the_inner_callback_overrides():
    inner = Notes()
    for name in HOOKS:
        if name != "setup":  # where the guest decides whether it takes part
            overridden = is_overridden(name, Guest(inner), parent=pl.Callback)
            assert overridden == is_overridden(name, inner, parent=pl.Callback)
    assert overridden_hooks(inner) == [
        "setup", "teardown", "on_fit_start", "on_train_batch_end", "on_exception",
    ]  # fmt: skip
    assert overridden_hooks(pl.Callback()) == []


def test_a_hook_reaches_the_inner_callback_with_all_its_arguments():
    inner, model = Notes(), Small()
    trainer = fit([Guest(inner)], model=model)
    assert inner.calls == ["setup", "on_fit_start", *["on_train_batch_end"] * 10, "teardown"]
    assert inner.arguments["setup"] == (trainer, model, "fit")
    _, _, outputs, batch, batch_idx = inner.arguments["on_train_batch_end"]
    assert (set(outputs), len(batch), batch_idx) == ({"loss"}, 2, BATCHES - 1)


def test_an_exception_of_the_training_reaches_the_inner_callback():
    inner, error = Notes(), RuntimeError("of the model")

    def fail(model: pl.LightningModule, batch_idx: int) -> None:
        raise error

    with pytest.raises(RuntimeError, match="of the model"):
        fit([Guest(inner)], model=Small(in_step=fail))
    assert inner.arguments["on_exception"][-1] is error


def test_training_with_guests_ends_in_the_same_bits(tmp_path):
    guests = [Guest(CadenceGuard(on_violation="warn")), Guest(StepRecorder(str(tmp_path)))]
    first_law.assert_same_training(first_law.trained_without(), first_law.train(guests))
    assert len(read_recording(tmp_path).updates) == first_law.UPDATES


def test_a_recording_names_the_callback_and_not_its_guest(tmp_path):
    recorder = StepRecorder(str(tmp_path))
    fit([Guest(recorder)], max_epochs=1)
    names = read_recording(tmp_path).run.callbacks
    assert names == ["traingen.callbacks.step_recorder.StepRecorder"]
    assert unwrap(Guest(recorder)) is unwrap(recorder) is recorder


def pickled(guest: Guest) -> Guest:
    copied: Guest = pickle.loads(pickle.dumps(guest))
    return copied


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
def test_a_copy_forwards_to_its_own_callback(copied):
    guest = Guest(Notes())
    other = copied(guest)
    fit([other], max_epochs=1)
    assert other.inner.calls[0] == "setup" and other.inner.calls[-1] == "teardown"
    assert guest.inner.calls == []


def test_a_copy_does_what_the_original_does(tmp_path):
    """Strategies that spawn processes pickle the trainer with its callbacks."""
    guests = [Guest(StepRecorder(str(tmp_path))), Guest(CadenceGuard(expected="step"))]
    fit([pickled(guest) for guest in guests], max_epochs=1)
    assert len(read_recording(tmp_path).updates) == BATCHES


# State --------------------------------------------------------------------------------------


def test_state_goes_into_the_checkpoint_and_comes_back(tmp_path):
    checkpoint = tmp_path / "half.ckpt"
    fit([Guest(Stateful(seen=7))], max_epochs=1).save_checkpoint(checkpoint)
    resumed = Guest(Stateful())
    make_trainer([resumed]).fit(Small(), make_loader(), ckpt_path=checkpoint, weights_only=True)
    assert resumed.inner.seen == 7


def test_without_state_nothing_is_left_in_the_checkpoint(tmp_path):
    checkpoint = tmp_path / "half.ckpt"
    fit([Guest(Notes())], max_epochs=1).save_checkpoint(checkpoint)
    assert torch.load(checkpoint, weights_only=True)["callbacks"] == {}


def test_the_trainer_takes_a_stateful_callback_and_a_guest_with_another():
    fit([Stateful(), Guest(Stateful())], max_epochs=1)
    with pytest.raises(RuntimeError, match="more than one stateful callback"):
        fit([Stateful(), Stateful()])  # what would happen without a key of its own


# Never twice --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "order", [lambda guest, own: [guest, own], lambda guest, own: [own, guest]]
)
@pytest.mark.parametrize("own", [Notes(), NotesMore()], ids=["same class", "subclass"])
def test_it_stands_down_where_the_trainer_has_its_own(order, own):
    guest = Guest(Notes())
    own.calls.clear()
    fit(order(guest, own), max_epochs=1)  # and says nothing: a warning is an error here
    assert guest.inner.calls == []
    assert own.calls[0] == "setup" and own.calls[-1] == "teardown"


class Brings(Small):
    """A model that brings its callback."""

    def __init__(self, callback: pl.Callback) -> None:
        super().__init__()
        self.brought = callback

    def configure_callbacks(self) -> Any:
        return self.brought


def test_it_stands_down_where_the_model_brings_its_own():
    guest, own = Guest(Notes()), Notes()
    fit([guest], model=Brings(own), max_epochs=1)
    assert guest.inner.calls == []
    assert len(own.calls) == 2 + BATCHES + 1


def test_of_two_guests_with_the_same_class_the_first_stays():
    first, second, other = Guest(Notes()), Guest(Notes()), Guest(Stateful())
    fit([first, second, other], max_epochs=1)
    assert first.inner.calls == other.inner.calls != []
    assert second.inner.calls == []


def test_it_takes_part_again_once_the_other_is_gone():
    guest, own = Guest(Notes()), Notes()
    trainer = fit([guest, own], max_epochs=1)
    trainer.callbacks.remove(own)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Small(), make_loader())
    assert guest.inner.calls == ["setup", "on_fit_start", *["on_train_batch_end"] * 5, "teardown"]


# The host is protected ------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["setup", *IN_TRAINING, "teardown"])
def test_an_error_in_a_hook_is_one_warning_and_the_training_goes_on(hook):
    error = KeyError("no such thing")
    inner = raising(hook, error)
    with warned_once("Raises from the environment", "KeyError: 'no such thing'"):
        trainer = fit([Guest(inner)])
    assert trainer.global_step == 2 * BATCHES
    closing = ["on_exception", "teardown"]
    assert inner.calls[inner.calls.index(hook) :] == [hook, *closing]
    assert inner.arguments["on_exception"][-1] is error


@pytest.mark.parametrize("hook", IN_TRAINING)
def test_without_a_guest_the_same_error_ends_the_training(hook):
    with pytest.raises(KeyError, match="no such thing"):
        fit([raising(hook, KeyError("no such thing"))])


def test_training_ends_in_the_same_bits_after_a_guest_has_failed(tmp_path):
    with warned_once():
        trained = first_law.train([Guest(raising("on_after_backward", OSError("gone")))])
    first_law.assert_same_training(first_law.trained_without(), trained)


@pytest.mark.parametrize("hook", ["state_dict", "on_save_checkpoint"])
def test_an_error_while_a_checkpoint_is_saved_is_a_warning(tmp_path, hook):
    guest = Guest(raising(hook, OSError("gone")))
    trainer = fit([guest], max_epochs=1)
    with warned_once("OSError: gone"):
        trainer.save_checkpoint(tmp_path / "half.ckpt")
    assert torch.load(tmp_path / "half.ckpt", weights_only=True)["callbacks"] == {}


def test_a_failed_guest_is_silent_in_the_next_fit():
    guest = Guest(raising("on_train_start", OSError("gone")))
    with warned_once():
        trainer = fit([guest], max_epochs=1)
    calls = list(guest.inner.calls)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(Small(), make_loader())
    assert guest.inner.calls == calls


def test_where_warnings_are_errors_it_is_logged_instead(caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*treespec.*|.*workers.*|.*logging interval.*")
        trainer = fit([Guest(raising("on_train_start", OSError("gone")))], max_epochs=1)
    assert trainer.global_step == BATCHES
    assert "OSError: gone" in caplog.text


def test_a_loop_that_cannot_be_recorded_trains_unrecorded(tmp_path):
    (tmp_path / "run").write_text("a file where the folder is to be")
    with warned_once("StepRecorder from", "cannot be created"):
        trainer = fit([Guest(StepRecorder(str(tmp_path / "run")))])
    assert trainer.global_step == 2 * BATCHES


# Inside torch's hooks no hook of Lightning is around: what is heard there is shielded too.


class Full(MemorySink):
    """A disk that is full after two updates."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = 0

    def write(self, record: Record) -> None:
        if sum(isinstance(one, UpdateRecord) for one in self.records) == 2:
            raise OSError("No space left on device")
        super().write(record)

    def close(self) -> None:
        super().close()
        self.closed += 1


def test_a_full_disk_ends_the_recording_and_not_the_training():
    before, sink = hooks_in_place(), Full()
    with warned_once("OSError: No space left"):
        trained = first_law.train([Guest(StepRecorder.to_sink(sink))])
    first_law.assert_same_training(first_law.trained_without(), trained)
    assert (len(sink.records), sink.closed) == (1 + 2, 1)
    assert hooks_in_place() == before


class Sparse(Small):
    """Gradients of which torch takes no norm."""

    def __init__(self) -> None:
        super().__init__(interval=None)
        self.table = torch.nn.Embedding(4, 3, sparse=True)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.table(torch.tensor([batch_idx % 4])).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SparseAdam(self.table.parameters())


def test_gradients_that_cannot_be_measured_are_one_short_warning(tmp_path, monkeypatch):
    def refuse(tensors: Any) -> float:
        raise NotImplementedError("no norm of these\nand a page of reasons")

    monkeypatch.setattr("traingen.observe.gradients.measure_norm", refuse)
    with pytest.warns(UserWarning, match="stands down") as said:
        trainer = fit([Guest(StepRecorder(str(tmp_path)))], max_epochs=1)
    assert trainer.global_step == BATCHES
    (message,) = (text for one in said if "stands down" in (text := str(one.message)))
    assert "NotImplementedError" in message and "\n" not in message
    assert read_recording(tmp_path).end.reason == "exception"


def test_without_a_guest_a_full_disk_ends_the_training():
    with pytest.raises(OSError, match="No space left"):
        fit([StepRecorder.to_sink(Full())])


class Ear(Listener):
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.heard = 0

    def scheduler_ticked(self, scheduler: Any) -> None:
        self.heard += 1
        raise self.error


class Hears(pl.Callback):
    """Raises in what it hears of torch."""

    def __init__(self, error: Exception) -> None:
        self.ear = Ear(error)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.remove = start_listening(self.ear)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.remove()


def test_what_is_heard_is_heard_no_more_after_it_has_failed():
    before, inner = hooks_in_place(), Hears(ValueError("odd"))
    with warned_once("ValueError: odd"):
        fit([Guest(inner)])
    assert inner.ear.heard == 1
    assert hooks_in_place() == before


def test_the_listener_of_another_is_left_alone():
    own = Hears(ValueError("of the script"))
    with pytest.raises(ValueError, match="of the script"):
        fit([own, Guest(Notes())])
    own.remove()


# What passes ----------------------------------------------------------------------------------


def test_a_violation_in_a_hook_stops_the_training():
    inner = raising("on_train_batch_end", CadenceViolation("not at its cadence"))
    with pytest.raises(CadenceViolation, match="not at its cadence"):
        fit([Guest(inner)])
    assert inner.calls == ["setup", "on_fit_start", "on_train_batch_end", "on_exception"]


def test_a_violation_in_what_is_heard_stops_the_training():
    inner = Hears(CadenceViolation("ticked too early"))
    with pytest.raises(CadenceViolation, match="ticked too early"):
        fit([Guest(inner)])
    inner.remove()


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()])
def test_what_is_no_exception_passes(error):
    with pytest.raises(type(error)):
        fit([Guest(raising("on_train_batch_end", error))])

"""However a training ends, its recording says so, once, and lets go of everything."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException

from tests.callbacks.lasting import comparable, fail_at, recorder, train
from tests.callbacks.small import BATCHES, Small, make_loader, make_trainer
from traingen.errors import RecordingError
from traingen.observe.listening import listeners_here
from traingen.records import (
    EndRecord,
    JsonlSink,
    Recording,
    SchedulerState,
    iter_records,
    read_recording,
)

UPDATES = 2 * BATCHES


def ended(path: Path) -> Recording:
    """The recording, whose only end line is its last; nobody listens and it is not locked."""
    recording = read_recording(path)
    ends = [record for record in iter_records(path) if isinstance(record, EndRecord)]
    assert ends == [recording.end]
    assert recording.torn is None
    assert listeners_here() == ()
    JsonlSink.resume(path, run_id=recording.run.run_id).close()
    return recording


class StopsAt(pl.Callback):
    """Acts at the end of the batch number `batch`, counted from 0."""

    def __init__(self, batch: int, act: Callable[[pl.Trainer], None]) -> None:
        self.batch = batch
        self.act = act

    def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx == self.batch:
            self.act(trainer)


# By itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "updates"),
    [({}, UPDATES), ({"max_steps": 7}, 7), ({"limit_train_batches": 3}, 6), ({"max_epochs": 1}, 5)],
    ids=str,
)
def test_a_training_that_comes_to_its_end_has_finished(tmp_path, options, updates):
    train(recorder(tmp_path), **options)
    recording = ended(tmp_path)
    assert (recording.end.reason, recording.end.updates) == ("finished", updates)
    assert recording.end.message is None
    assert recording.end.scheduler == [SchedulerState(id=0, last_epoch=updates, ticks=updates)]


def stop(trainer: pl.Trainer) -> None:
    trainer.should_stop = True


@pytest.mark.parametrize("batch", [1, 6])
def test_a_training_that_was_told_to_stop_has_stopped(tmp_path, batch):
    train(recorder(tmp_path), StopsAt(batch, stop))
    recording = ended(tmp_path)
    assert (recording.end.reason, recording.end.updates) == ("stopped", batch + 1)


class Worsens(Small):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("worse", float(self.trainer.current_epoch))


def test_early_stopping_has_stopped_it(tmp_path):
    stops = EarlyStopping("worse", patience=2, verbose=False)
    trainer = make_trainer([recorder(tmp_path), stops], max_epochs=6)
    trainer.fit(Worsens(), make_loader(), make_loader())
    recording = ended(tmp_path)
    assert (recording.end.reason, recording.end.updates) == ("stopped", 3 * BATCHES)


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # another path
def test_a_training_with_nothing_left_to_do_leaves_no_line(tmp_path):
    train(recorder(tmp_path / "run")).save_checkpoint(tmp_path / "end.ckpt")
    before = {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()}
    for path in (tmp_path / "run", tmp_path / "other"):
        train(recorder(path), resume=tmp_path / "end.ckpt")
    assert {file.name: file.read_bytes() for file in (tmp_path / "run").iterdir()} == before
    assert list((tmp_path / "other").iterdir()) == []


# By an error ----------------------------------------------------------------------------------


class InValidation(Small):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            raise RuntimeError("the power went out")


class InHook(pl.Callback):
    """Raises in one hook of Lightning, when there were two updates."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.fail)

    def fail(self, trainer: pl.Trainer, *rest: Any) -> None:
        if trainer.global_step == 2:
            raise RuntimeError("the power went out")


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize(
    "hook", ["on_train_batch_start", "on_before_zero_grad", "on_after_backward",
             "on_before_optimizer_step", "on_train_batch_end"],
)  # fmt: skip
def test_an_error_in_any_hook_ends_the_recording_with_its_message(tmp_path, hook, first):
    callbacks = [InHook(hook), recorder(tmp_path)]
    with pytest.raises(RuntimeError, match="the power went out"):
        train(*(callbacks if first else reversed(callbacks)))
    recording = ended(tmp_path)
    assert [update.update for update in recording.updates] == [1, 2]
    assert (recording.end.reason, recording.end.updates) == ("exception", 2)
    assert recording.end.message == "RuntimeError('the power went out')"


def test_an_error_in_validation_ends_the_recording_with_the_tail_of_its_update(tmp_path):
    with pytest.raises(RuntimeError, match="the power went out"):
        make_trainer([recorder(tmp_path)]).fit(InValidation(), make_loader(), make_loader())
    recording = ended(tmp_path)
    assert (recording.end.reason, recording.end.updates) == ("exception", BATCHES)
    assert recording.end.scheduler == [SchedulerState(id=0, last_epoch=BATCHES, ticks=BATCHES)]
    assert [event.event for event in recording.events] == ["validation"]


@pytest.mark.parametrize("hook", ["setup", "on_fit_start"])
def test_an_error_before_the_recorder_is_asked_leaves_nothing(tmp_path, hook):
    class Fails(pl.Callback):
        pass

    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("the power went out")

    fails = Fails()
    setattr(fails, hook, fail)
    with pytest.raises(RuntimeError, match="the power went out"):
        train(fails, recorder(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    train(recorder(tmp_path / "run"))
    assert len(ended(tmp_path / "run").updates) == UPDATES


def test_out_of_memory_and_exit_are_errors_like_others(tmp_path):
    for name, error in (("a", MemoryError("no more")), ("b", SystemExit(3))):

        def step(model: pl.LightningModule, batch_idx: int, error: BaseException = error) -> None:
            if batch_idx == 2:
                raise error

        with pytest.raises(type(error)):
            train(recorder(tmp_path / name), model=Small(in_step=step))
        assert ended(tmp_path / name).end.reason == "exception"


# By a signal ----------------------------------------------------------------------------------


def send(number: signal.Signals) -> Callable[[pl.Trainer], None]:
    def act(trainer: pl.Trainer) -> None:
        assert signal.getsignal(number) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        os.kill(os.getpid(), number)

    return act


@pytest.mark.parametrize("batch", [0, 3, BATCHES - 1])
@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_sigterm_ends_the_recording_as_interrupted_after_the_batch(tmp_path, batch, first):
    callbacks = [StopsAt(batch, send(signal.SIGTERM)), recorder(tmp_path)]
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SIGTERMException):
        train(*(callbacks if first else reversed(callbacks)))
    recording = ended(tmp_path)
    assert (recording.end.reason, recording.end.updates) == ("interrupted", batch + 1)
    assert "SIGTERM" in recording.end.message
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_run_that_sigterm_ended_is_resumed_where_it_was(tmp_path):
    path = tmp_path / "run"

    def save_and_end(trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        send(signal.SIGTERM)(trainer)

    with pytest.raises(SIGTERMException):
        train(recorder(path), StopsAt(6, save_and_end))
    train(recorder(path), resume=tmp_path / "last.ckpt")
    train(recorder(tmp_path / "whole"))
    recording = read_recording(path)
    assert comparable(recording.updates) == comparable(read_recording(tmp_path / "whole").updates)
    assert (recording.superseded, recording.missing) == ((), ())
    kinds = [record.reason for record in iter_records(path) if isinstance(record, EndRecord)]
    assert kinds == ["interrupted", "finished"]


def test_ctrl_c_ends_the_recording_as_interrupted(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            train(recorder(tmp_path), StopsAt(2, send(signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores it from then on
    recording = ended(tmp_path)
    assert (recording.end.reason, recording.end.updates) == ("interrupted", 3)


# And others that end with it ------------------------------------------------------------------


def test_the_last_checkpoint_that_lightning_saves_at_the_end_knows_the_run(tmp_path):
    saves = ModelCheckpoint(tmp_path / "saved", save_last=True, every_n_train_steps=100)
    train(recorder(tmp_path / "run"), saves, enable_checkpointing=True)
    states = torch.load(tmp_path / "saved" / "last.ckpt", weights_only=True)["callbacks"]
    (state,) = (state for name, state in states.items() if "StepRecorder" in name)
    assert state["completed"] == state["updates"] == [UPDATES]
    assert state["run_id"] == ended(tmp_path / "run").run.run_id


def test_a_callback_that_fails_at_the_end_does_not_unsay_it(tmp_path):
    class Fails(pl.Callback):
        def on_train_end(self, *rest: Any) -> None:
            raise RuntimeError("the power went out")

    with pytest.raises(RuntimeError, match="the power went out"):
        train(recorder(tmp_path), Fails())
    assert ended(tmp_path).end.reason == "finished"


def test_a_run_that_failed_is_not_overwritten_by_the_next_try(tmp_path):
    with pytest.raises(RuntimeError, match="the power went out"):
        train(recorder(tmp_path), model=Small(in_step=fail_at(1)))
    with pytest.raises(RecordingError, match="this one exists"):
        train(recorder(tmp_path))
    assert ended(tmp_path).end.message == "RuntimeError('the power went out')"

"""A file that cannot be written: said at the first moment, and the training is left whole."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging, ModelCheckpoint

from tests.callbacks.lasting import (
    Does,
    GoesOn,
    Saves,
    differing,
    fail_at,
    recorder,
    train,
    weights_of,
)
from tests.callbacks.small import BATCHES, Small, make_loader, make_trainer
from traingen import StepRecorder
from traingen.errors import RecordingError
from traingen.records import (
    JsonlSink,
    MissingUpdates,
    Record,
    RunRecord,
    UpdateRecord,
    read_recording,
)
from traingen.records.times import StepTime, TimesSink, iter_times

UPDATES = 2 * BATCHES


class Watches(pl.Callback):
    """Keeps the weights after every batch and at the end, whoever ends the training."""

    def __init__(self) -> None:
        self.after: list[dict[str, Any]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, *rest: Any) -> None:
        if trainer.global_step:
            self.after.append(weights_of(trainer))

    def on_exception(self, trainer: pl.Trainer, *rest: Any) -> None:
        self.after.append(weights_of(trainer))

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.after.append(weights_of(trainer))


@contextmanager
def full_disk(bytes_left: int, file: Path) -> Iterator[None]:
    """No file of this process grows beyond what `file` may still get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class FillsDisk(pl.Callback):
    """The disk is full from the batch number `batch` on (from 0), in the middle of a line."""

    def __init__(self, file: Path, batch: int) -> None:
        self.file = file
        self.batch = batch
        self.full: Any = None

    def on_train_batch_start(self, trainer: pl.Trainer, *rest: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx == self.batch:
            self.full = full_disk(100, self.file)
            self.full.__enter__()

    def free(self) -> None:
        if self.full is not None:
            self.full.__exit__(None, None, None)
            self.full = None


def fill(path: Path, batch: int) -> FillsDisk:
    return FillsDisk(path / "updates.rank0.jsonl", batch)


class Vanishes(pl.Callback):
    """The folder is removed while the batch number `batch` is trained."""

    def __init__(self, folder: Path, batch: int) -> None:
        self.folder = folder
        self.batch = batch

    def on_train_batch_start(self, trainer: pl.Trainer, *rest: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx == self.batch:
            shutil.rmtree(self.folder)

    def free(self) -> None:
        pass


def vanish(path: Path, batch: int) -> Vanishes:
    return Vanishes(path, batch)


TROUBLES: list[Any] = [
    pytest.param(fill, "cannot be written: File too large", id="full"),
    pytest.param(vanish, "was removed while it was being written", id="removed"),
]


@pytest.fixture(scope="module")
def plain() -> list[dict[str, Any]]:
    """What the training is after each batch when nobody records it."""
    watches = Watches()
    train(watches)
    return watches.after


@pytest.fixture
def trouble(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    made: list[Any] = []

    def make(kind: Callable[[Path, int], Any], path: Path, batch: int) -> Any:
        made.append(kind(path, batch))
        return made[-1]

    yield make
    for one in made:
        one.free()


# While training -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "message"), TROUBLES)
@pytest.mark.parametrize("batch", [0, 2, UPDATES - 1])
def test_raise_ends_the_training_after_the_batch_whose_line_is_lost(
    tmp_path, plain, trouble, kind, message, batch
):
    path = tmp_path / "run"
    watches, broken = Watches(), trouble(kind, path, batch)
    with pytest.raises(RecordingError, match=message):
        train(recorder(path), broken, watches)
    assert len(watches.after) == batch + 1
    assert [differing(a, b) for a, b in zip(watches.after, plain, strict=False)] == [[]] * (
        batch + 1
    )
    assert watches.after[-1]["global_step"] == batch + 1  # the loop counts what the weights had
    if kind is fill:
        recording = read_recording(path)
        assert (len(recording.updates), recording.torn, recording.end) == (batch, None, None)


@pytest.mark.parametrize(("kind", "message"), TROUBLES)
@pytest.mark.parametrize("batch", [0, 2, UPDATES - 1])
def test_warn_says_so_once_and_the_training_ends_in_the_same_bits(
    tmp_path, plain, trouble, kind, message, batch
):
    path = tmp_path / "run"
    watches, broken = Watches(), trouble(kind, path, batch)
    with pytest.warns(UserWarning, match=message) as warned:
        train(recorder(path, on_write_error="warn"), broken, watches)
    said = [str(one.message) for one in warned if "traingen" in str(one.message)]
    assert len(said) == 1 and "the training goes on without being recorded" in said[0]
    assert [differing(a, b) for a, b in zip(watches.after, plain, strict=True)] == [[]] * UPDATES
    if kind is fill:
        recording = read_recording(path)
        assert (len(recording.updates), recording.torn, recording.end) == (batch, None, None)


def test_without_trouble_neither_says_anything(tmp_path, plain):
    for policy in ("raise", "warn"):
        watches = Watches()
        train(recorder(tmp_path / policy, on_write_error=policy), watches)  # warnings are errors
        assert [differing(a, b) for a, b in zip(watches.after, plain, strict=True)] == [
            []
        ] * UPDATES
        assert len(read_recording(tmp_path / policy).updates) == UPDATES


def test_the_error_comes_after_the_batch_and_not_inside_of_the_step(tmp_path, trouble):
    path, seen = tmp_path / "run", []

    class Steps(Small):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            super().optimizer_step(*args, **kwargs)
            seen.append("step")

    class Before(pl.Callback):
        def on_train_batch_end(self, *rest: Any) -> None:
            seen.append("end")

    with pytest.raises(RecordingError):
        train(Before(), recorder(path), trouble(vanish, path, 1), model=Steps())
    assert seen == ["step", "end"] * 2


def test_the_first_line_that_cannot_be_written_ends_it_before_anything_is_trained(
    tmp_path, monkeypatch
):
    path = tmp_path / "run"
    model, trainer = Small(), make_trainer([recorder(path)])
    before = [p.detach().clone() for p in model.parameters()]
    write = JsonlSink.write

    def fails(self: JsonlSink, record: Record) -> None:
        if isinstance(record, RunRecord):
            raise RecordingError("no space for the run line")
        write(self, record)

    monkeypatch.setattr(JsonlSink, "write", fails)
    with pytest.raises(RecordingError, match="no space for the run line"):
        trainer.fit(model, make_loader())
    assert trainer.global_step == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert list(path.iterdir()) == []  # and the path is free again


def test_an_event_that_cannot_be_written_is_reported_after_the_next_batch(tmp_path, trouble):
    path = tmp_path / "run"

    class Validates(Small):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 0 and not self.trainer.sanity_checking and path.exists():
                shutil.rmtree(path)

    trainer = make_trainer([recorder(path), Saves(tmp_path, 2)], val_check_interval=2)
    with pytest.raises(RecordingError, match="was removed while it was being written"):
        trainer.fit(Validates(), make_loader(), make_loader())
    assert trainer.global_step == 3


@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_an_end_that_cannot_be_written_is_said_when_everybody_has_ended(
    tmp_path, monkeypatch, policy
):
    """An average that Lightning copies into the model at the end is there all the same."""
    path = tmp_path / "run"
    close = StepRecorder.on_train_end

    def remove_and_close(self: StepRecorder, *args: Any) -> None:
        shutil.rmtree(path)
        close(self, *args)

    monkeypatch.setattr(StepRecorder, "on_train_end", remove_and_close)
    recorded, average = Small(), EMAWeightAveraging(decay=0.5)
    if policy == "raise":
        with pytest.raises(RecordingError, match="was removed while it was being written"):
            train(recorder(path), average, model=recorded)
    else:
        with pytest.warns(UserWarning, match="was removed while it was being written"):
            train(recorder(path, on_write_error="warn"), average, model=recorded)
    plain = Small()
    train(EMAWeightAveraging(decay=0.5), model=plain)
    assert differing(recorded.state_dict(), plain.state_dict()) == []


def test_an_exception_of_the_training_is_not_hidden_by_one_of_the_recording(tmp_path, trouble):
    path = tmp_path / "run"

    class Breaks(Small):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.trainer.global_step == 2:
                shutil.rmtree(path)
                raise RuntimeError("the power went out")
            return super().training_step(batch, batch_idx)

    with (
        pytest.warns(UserWarning, match="the recording has failed as well.*was removed"),
        pytest.raises(RuntimeError, match="the power went out"),
    ):
        train(recorder(path), model=Breaks())


@pytest.mark.parametrize("policy", ["raise", "warn"])
def test_times_that_cannot_be_written_are_told_and_updates_go_on(tmp_path, monkeypatch, policy):
    write = TimesSink.write

    def fails(self: TimesSink, time: StepTime) -> None:
        if time.update == 3:
            raise RecordingError(f"{self.path}: cannot be written: No space left on device.")
        write(self, time)

    monkeypatch.setattr(TimesSink, "write", fails)
    with pytest.warns(
        UserWarning, match=r"times are no longer kept.*times\.jsonl: cannot be"
    ) as told:
        train(recorder(tmp_path / "run", on_write_error=policy))
    assert sum("times are no longer kept" in str(one.message) for one in told) == 1
    recording = read_recording(tmp_path / "run")
    assert len(recording.updates) == UPDATES
    assert recording.end is not None and recording.end.reason == "finished"
    assert [time.update for time in iter_times(tmp_path / "run")] == [1, 2]


def test_a_file_of_times_that_vanishes_takes_no_update_with_it(tmp_path):
    path = tmp_path / "run"
    with pytest.warns(UserWarning, match=r"times\.jsonl: .*was removed"):
        train(recorder(path), Does(3, (path / "times.jsonl").unlink))
    assert len(read_recording(path).updates) == UPDATES


# What is known of the run afterwards ----------------------------------------------------------


def state_of(checkpoint: Path) -> dict[str, Any]:
    states = torch.load(checkpoint, weights_only=True)["callbacks"]
    (state,) = (state for name, state in states.items() if "StepRecorder" in name)
    return dict(state)


@pytest.mark.filterwarnings("ignore:traingen. the training goes on without being recorded")
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_no_checkpoint_claims_an_update_that_is_not_in_the_file(tmp_path, trouble):
    path = tmp_path / "run"
    broken = trouble(fill, path, 3)
    train(recorder(path, on_write_error="warn"), Does(5, broken.free), broken, SavesFree(tmp_path))
    assert len(read_recording(path).updates) == 3
    assert [(s["updates"], s["completed"]) for s in map(state_of, numbered(tmp_path))] == [
        ([min(done, 3)], [done]) for done in range(1, UPDATES + 1)
    ]
    train(recorder(path), resume=tmp_path / "7.ckpt")
    recording = read_recording(path)
    assert recording.missing == (MissingUpdates(optimizer=0, first=4, last=7),)
    assert [update.update for update in recording.updates] == [1, 2, 3, 8, 9, 10]
    assert [run.attempt for run in recording.runs] == [1, 2]


class SavesFree(pl.Callback):
    """Saves after every batch, also while the disk is full: checkpoints go to memory first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = 0

    def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        self.done += 1
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        try:
            trainer.save_checkpoint(self.folder / f"{self.done}.ckpt")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def numbered(folder: Path) -> list[Path]:
    return [folder / f"{done}.ckpt" for done in range(1, UPDATES + 1)]


@pytest.mark.filterwarnings("ignore:traingen. the training goes on without being recorded")
def test_another_fit_after_a_failure_says_what_is_missing(tmp_path, trouble):
    path, model = tmp_path / "run", Small()
    broken = trouble(fill, path, 3)
    trainer = make_trainer([recorder(path, on_write_error="warn"), broken], max_epochs=1)
    trainer.fit(model, GoesOn())
    broken.free()
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, GoesOn())
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2]
    assert recording.missing == (MissingUpdates(optimizer=0, first=4, last=BATCHES),)
    assert recording.updates[-1].update == UPDATES


# Before training ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["raise", "warn"])
@pytest.mark.parametrize(
    "inside",
    [Path("file") / "run", Path("/proc/traingen/run"), Path("file") / "run.jsonl"],
    ids=str,
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_trained(
    tmp_path, inside, policy
):
    (tmp_path / "file").write_text("not a folder")
    model, trainer = Small(), make_trainer([recorder(tmp_path / inside, on_write_error=policy)])
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(RecordingError, match="cannot be created: "):
        trainer.fit(model, make_loader())
    assert trainer.global_step == 0
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@contextmanager
def as_somebody() -> Iterator[None]:
    """Root may write everywhere."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_a_read_only_folder_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with as_somebody(), pytest.raises(RecordingError, match="cannot be created: Permission denied"):
        train(recorder(tmp_path / "run"))


def test_times_that_cannot_be_made_leave_no_recording_behind(tmp_path):
    path = tmp_path / "run"
    (path / "times.jsonl" / "kept").mkdir(parents=True)
    with pytest.raises(RecordingError, match=r"times\.jsonl: cannot be created"):
        train(recorder(path))
    assert not (path / "updates.rank0.jsonl").exists()
    train(recorder(path, times=False), max_epochs=1)  # nor is it locked
    assert len(read_recording(path).updates) == BATCHES


@pytest.mark.parametrize("name", ["run", "run.jsonl"])
def test_a_start_that_fails_before_training_leaves_the_path_free(tmp_path, name):
    class Fails(Small):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise RuntimeError("no such label: 17")

    path = tmp_path / name
    with pytest.raises(RuntimeError, match="no such label: 17"):
        make_trainer([recorder(path)]).fit(Fails(), make_loader(), make_loader())
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []
    train(recorder(path))
    assert len(read_recording(path).updates) == UPDATES


def test_a_resume_that_fails_before_training_leaves_its_recording_as_it_was(tmp_path):
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, 3))
    before = {file.name: file.read_bytes() for file in path.iterdir()}

    class Fails(pl.Callback):
        def on_train_start(self, *rest: Any) -> None:
            raise RuntimeError("no such label: 17")

    with pytest.raises(RuntimeError, match="no such label: 17"):
        train(Fails(), recorder(path), resume=tmp_path / "3.ckpt")
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_a_start_that_fails_between_opening_and_the_run_line_leaves_the_path_free(
    tmp_path, monkeypatch
):
    def fails(*args: Any, **options: Any) -> None:
        raise RuntimeError("no such tool: git")

    monkeypatch.setattr("traingen.callbacks.run_line.describe_run", fails)
    with pytest.raises(RuntimeError, match="no such tool: git"):
        train(recorder(tmp_path / "run"))
    assert list((tmp_path / "run").iterdir()) == []  # no end line without a run line


# Two on one path ------------------------------------------------------------------------------


def test_two_recorders_with_one_path_are_refused_by_lightning(tmp_path):
    with pytest.raises(
        RuntimeError, match="more than one stateful callback of type `StepRecorder`"
    ):
        make_trainer([recorder(tmp_path / "run"), recorder(tmp_path / "run")])


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "other", ["../{0}/run", "run/updates.rank0.jsonl", "linked/run"], ids=lambda value: value
)
def test_two_recorders_on_one_file_are_refused_before_anything_is_trained(
    tmp_path, monkeypatch, other, overwrite
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path)
    paths = [Path("run"), Path(other.format(tmp_path.name))]
    trainer = make_trainer([recorder(path, overwrite=overwrite) for path in paths])
    with pytest.raises(RecordingError, match="is being written by another recorder"):
        trainer.fit(Small(), make_loader())
    assert trainer.global_step == 0
    assert [file for file in tmp_path.rglob("*.jsonl*") if file.is_file()] == []


def test_a_path_that_somebody_writes_is_refused_and_he_is_not_disturbed(tmp_path):
    path = tmp_path / "run"
    with JsonlSink(path) as sink:
        for overwrite in (False, True):
            with pytest.raises(RecordingError, match=r"this one exists|is being written"):
                train(recorder(path, overwrite=overwrite))
        assert sink.path.exists()


# And the training goes on ----------------------------------------------------------------------


def test_a_checkpoint_callback_is_not_kept_from_saving_by_a_warning(tmp_path, trouble):
    path = tmp_path / "run"
    saves = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=4, save_top_k=-1)
    with pytest.warns(UserWarning, match="was removed while it was being written"):
        train(
            recorder(path, on_write_error="warn"),
            trouble(vanish, path, 1),
            saves,
            enable_checkpointing=True,
        )
    assert len(list((tmp_path / "saved").iterdir())) == 2


def test_training_that_raises_is_told_apart_from_a_recording_that_fails(tmp_path):
    with pytest.raises(RuntimeError, match="the power went out"):
        train(recorder(tmp_path / "run"), model=Small(in_step=fail_at(2)))
    end = read_recording(tmp_path / "run").end
    assert end is not None and end.reason == "exception"
    updates = [r for r in read_recording(tmp_path / "run").updates if isinstance(r, UpdateRecord)]
    assert len(updates) == 2

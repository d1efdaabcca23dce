"""A run that goes on: resumed from a checkpoint, or fitted again by the same trainer."""

import functools
import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    LearningRateFinder,
    OnExceptionCheckpoint,
)
from torch.utils.data import DataLoader

from tests.callbacks.lasting import (
    Critic,
    GoesOn,
    Hidden,
    Saves,
    comparable,
    fail_at,
    recorder,
    train,
)
from tests.callbacks.small import BATCH, BATCHES, Small, make_loader, make_trainer
from traingen import StepRecorder
from traingen.callbacks.guest import Guest
from traingen.callbacks.place import resumed_place
from traingen.errors import RecordingError
from traingen.judge import judge_recording
from traingen.records import (
    JsonlSink,
    MissingUpdates,
    Recording,
    SupersededUpdates,
    iter_records,
    iter_times,
    read_recording,
)

UPDATES = 2 * BATCHES
MODELS = {"one": Small, "two": Critic, "hidden": Hidden}

pytestmark = pytest.mark.filterwarnings(
    "ignore:Be aware that when using `ckpt_path`",  # a callback that only saves has no state
)


@functools.cache
def whole(name: str, accumulate: int, folder: Path) -> Recording:
    """The run that was never interrupted."""
    path = folder / f"whole-{name}-{accumulate}"
    train(recorder(path), model=MODELS[name](), accumulate_grad_batches=accumulate)
    return read_recording(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


def state_of(checkpoint: Path) -> dict[str, Any]:
    """The recorder's state in a checkpoint."""
    states = torch.load(checkpoint, weights_only=True)["callbacks"]
    (state,) = (state for name, state in states.items() if "StepRecorder" in name)
    return dict(state)


def interrupt(path: Path, *, save: int, fail: int, **options: Any) -> Path:
    """Train on `path`, save after `save` batches, raise in batch `fail`; the checkpoint."""
    with pytest.raises(RuntimeError, match="the power went out"):
        train(
            recorder(path), Saves(path.parent, save), model=Small(in_step=fail_at(fail)), **options
        )
    return path.parent / f"{save}.ckpt"


# Resumed from a checkpoint --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("save", "fail"), [(BATCHES, 7), (2, 4), (7, 9), (3, 3)], ids=lambda value: str(value)
)
def test_a_resumed_run_is_recorded_as_if_it_had_never_been_interrupted(
    tmp_path: Path, folder: Path, save: int, fail: int
) -> None:
    path = tmp_path / "run"
    checkpoint = interrupt(path, save=save, fail=fail)
    before = (path / "updates.rank0.jsonl").read_bytes()
    train(recorder(path), resume=checkpoint)
    assert (path / "updates.rank0.jsonl").read_bytes().startswith(before)
    recording = read_recording(path)
    expected = whole("one", 1, folder).updates
    assert comparable(recording.updates) == comparable(expected)
    assert [u.total_batch_idx for u in recording.updates] == list(range(UPDATES))
    assert [u.global_step for u in recording.updates] == list(range(1, UPDATES + 1))
    assert [run.attempt for run in recording.runs] == [1, 2]
    assert len({run.run_id for run in recording.runs}) == 1
    facts = recording.runs[1].resumed
    assert facts is not None
    assert (facts.updates, facts.global_step, facts.epoch) == ([save], save, (save - 1) // BATCHES)
    assert facts.checkpoint == str(checkpoint)
    again = [SupersededUpdates(attempt=1, optimizer=0, first=save + 1, last=fail)]
    assert recording.superseded == (tuple(again) if fail > save else ())
    assert recording.missing == ()
    assert recording.end is not None
    assert (recording.end.reason, recording.end.updates) == ("finished", UPDATES)
    took = [(time.attempt, time.update) for time in iter_times(path)]
    again = [(2, update) for update in range(save + 1, UPDATES + 1)]
    assert took == [*((1, update) for update in range(1, fail + 1)), *again]
    assert judge_recording(iter_records(path)) == []


def test_a_loader_that_does_not_go_on_is_seen_in_the_updates_that_are_made_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    checkpoint = interrupt(path, save=2, fail=4)

    class Forgets(GoesOn):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    trainer = make_trainer([recorder(path)])
    trainer.fit(Small(), Forgets(), ckpt_path=checkpoint, weights_only=True)
    found = [finding.id for finding in judge_recording(iter_records(path))]
    assert found == ["TG-RECORD-DATA-PLACE", "TG-RECORD-NOT-REPEATED"]


@pytest.mark.parametrize("save", [2, 3, BATCHES, 6])  # the first inside, the second at a window
def test_accumulation_goes_on_from_every_batch(tmp_path: Path, folder: Path, save: int) -> None:
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, save), accumulate_grad_batches=2)
    checkpoint = tmp_path / f"{save}.ckpt"
    train(recorder(path), resume=checkpoint, accumulate_grad_batches=2)
    recording, expected = read_recording(path), whole("one", 2, folder)
    numbers = [(u.update, u.global_step, u.epoch, u.batch_idx) for u in recording.updates]
    assert numbers == [(u.update, u.global_step, u.epoch, u.batch_idx) for u in expected.updates]
    done = state_of(checkpoint)["completed"][0]
    lost = save in (3, 6)  # half a window: its gradients are in no checkpoint
    first = recording.updates[done]
    assert first.micro_batches == (1 if lost else expected.updates[done].micro_batches)
    if not lost:
        assert comparable(recording.updates) == comparable(expected.updates)


@pytest.mark.parametrize(("name", "completed"), [("two", [7, 4]), ("hidden", [7, 3])])
def test_each_optimizer_goes_on_with_its_own_count(
    tmp_path: Path, folder: Path, name: str, completed: list[int]
) -> None:
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, 7), model=MODELS[name]())
    assert state_of(tmp_path / "7.ckpt")["completed"] == completed
    train(recorder(path), model=MODELS[name](), resume=tmp_path / "7.ckpt")
    recording, expected = read_recording(path), whole(name, 1, folder)
    facts = recording.runs[1].resumed
    assert facts is not None and facts.updates == completed
    if name == "two":
        assert comparable(recording.updates) == comparable(expected.updates)
    else:  # of one that is not known, what led to its first step is not either, after a resume
        numbers = [(u.optimizer, u.update, u.global_step, u.lr) for u in recording.updates]
        assert numbers == [(u.optimizer, u.update, u.global_step, u.lr) for u in expected.updates]
    assert {one.optimizer: (one.first, one.last) for one in recording.superseded} == {
        number: (count + 1, sum(u.optimizer == number for u in expected.updates))
        for number, count in enumerate(completed)
    }
    assert recording.missing == ()


def test_a_run_can_be_resumed_again_and_again(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "run"
    checkpoint = interrupt(path, save=2, fail=4)
    for attempt, save in enumerate((3, 5, 6), start=2):
        saves = Saves(tmp_path, 1)  # one batch after it was resumed
        with pytest.raises(RuntimeError, match="the power went out"):
            train(recorder(path), saves, model=Small(in_step=fail_at(save + 1)), resume=checkpoint)
        checkpoint = (tmp_path / "1.ckpt").rename(tmp_path / f"attempt-{attempt}.ckpt")
        assert state_of(checkpoint)["attempt"] == attempt
    train(recorder(path), resume=checkpoint)
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2, 3, 4, 5]
    assert comparable(recording.updates) == comparable(whole("one", 1, folder).updates)


def test_a_resume_from_an_older_checkpoint_supersedes_several_attempts(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, 2, 8))
    train(recorder(path), resume=tmp_path / "8.ckpt")
    train(recorder(path), resume=tmp_path / "2.ckpt")
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2, 3]
    assert {(one.attempt, one.first, one.last) for one in recording.superseded} == {
        (1, 3, 10), (2, 9, 10),
    }  # fmt: skip
    assert [update.update for update in recording.updates] == list(range(1, UPDATES + 1))


@pytest.mark.parametrize("aside", [2, 4])
def test_a_return_from_a_side_branch_goes_on_with_the_main_line(tmp_path: Path, aside: int) -> None:
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, aside, 8))
    main = read_recording(path)
    train(recorder(path), resume=tmp_path / f"{aside}.ckpt")
    last = recorder(path)
    train(last, resume=tmp_path / "8.ckpt")
    recording = read_recording(path)
    facts = [run.resumed for run in recording.runs]
    assert [fact and fact.attempt for fact in facts] == [None, 1, 1]
    assert recording.updates[:8] == main.updates[:8]
    assert [update.update for update in recording.updates] == list(range(1, UPDATES + 1))
    assert recording.missing == ()
    assert {(one.attempt, one.first, one.last) for one in recording.superseded} == {
        (1, 9, UPDATES), (2, aside + 1, UPDATES),
    }  # fmt: skip
    assert last.state_dict()["updates"] == [UPDATES]


def test_a_resume_into_another_path_says_what_is_missing_there(
    tmp_path: Path, folder: Path
) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, 3))
    before = (tmp_path / "run" / "updates.rank0.jsonl").read_bytes()
    train(recorder(tmp_path / "rest"), resume=tmp_path / "3.ckpt")
    rest, first = read_recording(tmp_path / "rest"), read_recording(tmp_path / "run")
    assert (rest.run.run_id, rest.run.attempt) == (first.run.run_id, 2)
    assert rest.missing == (MissingUpdates(optimizer=0, first=1, last=3),)
    assert comparable(rest.updates) == comparable(whole("one", 1, folder).updates[3:])
    assert (tmp_path / "run" / "updates.rank0.jsonl").read_bytes() == before


def test_a_run_whose_folder_was_removed_is_resumed_in_a_new_one(tmp_path: Path) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, 3))
    (tmp_path / "run").rename(tmp_path / "archive")
    train(recorder(tmp_path / "run"), resume=tmp_path / "3.ckpt")
    recording = read_recording(tmp_path / "run")
    assert recording.missing == (MissingUpdates(optimizer=0, first=1, last=3),)
    assert recording.run.attempt == 2


def test_a_checkpoint_of_an_unrecorded_run_begins_a_new_recording(tmp_path: Path) -> None:
    train(Saves(tmp_path, 3))
    train(recorder(tmp_path / "run"), resume=tmp_path / "3.ckpt")
    recording = read_recording(tmp_path / "run")
    facts = recording.run.resumed
    assert facts is not None
    assert (recording.run.attempt, facts.updates, facts.global_step) == (1, [], 3)
    assert facts.checkpoint == str(tmp_path / "3.ckpt")
    assert [(u.update, u.global_step) for u in recording.updates] == [
        (n, n + 3) for n in range(1, UPDATES - 2)
    ]
    assert (recording.missing, recording.superseded) == ((), ())


def test_a_checkpoint_of_an_unrecorded_run_does_not_touch_another_recording(tmp_path: Path) -> None:
    train(Saves(tmp_path, 3))
    train(recorder(tmp_path / "run"), max_epochs=1)
    before = (tmp_path / "run" / "updates.rank0.jsonl").read_bytes()
    with pytest.raises(RecordingError, match="this one exists"):
        train(recorder(tmp_path / "run"), resume=tmp_path / "3.ckpt")
    assert (tmp_path / "run" / "updates.rank0.jsonl").read_bytes() == before


@pytest.mark.parametrize("renamed", ["2", None])
def test_the_state_is_found_though_the_path_is_spelled_otherwise(
    tmp_path: Path, renamed: str | None
) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, 3))
    path = tmp_path / "elsewhere" / ".." / "run" if renamed is None else tmp_path / renamed
    (tmp_path / "elsewhere").mkdir()
    train(recorder(path), resume=tmp_path / "3.ckpt")
    assert read_recording(path).runs[-1].attempt == 2


def test_a_guest_continues_what_a_callback_recorded_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, 3))
    train(Guest(recorder(path)), Saves(tmp_path, 1), resume=tmp_path / "3.ckpt")
    train(recorder(path), resume=tmp_path / "1.ckpt")
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2, 3]
    assert [update.update for update in recording.updates] == list(range(1, UPDATES + 1))


def test_two_recorders_each_go_on_with_their_own_run(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    train(*map(recorder, paths), Saves(tmp_path, 3))
    train(*map(recorder, paths), resume=tmp_path / "3.ckpt")
    a, b = map(read_recording, paths)
    assert a.updates == b.updates and len(a.updates) == UPDATES
    for one in (a, b):
        assert [run.attempt for run in one.runs] == [1, 2]
    assert a.run.run_id != b.run.run_id


@pytest.mark.parametrize(("save", "epoch", "batches"), [(2, 0, 2), (BATCHES + 3, 1, 3)])
def test_a_resume_says_how_far_its_epoch_had_come(
    tmp_path: Path, save: int, epoch: int, batches: int
) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, save))
    train(recorder(tmp_path / "run"), resume=tmp_path / f"{save}.ckpt")
    facts = read_recording(tmp_path / "run").runs[1].resumed
    assert facts is not None and (facts.epoch, facts.batches) == (epoch, batches)


def test_of_several_recorders_none_is_guessed(tmp_path: Path) -> None:
    state = {
        "run_id": "a", "attempt": 1, "attempt_id": "c", "updates": [3], "completed": [3],
    }  # fmt: skip
    both = {"callbacks": {f"StepRecorder{{'path': '{name}'}}": state for name in "ab"}}
    place = functools.partial(resumed_place, source=None, path=tmp_path / "c")
    found = place(both, key="StepRecorder{'path': 'c'}")
    assert (found.attempt, found.updates) == (1, [])
    found = place(both, key="StepRecorder{'path': 'b'}")
    assert (found.attempt, found.updates) == (2, [3])
    both["callbacks"] = {f"Guest({name})": state for name, state in both["callbacks"].items()}
    found = place(both, key="StepRecorder{'path': 'b'}")
    assert (found.attempt, found.updates) == (2, [3])


def test_of_several_recorders_whose_paths_are_spelled_otherwise_each_knows_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train(recorder(Path("a")), recorder(Path("b")), Saves(tmp_path, 3))
    train(*(recorder(tmp_path / name) for name in "ba"), resume=tmp_path / "3.ckpt")
    for name in "ab":
        recording = read_recording(tmp_path / name)
        assert [run.attempt for run in recording.runs] == [1, 2]
        assert recording.missing == ()


@pytest.mark.parametrize("finder_first", [True, False])
@pytest.mark.parametrize("finder", [LearningRateFinder, BatchSizeFinder])
def test_what_a_finder_saves_and_loads_is_no_checkpoint_of_the_run(
    tmp_path: Path, finder: Any, finder_first: bool
) -> None:
    """It tries rates or sizes before the training, and loads what it had saved before."""

    def fit_with_finder(checkpoint: Path | None) -> Recording:
        options = {"num_training_steps": 4} if finder is LearningRateFinder else {"max_trials": 1}
        callbacks = [finder(**options), recorder(tmp_path / "run")]
        model = Small()
        model.lr, model.batch_size = 0.1, BATCH
        data = make_loader().dataset
        model.train_dataloader = lambda: DataLoader(data, batch_size=model.batch_size)
        trainer = make_trainer(
            [*(callbacks if finder_first else callbacks[::-1]), Saves(tmp_path, 3)],
            max_epochs=2,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, ckpt_path=checkpoint)
        return read_recording(tmp_path / "run")

    fresh = fit_with_finder(None)
    assert [run.resumed for run in fresh.runs] == [None]
    saved = [event.update for event in fresh.events if event.event == "checkpoint"]
    resumed = fit_with_finder(tmp_path / "3.ckpt")
    assert [run.attempt for run in resumed.runs] == [1, 2]
    assert resumed.runs[1].resumed is not None and resumed.runs[1].resumed.updates == saved
    numbers = [update.update for update in resumed.updates]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) > saved[0]


@pytest.mark.parametrize(("main", "more"), [(6, 2), (3, 4)])
def test_an_attempt_that_another_file_numbers_alike_is_not_mistaken(
    tmp_path: Path, main: int, more: int
) -> None:
    run, side = tmp_path / "run", tmp_path / "side"
    train(recorder(run), Saves(tmp_path, main))
    checkpoint = tmp_path / f"{main}.ckpt"
    train(recorder(side), Saves(side, more), resume=checkpoint)
    train(recorder(run), resume=checkpoint)  # attempt 2, in both
    train(recorder(run), resume=side / f"{more}.ckpt")
    aside = main + more
    recording = read_recording(tmp_path / "run")
    assert [run.attempt for run in recording.runs] == [1, 2, 3]
    assert recording.missing == (MissingUpdates(optimizer=0, first=1, last=aside),)
    assert [u.update for u in recording.updates] == list(range(aside + 1, UPDATES + 1))


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_line_that_was_torn_is_never_glued_to_the_next_attempt(
    tmp_path: Path, folder: Path, cut: int
) -> None:
    path = tmp_path / "run.jsonl"
    train(recorder(path), Saves(tmp_path, 3))
    *lines, _ = path.read_bytes().splitlines(keepends=True)
    before = b"".join(lines)[:-cut]  # cut in its last update; the end line is gone
    path.write_bytes(before)
    assert read_recording(path).torn is not None
    train(recorder(path), resume=tmp_path / "3.ckpt")
    assert path.read_bytes().startswith(before + b"\n")
    recording = read_recording(path)
    assert len(recording.fragments) == (0 if cut == 1 else 1)  # all it lacked was its newline
    assert comparable(recording.updates) == comparable(whole("one", 1, folder).updates)


# Overwrite ------------------------------------------------------------------------------------


def test_overwrite_moves_nothing_of_the_run_that_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(recorder(path, overwrite=True), Saves(tmp_path, 3))
    train(recorder(path, overwrite=True), resume=tmp_path / "3.ckpt")
    assert sorted(os.listdir(path)) == ["times.jsonl", "updates.rank0.jsonl"]
    assert [run.attempt for run in read_recording(path).runs] == [1, 2]


def test_another_run_in_its_place_is_refused_or_moved_aside(tmp_path: Path) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, 3))
    train(recorder(tmp_path / "other"), max_epochs=1)
    file = tmp_path / "other" / "updates.rank0.jsonl"
    before = file.read_bytes()
    with pytest.raises(RecordingError, match=r"'run_id' must be .* to go on with this run"):
        train(recorder(tmp_path / "other"), resume=tmp_path / "3.ckpt")
    assert file.read_bytes() == before
    train(recorder(tmp_path / "other", overwrite=True), resume=tmp_path / "3.ckpt")
    assert file.with_name(f"{file.name}.old-1").read_bytes() == before
    recording = read_recording(file)
    assert recording.missing == (MissingUpdates(optimizer=0, first=1, last=3),)


@pytest.mark.parametrize("damage", [b"", b"precious notes\n"], ids=["empty", "damaged"])
def test_a_file_that_cannot_be_read_is_refused_or_moved_aside(
    tmp_path: Path, damage: bytes
) -> None:
    path = tmp_path / "run.jsonl"
    train(recorder(path), Saves(tmp_path, 3))
    content = (path.read_bytes() + damage) if damage else b""
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"run\.jsonl"):
        train(recorder(path), resume=tmp_path / "3.ckpt")
    assert path.read_bytes() == content
    train(recorder(path, overwrite=True), resume=tmp_path / "3.ckpt")
    assert path.with_name("run.jsonl.old-1").read_bytes() == content
    assert read_recording(path).missing == (MissingUpdates(optimizer=0, first=1, last=3),)


def test_a_run_that_is_still_recorded_cannot_be_resumed(tmp_path: Path) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, 3))
    run_id = read_recording(tmp_path / "run").run.run_id
    with JsonlSink.resume(tmp_path / "run", run_id=run_id):
        for overwrite in (False, True):
            with pytest.raises(RecordingError, match="is being written by another recorder"):
                train(recorder(tmp_path / "run", overwrite=overwrite), resume=tmp_path / "3.ckpt")
    assert len(read_recording(tmp_path / "run").runs) == 1


# What a checkpoint says -----------------------------------------------------------------------


def test_a_checkpoint_says_which_run_and_how_many_updates(tmp_path: Path) -> None:
    train(recorder(tmp_path / "run"), Saves(tmp_path, 3))
    run = read_recording(tmp_path / "run").run
    assert state_of(tmp_path / "3.ckpt") == {
        "run_id": run.run_id,
        "attempt": 1,
        "attempt_id": run.attempt_id,
        "updates": [3],
        "completed": [3],
    }


def test_a_checkpoint_that_is_saved_after_the_end_says_so_too(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "run"
    train(recorder(path), max_epochs=1).save_checkpoint(tmp_path / "end.ckpt")
    assert state_of(tmp_path / "end.ckpt")["completed"] == [BATCHES]
    train(recorder(path), resume=tmp_path / "end.ckpt")
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2]
    assert comparable(recording.updates) == comparable(whole("one", 1, folder).updates)


@pytest.mark.filterwarnings("ignore:`.fit.ckpt_path=None.` was called without a model")
@pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available")
def test_a_checkpoint_of_an_exception_says_so_too(tmp_path: Path) -> None:
    path = tmp_path / "run"
    saves = OnExceptionCheckpoint(tmp_path)
    with pytest.raises(RuntimeError, match="the power went out"):
        train(recorder(path), saves, model=Small(in_step=fail_at(6)), enable_checkpointing=True)
    assert state_of(tmp_path / "on_exception.ckpt")["completed"] == [6]
    train(recorder(path), resume=tmp_path / "on_exception.ckpt")
    recording = read_recording(path)
    # the batch that raised had been fetched: Lightning and the loader go on behind it
    assert [(u.update, u.global_step, u.total_batch_idx) for u in recording.updates] == [
        (n + 1, n + 1, n + (n >= 6)) for n in range(UPDATES - 1)
    ]
    assert (recording.superseded, recording.missing) == ((), ())


# Fitted again ---------------------------------------------------------------------------------


def fit_again(trainer: pl.Trainer, model: pl.LightningModule, *, max_epochs: int) -> None:
    trainer.fit_loop.max_epochs = max_epochs
    trainer.fit(model, GoesOn())


def test_another_fit_of_one_trainer_goes_on_in_the_same_attempt(tmp_path: Path) -> None:
    path, model = tmp_path / "run", Small()
    trainer = train(recorder(path), model=model, max_epochs=1)
    for epochs in (2, 3):
        fit_again(trainer, model, max_epochs=epochs)
    recording = read_recording(path)
    assert [update.update for update in recording.updates] == list(range(1, 3 * BATCHES + 1))
    assert [update.global_step for update in recording.updates] == list(range(1, 3 * BATCHES + 1))
    assert [update.total_batch_idx for update in recording.updates] == list(range(3 * BATCHES))
    assert [run.attempt for run in recording.runs] == [1]
    segments = [event for event in recording.events if event.event == "segment"]
    assert [(event.update, event.details) for event in segments] == [
        (
            BATCHES * (fit - 1),
            {
                "global_step": BATCHES * (fit - 1),
                "epoch": fit - 1,
                "fit": fit,
                "max_epochs": fit,
                "max_steps": -1,
                "optimizers": ["torch.optim.sgd.SGD"],
                "schedulers": ["torch.optim.lr_scheduler.LambdaLR"],
            },
        )
        for fit in (2, 3)
    ]
    kinds = [type(record).__name__ for record in iter_records(path)]
    assert kinds.count("EndRecord") == 3
    assert len(list(iter_times(path))) == 3 * BATCHES


def test_another_fit_from_a_checkpoint_is_the_next_attempt(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "run"
    trainer = train(recorder(path), Saves(tmp_path, 3))
    trainer.fit(Small(), GoesOn(), ckpt_path=tmp_path / "3.ckpt", weights_only=True)
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2]
    assert comparable(recording.updates) == comparable(whole("one", 1, folder).updates)
    fit_again(trainer, Small(), max_epochs=3)
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2]
    assert [update.update for update in recording.updates] == list(range(1, 3 * BATCHES + 1))


def test_another_fit_after_an_exception_goes_on(tmp_path: Path) -> None:
    path, model = tmp_path / "run", Small(in_step=fail_at(3))
    trainer = make_trainer([recorder(path)])
    with pytest.raises(RuntimeError, match="the power went out"):
        trainer.fit(model, GoesOn())
    model.in_step = None
    trainer.fit(model, GoesOn())
    recording = read_recording(path)
    updates = [update.update for update in recording.updates]
    assert updates == list(range(1, len(updates) + 1)) and len(updates) > BATCHES
    assert [event.event for event in recording.events] == ["segment"]


def test_another_trainer_is_another_run(tmp_path: Path) -> None:
    one = recorder(tmp_path / "run")
    train(one, max_epochs=1)
    with pytest.raises(RecordingError, match="this one exists"):
        train(one, max_epochs=1)


def test_a_recording_that_was_moved_between_two_fits_is_missed_in_the_next(tmp_path: Path) -> None:
    path, model = tmp_path / "run", Small()
    trainer = train(recorder(path), model=model, max_epochs=1)
    path.rename(tmp_path / "archive")
    fit_again(trainer, model, max_epochs=2)
    recording = read_recording(path)
    assert (recording.run.attempt, recording.run.run_id) == (
        2,
        read_recording(tmp_path / "archive").run.run_id,
    )
    facts = recording.run.resumed
    assert facts is not None
    assert (facts.updates, facts.global_step, facts.epoch, facts.checkpoint) == (
        [BATCHES], BATCHES, 1, None,
    )  # fmt: skip
    assert recording.missing == (MissingUpdates(optimizer=0, first=1, last=BATCHES),)
    fit_again(trainer, model, max_epochs=3)  # and the one after that goes on there
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [2]
    assert recording.updates[-1].update == 3 * BATCHES


def test_a_run_that_somebody_resumed_between_two_fits_is_not_mixed_up(tmp_path: Path) -> None:
    path, model = tmp_path / "run", Small()
    trainer = train(recorder(path), model=model, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    train(recorder(path), resume=tmp_path / "end.ckpt")  # attempt 2, to update 10
    fit_again(trainer, model, max_epochs=3)  # attempt 3, from update 5
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2, 3]
    assert [update.update for update in recording.updates] == list(range(1, 3 * BATCHES + 1))
    again = SupersededUpdates(attempt=2, optimizer=0, first=BATCHES + 1, last=UPDATES)
    assert recording.superseded == (again,)


def test_a_run_that_somebody_only_tried_to_resume_is_not_mixed_up_either(tmp_path: Path) -> None:
    path, model = tmp_path / "run", Small()
    trainer = train(recorder(path), model=model, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "end.ckpt")
    with pytest.raises(RuntimeError, match="the power went out"):
        train(recorder(path), model=Small(in_step=fail_at(BATCHES)), resume=tmp_path / "end.ckpt")
    fit_again(trainer, model, max_epochs=2)
    recording = read_recording(path)
    assert [run.attempt for run in recording.runs] == [1, 2, 3]
    assert [update.update for update in recording.updates] == list(range(1, UPDATES + 1))


def test_a_hidden_optimizer_keeps_its_number_and_count_over_fits(tmp_path: Path) -> None:
    path, model = tmp_path / "run", Hidden()
    trainer = train(recorder(path), model=model, max_epochs=1)
    fit_again(trainer, model, max_epochs=2)
    found = [u.update for u in read_recording(path).updates if u.optimizer == 1]
    assert found == [1, 2, 3, 4]


def test_a_hidden_optimizer_that_no_longer_steps_is_not_superseded(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(recorder(path), Saves(tmp_path, 4), model=Hidden())

    class Gone(Hidden):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, 1)

    train(recorder(path), Saves(tmp_path, 2), model=Gone(), resume=tmp_path / "4.ckpt")
    assert state_of(tmp_path / "2.ckpt")["completed"] == [6, 2]
    train(recorder(path), model=Hidden(), resume=tmp_path / "2.ckpt")
    recording = read_recording(path)
    hidden = [update.update for update in recording.updates if update.optimizer == 1]
    assert hidden == [1, 2, 3]
    assert recording.superseded[-1] == SupersededUpdates(
        attempt=2, optimizer=0, first=7, last=UPDATES
    )


def test_a_recorder_of_another_name_in_the_checkpoint_is_no_harm(tmp_path: Path) -> None:
    train(StepRecorder.to_sink(_Forgets()), Saves(tmp_path, 3))
    train(recorder(tmp_path / "run"), resume=tmp_path / "3.ckpt")
    assert read_recording(tmp_path / "run").run.attempt == 1


class _Forgets:
    def write(self, record: Any) -> None:
        pass

    def close(self) -> None:
        pass

"""StepRecorder changes nothing, keeps its file whole, and refuses what it would misstate."""

import json
import signal
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import seed_everything

from tests import first_law
from tests.callbacks.small import (
    BATCHES,
    Small,
    fit,
    make_loader,
    make_trainer,
    record,
)
from traingen import StepRecorder
from traingen.errors import RecordingError
from traingen.records import (
    MemorySink,
    SchedulerState,
    UpdateRecord,
    read_recording,
)

# The first law ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"rng": ("python", "numpy", "torch")}, {"rng": (), "digest_batches": False}],
    ids=["default", "everything", "least"],
)
def test_training_with_the_recorder_ends_in_the_same_bits(tmp_path, options):
    trained = first_law.train([StepRecorder(str(tmp_path), **options)])
    first_law.assert_same_training(first_law.trained_without(), trained)
    assert len(read_recording(tmp_path).updates) == first_law.UPDATES


def test_training_with_a_given_sink_ends_in_the_same_bits():
    sink = MemorySink()
    trained = first_law.train([StepRecorder.to_sink(sink)])
    first_law.assert_same_training(first_law.trained_without(), trained)
    updates = [one for one in sink.records if isinstance(one, UpdateRecord)]
    assert len(updates) == first_law.UPDATES


# The file -----------------------------------------------------------------------------------

# What is looked for in every training, and a small one has none of.
NOT_HERE = {"amp_growth", "amp_scale", "closure", "ema", "loss_terms", "sampler", "shard"}


class Reads(pl.Callback):
    """Counts the update lines on disk whenever a batch begins, and the updates there were."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[tuple[int, int]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, *rest: Any) -> None:
        lines = self.path.read_bytes().splitlines(keepends=True)
        assert all(line.endswith(b"\n") for line in lines)
        updates = [line for line in lines if json.loads(line)["kind"] == "update"]
        self.seen.append((len(updates), trainer.global_step))


def test_each_update_is_on_disk_before_the_next_batch_begins(tmp_path):
    reads = Reads(tmp_path / "run.jsonl")
    fit([StepRecorder(str(reads.path)), reads], accumulate_grad_batches=2)
    assert reads.seen == [(n, n) for n in (0, 0, 1, 1, 2, 3, 3, 4, 4, 5)]


def test_run_line_states_how_it_is_trained(tmp_path):
    seed_everything(23, verbose=False)
    run = record(
        tmp_path,
        model=Small(frequency=3),
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
    ).run
    (optimizer,), (scheduler,) = run.optimizers, run.schedulers
    assert (optimizer.index, optimizer.class_path) == (0, "torch.optim.sgd.SGD")
    assert (optimizer.groups, optimizer.parameters) == (1, 3 * 4 + 4 + 4 + 1)  # elements
    assert (scheduler.id, scheduler.optimizer) == (0, 0)
    assert scheduler.class_path == "torch.optim.lr_scheduler.LambdaLR"
    assert (scheduler.interval, scheduler.frequency) == ("step", 3)
    assert run.clipping == {"value": 0.5, "algorithm": "norm"}
    assert (run.accumulation, run.precision) == (2, "32-true")
    assert (run.world_size, run.rank, run.attempt) == (1, 0, 1)
    assert run.callbacks == ["traingen.callbacks.step_recorder.StepRecorder"]
    assert (run.seed, run.seed_source) == (23, "PL_GLOBAL_SEED")
    assert run.versions["lightning"] == pl.__version__


def test_run_line_says_null_for_what_the_loop_has_not(tmp_path, monkeypatch):
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    recording = record(tmp_path, model=Small(interval=None))
    run = recording.run
    assert (run.seed, run.seed_source, run.clipping, run.schedulers) == (None, None, None, [])
    assert recording.updates[0].scheduler is None
    assert "scheduler" in run.observes  # it looked: there is none


@pytest.mark.parametrize(
    "options",
    [{}, {"rng": ("python", "numpy", "torch")}, {"rng": (), "digest_batches": False}],
    ids=["default", "everything", "least"],
)
def test_observes_lists_exactly_the_fields_that_are_stated(tmp_path, options):
    fit([StepRecorder(str(tmp_path), **options)])
    recording = read_recording(tmp_path)
    fields = set(UpdateRecord.__struct_fields__) - {"unknown", "user"}
    for update in recording.updates:
        stated = {name for name in fields if getattr(update, name) is not None}
        assert stated == set(recording.run.observes) - NOT_HERE
    assert set(recording.run.observes) >= NOT_HERE
    assert len(recording.run.observes) == len(set(recording.run.observes))


def hooks_in_place() -> tuple[object, ...]:
    """What a listener replaces or adds in torch."""
    from torch.nn.utils import clip_grad
    from torch.optim import lr_scheduler, optimizer

    return (
        len(optimizer._global_optimizer_pre_hooks),
        len(optimizer._global_optimizer_post_hooks),
        clip_grad._clip_grads_with_norm_,
        clip_grad._group_tensors_by_device_and_dtype,
        lr_scheduler.LRScheduler.step,
        lr_scheduler.LRScheduler.__init__,
        torch.autograd.backward,
    )


class SeesHooks(pl.Callback):
    """Keeps the hooks that are in place while training."""

    def on_train_batch_start(self, *rest: Any) -> None:
        self.during = hooks_in_place()


def test_hooks_are_there_while_training_and_gone_after(tmp_path):
    before, sees = hooks_in_place(), SeesHooks()
    fit([StepRecorder(str(tmp_path)), sees])
    assert sees.during != before
    assert hooks_in_place() == before


def raise_at(batch: int, error: BaseException) -> Any:
    def step(model: pl.LightningModule, batch_idx: int) -> None:
        if batch_idx == batch:
            raise error

    return step


def test_exception_ends_the_recording_with_its_message(tmp_path):
    before = hooks_in_place()
    model = Small(in_step=raise_at(3, RuntimeError("no such sample: 17")))
    with pytest.raises(RuntimeError, match="no such sample: 17"):
        fit([StepRecorder(str(tmp_path))], model=model)
    recording = read_recording(tmp_path)
    assert (len(recording.updates), recording.torn) == (3, None)
    assert (recording.end.reason, recording.end.updates) == ("exception", 3)
    assert recording.end.message == "RuntimeError('no such sample: 17')"
    assert hooks_in_place() == before


def test_recorder_counts_right_after_an_exception_inside_a_step(tmp_path):
    # Lightning calls training_step inside optimizer.step(closure): that step is never left.
    with pytest.raises(RuntimeError, match="once"):
        fit(
            [StepRecorder(str(tmp_path / "a"))],
            model=Small(in_step=raise_at(1, RuntimeError("once"))),
        )
    assert len(record(tmp_path / "b").updates) == 2 * BATCHES


def test_keyboard_interrupt_ends_the_recording_as_interrupted(tmp_path):
    before, handler = hooks_in_place(), signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            fit(
                [StepRecorder(str(tmp_path))], model=Small(in_step=raise_at(2, KeyboardInterrupt()))
            )
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores it from then on
    end = read_recording(tmp_path).end
    assert (end.reason, end.updates) == ("interrupted", 2)
    assert hooks_in_place() == before


def test_early_stop_ends_the_recording_as_stopped(tmp_path):
    def stop(model: pl.LightningModule, batch_idx: int) -> None:
        model.trainer.should_stop = batch_idx == 1

    recording = record(tmp_path, model=Small(in_step=stop))
    assert len(recording.updates) == 2
    assert (recording.end.reason, recording.end.updates) == ("stopped", 2)
    assert recording.end.scheduler == [SchedulerState(id=0, last_epoch=2, ticks=2)]


@pytest.mark.parametrize("name", ["run", "run.jsonl"])
def test_existing_path_is_refused_before_anything_is_trained(tmp_path, name):
    path = tmp_path / name
    file = record(path).path
    files = {one: one.read_bytes() for one in tmp_path.rglob("*.jsonl*")}
    before, model = hooks_in_place(), Small()
    weights = [p.detach().clone() for p in model.parameters()]
    trainer = make_trainer([StepRecorder(str(path))])
    with pytest.raises(RecordingError, match="this one exists"):
        trainer.fit(model, make_loader())
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    assert (trainer.global_step, trainer.current_epoch) == (0, 0)
    assert hooks_in_place() == before
    assert file in files
    assert {one: one.read_bytes() for one in tmp_path.rglob("*.jsonl*")} == files


def test_overwrite_moves_the_existing_file_aside(tmp_path):
    file = record(tmp_path).path
    content = file.read_bytes()
    fit([StepRecorder(str(tmp_path), overwrite=True)], max_epochs=1)
    assert file.with_name(f"{file.name}.old-1").read_bytes() == content
    assert len(read_recording(tmp_path).updates) == BATCHES


def test_two_recorders_on_one_trainer_write_equal_updates(tmp_path):
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    fit([StepRecorder(str(path)) for path in paths], gradient_clip_val=0.5)
    a, b = ([*path.read_bytes().splitlines()] for path in paths)
    assert a[1:] == b[1:] and len(a) == 1 + 2 * BATCHES + 1
    assert read_recording(paths[0]).run.run_id != read_recording(paths[1]).run.run_id


class OwnClip(Small):
    """Clips by hand, which only a look before the hook can tell, and logs its loss."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("mse", loss)
        return loss

    def configure_gradient_clipping(self, *args: Any, **options: Any) -> None:
        for parameter in self.parameters():
            parameter.grad.mul_(0.5)


class RemovesFile(pl.Callback):
    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch_start(
        self, trainer: pl.Trainer, module: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 2:
            self.path.unlink(missing_ok=True)


@pytest.mark.parametrize("fails", ["a", "b"])
@pytest.mark.filterwarnings("ignore:traingen. the training goes on without being recorded")
def test_a_recorder_that_fails_takes_nothing_from_another(tmp_path, fails):
    whole = record(tmp_path / "whole.jsonl", model=OwnClip(), max_epochs=1)
    paths = {name: tmp_path / f"{name}.jsonl" for name in "ab"}
    recorders = [StepRecorder(str(path), on_write_error="warn") for path in paths.values()]
    fit([*recorders, RemovesFile(paths[fails])], model=OwnClip(), max_epochs=1)
    assert not paths.pop(fails).exists()
    (other,) = paths.values()
    assert read_recording(other).updates == whole.updates
    assert whole.updates[-1].clipped
    assert set(whole.updates[-1].loss_terms) == {"mse"}


def test_equal_runs_have_equal_update_lines(tmp_path):
    a, b = (record(tmp_path / name, model=Small()).path.read_bytes() for name in "ab")
    assert a.splitlines()[1:] == b.splitlines()[1:]


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used")
def test_training_resumes_from_a_checkpoint_saved_with_the_recorder(tmp_path):
    checkpoint = tmp_path / "half.ckpt"
    fit([StepRecorder(str(tmp_path / "half"))], max_epochs=1).save_checkpoint(checkpoint)
    trainer = make_trainer([StepRecorder(str(tmp_path / "rest"))])
    trainer.fit(Small(), make_loader(), ckpt_path=checkpoint, weights_only=True)
    whole = record(tmp_path / "whole").updates[BATCHES:]
    rest = read_recording(tmp_path / "rest").updates
    assert [u.global_step for u in rest] == [u.global_step for u in whole] == [6, 7, 8, 9, 10]
    assert [(u.loss, u.lr) for u in rest] == [(u.loss, u.lr) for u in whole]
    assert [u.scheduler[0].last_epoch for u in rest] == [5, 6, 7, 8, 9]


def test_recorders_have_their_own_state_key(tmp_path):
    keys = {StepRecorder(str(tmp_path / name)).state_key for name in "ab"}
    assert len(keys) == 2
    assert all(key.startswith("StepRecorder") for key in keys)


def test_recorder_can_be_used_again_after_it_has_ended(tmp_path):
    recorder = StepRecorder(str(tmp_path), overwrite=True)
    fit([recorder], max_epochs=1)
    fit([recorder], max_epochs=2)
    assert len(read_recording(tmp_path).updates) == 2 * BATCHES


def test_validate_and_test_record_nothing(tmp_path):
    class Validates(Small):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.loss(batch)

    make_trainer([StepRecorder(str(tmp_path / "run"))]).validate(
        Validates(), make_loader(), verbose=False
    )
    assert not (tmp_path / "run").exists()


# Refusals -----------------------------------------------------------------------------------


class NoOptimizer(Small):
    def configure_optimizers(self) -> Any:
        return None


class Manual(NoOptimizer):
    automatic_optimization = False


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_an_optimizer_that_only_the_module_knows_is_found_and_recorded(tmp_path):
    class Own(Manual):
        def on_fit_start(self) -> None:
            self.own = torch.optim.SGD(self.net.parameters(), lr=0.1)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self.own.zero_grad()
            loss = self.loss(batch)
            self.manual_backward(loss)
            self.losses = [*getattr(self, "losses", []), loss.item()]
            self.own.step()

    model = Own()
    recording = record(tmp_path, model=model, max_epochs=1)
    assert [update.objective for update in recording.updates] == model.losses
    assert [update.loss for update in recording.updates] == model.losses
    assert (recording.run.optimizers, recording.updates[0].optimizer) == ([], 0)
    assert [e.event for e in recording.events].count("optimizer_found") == 1


@pytest.mark.filterwarnings("ignore:`LightningModule.configure_optimizers` returned `None`")
def test_loop_without_an_optimizer_is_refused_before_any_file_is_made(tmp_path):
    before = hooks_in_place()
    with pytest.raises(MisconfigurationException, match="found no optimizer: remove the callback"):
        fit([StepRecorder(str(tmp_path / "run"))], model=NoOptimizer())
    assert not (tmp_path / "run").exists()
    assert hooks_in_place() == before


class TwoOptimizers(Small):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters()) for layer in (self.net[0], self.net[3])]


def test_what_lightning_refuses_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError, match="multiple optimizers"):  # it wants manual optimization
        fit([StepRecorder(str(tmp_path / "run"))], model=TwoOptimizers())
    assert not list(tmp_path.rglob("*.jsonl*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rng": ("torch", "jax")}, r"'python', 'numpy', 'torch'.*got 'jax'"),
        ({"on_write_error": "ignore"}, r"'raise' or 'warn', got 'ignore'"),
    ],
)
def test_a_value_that_an_argument_cannot_have_is_refused(tmp_path, options, message):
    with pytest.raises(MisconfigurationException, match=message):
        StepRecorder(str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()

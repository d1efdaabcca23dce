"""What a recording shows where hooks, counters, clips and resumes are easily misread."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    GradientAccumulationScheduler,
    StochasticWeightAveraging,
)
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, get_total_norm

from tests.callbacks import lasting
from tests.callbacks.lasting import GoesOn, Saves, comparable, recorder
from tests.callbacks.recorded import Gan, Manual, train
from tests.callbacks.small import BATCHES, RATE, Small, make_loader, make_trainer, record_everything
from traingen.judge import judge_recording
from traingen.observe.rng import digest_rng
from traingen.records import Recording, iter_records, read_recording

SCALE = 256.0


def found(path: Path) -> dict[str, str]:
    """What the recording shows by itself: severities by id."""
    return {one.id: one.severity for one in judge_recording(iter_records(path))}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every line, as a parser reads it that knows no numbers beyond those of JSON."""

    def refuse(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    text = (path / "updates.rank0.jsonl").read_text()
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


# The order of hooks: the step is entered before its batch's forward ------------------------------


class Warms(Small):
    """Sets the rate, and draws, where the step is entered; draws again in its forward."""

    def __init__(self, *, before: bool) -> None:
        super().__init__(interval=None, dropout=0.5)
        self.before = before

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        if self.before:
            self.set_rate(optimizer, batch_idx)
        optimizer.step(closure=closure)
        if not self.before:
            self.set_rate(optimizer, batch_idx)

    def set_rate(self, optimizer: Any, batch_idx: int) -> None:
        torch.rand(batch_idx + 1)
        optimizer.param_groups[0]["lr"] = RATE / (2 + batch_idx)


@pytest.mark.parametrize("before", [True, False])
def test_what_is_done_around_the_step_belongs_to_the_update_that_used_it(tmp_path, before):
    done = train(tmp_path, Warms(before=before), recorder={"rng": ("torch",)})
    rates = [RATE / (2 + i) for i in range(BATCHES)]
    assert [u.lr for u in done.updates] == [
        [rate] for rate in (rates if before else [RATE, *rates[:-1]])
    ]
    for update, after in zip(done.updates, done.updates[1:], strict=False):
        drawn_behind = update.rng_after != after.rng
        assert drawn_behind is not before
    assert done.found == {}


class Ordered(Small):
    """Notes in which order its hooks come, and the state of torch's generator then."""

    def __init__(self) -> None:
        super().__init__(dropout=0.5)
        self.came: list[tuple[str, str]] = []

    def note(self, hook: str) -> None:
        self.came.append((hook, digest_rng(("torch",))["torch"]))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.note("begin")

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.note("step")
        torch.rand(1)
        super().optimizer_step(*args, **kwargs)
        torch.rand(1)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.note("forward")
        return super().training_step(batch, batch_idx)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.note("complete")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pass

    def states(self, hook: str) -> list[str]:
        return [state for name, state in self.came if name == hook]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_line_follows_the_order_of_the_work_and_not_of_the_hooks(tmp_path, accumulate):
    model = Ordered()
    trainer = make_trainer(
        [recorder(tmp_path, rng=("torch",))],
        accumulate_grad_batches=accumulate,
        num_sanity_val_steps=0,
        limit_train_batches=4,
    )
    trainer.fit(model, make_loader(), make_loader())
    window = [*["begin", "forward"] * (accumulate - 1), "begin", "step", "forward", "complete"]
    per_epoch = 4 // accumulate
    assert [hook for hook, _ in model.came] == 2 * per_epoch * window
    recording = read_recording(tmp_path)
    assert [u.rng["torch"] for u in recording.updates] == model.states("begin")[::accumulate]
    assert [u.rng_after["torch"] for u in recording.updates] == model.states("complete")
    assert [event.update for event in recording.events] == [per_epoch, 2 * per_epoch]
    assert found(tmp_path) == {}


# Counters ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 2])
def test_with_two_optimizers_batches_steps_and_the_loggers_x_are_told_apart(tmp_path, every):
    done = train(tmp_path, Gan(every=every), max_epochs=2)
    expected, step = [], 0
    for batch in range(2 * BATCHES):
        turns = (0, 1) if batch % BATCHES % every == 0 else (1,)
        for optimizer in turns:
            step += 1
            expected.append((optimizer, step, batch, batch))
    assert [
        (u.optimizer, u.global_step, u.total_batch_idx, u.batches_that_stepped)
        for u in done.updates
    ] == expected
    assert done.found == {"GLOBAL-STEP": "info"}


class Halves(Manual):
    """Accumulates by hand, with a divisor that only it knows."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.manual_backward(self.loss(batch) / self.window)
        if (batch_idx + 1) % self.window == 0:
            self.optimizers().step()
            self.optimizers().zero_grad()


@pytest.mark.parametrize("window", [2, 4])
def test_a_loss_that_is_divided_by_hand_is_not_multiplied(tmp_path, window):
    done = train(tmp_path, Halves(window), limit_train_batches=4)
    first = [Small().loss(batch).item() / window for batch in make_loader()][:window]
    update = done.updates[0]
    assert update.objective == pytest.approx(sum(first), rel=1e-6)
    assert (update.divisor, update.loss, update.micro_losses) == (None, None, None)
    assert update.micro_batches == window
    assert done.found == {}


class Logs(Small):
    """Logs its loss as any module does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []
        self.metrics: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("raw", loss)
        self.seen.append(loss.item())
        return loss

    def on_train_batch_end(self, *args: Any) -> None:
        self.metrics.append(self.trainer.callback_metrics["raw"].item())


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate_grad_batches": 2},
        {"accumulate_grad_batches": 4},
        {"callbacks": [GradientAccumulationScheduler({0: 1, 1: 4})]},
    ],
    ids=["2", "4", "changes"],
)
def test_a_logged_loss_is_whole_under_accumulation(tmp_path, options):
    model = Logs()
    done = train(tmp_path, model, limit_train_batches=4, max_epochs=2, **options)
    assert model.metrics == model.seen
    seen = iter(model.seen)
    for update in done.updates:
        window = [next(seen) for _ in range(update.micro_batches)]
        mean = pytest.approx(sum(window) / len(window), rel=1e-6)
        assert (update.loss_terms, update.loss) == ({"raw": mean}, mean)
    assert done.found == {}


class KeepsGradients(Small):
    """Copies its gradients at every hook around the step; after the training they are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[str, list[Tensor | None]]] = []

    def keep(self, hook: str) -> None:
        copies = [None if p.grad is None else p.grad.clone() for p in self.parameters()]
        self.kept.append((hook, copies))

    def on_after_backward(self) -> None:
        self.keep("backward")

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.keep("complete")

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.keep("applied")

    def on_train_batch_end(self, *args: Any) -> None:
        self.keep("end")


def same_gradients(one: list[Tensor | None], other: list[Tensor | None]) -> bool:
    return all(
        a is b is None or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_clip_val": 0.5},
        {"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"},
    ],
    ids=["plain", "norm", "value"],
)
def test_gradients_are_the_same_at_every_hook_with_and_without_a_recorder(
    tmp_path, options, accumulate
):
    recorded, alone = KeepsGradients(), KeepsGradients()
    for model, callbacks in ((recorded, [record_everything(str(tmp_path))]), (alone, [])):
        trainer = make_trainer(callbacks, accumulate_grad_batches=accumulate, **options)
        trainer.fit(model, make_loader())
    assert [hook for hook, _ in recorded.kept] == [hook for hook, _ in alone.kept]
    assert {hook for hook, _ in alone.kept} == {"backward", "complete", "applied", "end"}
    assert any(one is not None for one in alone.kept[-1][1])
    for (_, one), (_, other) in zip(recorded.kept, alone.kept, strict=True):
        assert same_gradients(one, other)


# Clips ------------------------------------------------------------------------------------------


class Measures(Small):
    """Reads the norm as a clip without a limit returns it."""

    def __init__(self, measure: Any, *, infinite: int | None = None) -> None:
        super().__init__()
        self.measure, self.infinite = measure, infinite
        self.norms: list[float] = []

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        if self.trainer.global_step == self.infinite:
            self.net[0].weight.grad[0, 0] = torch.inf
        self.norms.append(float(self.measure(list(self.parameters()))))


def by_clip(parameters: list[Tensor]) -> Tensor:
    return clip_grad_norm_(parameters, torch.inf)


def by_norm(parameters: list[Tensor]) -> Tensor:
    return get_total_norm([p.grad for p in parameters if p.grad is not None])


@pytest.mark.parametrize("measure", [by_clip, by_norm])
@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_clip_without_a_limit_that_only_measures_is_no_clip(tmp_path, measure, limit):
    model = Measures(measure)
    done = train(tmp_path / "a", model, gradient_clip_val=limit)
    plain = train(tmp_path / "b", Small(), gradient_clip_val=limit)
    for one, other in zip(done.updates, plain.updates, strict=True):
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-6)
        assert one.grad_norm_clipped == pytest.approx(other.grad_norm_clipped, rel=1e-6)
        assert one.clipped is other.clipped is (limit is not None)
        if limit is None:
            assert one.clip_coefficient == other.clip_coefficient == 1.0
    assert done.found == plain.found == {}


@pytest.mark.parametrize("infinite", [1, 3])
def test_a_clip_without_a_limit_that_spoils_an_infinite_gradient_is_seen(tmp_path, infinite):
    done = train(tmp_path, Measures(by_clip, infinite=infinite))
    assert done.found["NONFINITE"] == "error"
    assert f"update {infinite + 1}" in done.measured("NONFINITE")
    assert len(done.updates) == BATCHES


@pytest.mark.parametrize("model", [Small, Logs])
def test_norms_by_layer_are_recorded_only_if_they_are_asked_for(tmp_path, model):
    done = train(tmp_path / "total", model())
    assert {update.layer_norms for update in done.updates} == {None}
    assert "layer_norms" not in done.recording.run.observes
    asked = train(tmp_path / "layers", model(), recorder={"layer_norms": True})
    names = [name for name, _ in Small().named_parameters()]
    for update, total in zip(asked.updates, done.updates, strict=True):
        assert list(update.layer_norms) == names
        assert update.grad_norm == total.grad_norm


# Averaged weights and resumes -------------------------------------------------------------------


def swa_states(recording: Recording) -> list[dict[str, Any]]:
    return [update.ema for update in recording.updates]


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
@pytest.mark.parametrize(("start", "save"), [(2, 17), (3, 17), (2, 19)])
def test_a_stochastic_average_goes_on_from_its_checkpoint(tmp_path, start, save):
    path, epochs = tmp_path / "run", {"max_epochs": 4}
    for name, more in (("whole", []), ("run", [Saves(tmp_path, save)])):
        average = StochasticWeightAveraging(0.05, start)
        lasting.train(recorder(tmp_path / name), average, *more, **epochs)
    average = StochasticWeightAveraging(0.05, start)
    lasting.train(recorder(path), average, resume=tmp_path / f"{save}.ckpt", **epochs)
    resumed, whole = (read_recording(tmp_path / name) for name in ("run", "whole"))
    assert resumed.runs[-1].attempt == 2
    assert swa_states(resumed) == swa_states(whole)
    assert found(path) == {"TG-RECORD-SWAPPED": "info"}


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
@pytest.mark.parametrize(("start", "save"), [(2, 12), (3, 13)])
def test_a_stochastic_schedule_that_a_resume_begins_again_is_told(tmp_path, start, save):
    path, epochs = tmp_path / "run", {"max_epochs": 4}
    average = StochasticWeightAveraging(0.05, start)
    lasting.train(recorder(path), average, Saves(tmp_path, save), **epochs)
    average = StochasticWeightAveraging(0.05, start)
    lasting.train(recorder(path), average, resume=tmp_path / f"{save}.ckpt", **epochs)
    (again,) = (one for one in judge_recording(iter_records(path)) if "REPEATED" in one.id)
    assert "update 16 in attempt 2: lr " in again.measured


class WithNorm(Small):
    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        if momentum != 0:
            self.net.append(nn.BatchNorm1d(1, momentum=momentum))


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
def test_statistics_that_an_epoch_renews_are_digested_on_both_sides_of_it(tmp_path, momentum):
    model, average = WithNorm(momentum), StochasticWeightAveraging(0.05, 2)
    lasting.train(recorder(tmp_path), average, model=model, max_epochs=3)
    names = [e.event for e in read_recording(tmp_path).events if e.event.startswith("batch_norm")]
    assert names == ["batch_norm_epoch", "batch_norm_epoch_end"]
    began, ended = (
        e.details["buffers"] for e in read_recording(tmp_path).events if e.event in names
    )
    assert began != ended
    assert model.net[-1].momentum == momentum
    assert int(model.net[-1].num_batches_tracked) == BATCHES


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
def test_without_batch_norms_no_epoch_renews_statistics(tmp_path):
    average = StochasticWeightAveraging(0.05, 2)
    lasting.train(recorder(tmp_path), average, model=WithNorm(0), max_epochs=3)
    recording = read_recording(tmp_path)
    assert [event.event for event in recording.events] == ["averaging", "scheduler_swapped"]
    assert len(recording.updates) == 3 * BATCHES


class Stops(Saves):
    """Saves as it is told to, and ends the training there."""

    def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        super().on_train_batch_end(trainer, *rest)
        trainer.should_stop |= self.done in self.batches


@pytest.mark.parametrize("limit", ["max_steps", "should_stop"])
@pytest.mark.parametrize("epochs", [1, 2])
@pytest.mark.parametrize("make", [GoesOn, make_loader])
def test_a_resume_from_where_the_steps_and_an_epoch_end_together_goes_on(
    tmp_path, epochs, limit, make
):
    path, steps = tmp_path / "run", epochs * BATCHES
    saves = (Saves if limit == "max_steps" else Stops)(tmp_path, steps)
    first = {"max_steps": steps, "max_epochs": -1} if limit == "max_steps" else {"max_epochs": 9}
    make_trainer([recorder(path), saves], **first).fit(Small(), make())
    more = {"max_steps": steps + BATCHES + 2, "max_epochs": -1}
    trainer = make_trainer([recorder(path)], **more)
    trainer.fit(Small(), make(), ckpt_path=tmp_path / f"{steps}.ckpt", weights_only=True)
    make_trainer([recorder(tmp_path / "whole")], **more).fit(Small(), make())
    resumed, whole = read_recording(path), read_recording(tmp_path / "whole")
    assert comparable(resumed.updates) == comparable(whole.updates)
    assert [u.total_batch_idx for u in resumed.updates] == list(range(steps + BATCHES + 2))
    assert (resumed.superseded, resumed.missing, found(path)) == ((), (), {})


# A schedule that is set back --------------------------------------------------------------------


class Rewinds(Small):
    """Its loss is infinite for some batches; ticks once more, from two before, after those."""

    def __init__(self, *batches: int, rewinds: bool = True) -> None:
        super().__init__()
        self.batches, self.rewinds = batches, rewinds

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch) * (torch.inf if batch_idx in self.batches else 1.0)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self.rewinds and batch_idx in self.batches:
            scheduler = self.lr_schedulers()
            scheduler.last_epoch -= 2
            scheduler.step()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step..` before")
@pytest.mark.parametrize("batches", [(1,), (2,), (3,), (1, 3), (2, 3)])
def test_a_tick_that_is_undone_after_a_skipped_step_is_found_wherever_it_is(tmp_path, batches):
    for name, rewinds in (("back", True), ("on", False)):
        scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
        plugin = MixedPrecision("16-mixed", device="cpu", scaler=scaler)
        model = Rewinds(*batches, rewinds=rewinds)
        done = train(tmp_path / name, model, max_epochs=2, plugins=[plugin])
        assert ("REWOUND" in done.found) is rewinds
        assert len(done.updates) == 2 * (BATCHES - len(batches))
        if rewinds:
            assert done.found["REWOUND"] == "warning"


# Lines ------------------------------------------------------------------------------------------


class Spoils(Small):
    """A loss that is no number, from one batch of the training on or in it only."""

    def __init__(self, value: float, *, at: int, constant: bool) -> None:
        super().__init__()
        self.value, self.at, self.constant = value, at, constant

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("term", loss * (self.value if batch_idx == self.at else 1))
        if batch_idx != self.at:
            return loss
        return loss + self.value if self.constant else loss * self.value


VALUES = [(torch.nan, "NaN"), (torch.inf, "Infinity"), (-torch.inf, "-Infinity")]


@pytest.mark.parametrize(("value", "name"), VALUES, ids=[name for _, name in VALUES])
@pytest.mark.parametrize("at", [1, 3])
def test_a_training_that_ends_in_no_numbers_is_recorded_in_strict_json(tmp_path, value, name, at):
    done = train(tmp_path, Spoils(value, at=at, constant=False))
    lines = [line for line in lines_of(tmp_path) if line["kind"] == "update"]
    assert len(lines) == len(done.updates) == BATCHES
    assert (lines[at]["loss"], lines[at]["loss_terms"]) == (name, {"term": name})
    assert str(done.updates[at].loss) == str(value)
    assert [isinstance(line["loss"], float) for line in lines[:at]] == [True] * at
    assert done.found["NONFINITE"] == "error"
    assert f"update {at + 1}" in done.measured("NONFINITE")


@pytest.mark.parametrize(("value", "name"), VALUES, ids=[name for _, name in VALUES])
def test_a_loss_that_is_no_number_and_harms_nothing_is_a_warning(tmp_path, value, name):
    done = train(tmp_path, Spoils(value, at=2, constant=True))
    lines = [line for line in lines_of(tmp_path) if line["kind"] == "update"]
    assert [line["loss"] == name for line in lines] == [n == 2 for n in range(BATCHES)]
    assert done.found == {"NONFINITE-LOSS": "warning"}


class LogsLater(Small):
    """Has one more term in its second epoch, and another one at an update of it."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self.late = late

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.log("always", loss)
        if self.late and self.current_epoch == 1:
            self.log("late", 2 * loss)
            if batch_idx == 3:
                self.log("once", 3 * loss)
        return loss


class Copies(pl.Callback):
    """The file's content after each batch."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.contents: list[bytes] = []

    def on_train_batch_end(self, *args: Any) -> None:
        self.contents.append(self.file.read_bytes())


@pytest.mark.parametrize("late", [True, False])
def test_a_term_that_comes_later_rewrites_no_line_before_it(tmp_path, late):
    copies = Copies(tmp_path / "updates.rank0.jsonl")
    done = train(tmp_path, LogsLater(late=late), callbacks=[copies], max_epochs=2)
    assert len(copies.contents) == 2 * BATCHES
    for before, after in zip(copies.contents, copies.contents[1:], strict=False):
        assert after.startswith(before) and len(after) > len(before)
    terms = [sorted(update.loss_terms) for update in done.updates]
    more = [["always", "late"]] * 3 + [["always", "late", "once"], ["always", "late"]]
    assert terms == [["always"]] * BATCHES + (more if late else [["always"]] * BATCHES)


class Closes(Small):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=3)


class LeavesOut(Small):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if batch_idx == 2 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
def test_lines_of_every_loop_have_the_same_fields(tmp_path):
    models = {
        "plain": Small(),
        "terms": LogsLater(late=True),
        "closures": Closes(),
        "several": Gan(),
        "left out": LeavesOut(),
        "no numbers": Spoils(torch.nan, at=1, constant=False),
    }
    fields: dict[str, set[tuple[str, ...]]] = {}
    for name, model in models.items():
        train(tmp_path / name, model)
        for line in lines_of(tmp_path / name):
            fields.setdefault(line["kind"], set()).add(tuple(line))
    assert {kind: len(each) for kind, each in fields.items()} == {"run": 1, "update": 1, "end": 1}

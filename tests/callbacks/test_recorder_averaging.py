"""Averaged weights in a recording: how often, how far from the live ones, and what is saved."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

from tests.callbacks.lasting import GoesOn, Saves, comparable, recorder, train
from tests.callbacks.small import BATCHES, Small, make_loader, make_trainer, norm_of
from traingen.judge import judge_recording
from traingen.observe.averaging import describe_averaging, find_averaged
from traingen.observe.moments import digest_parameters
from traingen.records import (
    EventRecord,
    Recording,
    SchedulerState,
    iter_records,
    read_recording,
)

UPDATES = 2 * BATCHES

Weights = list[Tensor]


def found(path: Path) -> dict[str, str]:
    """What the recording shows by itself: severities by id."""
    return {finding.id: finding.severity for finding in judge_recording(iter_records(path))}


def events(recording: Recording, name: str) -> list[EventRecord]:
    return [event for event in recording.events if event.event == name]


class Keeps(pl.Callback):
    """The live weights after each update."""

    def __init__(self) -> None:
        self.weights: list[Weights] = []

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *rest: Any
    ) -> None:
        self.weights.append([p.detach().clone() for p in pl_module.parameters()])


def distance(a: Weights, b: Weights) -> float:
    return norm_of(one.double() - other.double() for one, other in zip(a, b, strict=True))


def moving_average(weights: list[Weights], *, decay: float, every: int) -> list[float]:
    """Its distance from the live weights after each update, the first of which it copies."""
    average: Weights = []
    distances = []
    for step, live in enumerate(weights):
        if not average:
            average = [p.clone() for p in live]
        elif step % every == 0:
            average = [decay * a + (1 - decay) * p for a, p in zip(average, live, strict=True)]
        distances.append(distance(average, live))
    return distances


# A moving average -----------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
@pytest.mark.parametrize(("decay", "every"), [(0.9, 1), (0.5, 1), (0.75, 2), (0.9, 3)])
def test_count_and_distance_are_those_of_the_average_at_begin(tmp_path, decay, every, first):
    keeps, average = Keeps(), EMAWeightAveraging(decay=decay, update_every_n_steps=every)
    callbacks = [recorder(tmp_path), average]
    train(keeps, *(callbacks if first else reversed(callbacks)))
    recording = read_recording(tmp_path)
    states = [update.ema for update in recording.updates]
    assert [state["updates"] for state in states] == [-(-n // every) for n in range(UPDATES)]
    assert {state["decay"] for state in states} == {decay}
    path = "lightning.pytorch.callbacks.weight_averaging.EMAWeightAveraging"
    assert {state["class_path"] for state in states} == {path}
    expected = moving_average(keeps.weights, decay=decay, every=every)[:-1]
    assert [state["distance"] for state in states] == pytest.approx([0.0, *expected], rel=1e-5)
    (announced,) = events(recording, "averaging")
    assert announced.update == 0
    assert announced.details == {
        "class_path": path, "decay": decay, "every": every, "starts": None,
        "device": "cpu", "model_device": "cpu",
    }  # fmt: skip
    assert found(tmp_path) == {}


def test_without_averaged_weights_nothing_is_said_of_them(tmp_path):
    train(recorder(tmp_path))
    recording = read_recording(tmp_path)
    assert {update.ema for update in recording.updates} == {None}
    assert "ema" in recording.run.observes  # it looked: there are none
    assert events(recording, "averaging") == []


def test_validation_with_the_averaged_weights_moves_no_distance(tmp_path):
    class Validates(Small):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.loss(batch)

    for name, model in (("plain", Small()), ("validated", Validates())):
        trainer = make_trainer(
            [recorder(tmp_path / name), EMAWeightAveraging(decay=0.5)], val_check_interval=2
        )
        loaders = [make_loader()] if name == "validated" else []
        trainer.fit(model, make_loader(), *loaders)
    plain, validated = (read_recording(tmp_path / name) for name in ("plain", "validated"))
    assert [u.ema for u in plain.updates] == [u.ema for u in validated.updates]
    assert len(events(validated, "validation")) == 4


def test_a_run_with_an_average_goes_on_after_a_resume(tmp_path):
    path = tmp_path / "run"
    train(recorder(path), EMAWeightAveraging(decay=0.5), Saves(tmp_path, 3))
    train(recorder(path), EMAWeightAveraging(decay=0.5), resume=tmp_path / "3.ckpt")
    train(recorder(tmp_path / "whole"), EMAWeightAveraging(decay=0.5))
    whole, recording = read_recording(tmp_path / "whole"), read_recording(path)
    assert comparable(recording.updates) == comparable(whole.updates)
    assert [u.ema["updates"] for u in recording.updates] == list(range(UPDATES))
    assert found(path) == {}


class Owned(Small):
    """Keeps an average by itself, as plain torch code does."""

    def __init__(self) -> None:
        super().__init__()
        self.average = AveragedModel(self.net, avg_fn=get_ema_avg_fn(0.5))

    def on_train_batch_end(self, *rest: Any) -> None:
        self.average.update_parameters(self.net)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.net.parameters(), 0.1)


def test_an_average_inside_of_the_module_is_recorded_too(tmp_path):
    train(recorder(tmp_path), model=Owned())
    states = [update.ema for update in read_recording(tmp_path).updates]
    assert [state["updates"] for state in states] == list(range(UPDATES))
    assert {(state["class_path"], state["decay"]) for state in states} == {
        ("torch.optim.swa_utils.AveragedModel", 0.5)
    }
    assert [state["distance"] > 0 for state in states] == [False, False, *[True] * (UPDATES - 2)]
    assert found(tmp_path) == {}


# https://github.com/Lightning-AI/pytorch-lightning/pull/21260: it goes by global_step, which
# counts the steps of all optimizers


class Pair(Small):
    """Several optimizers that all step on every batch."""

    def __init__(self, optimizers: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layers = nn.ModuleList(nn.Linear(3, 1) for _ in range(optimizers))

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        optimizers = self.optimizers()
        several = optimizers if isinstance(optimizers, list) else [optimizers]
        for layer, optimizer in zip(self.layers, several, strict=True):
            optimizer.zero_grad()
            self.manual_backward((layer(batch[0]) - batch[1]).square().mean())
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters(), 0.01) for layer in self.layers], []


@pytest.mark.parametrize(("optimizers", "every"), [(2, 2), (2, 4), (4, 2), (3, 3)])
def test_an_average_that_several_optimizers_keep_from_its_step_is_an_error(
    tmp_path, optimizers, every
):
    average = EMAWeightAveraging(update_every_n_steps=every)
    train(recorder(tmp_path), average, model=Pair(optimizers))
    recording = read_recording(tmp_path)
    assert len(recording.updates) == optimizers * UPDATES
    assert {update.ema["updates"] for update in recording.updates} == {0}
    assert found(tmp_path)["TG-RECORD-EMA-NEVER"] == "error"


@pytest.mark.parametrize(("optimizers", "every"), [(1, 2), (1, 4), (2, 1), (2, 3), (4, 1)])
def test_an_average_that_is_updated_is_silent(tmp_path, optimizers, every):
    average = EMAWeightAveraging(update_every_n_steps=every)
    train(recorder(tmp_path), average, model=Pair(optimizers))
    assert read_recording(tmp_path).updates[-1].ema["updates"] > 0
    assert not any(name.startswith("TG-RECORD-EMA") for name in found(tmp_path))


def test_an_average_that_starts_later_is_silent(tmp_path):
    average = EMAWeightAveraging(update_starting_at_step=7)
    train(recorder(tmp_path), average)
    recording = read_recording(tmp_path)
    assert [update.ema["updates"] for update in recording.updates] == [0] * 8 + [1, 2]
    assert events(recording, "averaging")[0].details["starts"] == 7
    assert found(tmp_path) == {}


# https://github.com/ecmwf/anemoi-core/pull/1373: settings that nothing reads


class Ignores(EMAWeightAveraging):
    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None


def test_an_average_that_ignores_its_pace_is_an_error(tmp_path):
    train(recorder(tmp_path), Ignores(update_every_n_steps=5), max_epochs=4)
    assert found(tmp_path) == {"TG-RECORD-EMA-CADENCE": "error"}
    train(recorder(tmp_path / "as-asked"), EMAWeightAveraging(update_every_n_steps=5), max_epochs=4)
    assert found(tmp_path / "as-asked") == {}


# An average that counts steps which a scaler skipped


class Overflows(Small):
    """The gradients of some batches are infinite."""

    def __init__(self, *batches: int) -> None:
        super().__init__()
        self.batches = batches

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> Tensor:
        return self.loss(batch) * (float("inf") if batch_idx in self.batches else 1.0)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def scaled() -> list[MixedPrecision]:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    return [MixedPrecision("16-mixed", device="cpu", scaler=scaler)]


@pytest.mark.parametrize("batches", [(1,), (0, 2, 3)])
def test_averagings_on_skipped_steps_are_a_warning(tmp_path, batches):
    train(recorder(tmp_path), EMAWeightAveraging(), model=Overflows(*batches), plugins=scaled())
    recording = read_recording(tmp_path)
    assert len(recording.updates) == 2 * (BATCHES - len(batches))
    last = recording.updates[-1]
    assert last.ema["updates"] == UPDATES - 1 > last.update - 1
    assert found(tmp_path)["TG-RECORD-EMA-SKIPPED"] == "warning"


def test_an_average_without_skipped_steps_is_silent(tmp_path):
    train(recorder(tmp_path), EMAWeightAveraging(), model=Overflows(), plugins=scaled())
    assert len(read_recording(tmp_path).updates) == UPDATES
    assert found(tmp_path) == {}


# https://github.com/mllam/neural-lam/pull/739: an average that stays on the CPU after a resume


def test_an_average_on_another_device_is_a_warning(tmp_path):
    train(recorder(tmp_path), EMAWeightAveraging(), max_epochs=1)
    assert found(tmp_path) == {}
    elsewhere = AveragedModel(Small().to("meta"))
    averaged = find_averaged([elsewhere])
    assert averaged is not None
    details = describe_averaging(averaged, Small())
    assert (details["device"], details["model_device"]) == ("meta", "cpu")
    records = [
        EventRecord(event="averaging", update=0, details=details)
        if isinstance(record, EventRecord) and record.event == "averaging"
        else record
        for record in iter_records(tmp_path)
    ]
    assert [finding.id for finding in judge_recording(records)] == ["TG-RECORD-EMA-DEVICE"]


# Stochastic weight averaging, https://github.com/Lightning-AI/pytorch-lightning/issues/6963


def average_over_epochs(epochs: list[Weights], begins: list[Weights]) -> list[float]:
    """The distance of the plain mean of `epochs` from each of `begins`."""
    mean = [torch.stack(several).mean(0) for several in zip(*epochs, strict=True)]
    return [distance(mean, live) for live in begins]


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
@pytest.mark.parametrize("start", [2, 3])
def test_stochastic_averaging_swaps_the_schedule_and_averages_once_per_epoch(tmp_path, start):
    keeps, epochs = Keeps(), 4
    train(recorder(tmp_path), StochasticWeightAveraging(0.05, start), keeps, max_epochs=epochs)
    recording, before = read_recording(tmp_path), (start - 1) * BATCHES
    (swapped,) = events(recording, "scheduler_swapped")
    assert swapped.update == before
    assert swapped.details == {
        "id": 1,
        "before": "torch.optim.lr_scheduler.LambdaLR",
        "after": "torch.optim.swa_utils.SWALR",
        "by": "lightning.pytorch.callbacks.stochastic_weight_avg.StochasticWeightAveraging",
    }
    assert [one.scheduler for one in recording.updates[:before]] == [
        [SchedulerState(id=0, last_epoch=n, ticks=n)] for n in range(before)
    ]
    after = [one.scheduler for one in recording.updates[before:]]
    assert {state.id for states in after for state in states} == {1}
    assert [states[0].ticks for states in after[::BATCHES]] == list(range(epochs - start + 1))
    counts = [one.ema["updates"] for one in recording.updates]
    expected = [max(n // BATCHES - start + 2, 0) for n in range(epochs * BATCHES)]
    assert counts == expected
    weights = keeps.weights  # after each update; the average takes those at an epoch's start
    starts = [weights[n * BATCHES - 1] for n in range(start - 1, epochs)]
    for number in range(len(starts)):
        first = before + number * BATCHES
        found_here = [u.ema["distance"] for u in recording.updates[first : first + BATCHES]]
        live = weights[first - 1 : first - 1 + BATCHES]
        by_hand = average_over_epochs(starts[: number + 1], live)
        assert found_here == pytest.approx(by_hand, rel=1e-5, abs=1e-7)
    assert found(tmp_path) == {"TG-RECORD-SWAPPED": "info"}


class Normed(Small):
    def __init__(self) -> None:
        super().__init__()
        self.net.append(nn.BatchNorm1d(1))


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
def test_the_epoch_that_renews_batch_statistics_ends_in_one_more_update(tmp_path):
    # Lightning runs no backward in it, and yet steps at its end with the gradients that are left
    # from the last epoch: the averaged weights, which it has put into the model, move once more.
    model, average = Normed(), StochasticWeightAveraging(0.05, 2)
    train(recorder(tmp_path), average, model=model, max_epochs=3)
    recording = read_recording(tmp_path)
    *_, before, last = recording.updates
    assert (len(recording.updates), last.epoch, last.micro_batches) == (3 * BATCHES + 1, 3, BATCHES)
    assert (last.objective, last.grad_norm) == (None, before.grad_norm_clipped)
    assert last.ema["distance"] == 0
    copy, live = (list(one.parameters()) for one in (average._average_model, model))
    assert distance(copy, live) > 0
    assert recording.end.reason == "finished"
    assert found(tmp_path) == {
        "TG-RECORD-SWAPPED": "info", "TG-RECORD-AVERAGE-MOVED": "warning",
    }  # fmt: skip
    began, ended = (
        events(recording, name)[0].details["buffers"]
        for name in ("batch_norm_epoch", "batch_norm_epoch_end")
    )
    assert began == digest_parameters(nn.BatchNorm1d(1).buffers())  # as a new one has them
    assert ended == digest_parameters(model.buffers()) != began


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
def test_a_resume_after_the_swap_knows_the_new_schedule(tmp_path):
    path = tmp_path / "run"
    train(recorder(path), StochasticWeightAveraging(0.05, 2), Saves(tmp_path, 12), max_epochs=4)
    train(
        recorder(path), StochasticWeightAveraging(0.05, 2), resume=tmp_path / "12.ckpt",
        max_epochs=4,
    )  # fmt: skip
    recording = read_recording(path)
    assert [update.update for update in recording.updates] == list(range(1, 4 * BATCHES + 1))
    assert {"error"} & set(found(path).values()) == set()


@pytest.mark.filterwarnings("ignore:SWA is currently only supported every epoch")
def test_a_schedule_that_nobody_announced_is_an_error(tmp_path):
    class Swaps(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, *rest: Any) -> None:
            if trainer.current_epoch == 1:
                other = torch.optim.lr_scheduler.StepLR(trainer.optimizers[0], 1)
                trainer.lr_scheduler_configs[0].scheduler = other

    train(recorder(tmp_path), Swaps())
    assert events(read_recording(tmp_path), "scheduler_swapped")[0].details["by"] is None
    assert found(tmp_path)["TG-RECORD-REPLACED"] == "error"


# What a checkpoint holds ----------------------------------------------------------------------


def digests_of(state: dict[str, Tensor], module: pl.LightningModule) -> list[str]:
    return [digest_parameters(state[name] for name, _ in module.named_parameters())]


@pytest.mark.parametrize("first", [True, False], ids=["before", "behind"])
def test_both_copies_in_a_checkpoint_are_digested(tmp_path, first):
    model, average = Small(), EMAWeightAveraging(decay=0.5)
    callbacks = [recorder(tmp_path / "run", digest_parameters=True), average]
    train(*(callbacks if first else reversed(callbacks)), Saves(tmp_path, 4), model=model)
    recording = read_recording(tmp_path / "run")
    (saved,) = events(recording, "checkpoint")
    checkpoint = torch.load(tmp_path / "4.ckpt", weights_only=True)
    assert saved.details["parameters"] == digests_of(checkpoint["current_model_state"], model)
    assert saved.details["averaged"] == digests_of(checkpoint["state_dict"], model)
    assert saved.details["parameters"] == [recording.updates[3].parameters]
    assert saved.details["parameters"] != saved.details["averaged"]
    assert (saved.update, saved.details["updates"], saved.details["global_step"]) == (4, [4], 4)


def test_a_checkpoint_without_an_average_holds_the_live_weights(tmp_path):
    model = Small()
    train(recorder(tmp_path / "run", digest_parameters=True), Saves(tmp_path, 2, 7), model=model)
    recording = read_recording(tmp_path / "run")
    for saved, after in zip(events(recording, "checkpoint"), (2, 7), strict=True):
        checkpoint = torch.load(tmp_path / f"{after}.ckpt", weights_only=True)
        assert saved.details["parameters"] == digests_of(checkpoint["state_dict"], model)
        assert saved.details["parameters"] == [recording.updates[after - 1].parameters]
        assert saved.details["averaged"] is None


def test_stochastic_averaging_saves_its_average_elsewhere(tmp_path):
    model = Small(interval="epoch")
    average = StochasticWeightAveraging(0.05, 1)
    train(
        recorder(tmp_path / "run", digest_parameters=True), average, Saves(tmp_path, 7), model=model
    )
    recording = read_recording(tmp_path / "run")
    (saved,) = events(recording, "checkpoint")
    assert saved.details["parameters"] == [recording.updates[6].parameters]
    assert saved.details["averaged"] is None


def test_without_the_option_nothing_is_digested(tmp_path):
    train(recorder(tmp_path / "run"), EMAWeightAveraging(), Saves(tmp_path, 2))
    (saved,) = events(read_recording(tmp_path / "run"), "checkpoint")
    assert (saved.details["parameters"], saved.details["averaged"]) == (None, None)


# https://github.com/Lightning-AI/pytorch-lightning/issues/20947: which side of the update is saved


class ByHand(Small):
    """Steps by hand; `keeps` its weights before each step as Lightning's own test does."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.layer, self.net = self.net, nn.Identity()
        self.keeps = keeps
        self.saved_models: dict[int, dict[str, Tensor]] = {}

    def training_step(self, batch: Sequence[Tensor], batch_idx: int) -> None:
        optimizer = self.optimizers()
        if self.keeps:
            state = {name: value.clone() for name, value in self.layer.state_dict().items()}
            self.saved_models[batch_idx] = state
        optimizer.zero_grad()
        self.manual_backward((self.layer(batch[0]) - batch[1]).square().mean())
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.layer.parameters(), 0.1)


@pytest.mark.parametrize(("keeps", "behind"), [(False, 0), (True, 1)])
@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
def test_it_is_seen_whether_a_checkpoint_holds_the_weights_before_or_after_the_update(
    tmp_path, keeps, behind
):
    saves = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=2, save_top_k=-1)
    recorded = recorder(tmp_path / "run", digest_parameters=True)
    train(recorded, saves, model=ByHand(keeps=keeps), enable_checkpointing=True, max_epochs=1)
    recording = read_recording(tmp_path / "run")
    held = [event.details["parameters"] for event in events(recording, "checkpoint")]
    after = [update.parameters for update in recording.updates]
    assert held == [[after[1 - behind]], [after[3 - behind]]]


def test_a_module_that_saves_only_a_part_of_itself_can_be_saved(tmp_path):
    class Adapter(Small):
        def state_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
            whole = super().state_dict(*args, **options)
            return {name: value for name, value in whole.items() if "bias" in name}

    train(recorder(tmp_path / "run", digest_parameters=True), Saves(tmp_path, 2), model=Adapter())
    recording = read_recording(tmp_path / "run")
    assert events(recording, "checkpoint")[0].details["parameters"] is None
    assert recording.end.reason == "finished"


# Fitted again ----------------------------------------------------------------------------------


def test_another_fit_with_an_average_goes_on(tmp_path):
    model = Small()
    trainer = make_trainer([recorder(tmp_path), EMAWeightAveraging(decay=0.5)], max_epochs=1)
    trainer.fit(model, GoesOn())
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, GoesOn())
    recording = read_recording(tmp_path)
    assert [update.update for update in recording.updates] == list(range(1, UPDATES + 1))
    assert [event.update for event in events(recording, "averaging")] == [0, BATCHES]
    assert {"error"} & set(found(tmp_path).values()) == set()

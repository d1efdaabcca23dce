"""Averaged weights are found by what they hold, and measured against the live ones."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    EMAWeightAveraging,
    StochasticWeightAveraging,
    WeightAveraging,
)
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from traingen.observe.averaging import (
    Averaged,
    describe_averaging,
    find_averaged,
    read_averaging,
)
from traingen.observe.norms import LARGE


class Net(nn.Sequential):
    def __init__(self, width: int = 4) -> None:
        super().__init__(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2))


class ModelEmaV2(nn.Module):
    """As timm's: the copy is `module`."""

    def __init__(self, model: nn.Module, decay: float = 0.9) -> None:
        super().__init__()
        self.module = copy.deepcopy(model)
        self.decay = decay

    def update(self, model: nn.Module) -> None:
        for mine, theirs in zip(self.module.parameters(), model.parameters(), strict=True):
            mine.data.lerp_(theirs.data, 1 - self.decay)


class EMA(nn.Module):
    """As ema-pytorch's: the copy is `ema_model`, the model itself hides in a list."""

    def __init__(self, model: nn.Module, beta: float = 0.99, update_every: int = 10) -> None:
        super().__init__()
        self.online_model = [model]
        self.ema_model = copy.deepcopy(model)
        self.beta, self.update_every, self.update_after_step = beta, update_every, 100

    def update(self) -> None:
        """Not needed here."""


def move(model: nn.Module, *, by: float) -> int:
    """Add `by` to every parameter; how many elements that were."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += by
    return sum(p.numel() for p in model.parameters())


def found(*candidates: object) -> Averaged:
    averaged = find_averaged(candidates)
    assert averaged is not None
    return averaged


def test_the_distance_is_that_of_all_parameters_together():
    net = Net()
    average = found(AveragedModel(net))
    assert read_averaging(average, net)["distance"] == 0.0
    count = move(net, by=0.25)
    assert read_averaging(average, net)["distance"] == pytest.approx(0.25 * math.sqrt(count))


@pytest.mark.parametrize(
    ("average", "decay"),
    [
        ({"avg_fn": get_ema_avg_fn(0.95)}, 0.95),
        ({"multi_avg_fn": get_ema_multi_avg_fn(0.9)}, 0.9),
        ({"avg_fn": functools.partial(lambda a, p, n, decay: a, decay=0.5)}, 0.5),
        ({"avg_fn": lambda a, p, n: a}, None),
        ({}, None),
    ],
)
def test_of_torchs_averaged_model_decay_and_count_are_read(average: Any, decay: float | None):
    net = Net()
    model = AveragedModel(net, **average)
    for _ in range(3):
        model.update_parameters(net)
    assert read_averaging(found(model), net) == {
        "class_path": "torch.optim.swa_utils.AveragedModel",
        "decay": decay,
        "updates": 3,
        "distance": pytest.approx(0.0, abs=1e-6),
    }


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Watch(pl.Callback):
    """Reads the averaged weights at the beginning of every batch."""

    def __init__(self) -> None:
        self.described: dict[str, Any] = {}
        self.read: list[dict[str, Any]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        averaged = found(*trainer.callbacks, *pl_module.modules())
        self.described = describe_averaging(averaged, pl_module)
        self.read.append(read_averaging(averaged, pl_module))


def train(callback: pl.Callback, *, epochs: int = 1) -> Watch:
    watch = Watch()
    torch.manual_seed(1)
    data = DataLoader(TensorDataset(torch.randn(12, 3)), batch_size=3)
    pl.Trainer(
        max_epochs=epochs, accelerator="cpu", callbacks=[watch, callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(Module(), data)  # fmt: skip
    return watch


def test_lightnings_moving_average_tells_how_often_and_from_when():
    watch = train(EMAWeightAveraging(decay=0.75, update_every_n_steps=2, update_starting_at_step=2))
    assert watch.described == {
        "class_path": "lightning.pytorch.callbacks.weight_averaging.EMAWeightAveraging",
        "decay": 0.75, "every": 2, "starts": 2, "device": "cpu", "model_device": "cpu",
    }  # fmt: skip
    assert [one["updates"] for one in watch.read] == [0, 0, 0, 1]
    assert [one["distance"] > 0 for one in watch.read] == [False, True, True, False]
    assert {one["decay"] for one in watch.read} == {0.75}


def test_lightnings_plain_average_is_updated_at_every_step_unless_it_says_otherwise():
    class Rarely(WeightAveraging):
        def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
            return step_idx == 1

    plain, rare = train(WeightAveraging()), train(Rarely())
    assert (plain.described["every"], rare.described["every"]) == (1, None)
    assert plain.described["decay"] is None
    assert [one["updates"] for one in plain.read] == [0, 1, 2, 3]
    assert [one["updates"] for one in rare.read] == [0, 0, 1, 1]


def test_lightnings_stochastic_average_counts_epochs_from_its_start():
    watch = train(StochasticWeightAveraging(0.1, swa_epoch_start=2), epochs=3)
    assert watch.described["class_path"].endswith("StochasticWeightAveraging")
    assert (watch.described["every"], watch.described["starts"]) == (None, None)
    assert [one["updates"] for one in watch.read[::4]][:3] == [0, 1, 2]
    assert all(one["distance"] is not None for one in watch.read)


@pytest.mark.parametrize("wrap", [ModelEmaV2, EMA])
def test_an_ema_wrapper_is_known_by_its_looks(wrap: Any):
    net = Net()
    average = found(wrap(net))
    move(net, by=1.0)
    read = read_averaging(average, net)
    assert (read["decay"], read["updates"]) == (
        {"ModelEmaV2": 0.9, "EMA": 0.99}[wrap.__name__],
        None,
    )
    assert read["distance"] > 1


def test_of_a_wrapper_every_and_starts_are_its_own_steps():
    described = describe_averaging(found(EMA(Net())), Net())
    assert (described["every"], described["starts"]) == (10, 100)
    assert describe_averaging(found(ModelEmaV2(Net())), Net())["every"] is None


def test_an_average_inside_of_the_trained_module_is_matched_to_its_own_part():
    whole = nn.ModuleDict({"encoder": Net(4), "decoder": Net(5)})
    whole["average"] = AveragedModel(whole["decoder"])
    average = found(*whole.modules())
    move(whole["encoder"], by=1.0)
    assert read_averaging(average, whole)["distance"] == 0.0
    count = move(whole["decoder"], by=1.0)
    assert read_averaging(average, whole)["distance"] == pytest.approx(math.sqrt(count))


def test_an_average_held_by_a_callback_under_any_name_is_found():
    class Mine:
        def __init__(self, model: nn.Module) -> None:
            self.anything = AveragedModel(model)

    net = Net()
    assert found(object(), Mine(net)).copy is not None
    assert read_averaging(found(Mine(net)), net)["distance"] == 0.0


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("hide", [torch.compile, nn.DataParallel], ids=["compile", "parallel"])
def test_wrappers_around_either_side_do_not_hide_the_names(hide: Any):
    net = Net()
    wrapped = hide(net)
    holder = nn.ModuleDict({"net": wrapped})
    average = AveragedModel(net)
    count = move(net, by=1.0)
    distance = pytest.approx(math.sqrt(count))
    assert read_averaging(found(average), wrapped)["distance"] == distance
    assert read_averaging(found(average), holder)["distance"] == distance


def test_two_equal_networks_cannot_be_told_apart_and_nothing_is_guessed():
    twins = nn.ModuleDict({"a": Net(), "b": Net()})
    average = found(AveragedModel(twins["a"]))
    assert read_averaging(average, twins)["distance"] is None
    assert read_averaging(average, twins["a"])["distance"] == 0.0


@pytest.mark.parametrize("other", [Net(5), nn.Linear(3, 4), nn.Identity()])
def test_weights_of_another_model_have_no_distance(other: nn.Module):
    assert read_averaging(found(AveragedModel(Net())), other)["distance"] is None


def test_a_parameter_that_was_replaced_is_looked_up_anew():
    net = Net()
    average = found(AveragedModel(net))
    assert read_averaging(average, net)["distance"] == 0.0
    net[0] = nn.Linear(3, 4)
    nn.init.zeros_(net[2].weight)
    expected = math.sqrt(
        sum(
            float((a - b).detach().double().square().sum())
            for a, b in zip(average.copy.parameters(), net.parameters(), strict=True)
        )
    )
    assert read_averaging(average, net)["distance"] == pytest.approx(expected, rel=1e-6)
    del net[2]
    assert read_averaging(average, net)["distance"] is None


def test_a_network_that_moved_within_its_module_is_matched_anew():
    whole = nn.ModuleDict({"net": Net()})
    average = found(AveragedModel(whole["net"]))
    assert read_averaging(average, whole)["distance"] == 0.0
    whole["moved"] = whole.pop("net")
    assert read_averaging(average, whole)["distance"] == 0.0


def test_another_copy_of_the_same_owner_is_matched_anew():
    net, other = Net(), Net()
    callback = WeightAveraging()
    callback._average_model = AveragedModel(net)
    average = found(callback)
    assert read_averaging(average, net)["distance"] == 0.0
    callback._average_model = AveragedModel(other)
    assert read_averaging(average, net)["distance"] > 0
    callback._average_model = None
    assert read_averaging(average, net)["distance"] is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_small_distances_of_large_weights_are_not_rounded_away(dtype: torch.dtype):
    step = float(torch.finfo(dtype).eps)
    net = nn.Linear(LARGE // 4, 8, dtype=dtype)
    nn.init.ones_(net.weight)
    average = found(AveragedModel(net))
    with torch.no_grad():
        net.weight += step
    distance = read_averaging(average, net)["distance"]
    assert distance == pytest.approx(step * math.sqrt(net.weight.numel()), rel=1e-6)


def test_a_wider_copy_of_half_weights_is_compared_as_it_is():
    net = nn.Linear(4, 4, dtype=torch.bfloat16)
    model = AveragedModel(net).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 2.0**-20
    distance = read_averaging(found(model), net)["distance"]
    assert distance == pytest.approx(2.0**-20 * math.sqrt(20), rel=0.05)


class EMATrainer(nn.Module):
    """Trains `module`, and has a `decay` for something else."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self.decay = Net(), 0.9


class SemanticScheduler(ModelEmaV2):
    """Has all a wrapper has but for the name."""


@pytest.mark.parametrize(
    "other",
    [
        Net(), EMATrainer(), SemanticScheduler(Net()), object(), nn.DataParallel(Net()),
        ModelEmaV2(Net(), decay=5.0), ModelEmaV2(Net(), decay=True), WeightAveraging(),
    ],
    ids=lambda other: type(other).__name__,
)  # fmt: skip
def test_what_only_resembles_an_average_is_none(other: object):
    assert find_averaged([other]) is None
    assert find_averaged([]) is None


def test_reading_runs_no_property_and_changes_nothing():
    class Loud:
        @property
        def _average_model(self) -> nn.Module:
            raise AssertionError("a property was run")

    net = Net()
    model = AveragedModel(net, avg_fn=get_ema_avg_fn(0.9))
    model.update_parameters(net)
    move(net, by=1.0)
    tensors = [*net.state_dict().values(), *model.state_dict().values()]
    before = [one.clone() for one in tensors]
    state, versions = torch.get_rng_state(), [one._version for one in tensors]
    average = found(Loud(), model)
    read_averaging(average, net)
    describe_averaging(average, net)
    assert torch.equal(torch.get_rng_state(), state)
    assert [one._version for one in tensors] == versions
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    assert all(p.grad is None for p in net.parameters())

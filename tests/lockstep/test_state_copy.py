"""Training state copied from one system into another: all that moves, nothing shared."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from traingen.errors import ConfigError, SystemFailed
from traingen.lockstep.name_map import NameMap, ResolvedMap
from traingen.lockstep.state_copy import (
    Synchronizer,
    check_independent,
    copy_weights,
    named_tensors,
)
from traingen.observe.live import LiveState, read_live_state

SAME = NameMap()
MAKERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
}


def make_network(scale: float = 1.0) -> nn.Sequential:
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(scale)
    return network


class Fake:
    """As much of a system as a synchronizer asks for."""

    def __init__(self, optimizer: str = "adam", *, scale: float = 1.0) -> None:
        self.module = make_network(scale)
        self.optimizer = MAKERS[optimizer](self.module.parameters())
        self.schedulers: list[LRScheduler] = []

    def train(self, size: float) -> None:
        self.optimizer.zero_grad()
        x = torch.linspace(-1, 1, 8).reshape(4, 2) * size
        (self.module(x) * torch.tensor([1.0, 2.0, 3.0])).square().sum().backward()
        self.optimizer.step()

    def live(self) -> LiveState:
        return read_live_state(self.module, self.optimizer, clip_coefficient=1.0)


def names_of(original: Fake, package: Fake) -> ResolvedMap:
    return SAME.resolve(named_tensors(original.module), named_tensors(package.module))


def synchronizer(original: Any, package: Any) -> Synchronizer:
    return Synchronizer(original, package, names_of(original, package))


def contents(live: LiveState) -> dict[str, Any]:
    found: dict[str, Any] = {n: t.tolist() for n, t in (live.parameters | live.buffers).items()}
    for name, state in live.optimizer_state.items():
        found |= {
            f"{key}.{name}": v.tolist() if torch.is_tensor(v) else v for key, v in state.items()
        }
    return found


# ---- weights ------------------------------------------------------------------------------------


def test_parameters_and_buffers_are_named_once_each():
    network = make_network()
    network.add_module("tied", network[0])
    assert list(named_tensors(network)) == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
        "1.num_batches_tracked",
    ]  # fmt: skip


def test_weights_are_copied_by_name_map_into_place():
    original, package = {"a": torch.ones(2)}, {"b": torch.zeros(2), "c": torch.zeros(2)}
    held = package["b"]
    copy_weights(
        original, package, NameMap(exact={"a": "b"}, only_package={"c": "x"}).resolve("a", "bc")
    )
    assert (held.tolist(), package["c"].tolist()) == ([1, 1], [0, 0])
    assert held.data_ptr() != original["a"].data_ptr()


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(2).double()], ids=str)
def test_a_tensor_that_does_not_fit_stops_all_copying(wrong):
    original = {"a": torch.ones(2), "b": torch.ones(2)}
    package = {"a": torch.zeros(2), "b": wrong}
    with pytest.raises(ConfigError, match=r"'b' is torch.float32 \(2,\), but 'b' of the package"):
        copy_weights(original, package, SAME.resolve(original, package))
    assert package["a"].tolist() == [0, 0]


# ---- optimizer ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("trained", [False, True], ids=["no state yet", "other state"])
def test_weights_buffers_and_optimizer_state_are_equal_after(kind, trained):
    original, package = Fake(kind), Fake(kind, scale=2.0)
    original.train(1.0)
    original.train(2.0)
    if trained:
        package.train(-3.0)
    assert contents(original.live()) != contents(package.live())

    synchronizer(original, package).synchronize(original.live(), package.live())

    assert contents(original.live()) == contents(package.live())
    assert len(package.live().optimizer_state) == 4


@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_is_shared_after_and_both_go_on_by_themselves(kind):
    original, package = Fake(kind), Fake(kind, scale=2.0)
    original.train(1.0)
    sync = synchronizer(original, package)
    for _ in range(2):
        sync.synchronize(original.live(), package.live())
        check_independent(original.live(), package.live())
        before = contents(original.live())
        package.train(5.0)
        assert contents(original.live()) == before
        original.train(1.0)


def test_equal_updates_follow_from_equal_state():
    original, package = Fake("adam"), Fake("adam", scale=2.0)
    original.train(1.0)
    package.train(4.0)
    synchronizer(original, package).synchronize(original.live(), package.live())
    original.train(2.0)
    package.train(2.0)
    assert contents(original.live()) == contents(package.live())


def test_state_that_is_no_tensor_is_copied_and_not_shared():
    original, package = Fake("sgd"), Fake("sgd")
    original.train(1.0)
    first = original.module[0].weight
    original.optimizer.state[first]["history"] = [1, 2]
    synchronizer(original, package).synchronize(original.live(), package.live())
    original.optimizer.state[first]["history"].append(3)
    assert package.optimizer.state[package.module[0].weight]["history"] == [1, 2]


@pytest.mark.parametrize("what", ["parameter", "buffer", "state", "view", "swapped"])
def test_shared_storage_is_caught(what):
    original, package = Fake("adam"), Fake("adam")
    original.train(1.0)
    package.train(1.0)
    mine, theirs = original.module[0].weight, package.module[0].weight
    check_independent(original.live(), package.live())
    if what == "parameter":
        theirs.data = mine.data
    elif what == "buffer":
        package.module[1].running_mean = original.module[1].running_mean
    elif what == "state":
        package.optimizer.state[theirs]["exp_avg"] = original.optimizer.state[mine]["exp_avg"]
    elif what == "view":
        theirs.data = mine.data.view(-1)[:6].view(3, 2)
    else:
        package.optimizer.state[theirs]["exp_avg"] = mine.data
    with pytest.raises(SystemFailed, match="of the original: copy it"):
        check_independent(original.live(), package.live())


# ---- schedulers ---------------------------------------------------------------------------------


def scheduled(make: Any, ticks: int = 0) -> Fake:
    fake = Fake("sgd")
    fake.schedulers = [make(fake.optimizer)]
    fake.optimizer.step()  # so that torch does not warn about the order of the first tick
    for _ in range(ticks):
        fake.schedulers[0].step()
    return fake


def rates(fake: Fake) -> list[float]:
    return [group["lr"] for group in fake.optimizer.param_groups]


def run_synchronized(original: Fake, package: Fake, *, moves: int) -> Synchronizer:
    """Synchronize as a run does: before anything has moved, then after every tick."""
    sync = synchronizer(original, package)
    sync.synchronize(original.live(), package.live())
    for _ in range(moves):
        original.schedulers[0].step()
        sync.synchronize(original.live(), package.live())
    return sync


def test_what_a_scheduler_moves_is_copied():
    make = lambda o: OneCycleLR(o, max_lr=1.0, total_steps=10)  # noqa: E731
    original, package = scheduled(make), scheduled(make)
    sync = run_synchronized(original, package, moves=3)
    assert package.schedulers[0].last_epoch == 3
    assert rates(package) == rates(original)
    assert package.schedulers[0].get_last_lr() == original.schedulers[0].get_last_lr()
    assert sync.not_synchronized == {}


def test_what_a_scheduler_never_moves_stays_visible():
    original = scheduled(lambda o: OneCycleLR(o, max_lr=1.0, total_steps=10))
    package = scheduled(lambda o: OneCycleLR(o, max_lr=1.0, total_steps=20))
    run_synchronized(original, package, moves=2)
    assert (original.schedulers[0].total_steps, package.schedulers[0].total_steps) == (10, 20)
    assert package.schedulers[0].last_epoch == 2


def test_what_has_moved_and_returned_is_copied_too():
    make = lambda o: CosineAnnealingWarmRestarts(o, T_0=2)  # noqa: E731
    original, package = scheduled(make), scheduled(make)
    sync = run_synchronized(original, package, moves=1)
    original.schedulers[0].step()
    assert original.schedulers[0].T_cur == 0  # as before the first tick
    sync.synchronize(original.live(), package.live())
    assert package.schedulers[0].T_cur == 0


def make_warmup(optimizer: torch.optim.Optimizer) -> LRScheduler:
    parts = [LinearLR(optimizer, 0.1, total_iters=4), StepLR(optimizer, 2)]
    return SequentialLR(optimizer, parts, milestones=[4])


def test_the_parts_of_a_composed_scheduler_are_copied_too():
    original, package = scheduled(make_warmup), scheduled(make_warmup)
    run_synchronized(original, package, moves=3)
    assert [part.last_epoch for part in package.schedulers[0]._schedulers] == [3, -1]
    for system in (original, package):
        system.schedulers[0].step()
    assert rates(package) == rates(original)


def test_parts_that_only_one_system_has_are_left_alone():
    original = scheduled(make_warmup)
    package = scheduled(lambda o: StepLR(o, 1))
    sync = run_synchronized(original, package, moves=2)
    assert package.schedulers[0].last_epoch == 2
    assert rates(package) == rates(original)
    assert list(sync.not_synchronized) == ["scheduler[0]"]


def test_a_scheduler_that_never_ticks_leaves_the_rates_alone():
    original, package = (scheduled(lambda o: StepLR(o, 5)) for _ in range(2))
    package.optimizer.param_groups[0]["lr"] = 0.7
    run_synchronized(original, package, moves=0)
    assert rates(package) == [0.7]


def test_the_packages_scheduler_is_not_shared():
    make = lambda o: StepLR(o, 1)  # noqa: E731
    original, package = scheduled(make), scheduled(make)
    run_synchronized(original, package, moves=1)
    original.schedulers[0].step()
    assert package.schedulers[0].last_epoch == 1
    assert package.schedulers[0].optimizer is package.optimizer
    assert package.schedulers[0]._last_lr is not original.schedulers[0]._last_lr


def test_a_rate_that_is_a_tensor_is_filled_in_place():
    original, package = (scheduled(lambda o: StepLR(o, 1, gamma=0.5)) for _ in range(2))
    rate = torch.tensor(0.3)
    package.optimizer.param_groups[0]["lr"] = rate
    run_synchronized(original, package, moves=1)
    assert package.optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.05)


def test_of_another_class_only_rate_and_counters_are_copied_and_it_is_said():
    original = scheduled(lambda o: StepLR(o, 1, gamma=0.5))
    package = scheduled(lambda o: LambdaLR(o, lambda n: 1.0))
    sync = run_synchronized(original, package, moves=2)
    assert package.schedulers[0].last_epoch == 2
    assert rates(package) == rates(original) == [0.1 * 0.25]
    assert not hasattr(package.schedulers[0], "gamma")
    assert list(sync.not_synchronized) == ["scheduler[0]"]
    assert "StepLR and LambdaLR" in sync.not_synchronized["scheduler[0]"]


def test_another_number_of_schedulers_is_said_and_none_is_copied():
    original, package = scheduled(lambda o: StepLR(o, 1)), Fake("sgd")
    sync = run_synchronized(original, package, moves=1)
    assert sync.not_synchronized == {"schedulers": "the original has 1, the package 0"}
    assert rates(package) == [0.1]


def test_without_schedulers_nothing_is_left_out():
    original, package = Fake("sgd"), Fake("sgd")
    sync = synchronizer(original, package)
    sync.synchronize(original.live(), package.live())
    assert sync.not_synchronized == {}


def test_names_that_are_excused_are_left_alone():
    original, package = Fake("sgd"), SimpleNamespace(**vars(Fake("sgd", scale=2.0)))
    package.module.register_parameter("extra", nn.Parameter(torch.tensor(7.0)))
    names = NameMap(only_package={"extra": "a new head"}).resolve(
        named_tensors(original.module), named_tensors(package.module)
    )
    live = read_live_state(package.module, package.optimizer, clip_coefficient=1.0)
    Synchronizer(original, package, names).synchronize(original.live(), live)
    assert package.module.extra.item() == 7.0
    assert package.module[0].weight.tolist() == original.module[0].weight.tolist()

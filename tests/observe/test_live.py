"""A parked system is read as its own tensors, by name."""

import torch
from torch import nn

from traingen.observe.live import read_live_state


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.again = nn.Linear(2, 2, bias=False)
        self.again.weight = self.first.weight
        self.norm = nn.BatchNorm1d(2)
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)


def make_stepped() -> tuple[Tied, torch.optim.Optimizer]:
    module = Tied()
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.1)
    module.norm(module.again(module.first(torch.rand(4, 2)))).square().sum().backward()
    optimizer.step()
    return module, optimizer


def test_tensors_are_read_by_name_and_each_once():
    module, optimizer = make_stepped()
    state = read_live_state(module, optimizer, clip_coefficient=0.5)
    trained = {"first.weight", "norm.weight", "norm.bias"}
    assert set(state.parameters) == trained | {"frozen"}
    assert set(state.gradients) == set(state.optimizer_state) == trained
    assert set(state.buffers) == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip
    assert state.clip_coefficient == 0.5


def test_tensors_are_the_systems_own_and_not_copied():
    module, optimizer = make_stepped()
    state = read_live_state(module, optimizer, clip_coefficient=None)
    weight = module.first.weight
    assert state.parameters["first.weight"].data_ptr() == weight.data_ptr()
    assert state.gradients["first.weight"] is weight.grad
    assert state.buffers["norm.running_mean"] is module.norm.running_mean
    assert state.optimizer_state["first.weight"]["exp_avg"] is (optimizer.state[weight]["exp_avg"])
    assert not state.parameters["first.weight"].requires_grad


def test_reading_makes_no_state_that_was_not_there():
    module = Tied()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    state = read_live_state(module, optimizer, clip_coefficient=1.0)
    assert state.optimizer_state == {} == dict(optimizer.state)
    assert state.gradients == {}

"""State and change of the parameters are told by norms, and their content by a digest."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from traingen.observe.digests import digest_batch
from traingen.observe.moments import digest_parameters, moment_norms, update_ratios


def train(kind: type[torch.optim.Optimizer], **options: object) -> torch.optim.Optimizer:
    """Two updates of a small model, one parameter of which is a scalar."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    scale = nn.Parameter(torch.tensor(0.5))
    optimizer = kind([*layers.parameters(), scale], lr=0.1, **options)
    for _ in range(2):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (layers(torch.ones(2, 5)) * scale).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
    return optimizer


def norm_of(optimizer: torch.optim.Optimizer, name: str) -> float:
    values = [state[name].double() for state in optimizer.state.values() if name in state]
    return math.sqrt(sum(float(value.square().sum()) for value in values))


@pytest.mark.parametrize(
    ("kind", "options", "names"),
    [
        (torch.optim.Adam, {}, ["exp_avg", "exp_avg_sq"]),
        (torch.optim.AdamW, {"amsgrad": True}, ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]),
        (torch.optim.NAdam, {}, ["exp_avg", "exp_avg_sq"]),
        (torch.optim.SGD, {"momentum": 0.9}, ["momentum_buffer"]),
        (torch.optim.SGD, {}, []),
        (torch.optim.RMSprop, {"centered": True}, ["grad_avg", "square_avg"]),
        (torch.optim.Adagrad, {}, ["sum"]),
        (torch.optim.Rprop, {}, ["prev", "step_size"]),
        (torch.optim.ASGD, {}, ["ax"]),
        (torch.optim.LBFGS, {}, ["d", "prev_flat_grad"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_kind_of_state_has_one_norm_over_all_parameters(kind, options, names):
    optimizer = train(kind, **options)
    found = moment_norms(optimizer)
    assert list(found) == names
    assert found == {name: pytest.approx(norm_of(optimizer, name)) for name in names}
    assert all(norm > 0 for norm in found.values())


def test_the_moments_of_a_scalar_parameter_count_and_its_counters_do_not():
    parameter = nn.Parameter(torch.tensor(2.0))
    optimizer = torch.optim.Adam([parameter], lr=0.1)
    parameter.grad = torch.tensor(3.0)
    optimizer.step()
    assert moment_norms(optimizer) == {
        "exp_avg": pytest.approx(0.3),
        "exp_avg_sq": pytest.approx(9e-3),
    }


def test_before_the_first_update_there_are_none():
    assert moment_norms(torch.optim.Adam([nn.Parameter(torch.ones(2))])) == {}


def test_what_is_no_plain_tensor_of_floats_is_left_out():
    class Packed(torch.Tensor):
        pass

    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    optimizer.state[parameter] = {
        "codes": torch.ones(2, dtype=torch.uint8), "packed": torch.ones(2).as_subclass(Packed),
        "history": [torch.ones(2)], "kept": torch.full((2,), 2.0), "none": None,
    }  # fmt: skip
    assert moment_norms(optimizer) == {"kept": pytest.approx(math.sqrt(8))}


def test_a_ratio_is_the_norm_of_the_change_by_the_norm_before():
    before = [torch.tensor([3.0, 4.0]), torch.ones(2)]
    after = {"w": torch.tensor([3.0, 4.5]), "b": torch.ones(2)}
    assert update_ratios(before, after) == {"w": pytest.approx(0.1), "b": 0.0}


def test_of_a_parameter_that_was_zero_the_ratio_is_infinite_if_it_moved():
    before = [torch.zeros(2), torch.zeros(2), torch.zeros(2)]
    after = {
        "moved": torch.ones(2), "stayed": torch.zeros(2), "lost": torch.full((2,), math.nan),
    }  # fmt: skip
    ratios = update_ratios(before, after)
    assert (ratios["moved"], ratios["stayed"]) == (math.inf, 0.0)
    assert math.isnan(ratios["lost"])


def test_parameters_added_since_then_have_no_ratio():
    assert update_ratios([torch.ones(2)], {"a": torch.ones(2), "new": torch.ones(3)}) == {"a": 0.0}
    assert update_ratios([], {}) == {}


def test_a_change_of_halves_is_not_rounded_away():
    before, after = torch.ones(4).bfloat16(), torch.full((4,), 1 + 2.0**-7).bfloat16()
    assert update_ratios([before], {"w": after}) == {"w": pytest.approx(2.0**-7, rel=1e-12)}


def test_measuring_leaves_the_training_as_it_was():
    optimizer = train(torch.optim.Adam)
    parameters = optimizer.param_groups[0]["params"]
    copies = [p.detach().clone() for p in parameters]
    state, versions = torch.get_rng_state(), [p._version for p in parameters]
    moment_norms(optimizer)
    update_ratios(copies, {str(i): p for i, p in enumerate(parameters)})
    digest_parameters(parameters)
    assert torch.equal(torch.get_rng_state(), state)
    assert [p._version for p in parameters] == versions
    assert all(torch.equal(p, copy) for p, copy in zip(parameters, copies, strict=True))


def test_equal_parameters_have_equal_digests_and_one_bit_is_seen():
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(2, 2))]
    moved = [parameters[0], torch.zeros(2, 2).index_fill_(0, torch.tensor(0), 1e-45)]
    digest = digest_parameters(iter(parameters))
    assert digest == digest_parameters([p.detach().clone() for p in parameters])
    assert digest == digest_batch([p.detach() for p in parameters])
    assert len({digest, digest_parameters(moved), digest_parameters(parameters[::-1])}) == 3

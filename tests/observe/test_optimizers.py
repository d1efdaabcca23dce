"""An optimizer is told as what it is, how large it is and with which options it steps."""

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from traingen.observe.optimizers import (
    class_path,
    hyper_parameters_of,
    identify_optimizer,
    parameters_of,
    rates_of,
    rewrites_gradients,
)
from traingen.records import OptimizerIdentity


def make_parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(4))]


def make_adam(**options: object) -> torch.optim.Adam:
    first, second = make_parameters()
    return torch.optim.Adam([{"params": [first]}, {"params": [second], "lr": 0.5}], **options)


def test_an_optimizer_is_identified_by_class_and_size():
    identity = identify_optimizer(make_adam(), index=3)
    assert identity == OptimizerIdentity(
        index=3, class_path="torch.optim.adam.Adam", groups=2, parameters=6 + 4
    )


def test_a_class_is_named_by_where_it_is_defined():
    class Inner:
        pass

    assert class_path(Inner()).endswith(
        "test_optimizers.test_a_class_is_named_by_where_it_is_defined.<locals>.Inner"
    )


def test_parameters_come_in_the_order_of_the_groups():
    first, second = make_parameters()
    optimizer = torch.optim.SGD([{"params": [second]}, {"params": [first]}], lr=0.1)
    found = parameters_of(optimizer)
    assert [id(p) for p in found] == [id(second), id(first)]


def test_each_group_has_its_rate():
    optimizer = make_adam(lr=0.25)
    assert rates_of(optimizer) == [0.25, 0.5]
    optimizer.param_groups[0]["lr"] = 0.125
    assert rates_of(optimizer) == [0.125, 0.5]


def test_a_rate_may_be_a_tensor():
    rate = torch.tensor(0.25)
    optimizer = torch.optim.Adam(make_parameters(), lr=rate, foreach=False)
    assert rates_of(optimizer) == [0.25]
    assert "lr" not in hyper_parameters_of(optimizer)[0]
    assert type(rates_of(optimizer)[0]) is float


def test_hyper_parameters_are_all_options_but_the_rate():
    options = hyper_parameters_of(make_adam(eps=1e-6, weight_decay=0.1))
    assert len(options) == 2
    assert options[1]["betas"] == [0.9, 0.999]
    assert (options[0]["eps"], options[0]["weight_decay"], options[0]["amsgrad"]) == (
        1e-6, 0.1, False,
    )  # fmt: skip
    assert not {"params", "lr"} & set(options[0])
    assert list(options[0]) == sorted(options[0])


def test_each_group_has_its_own_options():
    first, second = make_parameters()
    groups = [{"params": [first], "weight_decay": 0.0}, {"params": [second]}]
    options = hyper_parameters_of(torch.optim.AdamW(groups, weight_decay=0.5))
    assert [group["weight_decay"] for group in options] == [0.0, 0.5]


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adam, torch.optim.SGD])
def test_what_a_scheduler_keeps_in_the_groups_is_no_option_but_what_it_sets_is(optimizer_class):
    momentum = {"momentum": 0.9} if optimizer_class is torch.optim.SGD else {}
    optimizer = optimizer_class(make_parameters(), lr=0.1, **momentum)
    before = hyper_parameters_of(optimizer)
    lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=9, max_momentum=0.8)
    after = hyper_parameters_of(optimizer)
    assert set(after[0]) == set(before[0])
    assert {"max_momentum", "initial_lr"} <= set(optimizer.param_groups[0])
    changed = {key for key in after[0] if after[0][key] != before[0][key]}
    assert changed == ({"momentum"} if momentum else {"betas"})


def test_options_of_other_types_are_made_plain():
    optimizer = make_adam()
    optimizer.param_groups[0] |= {"scale": torch.tensor([1.0, 2.0]), "kind": slice(1), "pair": (1,)}
    options = hyper_parameters_of(optimizer)[0]
    assert (options["scale"], options["kind"], options["pair"]) == (
        [1.0, 2.0], "slice(None, 1, None)", [1],
    )  # fmt: skip


REWRITING = {"momentum": 0.9, "nesterov": True, "foreach": True}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (REWRITING, True),
        (REWRITING | {"foreach": None}, True),  # torch decides by the device
        (REWRITING | {"foreach": False}, False),
        (REWRITING | {"nesterov": False}, False),
        (REWRITING | {"weight_decay": 0.1}, False),
        ({"momentum": 0.9, "nesterov": True, "fused": True}, False),
    ],
)
def test_which_optimizers_rewrite_their_gradients_is_told_as_torch_does_it(options, expected):
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, **options)
    assert rewrites_gradients(optimizer) is expected
    for _ in range(2):
        parameter.grad = torch.tensor([3.0, 4.0])
        optimizer.step()
    if options.get("foreach") is not None or not expected:
        assert (parameter.grad.tolist() != [3.0, 4.0]) is expected
    assert not rewrites_gradients(torch.optim.Adam([parameter]))

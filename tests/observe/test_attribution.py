"""Which gradients a backward has changed is told from the tensors alone."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh

from traingen.observe.attribution import (
    are_absent,
    have_changed,
    sign_gradients,
    were_replaced,
)


def make_parameters(count: int = 2) -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(2)) for _ in range(count)]


def differentiate(parameters: list[nn.Parameter], factor: float = 1.0) -> None:
    sum(factor * p.sum() for p in parameters).backward()


@pytest.mark.parametrize("earlier", [False, True], ids=["new", "added to"])
@pytest.mark.parametrize("factor", [1.0, 0.0], ids=["values move", "values stay"])
def test_a_backward_is_seen_whether_or_not_it_moves_a_value(earlier, factor):
    parameters = make_parameters()
    if earlier:
        differentiate(parameters)
    before = sign_gradients(parameters)
    differentiate(parameters[:1], factor)
    assert have_changed(before, parameters)
    assert not have_changed(sign_gradients(parameters), parameters)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_backward_that_reaches_others_is_not_seen(earlier):
    parameters, others = make_parameters(), make_parameters()
    if earlier:
        differentiate(parameters)
    before = sign_gradients(parameters)
    differentiate(others)
    torch.autograd.grad(parameters[0].sum(), parameters[0])
    assert not have_changed(before, parameters)


def replace_by_equal(parameter: nn.Parameter) -> None:
    parameter.grad = parameter.grad.clone()


def clear(parameter: nn.Parameter) -> None:
    parameter.grad = None


def clear_in_place(parameter: nn.Parameter) -> None:
    parameter.grad.zero_()


@pytest.mark.parametrize("change", [replace_by_equal, clear, clear_in_place])
def test_any_other_change_is_seen_too(change: Callable[[nn.Parameter], None]):
    parameters = make_parameters()
    differentiate(parameters)
    before = sign_gradients(parameters)
    change(parameters[1])
    assert have_changed(before, parameters)


def test_a_new_gradient_at_the_address_of_one_that_is_gone_is_seen():
    (parameter,) = make_parameters(1)
    for _ in range(50):  # without holding the old one an address comes back soon
        parameter.grad = None
        differentiate([parameter])
        before = sign_gradients([parameter])
        parameter.grad = None
        differentiate([parameter])
        assert parameter.grad._version == before[0][1]
        assert have_changed(before, [parameter])


def test_a_view_that_shares_a_version_is_one_gradient():
    flat = torch.zeros(4)
    parameters = make_parameters()
    for number, parameter in enumerate(parameters):
        parameter.grad = flat[2 * number : 2 * number + 2]
    before = sign_gradients(parameters)
    differentiate(parameters[:1])
    assert have_changed(before, parameters)
    assert flat.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_sparse_gradients_are_seen():
    table = nn.Embedding(4, 2, sparse=True)
    for index in (0, 1):
        before = sign_gradients([table.weight])
        table(torch.tensor([index])).sum().backward()
        assert have_changed(before, [table.weight])


def test_the_local_part_of_a_distributed_gradient_tells(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        mesh = init_device_mesh("cpu", (1,))
        local = torch.ones(2)
        parameter = nn.Parameter(DTensor.from_local(torch.ones(2), mesh, [Replicate()]))
        parameter.grad = DTensor.from_local(local, mesh, [Replicate()])
        before = sign_gradients([parameter])
        assert not have_changed(before, [parameter])
        parameter.grad._local_tensor.add_(1.0)
        assert have_changed(before, [parameter])
    finally:
        torch.distributed.destroy_process_group()


def test_signing_holds_what_it_signs_and_changes_nothing():
    parameters = make_parameters()
    differentiate(parameters)
    versions = [p.grad._version for p in parameters]
    signature = sign_gradients(parameters)
    assert [one for one, _ in signature] == [p.grad for p in parameters]
    assert [p.grad._version for p in parameters] == versions


@given(given_ones=st.lists(st.booleans(), max_size=5))
def test_gradients_are_absent_only_if_there_is_none(given_ones):
    parameters = make_parameters(len(given_ones))
    for parameter, has in zip(parameters, given_ones, strict=True):
        parameter.grad = torch.zeros(2) if has else None
    assert are_absent(sign_gradients(parameters)) == (not any(given_ones))


def test_a_gradient_is_replaced_by_another_tensor_only():
    parameters = make_parameters()
    differentiate(parameters)
    before = sign_gradients(parameters)
    clear_in_place(parameters[0])
    clear(parameters[1])
    assert not were_replaced(before, parameters)
    replace_by_equal(parameters[0])
    assert were_replaced(before, parameters)


def test_a_parameter_that_was_added_is_a_change():
    parameters = make_parameters()
    differentiate(parameters)
    before = sign_gradients(parameters)
    added = [*parameters, *make_parameters(1)]
    assert have_changed(before, added)
    assert not were_replaced(before, added)
    differentiate(added[2:])
    assert were_replaced(before, added)

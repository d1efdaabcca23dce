"""The scale that is in a root is found wherever the loop has gone on from the scaled loss."""

import gc

import pytest
import torch
from torch import nn

from traingen.observe.scaling import mark_scaled, read_scaler, scale_in


def make_loss() -> torch.Tensor:
    return nn.Parameter(torch.ones(3)).square().sum()


def make_scaled(scale: float = 8.0) -> torch.Tensor:
    scaled = make_loss() * scale
    mark_scaled(scaled, scale)
    return scaled


@pytest.mark.parametrize(
    "go_on",
    [
        lambda scaled: scaled,
        lambda scaled: scaled / 2,
        lambda scaled: scaled + make_loss(),
        lambda scaled: torch.stack([make_loss(), scaled]).mean(),
        lambda scaled: sum(make_scaled() for _ in range(100)) + scaled,
    ],
)
def test_what_was_made_of_a_scaled_loss_has_its_scale(go_on):
    root = go_on(make_scaled())
    gc.collect()  # the scaled loss itself is gone
    assert scale_in(root) == 8.0


def test_several_losses_are_marked_however_they_are_nested():
    first, second = make_loss(), make_loss()
    mark_scaled([first, (second,)], 4.0)
    assert (scale_in(first), scale_in(second)) == (4.0, 4.0)


def test_the_nearest_scale_counts():
    inner = make_scaled(4.0)
    outer = inner * 2
    mark_scaled(outer, 2.0)
    assert (scale_in(outer), scale_in(inner)) == (2.0, 4.0)


def test_what_a_scaled_loss_was_made_of_has_no_scale():
    loss = make_loss()
    mark_scaled(loss * 8.0, 8.0)
    assert scale_in(loss) is None
    assert scale_in(loss.detach()) is None
    assert scale_in(nn.Parameter(torch.ones(()))) is None


def test_a_loss_without_a_graph_is_not_marked():
    loss = torch.tensor(3.0)
    mark_scaled(loss, 8.0)
    assert scale_in(loss) is None


def test_only_the_graph_near_the_root_is_searched():
    root = make_scaled()
    for _ in range(1000):
        root = root + 1.0
    assert scale_in(root) is None


def test_a_mark_changes_no_gradient_and_keeps_nothing_alive():
    gradients = []
    for mark in (True, False):
        parameter = nn.Parameter(torch.tensor([2.0, 3.0]))
        loss = parameter.square().sum() * 8.0
        if mark:
            mark_scaled(loss, 8.0)
        (loss / 2).backward()
        gradients.append(parameter.grad.tolist())
    assert gradients[0] == gradients[1] == [16.0, 24.0]


@pytest.mark.parametrize("enabled", [True, False])
def test_a_scaler_is_read_if_it_is_in_use(enabled):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=enabled)
    assert read_scaler(scaler) == ((4.0, 0) if enabled else (None, None))
    assert read_scaler(None) == (None, None)

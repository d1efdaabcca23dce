"""The example's sampler keeps to the paper, and its probe tells how it stands."""

from __future__ import annotations

import json

import pytest
import torch

from examples.timestep_sampler.module import RingDenoiser, ring_loader
from examples.timestep_sampler.probe import TimestepSamplerProbe
from examples.timestep_sampler.sampler import SecondMomentSampler
from traingen.observe.probes import ProbeReader, read_probes


def filled_sampler(losses: list[list[float]], *, uniform_share: float = 0.0) -> SecondMomentSampler:
    """One row of losses for each timestep, as long as the history."""
    sampler = SecondMomentSampler(
        len(losses), history_per_term=len(losses[0]), uniform_share=uniform_share
    )
    for column in zip(*losses, strict=True):
        sampler.record(torch.arange(len(losses)), torch.tensor(column))
    return sampler


def test_until_every_history_is_full_all_timesteps_are_equally_likely():
    sampler = SecondMomentSampler(4, history_per_term=2)
    sampler.record(torch.tensor([0, 0, 1, 1, 2, 2, 3]), torch.arange(7.0))
    assert (sampler.branch, sampler.filled.tolist()) == ("uniform", [2, 2, 2, 1])
    assert sampler.probabilities().tolist() == [0.25] * 4
    sampler.record(torch.tensor([3]), torch.tensor([9.0]))
    assert sampler.branch == "weighted"
    assert sampler.probabilities().tolist() != [0.25] * 4


def test_then_each_is_as_likely_as_the_root_of_its_mean_squared_loss():
    sampler = filled_sampler([[1.0, 1.0], [3.0, 3.0], [0.0, 8**0.5]])
    assert sampler.probabilities().tolist() == pytest.approx([1 / 6, 3 / 6, 2 / 6])


def test_the_uniform_share_keeps_a_timestep_without_loss_in_play():
    losses = [[0.0], [1.0]]
    assert filled_sampler(losses).probabilities().tolist() == [0.0, 1.0]
    assert filled_sampler(losses, uniform_share=0.1).probabilities().tolist() == pytest.approx(
        [0.05, 0.95]
    )


def test_only_the_last_losses_count():
    sampler = filled_sampler([[100.0, 5.0], [1.0, 1.0]])
    sampler.record(torch.tensor([0, 0]), torch.tensor([1.0, 1.0]))
    assert sampler.probabilities().tolist() == pytest.approx([0.5, 0.5])
    assert sampler.filled.tolist() == [2, 2]


def test_the_factors_make_the_weighted_mean_unbiased():
    sampler = filled_sampler([[1.0], [2.0], [5.0]])
    values = torch.tensor([3.0, -1.0, 7.0])
    torch.manual_seed(0)
    steps, factors = sampler.draw(20_000)
    assert float((factors * values[steps]).mean()) == pytest.approx(float(values.mean()), abs=0.1)
    assert float(values[steps].mean()) > float(values.mean()) + 1, "the draw itself is biased"


def test_the_probe_tells_branch_history_and_weights():
    module = RingDenoiser(steps=2, history_per_term=1)
    before, _ = read_probes([TimestepSamplerProbe()], module)
    module.timesteps.record(torch.tensor([0, 1]), torch.tensor([1.0, 3.0]))
    after, _ = read_probes([TimestepSamplerProbe()], module)
    assert (before["branch"], before["filled"], before["weights"]) == (
        "uniform",
        [0, 0],
        [0.5, 0.5],
    )
    assert (after["branch"], after["filled"]) == ("weighted", [1, 1])
    assert after["weights"] == pytest.approx([0.25, 0.75], abs=1e-3)
    assert after["history"] != before["history"]
    assert json.loads(json.dumps(after)) == after


def test_equal_weights_from_other_losses_have_another_history():
    probe, modules = TimestepSamplerProbe(), [RingDenoiser(2, 1), RingDenoiser(2, 1)]
    for module, scale in zip(modules, (1.0, 2.0), strict=True):
        module.timesteps.record(torch.tensor([0, 1]), scale * torch.tensor([1.0, 3.0]))
    [one, other] = [probe.read(module) for module in modules]
    assert torch.equal(one["weights"], other["weights"])
    assert one["history"] != other["history"]


def test_the_history_is_saved_with_the_module():
    module, other = RingDenoiser(2, 1), RingDenoiser(2, 1)
    module.timesteps.record(torch.tensor([0, 1]), torch.tensor([1.0, 3.0]))
    other.load_state_dict(module.state_dict())
    reader = ProbeReader([TimestepSamplerProbe()])
    assert reader.read(other) == reader.read(module)


def test_points_lie_around_the_circle_and_are_the_same_at_every_call():
    [points] = ring_loader().dataset.tensors
    assert points.shape == (64, 2)
    assert points.norm(dim=1).sub(1).abs().max() < 0.3
    assert torch.equal(points, ring_loader().dataset.tensors[0])

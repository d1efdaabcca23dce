"""Record how a `SecondMomentSampler` stands at the beginning of every update."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from examples.timestep_sampler.sampler import SecondMomentSampler
from traingen.observe.digests import digest_batch


@dataclass(frozen=True)
class TimestepSamplerProbe:
    """The rule in use, how far the histories are filled, and what will be drawn with.

    The losses themselves are many; two trainings have the same ones if their digests are equal.

    Args:
        attribute: the submodule that is the sampler.
        name: "sampler", which fills the record's field of this name.
    """

    attribute: str = "timesteps"
    name: str = "sampler"

    def read(self, module: nn.Module) -> dict[str, Any]:
        """Branch, history and weights; nothing is drawn."""
        sampler = module.get_submodule(self.attribute)
        assert isinstance(sampler, SecondMomentSampler)
        return {
            "branch": sampler.branch,
            "filled": sampler.filled,
            "history": digest_batch(sampler.losses),
            "weights": sampler.probabilities(),
        }

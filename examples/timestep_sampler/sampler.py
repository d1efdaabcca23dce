"""Draw diffusion timesteps in proportion to the root of their mean squared loss.

Our own implementation of the importance sampling in section 3.3 of Nichol and Dhariwal, "Improved
Denoising Diffusion Probabilistic Models" (arXiv 2102.09672): until every timestep has a full
history of losses they are drawn uniformly, then by weight. A small uniform share keeps a timestep
whose losses happened to be tiny from never being drawn again.
"""

from typing import Literal

import torch
from torch import Tensor, nn


class SecondMomentSampler(nn.Module):
    """Keeps the last losses of every timestep and draws by them.

    Args:
        steps: the number of timesteps, T.
        history_per_term: losses that are kept of each, and needed of all before weights are used.
        uniform_share: of the probability, spread over all timesteps alike.
    """

    losses: Tensor  # (steps, history_per_term), a ring of the last ones
    seen: Tensor  # (steps,), losses recorded so far

    def __init__(
        self, steps: int, *, history_per_term: int = 10, uniform_share: float = 1e-3
    ) -> None:
        super().__init__()
        self.uniform_share = uniform_share
        self.register_buffer("losses", torch.zeros(steps, history_per_term, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(steps, dtype=torch.int64))

    @property
    def branch(self) -> Literal["uniform", "weighted"]:
        """Which of its two rules is in use."""
        full = self.seen.min() >= self.losses.shape[1]
        return "weighted" if full else "uniform"

    @property
    def filled(self) -> Tensor:
        """How much of its history each timestep has, (steps,)."""
        return self.seen.clamp(max=self.losses.shape[1])

    def probabilities(self) -> Tensor:
        """The probability of each timestep now, (steps,); they sum up to 1."""
        uniform = torch.full_like(self.losses[:, 0], 1 / len(self.seen))
        if self.branch == "uniform":
            return uniform
        root = self.losses.square().mean(dim=1).sqrt()
        return torch.lerp(root / root.sum(), uniform, self.uniform_share)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Timesteps, (count,) int64, and the factors that make their weighted mean unbiased."""
        probabilities = self.probabilities()
        steps = torch.multinomial(probabilities, count, replacement=True)
        factors = 1 / (len(probabilities) * probabilities[steps])
        return steps, factors.float()

    @torch.no_grad()
    def record(self, steps: Tensor, losses: Tensor) -> None:
        """Put the loss of each sample into the history of its timestep."""
        for step, loss in zip(steps.tolist(), losses.double(), strict=True):
            self.losses[step, self.seen[step] % self.losses.shape[1]] = loss
            self.seen[step] += 1

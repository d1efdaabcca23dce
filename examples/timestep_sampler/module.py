"""Train a tiny denoiser on points of a ring, at timesteps that a sampler chooses."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from examples.timestep_sampler.sampler import SecondMomentSampler


class RingDenoiser(LightningModule):
    """Predicts the noise in noisy points of the plane; the loss is that of the drawn timesteps.

    Args:
        steps: timesteps of the diffusion, with a variance that grows linearly.
        history_per_term: losses that `timesteps` waits for at each of them.
        learning_rate: of AdamW.
    """

    signal: Tensor  # (steps,), share of the variance that is still the point's own

    def __init__(
        self, steps: int = 8, history_per_term: int = 4, learning_rate: float = 1e-2
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.learning_rate = learning_rate
        self.timesteps = SecondMomentSampler(steps, history_per_term=history_per_term)
        self.register_buffer("signal", torch.cumprod(1 - torch.linspace(1e-3, 0.5, steps), dim=0))
        self.network = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 2))

    def forward(self, points: Tensor, steps: Tensor) -> Tensor:
        """The noise in `points`, (batch, 2)."""
        place = steps.unsqueeze(1) / len(self.signal)
        noise: Tensor = self.network(torch.cat([points, place], dim=1))
        return noise

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> Tensor:
        """Mean over the batch of loss times importance factor."""
        [points] = batch
        steps, factors = self.timesteps.draw(len(points))
        noise, signal = torch.randn_like(points), self.signal[steps].unsqueeze(1)
        noisy = signal.sqrt() * points + (1 - signal).sqrt() * noise
        losses = (self(noisy, steps) - noise).square().mean(dim=1)
        self.timesteps.record(steps, losses)
        return (factors * losses).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW at a constant rate."""
        return torch.optim.AdamW(self.network.parameters(), lr=self.learning_rate)


def ring_loader(points: int = 64, batch_size: int = 8) -> "DataLoader[tuple[Tensor, ...]]":
    """Points around the unit circle, the same at every call, shuffled anew in every epoch."""
    generator = torch.Generator().manual_seed(0)
    angles = 2 * torch.pi * torch.rand(points, generator=generator)
    radii = 1 + 0.05 * torch.randn(points, generator=generator)
    ring = torch.stack([radii * angles.cos(), radii * angles.sin()], dim=1)
    return DataLoader(TensorDataset(ring), batch_size=batch_size, shuffle=True)

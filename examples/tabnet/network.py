"""Compute class logits from tabular features with TabNet, one sparse look at the row per step.

Written from Arik & Pfister, "TabNet: Attentive Interpretable Tabular Learning" (AAAI 2021). Where
the paper leaves a choice open (initial scale, order of sums), we do what pytorch-tabnet 4.1.0 was
observed to do, so that equal weights and batches give equal bits.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

LOG_FLOOR = 1e-15  # keeps the logarithm of an unattended feature finite
INPUT_NORM_MOMENTUM = 0.01  # fixed; only the ghost norms follow the momentum the user chooses
SQRT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two equal parts

NormFactory = Callable[[int], nn.Module]


class _Sparsemax(torch.autograd.Function):
    """Projection of each row onto the probability simplex (Martins & Astudillo, 2016)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        """Algorithm 1 of the paper: sort, find the support, subtract its threshold."""
        shifted = scores - scores.amax(dim=-1, keepdim=True)
        ranked = shifted.sort(dim=-1, descending=True).values
        excess = ranked.cumsum(dim=-1) - 1
        ranks = torch.arange(1, ranked.shape[-1] + 1, dtype=ranked.dtype, device=ranked.device)
        support = (ranks * ranked > excess).sum(dim=-1, keepdim=True)
        threshold = excess.gather(-1, support - 1) / support.to(ranked.dtype)
        weights = (shifted - threshold).clamp(min=0)
        ctx.save_for_backward(weights, support)
        return weights

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """Proposition 2 of the paper: on the support, the gradient less its mean; zero off it."""
        weights, support = ctx.saved_tensors
        attended = weights != 0
        kept = torch.where(attended, gradients[0], 0)
        mean = kept.sum(dim=-1, keepdim=True) / support.to(kept.dtype)
        return torch.where(attended, kept - mean, 0)


def sparsemax(scores: Tensor) -> Tensor:
    """The closest probability vector to each row of `scores`; most of its entries are exactly 0."""
    weights: Tensor = _Sparsemax.apply(scores)  # type: ignore[no-untyped-call]
    return weights


def negative_entropy(mask: Tensor) -> Tensor:
    """Mean over the rows of `sum(mask * log(mask))`: 0 for one-hot rows, lower when spread out."""
    return (mask * torch.log(mask + LOG_FLOOR)).sum(dim=1).mean()


def make_linear(inputs: int, outputs: int, *, gated: bool = False) -> nn.Linear:
    """A linear layer without bias, drawn with variance `1 / sqrt(inputs)`, twice that if gated."""
    linear = nn.Linear(inputs, outputs, bias=False)
    variance = (2 if gated else 1) / math.sqrt(inputs)
    nn.init.normal_(linear.weight, std=math.sqrt(variance))
    return linear


class GhostNorm(nn.Module):
    """Batch norm over small slices of the batch, one after the other (Hoffer et al., 2017).

    The slices share weights and running statistics, which therefore move once per slice.
    """

    def __init__(self, width: int, *, ghost_batch: int, momentum: float) -> None:
        super().__init__()
        self.ghost_batch = ghost_batch  # rows per slice at most
        self.norm = nn.BatchNorm1d(width, momentum=momentum)

    def forward(self, x: Tensor) -> Tensor:
        """`x` of shape (batch, width), each slice normalized by its own statistics."""
        slices = x.chunk(math.ceil(x.shape[0] / self.ghost_batch), dim=0)
        return torch.cat([self.norm(part) for part in slices], dim=0)


class GatedLinear(nn.Module):
    """Linear, norm, and one half of the columns gated by the sigmoid of the other."""

    def __init__(self, linear: nn.Linear, *, make_norm: NormFactory) -> None:
        super().__init__()
        self.linear = linear  # may belong to several layers, each with a norm of its own
        self.norm = make_norm(linear.out_features)

    def forward(self, x: Tensor) -> Tensor:
        """Half as many columns as the linear layer gives."""
        # Not F.glu: its fused kernel need not round like a product with a sigmoid.
        values, gates = self.norm(self.linear(x)).chunk(2, dim=1)
        gated: Tensor = values * torch.sigmoid(gates)
        return gated


class FeatureTransformer(nn.Module):
    """A chain of gated layers: first those on the shared linears, then `independent` of its own."""

    def __init__(
        self,
        shared: Sequence[nn.Linear],
        *,
        features: int,
        width: int,
        independent: int,
        make_norm: NormFactory,
    ) -> None:
        super().__init__()
        inputs = [features, *[width] * (len(shared) + independent - 1)][len(shared) :]
        own = [make_linear(size, 2 * width, gated=True) for size in inputs]
        self.shared = nn.ModuleList(GatedLinear(each, make_norm=make_norm) for each in shared)
        self.own = nn.ModuleList(GatedLinear(each, make_norm=make_norm) for each in own)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, features) to (batch, width); every layer but the first is residual."""
        first, *others = [*self.shared, *self.own]
        hidden: Tensor = first(x)
        for layer in others:
            hidden = (hidden + layer(hidden)) * SQRT_HALF
        return hidden


class AttentiveTransformer(nn.Module):
    """Decide which features the coming step looks at."""

    def __init__(self, inputs: int, *, features: int, make_norm: NormFactory) -> None:
        super().__init__()
        self.linear = make_linear(inputs, features)
        self.norm = make_norm(features)

    def forward(self, attention: Tensor, prior: Tensor) -> Tensor:
        """A mask of shape (batch, features) whose rows sum to 1; `prior` scales the scores."""
        return sparsemax(self.norm(self.linear(attention)) * prior)


class TabNetEncoder(nn.Module):
    """Look at the row in `steps` steps, each through a mask that spares what was already used."""

    def __init__(
        self,
        features: int,
        *,
        decision_width: int,
        attention_width: int,
        steps: int,
        gamma: float,
        independent: int,
        shared: int,
        make_norm: NormFactory,
    ) -> None:
        super().__init__()
        self.widths = [decision_width, attention_width]
        self.gamma = gamma  # 1: a feature serves one step only; larger: it may serve again
        width = sum(self.widths)
        self.input_norm = nn.BatchNorm1d(features, momentum=INPUT_NORM_MOMENTUM)
        inputs = [features, *[width] * (shared - 1)][:shared]
        linears = [make_linear(size, 2 * width, gated=True) for size in inputs]
        make_transformer = partial(
            FeatureTransformer,
            linears,
            features=features,
            width=width,
            independent=independent,
            make_norm=make_norm,
        )
        # This order is also that of the parameters, and the sum in a clip's norm rounds with it.
        self.shared = nn.ModuleList(linears)
        self.first = make_transformer()
        self.transformers = nn.ModuleList(make_transformer() for _ in range(steps))
        self.attentions = nn.ModuleList(
            AttentiveTransformer(attention_width, features=features, make_norm=make_norm)
            for _ in range(steps)
        )

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Each step's decision, (batch, decision_width), and the masks' mean negative entropy."""
        x = self.input_norm(x)
        each_alone = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        prior = torch.ones_like(x)
        _, attention = self.first(x).split(self.widths, dim=1)
        decisions: list[Tensor] = []
        sparsity = x.new_zeros(())
        for attend, transform in zip(self.attentions, self.transformers, strict=True):
            mask = attend(attention, prior)
            sparsity = sparsity + negative_entropy(mask)
            prior = (self.gamma - mask) * prior
            # The original spreads masks over groups of features. Here each is its own group:
            # exact in float32, but rounding like the original's where matmuls run in TF32.
            seen = (mask @ each_alone) * x
            decision, attention = transform(seen).split(self.widths, dim=1)
            decisions.append(torch.relu(decision))
        return decisions, sparsity / len(decisions)


class TabNet(nn.Module):
    """TabNet for classification on continuous features."""

    def __init__(
        self,
        *,
        features: int,
        classes: int,
        decision_width: int = 8,
        attention_width: int = 8,
        steps: int = 3,
        gamma: float = 1.3,
        independent: int = 2,
        shared: int = 2,
        ghost_batch: int = 128,
        bn_momentum: float = 0.02,
    ) -> None:
        super().__init__()
        check_depth(steps=steps, layers=independent + shared)
        self.encoder = TabNetEncoder(
            features,
            decision_width=decision_width,
            attention_width=attention_width,
            steps=steps,
            gamma=gamma,
            independent=independent,
            shared=shared,
            make_norm=partial(GhostNorm, ghost_batch=ghost_batch, momentum=bn_momentum),
        )
        self.head = make_linear(decision_width, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, (batch, classes), and the sparsity: the masks' mean negative entropy, a scalar.

        Train on `cross_entropy - lambda_sparse * sparsity`; the paper rewards sparse masks.
        """
        decisions, sparsity = self.encoder(x)
        return self.head(torch.stack(decisions).sum(dim=0)), sparsity


def check_depth(*, steps: int, layers: int) -> None:
    """Raise ValueError if there is no step, or no gated layer to take it with."""
    if steps < 1 or layers < 1:
        raise ValueError(
            f"TabNet needs at least 1 step and 1 gated layer, got steps={steps} and "
            f"independent + shared = {layers}."
        )

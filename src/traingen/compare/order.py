"""The order in which one training step makes things: the earliest difference is the cause.

What is found when a micro-batch is handed to the loop (`tail.…`) was made by the end of the
previous update, so it ranks before everything of this one.
"""

from __future__ import annotations

CAUSAL_ORDER = (
    "tail.scheduler", "tail.ema", "tail.sampler", "tail.user", "tail.scaler", "tail.rng",
    "batch", "rng", "prepared_inputs", "forward", "loss_terms", "objective",
    "optimizer", "gradients", "grad_norm", "clipping", "lr", "hyper_parameters",
    "optimizer_state", "parameters", "buffers",
)  # fmt: skip

GATED = tuple(dict.fromkeys(name.removeprefix("tail.") for name in CAUSAL_ORDER))


def causal_rank(quantity: str) -> int:
    """Position of `quantity` in the step, 0 for the earliest."""
    return CAUSAL_ORDER.index(quantity)


def gate_name(quantity: str) -> str:
    """The gate that judges `quantity`: what is found late is judged like what is found in time."""
    return quantity.removeprefix("tail.")

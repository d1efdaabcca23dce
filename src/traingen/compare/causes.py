"""What it usually means that a quantity is the first to differ, and what to look at."""

from __future__ import annotations

from dataclasses import dataclass

from traingen.compare.differences import Difference
from traingen.compare.order import gate_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found, with a stable id."""

    id: str
    severity: str  # error, warning or info; only errors fail
    measured: str
    meaning: str
    fix: str


# gate -> (meaning, fix)
_CAUSES: dict[str, tuple[str, str]] = {
    "scheduler": (
        "The learning-rate schedulers did not tick together, or are not the same in number.",
        'Compare where each is stepped; in Lightning return it with {"interval": "step"}.',
    ),
    "ema": ("The averaged weights were not updated alike.", "Compare decay and update schedule."),
    "sampler": (
        "The samplers hold different state.",
        "Compare history, weights and active branch.",
    ),
    "scaler": ("The gradient scalers differ.", "Compare initial scale, growth and skipped steps."),
    "batch": (
        "The systems computed on different data.",
        "Compare transforms, batch order, drop_last and micro-batches; the model is not to blame.",
    ),
    "rng": (
        "The systems draw different amounts of random numbers.",
        "Compare every dropout, noise, augmentation and logging call of a step on both sides.",
    ),
    "prepared_inputs": (
        "The inputs that the loss is computed from differ on equal batches and equal draws.",
        "Compare noising, normalization, timesteps and masks between batch and model.",
    ),
    "forward": (
        "A module's output differs on equal inputs and equal weights.",
        "Compare this module's computation, its mode (training or not) and its precision.",
    ),
    "loss_terms": (
        "A term of the loss differs on equal data and equal weights.",
        "Compare the forward pass and this term's formula, reduction and masking.",
    ),
    "objective": (
        "The differentiated scalar differs, and no tapped loss term differs before it.",
        "Compare the weights of the terms, their signs, and the division by accumulation.",
    ),
    "optimizer": (
        "The optimizers do not hold the same parameters in the same groups.",
        "Compare which parameters are handed to each, and requires_grad at that moment.",
    ),
    "gradients": (
        "Gradients differ although the objective agrees.",
        "Compare detach, stop-gradient, custom backward, missing zero_grad and frozen parameters.",
    ),
    "grad_norm": ("The total gradient norms differ.", "Compare which parameters have gradients."),
    "clipping": (
        "Gradients agree before clipping and differ after it.",
        "Compare clip value, kind (norm or value) and whether clipping happens at all.",
    ),
    "lr": (
        "The update used another learning rate.",
        "Compare initial rates, warmup and horizon of the schedule.",
    ),
    "hyper_parameters": (
        "The optimizers run with different options.",
        "Compare eps, betas, momentum and weight decay of each parameter group.",
    ),
    "optimizer_state": (
        "Optimizer state differs after equal gradients.",
        "Compare the optimizer's class and the order of its operations.",
    ),
    "parameters": (
        "Parameters differ after equal gradients and equal optimizer state.",
        "Compare the update rule: eps inside or outside of the root, decoupled weight decay.",
    ),
    "buffers": (
        "Buffers moved differently in an otherwise equal update.",
        "Compare BatchNorm momentum and eps conventions and every other running statistic.",
    ),
}


def explain_difference(difference: Difference) -> Finding:
    """The finding for a divergence whose earliest difference is `difference`."""
    gate = gate_name(difference.quantity)
    meaning, fix = _CAUSES[gate]
    when = f"at update {difference.update}"
    if difference.quantity.startswith("tail."):
        when = f"when update {difference.update} began"
        if difference.update > 1:
            when += f", left so by update {difference.update - 1}"
    return Finding(
        id=f"TG-LOCKSTEP-{gate.upper().replace('_', '-')}",
        severity="error",
        measured=(
            f"{difference.path} differs {when}: original {_shown(difference.original)}, "
            f"package {_shown(difference.package)} (gate: {difference.limit})"
        ),
        meaning=meaning,
        fix=fix,
    )


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else f"{text[:16]}…"

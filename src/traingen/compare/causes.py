"""What it usually means that a quantity is the first to differ, and what to look at."""

from __future__ import annotations

from traingen.compare.differences import Difference
from traingen.compare.findings import Finding, FindingKind
from traingen.compare.order import gate_name


def _id(gate: str) -> str:
    return f"TG-LOCKSTEP-{gate.upper().replace('_', '-')}"


def _cause(gate: str, *, title: str, meaning: str, fix: str, example: str) -> FindingKind:
    return FindingKind(
        id=_id(gate), severity="error", title=title, meaning=meaning, fix=fix, example=example
    )


LENGTH = FindingKind(
    id="TG-LOCKSTEP-LENGTH",
    severity="error",
    title="one training ends before the other",
    meaning="The trainings are not equally long.",
    fix="Compare epochs, drop_last, limits of batches and early stopping.",
    example="Trainer(max_epochs=9) where the original trains 10 epochs",
)
ORDER = FindingKind(
    id="TG-LOCKSTEP-ORDER",
    severity="error",
    title="optimizers that take turns in another order",
    meaning="The optimizers do not step in the same order.",
    fix="Compare which of them steps first in a batch, and how often each does.",
    example="the discriminator steps before the generator, the original: after it",
)
EXCUSED = FindingKind(
    id="TG-LOCKSTEP-EXCUSED",
    severity="warning",
    title="excused parameters that train",
    meaning="These parameters train, and nothing here speaks for them.",
    fix="Map them in name_map, or show that they cannot affect the training.",
    example="a head that only the package has, excused in name_map, with a gradient",
)
_CAUSES = (
    _cause(
        "scheduler",
        title="schedulers that do not tick together",
        meaning=(
            "The learning-rate schedulers did not tick together, or are not the same in number."
        ),
        fix="Compare where each is stepped, and how often.",
        example="return [optimizer], [scheduler]  # a tick per epoch, the original: per update",
    ),
    _cause(
        "ema",
        title="averaged weights updated differently",
        meaning="The averaged weights were not updated alike.",
        fix="Compare decay and update schedule.",
        example="decay=0.999 where the original warms up with min(0.999, (1 + n) / (10 + n))",
    ),
    _cause(
        "sampler",
        title="samplers in different state",
        meaning="The samplers hold different state.",
        fix="Compare history, weights and active branch.",
        example="an importance sampler of timesteps fed with the mean loss, not each sample's",
    ),
    _cause(
        "user",
        title="state of your own that differs",
        meaning="A probe read different values.",
        fix="Compare what each side does with this state between two updates, and when.",
        example="a temperature that cools per epoch, the original's: per update",
    ),
    _cause(
        "scaler",
        title="gradient scalers that differ",
        meaning="The gradient scalers differ.",
        fix="Compare initial scale, growth and skipped steps.",
        example="GradScaler(init_scale=2.0**10) where the original keeps 2.0**16",
    ),
    _cause(
        "batch",
        title="different data",
        meaning="The systems computed on different data.",
        fix=(
            "Compare transforms, batch order, drop_last and micro-batches; the model is not to "
            "blame."
        ),
        example="DataLoader(..., drop_last=True) where the original keeps the last batch",
    ),
    _cause(
        "rng",
        title="different draws of random numbers",
        meaning="The systems draw different amounts of random numbers.",
        fix="Compare every dropout, noise, augmentation and logging call of a step on both sides.",
        example="torch.randn(8, latent) in training_step, to log what the model generates",
    ),
    _cause(
        "prepared_inputs",
        title="inputs prepared differently",
        meaning=(
            "The inputs that the loss is computed from differ on equal batches and equal draws."
        ),
        fix="Compare noising, normalization, timesteps and masks between batch and model.",
        example="images scaled to [0, 1] in training_step where the original scales to [-1, 1]",
    ),
    _cause(
        "forward",
        title="a module that computes something else",
        meaning="A module's output differs on equal inputs and equal weights.",
        fix="Compare this module's computation, its mode (training or not) and its precision.",
        example="nn.GELU() where the original has nn.GELU(approximate='tanh')",
    ),
    _cause(
        "loss_terms",
        title="a term of the loss that differs",
        meaning="A term of the loss differs on equal data and equal weights.",
        fix="Compare the forward pass and this term's formula, reduction and masking.",
        example="reduction='mean' over all tokens where the original leaves the padding out",
    ),
    _cause(
        "objective",
        title="another scalar differentiated",
        meaning="The differentiated scalar differs, and no tapped loss term differs before it.",
        fix="Compare the weights of the terms, their signs, and the division by accumulation.",
        example="loss + 1e-3 * sparsity where the original has loss - 1e-3 * sparsity",
    ),
    _cause(
        "optimizer",
        title="optimizers that hold other parameters",
        meaning="The optimizers do not hold the same parameters in the same groups.",
        fix="Compare which parameters are handed to each, and requires_grad at that moment.",
        example="AdamW(model.parameters()) where the original puts biases in a group without decay",
    ),
    _cause(
        "gradients",
        title="gradients that differ on an equal objective",
        meaning="Gradients differ although the objective agrees.",
        fix=(
            "Compare detach, stop-gradient, custom backward, missing zero_grad and frozen "
            "parameters."
        ),
        example="target = encoder(x) where the original has encoder(x).detach()",
    ),
    _cause(
        "grad_norm",
        title="total gradient norms that differ",
        meaning="The total gradient norms differ.",
        fix="Compare which parameters have gradients.",
        example="a head of the package only, excused in name_map: its gradient counts in the norm",
    ),
    _cause(
        "clipping",
        title="gradients clipped differently",
        meaning="Gradients agree before clipping and differ after it.",
        fix="Compare clip value, kind (norm or value) and whether clipping happens at all.",
        example="Trainer(gradient_clip_val=1.0, gradient_clip_algorithm='value')  # original: norm",
    ),
    _cause(
        "lr",
        title="another learning rate",
        meaning="The update used another learning rate.",
        fix="Compare initial rates, warmup and horizon of the schedule.",
        example="Adam(parameters)  # its default rate is 1e-3, the original passes lr=2e-2",
    ),
    _cause(
        "hyper_parameters",
        title="other options of the optimizer",
        meaning="The optimizers run with different options.",
        fix="Compare eps, betas, momentum and weight decay of each parameter group.",
        example="AdamW(parameters)  # decays by 1e-2 unless told otherwise, the original by 0",
    ),
    _cause(
        "optimizer_state",
        title="optimizer state that differs",
        meaning="Optimizer state differs after equal gradients.",
        fix="Compare the optimizer's class and the order of its operations.",
        example="momentum = 0.9 * momentum + 0.1 * grad  # the original: 0.9 * momentum + grad",
    ),
    _cause(
        "parameters",
        title="an update rule that differs",
        meaning="Parameters differ after equal gradients and equal optimizer state.",
        fix="Compare the update rule: eps inside or outside of the root, decoupled weight decay.",
        example="square_average.add(eps).sqrt()  # the original: square_average.sqrt().add(eps)",
    ),
    _cause(
        "buffers",
        title="buffers that moved differently",
        meaning="Buffers moved differently in an otherwise equal update.",
        fix="Compare BatchNorm momentum and eps conventions and every other running statistic.",
        example="BatchNorm1d(8, momentum=0.9)  # the original's 0.9 is the share kept: torch's 0.1",
    ),
)
KINDS = (*_CAUSES, LENGTH, ORDER, EXCUSED)
_BY_ID = {kind.id: kind for kind in _CAUSES}


def explain_difference(difference: Difference) -> Finding:
    """The finding for a divergence whose earliest difference is `difference`."""
    when = f"at update {difference.update}"
    if difference.quantity.startswith("tail."):
        when = f"when update {difference.update} began"
        if difference.update > 1:
            when += f", left so by update {difference.update - 1}"
    return _BY_ID[_id(gate_name(difference.quantity))].found(
        f"{difference.path} differs {when}: original {_shown(difference.original)}, "
        f"package {_shown(difference.package)} (gate: {difference.limit})"
    )


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 40 else f"{text[:16]}…"

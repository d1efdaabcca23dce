"""Every kind of finding about one recording: its stable id, meaning, way out and an example."""

from __future__ import annotations

from traingen.compare.findings import FindingKind

NONFINITE = FindingKind(
    id="TG-RECORD-NONFINITE",
    severity="error",
    title="an update with gradients that are no numbers",
    meaning=(
        "The optimizer applied NaN or infinite gradients: the weights are not numbers any more, "
        "and no later update repairs them."
    ),
    fix=(
        "Look at the batch and the loss terms of the first one, which the recording holds; lower "
        "the rate or clip if the norms grow before it."
    ),
    example="loss = torch.log(probability).mean()  # a probability of 0",
)
NONFINITE_LOSS = FindingKind(
    id="TG-RECORD-NONFINITE-LOSS",
    severity="warning",
    title="a loss that is no number, with gradients that are",
    meaning=(
        "The loss, or the norm before clipping, is NaN or infinite while the applied gradients "
        "are finite, or were cleared: the weights are intact, but such a loss teaches nothing or "
        "only in part."
    ),
    fix="Find the term of the loss that overflows, and the samples that bring it about.",
    example="loss = cross_entropy + torch.tensor(float('inf'))  # a constant has no gradient",
)
CLIP_LIMIT = FindingKind(
    id="TG-RECORD-CLIP-LIMIT",
    severity="error",
    title="gradients beyond the declared limit",
    meaning=(
        "The run declares that gradients are clipped, and the optimizer applied larger ones than "
        "the limit leaves: clipping does not work, or is undone before the step."
    ),
    fix=(
        "Call self.clip_gradients in an overridden configure_gradient_clipping, and change no "
        "gradient after it."
    ),
    example="def configure_gradient_clipping(self, *args, **kwargs): pass  # gradient_clip_val=1",
)
CLIP_BEFORE_BACKWARD = FindingKind(
    id="TG-RECORD-CLIP-BEFORE-BACKWARD",
    severity="error",
    title="a clip before the backward",
    meaning=(
        "Gradients were clipped before any backward had reached them: the clip had nothing to "
        "do, and the optimizer applied them as they came. A warning while none was too large."
    ),
    fix="Clip between backward and step: Trainer(gradient_clip_val=…) in automatic optimization.",
    example="torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0) in training_step",
)
CLIP_SCALED = FindingKind(
    id="TG-RECORD-CLIP-SCALED",
    severity="error",
    title="a clip of gradients with the AMP scale in them",
    meaning=(
        "Gradients were clipped before the scaler divided its scale out: the limit in effect is "
        "smaller by that scale, and moves with it."
    ),
    fix="Call scaler.unscale_(optimizer) before the clip.",
    example="scaler.scale(loss).backward(); clip_grad_norm_(parameters, 1.0); scaler.step(o)",
)
EMA_NEVER = FindingKind(
    id="TG-RECORD-EMA-NEVER",
    severity="error",
    title="averaged weights that are never updated",
    meaning=(
        "Updates were made and the average took in none of them: what is validated and saved as "
        "averaged weights is the model as it began."
    ),
    fix=(
        "Lightning's average is due where (global_step - 1) is divisible by update_every_n_steps, "
        "looked at once per batch; with two optimizers that may never be: set it to 1."
    ),
    example="EMAWeightAveraging(update_every_n_steps=2) with two optimizers that step per batch",
)
EMA_CADENCE = FindingKind(
    id="TG-RECORD-EMA-CADENCE",
    severity="error",
    title="averaged weights updated at another pace than asked for",
    meaning=(
        "The average was updated clearly more or less often than its setting says: the setting "
        "is not in effect, or counts something else. A warning if the setting is every step."
    ),
    fix="Let should_update go by update_every_n_steps, or count what the loop counts.",
    example="def should_update(self, step_idx=None, epoch_idx=None): return step_idx is not None",
)
EMA_SKIPPED = FindingKind(
    id="TG-RECORD-EMA-SKIPPED",
    severity="warning",
    title="averaging on steps that a scaler skipped",
    meaning=(
        "The average counted steps that changed no weight: it weighs the weights before them "
        "once more for each, and a decay that warms up is ahead."
    ),
    fix="Update the average only after steps that were applied, or start with a lower scale.",
    example="Trainer(precision='16-mixed', callbacks=[EMAWeightAveraging()]) in its first updates",
)
EMA_DEVICE = FindingKind(
    id="TG-RECORD-EMA-DEVICE",
    severity="warning",
    title="averaged weights on another device than the model",
    meaning=(
        "Every update of the average copies all weights between devices. After a resume it may "
        "be nobody's wish: the average was loaded before the model was moved."
    ),
    fix="Move the average to the model's device, unless its memory is what you save.",
    example="an average made in load_state_dict, while the model is still on the CPU",
)
AVERAGE_MOVED = FindingKind(
    id="TG-RECORD-AVERAGE-MOVED",
    severity="warning",
    title="averaged weights that an old gradient has moved",
    meaning=(
        "The epoch that stochastic weight averaging adds for batch norms runs no backward, and yet "
        "Lightning steps at its end, on the gradients that the epoch before has left: the averaged "
        "weights, which are in the model by then, move once more."
    ),
    fix="Clear the gradients when that epoch starts, or average a model without batch norms.",
    example="StochasticWeightAveraging(0.05) with a model that has BatchNorm layers",
)
NO_GRADIENT = FindingKind(
    id="TG-RECORD-NO-GRADIENT",
    severity="warning",
    title="updates without a gradient",
    meaning=(
        "The optimizer stepped and no backward had reached its parameters since their gradients "
        "were cleared. The step counts, the "
        "schedule goes on, and momentum or weight decay may still move the weights. An error if "
        "an optimizer made 3 updates or more and never had a gradient: it trains nothing."
    ),
    fix="Leave the step out as well, or find why the loss does not reach these parameters.",
    example="return None in training_step, to leave a batch out",
)
NO_UPDATE = FindingKind(
    id="TG-RECORD-NO-UPDATE",
    severity="warning",
    title="counted steps without an update",
    meaning=(
        "The loop counted steps in which no optimizer stepped: global_step, schedules and "
        "max_steps run ahead of the updates. An error if the run came to its end and no update "
        "was ever made: nothing was trained."
    ),
    fix="Step in every call of an overridden optimizer_step, or use manual optimization.",
    example="def optimizer_step(self, epoch, batch_idx, optimizer, closure): closure()",
)
UNCOUNTED = FindingKind(
    id="TG-RECORD-UNCOUNTED",
    severity="warning",
    title="updates that the loop does not count",
    meaning=(
        "An optimizer stepped behind the loop's back: global_step, max_steps, checkpoints by step "
        "and averaging do not count these updates."
    ),
    fix="Step the optimizers that self.optimizers() returns.",
    example="self.optimizers(use_pl_optimizer=False).step() in manual optimization",
)
OPTIMIZER_FOUND = FindingKind(
    id="TG-RECORD-OPTIMIZER-FOUND",
    severity="warning",
    title="an optimizer that the loop was never given",
    meaning=(
        "An optimizer stepped that configure_optimizers did not return: it is in no checkpoint, "
        "so a resume begins without its state, and nothing ticks its schedule."
    ),
    fix="Return it from configure_optimizers.",
    example="self.inner = torch.optim.SGD(self.head.parameters(), 0.1) in __init__",
)
PARTIAL_WINDOW = FindingKind(
    id="TG-RECORD-PARTIAL-WINDOW",
    severity="warning",
    title="fewer micro-batches than the loss was divided by",
    meaning=(
        "The last window of an epoch is cut short, or a micro-batch in it had no loss, and the "
        "losses are divided as if it were whole: the gradient is too small by that factor."
    ),
    fix=(
        "Use a number of batches that accumulate_grad_batches divides (drop_last, "
        "limit_train_batches) and leave none of them out, or expect it where the original divides "
        "otherwise."
    ),
    example="Trainer(accumulate_grad_batches=2) with 5 batches per epoch",
)
SKIPPED = FindingKind(
    id="TG-RECORD-SKIPPED",
    severity="info",
    title="steps that a scaler skipped",
    meaning=(
        "Gradients overflowed and the scaler left the steps out: they are counted by the loop "
        "and are no updates. A few at the start are usual."
    ),
    fix="Nothing, if they are few; a lower initial scale saves them.",
    example="torch.amp.GradScaler(init_scale=2.0**16) in its first steps",
)
SCALE_COLLAPSED = FindingKind(
    id="TG-RECORD-SCALE-COLLAPSED",
    severity="warning",
    title="a gradient scale that collapsed",
    meaning=(
        "So many steps were skipped in a row, or the scale fell below 1, that it is not overflow "
        "which the scaler finds: the gradients are no numbers at any scale. An error if no update "
        "followed 20 skipped steps, or 5 in a run that came to its end without any update: the "
        "training stands still."
    ),
    fix="Look for NaN in the loss without scaling: train some updates in full precision.",
    example="a loss that is NaN on every batch, with Trainer(precision='16-mixed')",
)
TICKED_ON_SKIPPED = FindingKind(
    id="TG-RECORD-TICKED-ON-SKIPPED",
    severity="warning",
    title="ticks on steps that applied nothing",
    meaning=(
        "The scheduler moved on although a scaler, or the module itself, had left the step out: "
        "the schedule is ahead of the updates by as many."
    ),
    fix="Leave the tick out as well in lr_scheduler_step, or lower the scaler's initial scale.",
    example="scaler.step(optimizer); scaler.update(); scheduler.step()",
)
REWOUND = FindingKind(
    id="TG-RECORD-REWOUND",
    severity="warning",
    title="a schedule that went back",
    meaning=(
        "A scheduler's last_epoch went down, or lags behind its ticks since some were undone: "
        "rates are used again."
    ),
    fix="Skip the tick instead of setting last_epoch back.",
    example="scheduler.last_epoch -= 2; scheduler.step()  # after a skipped step",
)
SWAPPED = FindingKind(
    id="TG-RECORD-SWAPPED",
    severity="info",
    title="a schedule handed over to stochastic weight averaging",
    meaning=(
        "Lightning's StochasticWeightAveraging put its own scheduler in place of yours: it ticks "
        "once per epoch, whatever the interval was."
    ),
    fix="Nothing, if that is meant.",
    example="StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=0.8)",
)
REPLACED = FindingKind(
    id="TG-RECORD-REPLACED",
    severity="error",
    title="another scheduler in effect",
    meaning=(
        "A scheduler was put in the place of the one that training began with: the schedule that "
        "was configured is not the one that ran."
    ),
    fix="Build one schedule with SequentialLR instead of swapping schedulers.",
    example="self.trainer.lr_scheduler_configs[0].scheduler = other  # in training_step",
)
GLOBAL_STEP = FindingKind(
    id="TG-RECORD-GLOBAL-STEP",
    severity="info",
    title="a global_step that counts every optimizer",
    meaning=(
        "With several optimizers Lightning's global_step counts the steps of all of them: "
        "max_steps, checkpoints and averaging by step come sooner than updates of one suggest."
    ),
    fix="Multiply limits in steps by the number of optimizers, or count epochs.",
    example="Trainer(max_steps=10) with two optimizers: 5 batches",
)
CLOSURE = FindingKind(
    id="TG-RECORD-CLOSURE",
    severity="info",
    title="closures evaluated several times per update",
    meaning=(
        "The optimizer evaluates its closure, forward and backward included, more than once for "
        "one update: per-batch hooks and metrics run as often."
    ),
    fix="Nothing; compare the first objective of an update with an original that logs it.",
    example="torch.optim.LBFGS(parameters, max_iter=4)",
)
RATE_MOVED = FindingKind(
    id="TG-RECORD-RATE-MOVED",
    severity="warning",
    title="a resume that trains at other rates",
    meaning=(
        "Updates after the checkpoint were made again with another learning rate or another "
        "hyper-parameter: the resumed attempt does not follow the schedule of the one that it "
        "goes on from."
    ),
    fix=(
        "If it is not meant, resume with the same optimizer and scheduler, and restore the state "
        "of both; a horizon in a checkpoint overrides the one given to the constructor."
    ),
    example="LambdaLR(optimizer, lambda k: 0.9**k), resumed with lambda k: 0.1",
)
DATA_PLACE = FindingKind(
    id="TG-RECORD-DATA-PLACE",
    severity="warning",
    title="data used twice or left out after a resume",
    meaning=(
        "The resumed attempt did not go on in the data where its checkpoint stood: it has batches "
        "of the epoch under way again, begins before the checkpoint, or leaves a whole epoch out; "
        "or it made updates of that epoch again with other batches. Then some data come twice and "
        "some never, unless they only look different, as by augmentation."
    ),
    fix=(
        "Resume at the end of an epoch, or with a loader that restores its state (state_dict and "
        "load_state_dict)."
    ),
    example="fit --ckpt_path=last.ckpt in the middle of an epoch, with a plain DataLoader",
)
NOT_REPEATED = FindingKind(
    id="TG-RECORD-NOT-REPEATED",
    severity="info",
    title="a resume that does not repeat what was made before",
    meaning=(
        "Updates after the checkpoint were made again with other values. A checkpoint need hold "
        "neither random generators nor the place in the data; another order of an epoch that began "
        "after the checkpoint is harmless. Random generators alone are not told."
    ),
    fix="Nothing, or resume with a loader and generators that restore their state.",
    example="fit --ckpt_path=last.ckpt at the end of an epoch, with shuffle=True",
)
RANKS = FindingKind(
    id="TG-RECORD-RANKS",
    severity="error",
    title="ranks that train different models",
    meaning=(
        "The ranks of one run had different rates, ticks, applied gradients or parameters in the "
        "same update: each trains a model of its own, and only that of rank 0 is saved."
    ),
    fix=(
        "Build optimizers and schedulers alike on every rank, step them at the same updates, and "
        "let gradients be averaged: call the wrapped model, not the module within."
    ),
    example="torch.optim.SGD(parameters, lr=0.05 if self.global_rank == 0 else 0.3)",
)

KINDS = (
    NONFINITE, NONFINITE_LOSS, CLIP_LIMIT, CLIP_BEFORE_BACKWARD, CLIP_SCALED, EMA_NEVER,
    EMA_CADENCE, EMA_SKIPPED, EMA_DEVICE, AVERAGE_MOVED, NO_GRADIENT, NO_UPDATE, UNCOUNTED,
    OPTIMIZER_FOUND, PARTIAL_WINDOW, SKIPPED, SCALE_COLLAPSED, TICKED_ON_SKIPPED, REWOUND, SWAPPED,
    REPLACED, GLOBAL_STEP, CLOSURE, RATE_MOVED, DATA_PLACE, NOT_REPEATED, RANKS,
)  # fmt: skip

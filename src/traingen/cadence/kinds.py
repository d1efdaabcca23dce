"""Every kind of finding about cadence: its stable id, its meaning, its way out, an example."""

from __future__ import annotations

from traingen.compare.findings import FindingKind

WRITE_STEP = (
    'Return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, '
    '"interval": "step"}} from configure_optimizers.'
)

EPOCH = FindingKind(
    id="TG-SCHED-EPOCH",
    severity="error",
    title="epoch interval for a step schedule",
    meaning=(
        "The schedule is written in updates and ticks once per epoch: the run trains at the rates "
        "of its first few steps. The loss may look right; the quality collapses."
    ),
    fix=WRITE_STEP,
    example="return [optimizer], [OneCycleLR(optimizer, 0.1, total_steps=900)]  # 10 epochs",
)
STEP = FindingKind(
    id="TG-SCHED-STEP",
    severity="error",
    title="step interval for an epoch schedule",
    meaning="The schedule is expected to tick once per epoch and ticks at every update.",
    fix='Set "interval": "epoch", or expect "step".',
    example='CadenceGuard(expected="epoch") on {"scheduler": scheduler, "interval": "step"}',
)
UNSURE = FindingKind(
    id="TG-SCHED-UNSURE",
    severity="warning",
    title="epoch interval by default, and no proof that it is meant",
    meaning=(
        "Nobody asked for an interval, so Lightning ticks once per epoch. Whether the schedule is "
        "meant that way cannot be told from it."
    ),
    fix=(
        'Say which: CadenceGuard(expected="epoch") if it is right (or write "interval": "epoch"); '
        'if not, "interval": "step".'
    ),
    example='return {"optimizer": o, "lr_scheduler": {"scheduler": MySchedule(o), "name": "x"}}',
)
MISPLACED_KEY = FindingKind(
    id="TG-SCHED-MISPLACED-KEY",
    severity="error",
    title="interval or frequency where nothing reads it",
    meaning=(
        "The key stands in the optimizer's dictionary, beside lr_scheduler, or is misspelt in the "
        "scheduler's own: Lightning drops it with a warning and uses its default."
    ),
    fix=f"Write it into the scheduler's own dictionary. {WRITE_STEP}",
    example='return {"optimizer": o, "lr_scheduler": s, "interval": "step"}',
)
INVALID_INTERVAL = FindingKind(
    id="TG-SCHED-INVALID-INTERVAL",
    severity="error",
    title="an interval Lightning does not know, in manual optimization",
    meaning=(
        'Manual optimization accepts any text as interval. Only "step" and "epoch" mean '
        "something, and only to what logs the rate: your code ticks."
    ),
    fix='Write "interval": "step" or "epoch", and call scheduler.step() there.',
    example='{"scheduler": s, "interval": "steps"} with automatic_optimization = False',
)
FREQUENCY_NEVER = FindingKind(
    id="TG-SCHED-FREQUENCY-NEVER",
    severity="error",
    title="a frequency that never fires",
    meaning=(
        "By step, Lightning ticks where the number of the batch in its epoch is divisible by "
        "frequency and the optimizer steps; by epoch, where the number of the epoch is. In this "
        "run that never happens, or the division fails."
    ),
    fix="Set frequency to 1 and write the pace into the schedule itself.",
    example='{"scheduler": s, "interval": "step", "frequency": 3}  # 2 batches per epoch',
)
FREQUENCY_BATCHES = FindingKind(
    id="TG-SCHED-FREQUENCY-BATCHES",
    severity="warning",
    title="frequency counts batches of the epoch, not updates",
    meaning=(
        "A frequency above 1 counts batches, starts anew each epoch and fires only at a batch that "
        "steps, so the ticks need not be evenly spaced in updates."
    ),
    fix="Set frequency to 1 and write the pace into the schedule itself.",
    example='{"scheduler": s, "interval": "step", "frequency": 4}  # accumulation 3',
)
TICK_WITHOUT_UPDATE = FindingKind(
    id="TG-SCHED-TICK-WITHOUT-UPDATE",
    severity="error",
    title="a tick without an update",
    meaning="The scheduler moved on, and its optimizer has applied nothing since its last tick.",
    fix=(
        "Tick only after an update of its optimizer: with accumulation where it steps, and not by "
        "your own scheduler.step() beside Lightning's."
    ),
    example="self.lr_schedulers().step() in training_step, beside Lightning's own tick",
)
UPDATE_WITHOUT_TICK = FindingKind(
    id="TG-SCHED-UPDATE-WITHOUT-TICK",
    severity="error",
    title="an update whose tick did not come",
    meaning="The schedule was due and did not move: it falls behind the updates.",
    fix="Call scheduler.step() there, and call it in an overridden lr_scheduler_step.",
    example="def lr_scheduler_step(self, scheduler, metric): pass",
)
HORIZON = FindingKind(
    id="TG-SCHED-HORIZON",
    severity="warning",
    title="the schedule's horizon does not match the run",
    meaning="The schedule ends before the run does, or the run before the schedule.",
    fix="Compute the horizon from trainer.estimated_stepping_batches, or in epochs if it ticks so.",
    example="CosineAnnealingLR(o, T_max=len(loader) * epochs) with accumulate_grad_batches=4",
)
RISING = FindingKind(
    id="TG-SCHED-RISING",
    severity="warning",
    title="the rate rises after its horizon",
    meaning="A cosine is periodic: past its horizon the rate climbs again, late in training.",
    fix="Set T_max to the number of ticks of the whole run.",
    example="CosineAnnealingLR(o, T_max=4) over 8 updates",
)
UNKNOWN_HORIZON = FindingKind(
    id="TG-SCHED-UNKNOWN-HORIZON",
    severity="error",
    title="a horizon that is no length",
    meaning=(
        "The horizon was computed from a length that was not known (Lightning then gives -1, or "
        "infinity), and the schedule is nonsense: a cosine over -1 alternates between two rates."
    ),
    fix="Give max_steps to the Trainer, or write the horizon as a number.",
    example="CosineAnnealingLR(o, T_max=trainer.estimated_stepping_batches)  # iterable data",
)
PLATEAU_STALE = FindingKind(
    id="TG-SCHED-PLATEAU-STALE",
    severity="warning",
    title="a scheduler that follows a metric, fed an old value or none",
    meaning=(
        "A scheduler that follows a metric was ticked with a value that had not been measured "
        "again, or was due and the metric was missing: it does not follow what it seems to."
    ),
    fix="Set frequency to check_val_every_n_epoch, and log the monitored metric each time.",
    example=(
        '{"scheduler": plateau, "monitor": "val_loss", "strict": False} with '
        "check_val_every_n_epoch=5"
    ),
)
PLATEAU_STEPS = FindingKind(
    id="TG-SCHED-PLATEAU-STEPS",
    severity="warning",
    title="patience spent on updates",
    meaning=(
        "With interval step the same validation result is fed again at every update, so patience "
        "is used up between two validations."
    ),
    fix='Set "interval": "epoch" for a ReduceLROnPlateau that monitors validation.',
    example='{"scheduler": plateau, "monitor": "val_loss", "interval": "step", "strict": False}',
)
CLI_DROPPED = FindingKind(
    id="TG-SCHED-CLI-DROPPED",
    severity="error",
    title="the command line's scheduler was dropped",
    meaning="LightningCLI uses lr_scheduler only if an optimizer is given too; it says nothing.",
    fix="Give --optimizer as well, or build both in the model.",
    example="fit --lr_scheduler=CosineAnnealingLR --lr_scheduler.T_max=900  # no --optimizer",
)
CLI_OVERRIDDEN = FindingKind(
    id="TG-SCHED-CLI-OVERRIDDEN",
    severity="warning",
    title="configure_optimizers overridden by the command line",
    meaning="The model's own optimizers and schedulers are not used: the command line's are.",
    fix="Drop --optimizer to use the model's, or drop its configure_optimizers.",
    example="fit --optimizer=SGD with a model that defines configure_optimizers",
)
PARAMETERS_LEFT = FindingKind(
    id="TG-OPT-PARAMETERS-LEFT",
    severity="warning",
    title="parameters that no optimizer holds",
    meaning="They ask for a gradient and no optimizer holds them as training starts.",
    fix="Hand them to the optimizer, or set requires_grad to False.",
    example="a layer made in configure_model, after the command line built the optimizer",
)
NEVER_STEPPED = FindingKind(
    id="TG-SCHED-NEVER-STEPPED",
    severity="error",
    title="a manual scheduler that was never stepped",
    meaning="In manual optimization nobody ticks but your code, and it did not.",
    fix="Call self.lr_schedulers().step() after the optimizer's step.",
    example="automatic_optimization = False without a single scheduler.step()",
)
REWOUND = FindingKind(
    id="TG-SCHED-REWOUND",
    severity="warning",
    title="a scheduler rewound",
    meaning="Its last_epoch went down during training: part of the schedule runs again.",
    fix="Skip the tick instead of setting last_epoch back.",
    example="scheduler.last_epoch -= 2; scheduler.step()  # to undo a skipped AMP step",
)
RATE_MOVED = FindingKind(
    id="TG-SCHED-RATE-MOVED",
    severity="warning",
    title="the rate moved and no scheduler ticked",
    meaning="Something other than a scheduler writes the rate; the schedule alone does not say it.",
    fix="Put the change into the schedule; otherwise no forecast knows of it.",
    example='optimizer.param_groups[0]["lr"] = 1e-4 in optimizer_step',
)
CHECKPOINT = FindingKind(
    id="TG-SCHED-CHECKPOINT",
    severity="warning",
    title="a scheduler overridden by a checkpoint",
    meaning="The checkpoint's horizon or rates replaced what the configuration says now.",
    fix="Resume with the old configuration, or start anew from Model.load_from_checkpoint.",
    example="fit --ckpt_path=last.ckpt with T_max=2000 where the checkpoint says 1000",
)
SWAPPED = FindingKind(
    id="TG-SCHED-SWAPPED",
    severity="info",
    title="stochastic weight averaging took over the schedule",
    meaning="Lightning's SWA replaces the scheduler by its own, which ticks once per epoch.",
    fix="Nothing, if that is meant.",
    example="StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=2)",
)
REPLACED = FindingKind(
    id="TG-SCHED-REPLACED",
    severity="error",
    title="a scheduler replaced during training",
    meaning="Another scheduler than the one at the start of training is in effect.",
    fix="Build one schedule with SequentialLR instead of swapping schedulers.",
    example="trainer.lr_scheduler_configs[0].scheduler = other",
)
SKIPPED = FindingKind(
    id="TG-SCHED-SKIPPED",
    severity="warning",
    title="the scheduler ran on skipped steps",
    meaning=(
        "The gradient scaler (non-finite gradients) or the module's own optimizer_step left "
        "updates out, and Lightning ticked all the same: the schedule is ahead by as many."
    ),
    fix="Leave the tick out as well in lr_scheduler_step, or lower a scaler's initial scale.",
    example="Trainer(precision='16-mixed') in its first updates",
)
REFERENCE = FindingKind(
    id="TG-SCHED-REFERENCE",
    severity="error",
    title="a rate that is not the reference's",
    meaning="The update used another rate than the original run at the same update.",
    fix="Compare initial rate, warmup, horizon and interval with the original's.",
    example="warmup of 500 updates where the original takes 1000",
)
REFERENCE_SHORT = FindingKind(
    id="TG-SCHED-REFERENCE-SHORT",
    severity="warning",
    title="fewer rates compared than asked for",
    meaning="The reference or the run ended before the number of updates to compare.",
    fix="Record a longer reference, train longer, or lower reference_updates.",
    example="a reference of 40 updates with reference_updates=300",
)
NONE = FindingKind(
    id="TG-SCHED-NONE",
    severity="error",
    title="no scheduler where one is expected",
    meaning="The rate will be constant: there is no scheduler to hold to a cadence.",
    fix="Return the scheduler from configure_optimizers, or drop the expectation.",
    example='CadenceGuard(expected="step") on a module that returns only its optimizer',
)
NOT_HEARD = FindingKind(
    id="TG-SCHED-NOT-HEARD",
    severity="warning",
    title="ticks or updates that cannot be heard",
    meaning=(
        "It is no torch LRScheduler, or its optimizer's steps do not pass through torch's hooks: "
        "its cadence is not judged."
    ),
    fix="Compare its rates with a reference: CadenceGuard(expected=REFERENCE).",
    example="timm's CosineLRScheduler with an overridden lr_scheduler_step",
)
EVICTED = FindingKind(
    id="TG-CALLBACK-EVICTED",
    severity="warning",
    title="a callback evicted by configure_callbacks",
    meaning=(
        "The model returned a callback of the same class or of a subclass, and Lightning removed "
        "the one you gave: its settings are gone."
    ),
    fix="Drop the callback from configure_callbacks, or from your configuration.",
    example="def configure_callbacks(self): return [StepRecorder('elsewhere')]",
)

KINDS = (
    EPOCH, STEP, UNSURE, MISPLACED_KEY, INVALID_INTERVAL, FREQUENCY_NEVER, FREQUENCY_BATCHES,
    TICK_WITHOUT_UPDATE, UPDATE_WITHOUT_TICK, HORIZON, RISING, UNKNOWN_HORIZON, PLATEAU_STALE,
    PLATEAU_STEPS, CLI_DROPPED, CLI_OVERRIDDEN, PARAMETERS_LEFT, NEVER_STEPPED, REWOUND,
    RATE_MOVED, CHECKPOINT, SWAPPED, REPLACED, SKIPPED, REFERENCE, REFERENCE_SHORT, NONE,
    NOT_HEARD, EVICTED,
)  # fmt: skip

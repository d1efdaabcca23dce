"""What is written down: the four kinds of record of a recording, format 1.

Fields stand in file order. Every field is required on the line, null where the loop has none of
it; whether this observer could have seen it is said by `RunRecord.observes`. Only `user` (probes)
may be left out. `unknown` is not written under that name: it holds the fields of a newer writer,
in their order, and they go back onto the line after `user`.

Moments: *begin* is the hand-over of the update's first micro-batch to the loop, *root* each entry
into backward, *complete* the entry of the clip (without one, the outermost optimizer post-hook),
*applied* the outermost optimizer post-hook. What is found at begin belongs to the tail of the
update before.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

FORMAT = 1
DIGEST_ALGORITHM = "sha256"

Count = Annotated[int, Meta(ge=0)]
Ordinal = Annotated[int, Meta(ge=1)]
Unknown = dict[str, Any]


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a record."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """A whole line; the subclass names its kind."""


class SchedulerState(_Value, frozen=True, kw_only=True):
    """Where one scheduler stands at begin (in the `end` line: at the end)."""

    id: int  # position among the run's schedulers
    last_epoch: int | float | None  # the scheduler's own counter; null if it keeps none
    ticks: int  # outermost step() calls since construction
    unknown: Unknown = msgspec.field(default_factory=dict)


class BatchFacts(_Value, frozen=True, kw_only=True):
    """Which data an update was given, over all its micro-batches."""

    digest: str  # of the batch as handed to the loop, hex, by `RunRecord.digest_algorithm`
    ids: list[int | str] | None  # sample ids in batch order; null if the loop shows none
    unknown: Unknown = msgspec.field(default_factory=dict)


class SchedulerIdentity(_Value, frozen=True, kw_only=True):
    """Which scheduler it is and how often the loop ticks it, as in effect."""

    id: int  # position among the run's schedulers
    class_path: str
    optimizer: int  # index of the optimizer it drives
    interval: str | None  # "step" or "epoch"; null if the loop does not say
    frequency: int | None  # in intervals
    unknown: Unknown = msgspec.field(default_factory=dict)


class OptimizerIdentity(_Value, frozen=True, kw_only=True):
    """Which optimizer it is and how much it owns."""

    index: int
    class_path: str
    groups: int  # parameter groups
    parameters: int  # elements over all its tensors
    unknown: Unknown = msgspec.field(default_factory=dict)


class ResumeFacts(_Value, frozen=True, kw_only=True):
    """Where the checkpoint stood that an attempt was resumed from.

    Of the attempt that made it later updates are superseded, of all others beside its own line too.
    """

    attempt: Ordinal | None  # in which the checkpoint was made; null if it does not say
    attempt_id: str | None  # of that attempt, as rank 0 recorded it
    updates: list[Count]  # completed at the checkpoint, by optimizer
    global_step: int | None
    epoch: int | None  # 0-based
    batches: Count | None  # of that epoch, done at the checkpoint
    checkpoint: str | None  # as given to the loop
    unknown: Unknown = msgspec.field(default_factory=dict)


class ClosureFacts(_Value, frozen=True, kw_only=True):
    """How an optimizer that was given a closure used it (LBFGS evaluates it several times)."""

    evaluations: Count
    first_objective: float | None  # of the first evaluation: where the parameters stood before
    last_objective: float | None
    unknown: Unknown = msgspec.field(default_factory=dict)


class ShardFacts(_Value, frozen=True, kw_only=True):
    """This rank's share of the squared gradient norms, where parameters are sharded (DTensor).

    What several ranks hold alike is divided by their number, so that the sum over all ranks is the
    square of the whole norm.
    """

    grad_norm_squared: float  # complete: before clipping
    grad_norm_clipped_squared: float  # applied
    unknown: Unknown = msgspec.field(default_factory=dict)


class RunRecord(_Line, frozen=True, kw_only=True, tag="run"):
    """What ran, with what and on what; the first line of each attempt."""

    format: Ordinal  # a reader refuses a higher one than its own FORMAT
    run_id: str  # kept when the run is resumed
    attempt: int  # from 1; a resume (a checkpoint was loaded) opens the next
    attempt_id: str  # of its own, on every rank: two files may number other attempts alike
    resumed: ResumeFacts | None  # null for a training that began at its beginning
    system: str | None  # "original" or "package"
    argv: list[str]
    config: dict[str, Any] | None  # as resolved
    git: dict[str, Any] | None  # commit and hash of the uncommitted difference
    versions: dict[str, str]  # distribution: version
    devices: list[str]
    seed: int | None
    seed_source: str | None
    optimizers: list[OptimizerIdentity]
    schedulers: list[SchedulerIdentity]
    clipping: dict[str, Any] | None
    accumulation: int | None  # micro-batches per update, as configured
    precision: str | None
    world_size: int
    rank: int
    callbacks: list[str] | None
    loader: dict[str, Any] | None  # workers, sampler class and seed
    training_path: dict[str, str] | None  # imported package file: digest
    digest_algorithm: str
    observes: list[str]  # update fields this observer can see; others are not known
    user: dict[str, Any] | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class UpdateRecord(_Line, frozen=True, kw_only=True, tag="update"):
    """One completed `optimizer.step()` of one optimizer.

    Accumulation micro-batches, closure re-evaluations and steps a GradScaler skipped are not
    updates. Norms are L2 over this optimizer's own parameters.
    """

    update: Ordinal  # this one included, counted per optimizer from 1
    optimizer: Count  # index among the run's optimizers
    global_step: int | None  # the loop's own counter after the update
    epoch: int | None  # 0-based
    batch_idx: int | None  # of the last micro-batch, 0-based in its epoch
    total_batch_idx: int | None  # of the last micro-batch, 0-based in the training
    batches_that_stepped: int | None  # the loop's x of its loggers, before the update
    micro_batches: int
    loss: float | None  # raw (undivided), mean over the micro-batches
    micro_losses: list[float] | None  # raw, of each micro-batch
    loss_terms: dict[str, float] | None
    objective: float | None  # root: the scalar differentiated, AMP scale divided out
    divisor: float | int | None  # of the accumulation, where knowable
    closure: ClosureFacts | None  # null where the optimizer was given no closure of its own
    grad_norm: float | None  # complete: before clipping; null without gradients, and where sharded
    grad_norm_source: Literal["measured", "clip"] | None  # clip: the value the clip itself used
    grad_norm_clipped: float | None  # applied; equals grad_norm if nothing was clipped
    clipped: bool | None
    clip_coefficient: float | None  # applied; 1.0 if nothing was clipped, null if not one factor
    shard: ShardFacts | None  # null unless parameters are sharded
    lr: list[float]  # used by this update (not the next), per parameter group
    hyper_parameters: list[dict[str, Any]]  # applied, per parameter group
    scheduler: list[SchedulerState] | None  # begin
    sampler: dict[str, Any] | None  # begin: the timestep or importance sampler
    data_sampler: dict[str, Any] | None  # begin: the loader's
    ema: dict[str, Any] | None  # begin
    amp_scale: float | None  # begin
    amp_growth: int | None  # begin: clean steps since the scale last moved
    rng: dict[str, str] | None  # begin; stream: digest
    rng_forward: dict[str, str] | None  # at the first forward
    rng_after: dict[str, str] | None  # applied
    batch: BatchFacts | None  # begin
    parameters: str | None  # applied: digest of this optimizer's parameters
    layer_norms: dict[str, float] | None  # complete: gradient norm by parameter name
    update_ratios: dict[str, float] | None  # applied: norm of change / norm before, by parameter
    moment_norms: dict[str, float] | None  # applied: norm over all parameters, by state name
    user: dict[str, Any] | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class EventRecord(_Line, frozen=True, kw_only=True, tag="event"):
    """Something that happened between updates; a new event name is not a new kind."""

    event: str  # "skipped_step", "validation", "checkpoint", "exception", …
    update: Count  # updates completed before it, of all optimizers together
    details: dict[str, Any] | None
    user: dict[str, Any] | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


class EndRecord(_Line, frozen=True, kw_only=True, tag="end"):
    """How an attempt ended, with the tail of its last update."""

    reason: Literal["finished", "stopped", "interrupted", "exception"]
    updates: Count  # completed, of all optimizers together
    scheduler: list[SchedulerState] | None
    rng: dict[str, str] | None  # stream: digest
    message: str | None
    user: dict[str, Any] | None = None
    unknown: Unknown = msgspec.field(default_factory=dict)


Record = RunRecord | UpdateRecord | EventRecord | EndRecord

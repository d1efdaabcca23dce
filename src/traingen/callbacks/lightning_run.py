"""What a Lightning trainer is about to do, read off it without asking it to do anything.

Everything is read by attribute and by class name, so that it holds for the trainers of both
`lightning` and `pytorch_lightning`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import lightning.pytorch as pl
from torch.optim import Optimizer

from traingen.cadence.entries import Entry
from traingen.cadence.plan import RunPlan
from traingen.cadence.schedule import Schedule

Remove = Callable[[], None]

SHARDED = ("FSDPStrategy", "DeepSpeedStrategy", "ModelParallelStrategy")


def plan_of(trainer: pl.Trainer, *, max_epochs: int | None) -> RunPlan | None:
    """How long the training is, at its start; None if that is not known.

    `max_epochs` is what was given: stochastic weight averaging raises the trainer's by one.
    """
    batches = trainer.num_training_batches
    epochs = None if max_epochs in (None, -1) else max_epochs
    max_steps = updates_of(trainer)
    if batches == float("inf") or not batches or (epochs is None and max_steps is None):
        return None
    return RunPlan(
        batches=int(batches),
        epochs=epochs,
        max_steps=max_steps,
        accumulation=_accumulation(trainer),
        epoch=trainer.current_epoch,
        batch=_batches_done(trainer) % int(batches),
        step=trainer.global_step,
    )


def updates_of(trainer: pl.Trainer) -> int | None:
    """The counted steps at which training ends, if it was given them."""
    return None if trainer.max_steps == -1 else trainer.max_steps


def _batches_done(trainer: pl.Trainer) -> int:
    """Batches that an earlier run did in the epoch at which it was saved."""
    loop = trainer.fit_loop
    return loop.epoch_loop.batch_progress.current.ready if loop.restarted_mid_epoch else 0


def _accumulation(trainer: pl.Trainer) -> dict[int, int]:
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if is_a(callback, "GradientAccumulationScheduler"):
            return {0: 1, **callback.scheduling}
    return {0: trainer.accumulate_grad_batches}


def schedules_of(trainer: pl.Trainer, entries: Iterable[Entry]) -> list[Schedule]:
    """The schedulers in effect, with what configure_optimizers said of each."""
    returned = {id(entry.scheduler): entry for entry in entries}
    schedules = []
    for index, config in enumerate(trainer.lr_scheduler_configs):
        entry = returned.get(id(config.scheduler), Entry(scheduler=config.scheduler))
        schedules.append(
            Schedule(
                index=index,
                scheduler=config.scheduler,
                optimizer=index_of(trainer.optimizers, config.scheduler.optimizer),
                interval=config.interval,
                frequency=config.frequency,
                plateau=config.reduce_on_plateau or is_a(config.scheduler, "ReduceLROnPlateau"),
                monitor=config.monitor,
                name=config.name,
                stated="interval" in entry.given or "interval" in entry.lost(),
            )
        )
    return schedules


def optimizers_of(trainer: pl.Trainer) -> list[Any]:
    """Those that configure_optimizers returned; for none Lightning stands in an empty one."""
    return [one for one in trainer.optimizers if one.param_groups]


def index_of(optimizers: Iterable[Any], wanted: Any) -> int:
    """The position of `wanted` itself among `optimizers`."""
    return next(index for index, one in enumerate(optimizers) if one is wanted)


def is_a(value: object, class_name: str) -> bool:
    """Whether the class of `value`, or one it derives from, has this name."""
    return any(cls.__name__ == class_name for cls in type(value).__mro__)


def is_averaging(trainer: pl.Trainer, schedule: Schedule) -> bool:
    """Whether Lightning's stochastic weight averaging has put this scheduler in."""
    callbacks: Iterable[Any] = trainer.callbacks  # type: ignore[attr-defined]
    return is_a(schedule.scheduler, "SWALR") and any(
        is_a(one, "StochasticWeightAveraging") for one in callbacks
    )


def command_line_of(trainer: pl.Trainer) -> Mapping[str, Any]:
    """The resolved configuration of the LightningCLI that runs this trainer, if one saves it."""
    saver = _config_saver(trainer)
    return {} if saver is None else dict(vars(saver.config))  # its items() are flattened


def scheduler_asked_for(trainer: pl.Trainer) -> str | None:
    """The class of the scheduler that the command line names for the model, if it names one.

    One that the command line hands to the model as an argument is the model's to use.
    """
    saver = _config_saver(trainer)
    registered = {} if saver is None else getattr(saver.parser, "_lr_schedulers", {})
    config = command_line_of(trainer)
    for key, (_, link) in registered.items():
        if link == "AUTOMATIC" and config.get(key):
            return str(config[key].get("class_path", key))
    return None


def _config_saver(trainer: pl.Trainer) -> Any:
    callbacks: Iterable[Any] = trainer.callbacks  # type: ignore[attr-defined]
    return next((one for one in callbacks if is_a(one, "SaveConfigCallback")), None)


def is_from_command_line(pl_module: pl.LightningModule) -> bool:
    """Whether LightningCLI has put its own configure_optimizers on this module, wrapped or not."""
    function = vars(pl_module).get("configure_optimizers")
    while function is not None:
        bound = getattr(function, "__func__", None)
        if isinstance(bound, functools.partial) and "optimizer" in bound.keywords:
            return True
        function = getattr(function, "__wrapped__", None)
    return False


def ticks_by_own_code(pl_module: pl.LightningModule) -> bool:
    """Whether the module decides in an overridden lr_scheduler_step when schedulers tick."""
    return _overrides(pl_module, "lr_scheduler_step")


def has_own_optimizers(pl_module: pl.LightningModule) -> bool:
    """Whether the module's class defines configure_optimizers."""
    return _overrides(pl_module, "configure_optimizers")


def _overrides(pl_module: pl.LightningModule, hook: str) -> bool:
    for cls in type(pl_module).__mro__:
        if cls.__name__ == "LightningModule":
            return False
        if hook in vars(cls):
            return True
    return False


def watch_configuration(pl_module: pl.LightningModule, heard: Callable[[Any], None]) -> Remove:
    """Tell `heard` what the next call of configure_optimizers returns; undone by that call.

    Returns:
        what undoes it if there is no such call; safe to call twice.
    """
    attributes = vars(pl_module)
    own = attributes.get("configure_optimizers")
    original = pl_module.configure_optimizers

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        remove()
        returned = original(*args, **kwargs)
        heard(returned)
        return returned

    def remove() -> None:
        if attributes.get("configure_optimizers") is wrapper:
            del attributes["configure_optimizers"]
            if own is not None:
                attributes["configure_optimizers"] = own

    attributes["configure_optimizers"] = wrapper
    return remove


def parameters_left(trainer: pl.Trainer, pl_module: pl.LightningModule) -> list[tuple[str, int]]:
    """Name and size of every parameter that wants a gradient and is in no optimizer.

    Sharded strategies hand other tensors to their optimizers; nothing is said of them.
    """
    if any(is_a(trainer.strategy, name) for name in SHARDED):
        return []
    optimizers = [one for one in trainer.optimizers if isinstance(one, Optimizer)]
    held = {id(p) for one in optimizers for group in one.param_groups for p in group["params"]}
    if not held:
        return []
    return [
        (name, p.numel())
        for name, p in pl_module.named_parameters()
        if p.requires_grad and id(p) not in held
    ]

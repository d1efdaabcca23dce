"""What `traingen fit` lets a configuration say beyond Lightning's own, and what comes of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, get_type_hints

import lightning.pytorch as pl
from jsonargparse import Namespace
from jsonargparse.typing import PositiveInt, restricted_string_type
from lightning.pytorch.cli import (
    LightningArgumentParser,
    LightningCLI,
    LRSchedulerTypeUnion,
    ReduceLROnPlateau,
)
from torch.optim import Optimizer

from traingen.callbacks.cadence_guard import CadenceGuard
from traingen.callbacks.step_recorder import StepRecorder
from traingen.errors import ConfigError

CHECKPOINT_WORDS = ("best", "last", "hpc", "registry")  # what Trainer.fit takes beside a path

RECORDER_ARGUMENTS = get_type_hints(StepRecorder.__init__)
RECORDER_ARGUMENTS.pop("return")
RecorderOptions = TypedDict("RecorderOptions", RECORDER_ARGUMENTS, total=False)  # type: ignore[misc]
# A mapping that fits no RecorderOptions must not pass as the name of a file.
RecordingPath = restricted_string_type("RecordingPath", r"^[^{\[].*$")


class SchedulerOptions(TypedDict, total=False):
    """What Lightning reads beside a scheduler: when it ticks, and on which metric."""

    interval: Literal["step", "epoch"]
    frequency: PositiveInt
    name: str
    monitor: str
    strict: bool


def add_options(parser: LightningArgumentParser) -> None:
    """Add `cadence`, `record` and `lr_scheduler_config`."""
    parser.add_lightning_class_args(CadenceGuard, "cadence")
    parser.add_argument(
        "--record",
        type=bool | RecorderOptions | RecordingPath | None,
        default=False,
        help="Record every update: true, the path of the recording, or arguments of "
        f"StepRecorder ({', '.join(RECORDER_ARGUMENTS)}).",
    )
    parser.add_argument(
        "--lr_scheduler_config",
        type=SchedulerOptions,
        default={},
        help="When the lr_scheduler given here ticks: "
        f"any of {', '.join(SchedulerOptions.__annotations__)}.",
    )


def configure_optimizers(
    lightning_module: pl.LightningModule,
    optimizer: Optimizer,
    lr_scheduler: LRSchedulerTypeUnion | None = None,
    *,
    options: Mapping[str, Any],
) -> Any:
    """What LightningCLI returns, with `options` beside the scheduler.

    A `monitor` in `options` goes before that of the command line's ReduceLROnPlateau.
    """
    if lr_scheduler is None or not options:
        return LightningCLI.configure_optimizers(lightning_module, optimizer, lr_scheduler)
    config: dict[str, Any] = {"scheduler": lr_scheduler}
    if isinstance(lr_scheduler, ReduceLROnPlateau):
        config["monitor"] = lr_scheduler.monitor
    return {"optimizer": optimizer, "lr_scheduler": config | dict(options)}


def make_recorder(
    record: bool | str | Mapping[str, Any] | None, *, seed_source: str
) -> StepRecorder | None:
    """The recorder that `record` asks for, if it does; it says where the seed comes from."""
    if record is None or record is False:
        return None
    given = record if isinstance(record, Mapping) else {} if record is True else {"path": record}
    recorder = StepRecorder(**given)
    recorder.seed_source = seed_source
    return recorder


def explain_refusal(message: str) -> str:
    """What jsonargparse refused; of a scheduler only what is wrong with it, and the way out.

    Composed schedulers need others as arguments, which a command line cannot give; when a
    scheduler ticks is not its own argument either.
    """
    problem = re.search(r"Problem with given class_path '([^']+)':\s*([^\n]+)", message)
    if problem is None or not message.startswith('Parser key "lr_scheduler"'):
        return message
    return (
        f"lr_scheduler {problem[1]}: {problem[2].strip()}. Build a composed scheduler in the model "
        "(take an LRSchedulerCallable); interval, frequency and monitor go to lr_scheduler_config."
    )


def check_config(config: Namespace, *, where: str) -> None:
    """Refuse a run without a model, without its checkpoint, or with options that nothing reads.

    Raises:
        ConfigError: says which, and what to give.
    """
    if config.model is None:
        raise ConfigError(
            f"{where}: expected a model, found none: give --model CLASS_PATH, or 'model:' in the "
            "file of --config."
        )
    if not isinstance(config.cadence, Namespace):
        raise ConfigError(
            f"{where}: cadence must be a mapping of arguments, got {config.cadence!r}: leave it "
            "out for the defaults, or write cadence: {expected: step}."
        )
    missing = [key for key in ("optimizer", "lr_scheduler") if config[key] is None]
    if config.lr_scheduler_config and missing:
        raise ConfigError(
            f"{where}: lr_scheduler_config is for an optimizer and an lr_scheduler given here, "
            f"found no {' and no '.join(missing)}: give --{' and --'.join(missing)}, or write it "
            "in the model's configure_optimizers."
        )
    path = str(config.ckpt_path or "")
    if path and not is_checkpoint(path):
        raise ConfigError(
            f"{where}: ckpt_path '{path}' does not exist; expected a checkpoint, or one of "
            f"{', '.join(CHECKPOINT_WORDS)}."
        )


def is_checkpoint(path: str) -> bool:
    """Whether Lightning may find a checkpoint at `path`; remote ones are left to it."""
    return path.split(":")[0] in CHECKPOINT_WORDS or "://" in path or Path(path).exists()

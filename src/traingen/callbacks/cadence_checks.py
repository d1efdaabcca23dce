"""What is wrong, before the first update, with what the trainer was given around its schedulers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl

from traingen.cadence import kinds
from traingen.cadence.restored import capture_settings, describe_overridden
from traingen.cadence.schedule import Schedule
from traingen.callbacks.lightning_run import parameters_left
from traingen.compare.findings import Finding


def check_command_line(*, dropped: str | None, overridden: str | None) -> list[Finding]:
    """What LightningCLI did silently.

    Args:
        dropped: the class of the scheduler that it was asked for and did not use.
        overridden: the class whose configure_optimizers it replaced.
    """
    findings = []
    if overridden is not None:
        findings.append(
            kinds.CLI_OVERRIDDEN.found(
                f"{overridden}.configure_optimizers is not called: the command line gave an "
                "optimizer"
            )
        )
    if dropped is not None:
        findings.append(
            kinds.CLI_DROPPED.found(
                f"the command line asks for the scheduler {dropped} and gives no optimizer: it is "
                "not used"
            )
        )
    return findings


def check_checkpoint(
    schedules: Sequence[Schedule],
    *,
    saved: int | None,
    configured: Mapping[int, Mapping[str, Any]],
) -> list[Finding]:
    """What a checkpoint changed about schedulers.

    Args:
        schedules: those in effect, after it was loaded.
        saved: how many it holds; None if none was loaded.
        configured: the settings before, by id of the scheduler.
    """
    if saved is None:
        return []
    findings = []
    if saved != len(schedules):
        findings.append(
            kinds.CHECKPOINT.found(
                f"the checkpoint holds {saved} schedulers and the trainer has {len(schedules)}: "
                "they were paired in order and the rest left out",
                severity="error",
            )
        )
    for schedule in schedules:
        before = configured.get(id(schedule.scheduler), {})
        changed = describe_overridden(before, capture_settings(schedule.scheduler))
        if changed:
            findings.append(kinds.CHECKPOINT.found(f"{schedule.label}: {changed}"))
    return findings


def check_parameters(trainer: pl.Trainer, pl_module: pl.LightningModule) -> list[Finding]:
    """Whether every parameter that wants a gradient is in an optimizer."""
    left = parameters_left(trainer, pl_module)
    if not left:
        return []
    names = ", ".join(name for name, _ in left[:3]) + (", …" if left[3:] else "")
    elements = sum(size for _, size in left)
    told = f"{len(left)} of the module's tensors, {elements} elements: {names}"
    return [kinds.PARAMETERS_LEFT.found(told)]

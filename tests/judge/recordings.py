"""Small recordings to be judged: a training as its records, healthy unless a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.records.samples import make_end, make_event, make_resumed, make_run, make_update
from traingen.compare.findings import Finding
from traingen.judge import judge_recording
from traingen.records import (
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    Record,
    RunRecord,
    SchedulerIdentity,
    SchedulerState,
    UpdateRecord,
)

STEP_LR = "torch.optim.lr_scheduler.StepLR"


def run(*, optimizers: int = 1, **changes: Any) -> RunRecord:
    """A run line; schedulers only if they are given."""
    fields: dict[str, Any] = {
        "optimizers": [
            OptimizerIdentity(index=i, class_path="torch.optim.Adam", groups=1, parameters=100)
            for i in range(optimizers)
        ],
        "schedulers": [],
        "clipping": None,
    }
    return make_run(**(fields | changes))


def resumed(
    *updates: int, attempt: int = 2, before: int | None = None, **changes: Any
) -> RunRecord:
    """The run line of a later attempt, from a checkpoint after so many updates by optimizer.

    It was made in the attempt `before`; if none is given, in the one before this.
    """
    facts = make_resumed(*updates, attempt=attempt - 1 if before is None else before)
    return run(attempt=attempt, resumed=facts, optimizers=len(updates), **changes)


def update(number: int, **changes: Any) -> UpdateRecord:
    """A plain update, without clip, average, scaler or scheduler."""
    fields: dict[str, Any] = {
        "grad_norm": 0.5, "grad_norm_clipped": 0.5, "clipped": False, "clip_coefficient": 1.0,
        "scheduler": None, "ema": None, "amp_scale": None, "amp_growth": None,
    }  # fmt: skip
    if "micro_batches" in changes:  # each had its loss
        fields["micro_losses"] = [2.3] * changes["micro_batches"] or None
    return make_update(number, **(fields | changes))


def updates(first: int, last: int, **changes: Any) -> list[UpdateRecord]:
    """Plain updates, both ends included."""
    return [update(number, **changes) for number in range(first, last + 1)]


def event(name: str, **details: Any) -> EventRecord:
    return make_event(event=name, details=details)


def skip(step: int, *, before: float = 65536.0, optimizer: int = 0) -> EventRecord:
    """A step that a scaler left out, counted by the loop as `step`."""
    return event(
        "skipped_step", optimizer=optimizer, reason="scaler", amp_scale=before,
        amp_scale_after=before / 2, global_step=step,
    )  # fmt: skip


def end(**changes: Any) -> EndRecord:
    return make_end(**({"scheduler": None} | changes))


def scheduler(number: int = 0, **changes: Any) -> SchedulerIdentity:
    fields: dict[str, Any] = {
        "id": number, "class_path": STEP_LR, "optimizer": 0, "interval": "step", "frequency": 1,
    }  # fmt: skip
    return SchedulerIdentity(**(fields | changes))


def at(ticks: int, last_epoch: int | None = None, *, number: int = 0) -> list[SchedulerState]:
    """Where one scheduler stands; its last_epoch counts its ticks unless it is given."""
    epoch = ticks if last_epoch is None else last_epoch
    return [SchedulerState(id=number, last_epoch=epoch, ticks=ticks)]


def judged(*parts: Record | Iterable[Record]) -> dict[str, Finding]:
    """What is found in these records, by id."""
    records: list[Record] = []
    for part in parts:
        records += [part] if isinstance(part, Record) else list(part)
    findings = judge_recording(records)
    found = {finding.id: finding for finding in findings}
    assert len(found) == len(findings), "a kind was found twice: look at judge_recording itself"
    return found

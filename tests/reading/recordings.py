"""Recordings on disk, made from sample records, for the tests of those who read them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.records.samples import make_end, make_resumed, make_run, make_update
from traingen.records import (
    JsonlSink,
    Record,
    RunRecord,
    SchedulerState,
    UpdateRecord,
    encode_line,
)

OBSERVES = [field.name for field in msgspec.structs.fields(UpdateRecord)]


def seeing_run(**changes: Any) -> RunRecord:
    """The run line of a recorder that sees everything."""
    return make_run(**({"observes": OBSERVES} | changes))


def resumed_at(
    *updates: int, attempt: int = 2, before: int | None = None, **changes: Any
) -> RunRecord:
    """The run line of a later attempt, from a checkpoint after so many updates by optimizer.

    It was made in the attempt `before`; if none is given, in the one before this.
    """
    resumed = make_resumed(
        *updates,
        attempt=attempt - 1 if before is None else before,
        global_step=None,
        epoch=None,
        checkpoint="last.ckpt",
    )
    return seeing_run(attempt=attempt, resumed=resumed, **changes)


def make_updates(first: int, last: int, **changes: Any) -> list[UpdateRecord]:
    """Updates `first` to `last`, each the same whenever it is made."""
    return [make_update(number, **changes) for number in range(first, last + 1)]


def ended_after(updates: int, **changes: Any) -> Any:
    """The end line of so many updates, each with a tick."""
    state = SchedulerState(id=0, last_epoch=updates, ticks=updates)
    return make_end(**({"updates": updates, "scheduler": [state]} | changes))


def make_training(updates: int = 6, **changes: Any) -> list[Record]:
    """A whole recording: run line, updates, end."""
    return [seeing_run(), *make_updates(1, updates, **changes), ended_after(updates)]


def change(records: Iterable[Record], update: int, **changes: Any) -> list[Record]:
    """The records with fields of one update replaced."""
    return [
        msgspec.structs.replace(record, **changes)
        if isinstance(record, UpdateRecord) and record.update == update
        else record
        for record in records
    ]


def write_recording(path: Path, records: Iterable[Record], *, tail: bytes = b"") -> Path:
    """Write the records into the RUN folder `path`, then bytes that are no line; returns it."""
    with JsonlSink(path) as sink:
        for record in records:
            sink.write(record)
    with sink.path.open("ab") as file:
        file.write(tail)
    return path


def of_rank(records: Iterable[Record], rank: int, *, world_size: int = 2) -> list[Record]:
    """The records as that rank writes them."""
    return [
        msgspec.structs.replace(record, rank=rank, world_size=world_size)
        if isinstance(record, RunRecord)
        else record
        for record in records
    ]


def write_ranks(path: Path, *ranks: Iterable[Record]) -> Path:
    """Write the records of each rank into the RUN folder `path`; returns it."""
    for rank, records in enumerate(ranks):
        with JsonlSink(path, rank=rank) as sink:
            for record in of_rank(records, rank, world_size=len(ranks)):
                sink.write(record)
    return path


def write_file(path: Path, lines: Iterable[Record | bytes]) -> Path:
    """Write records, and bytes as they are, into the file `path`; returns it."""
    path.write_bytes(b"".join(x if isinstance(x, bytes) else encode_line(x) for x in lines))
    return path

"""Which record may follow which in a recording, and where the run stands after each."""

from traingen.errors import RecordingError
from traingen.records.schema import (
    EndRecord,
    EventRecord,
    Record,
    ResumeFacts,
    RunRecord,
    UpdateRecord,
)

SEGMENT = "segment"  # the event that opens a second fit() of one Trainer


class Order:
    """Takes the records of one file in turn; raises at the first that cannot follow."""

    run: RunRecord | None  # of the attempt that is under way
    updates: dict[int, int]  # optimizer: its last update, at the checkpoint or since

    def __init__(self) -> None:
        self.run = None
        self.updates = {}
        self._ended = False

    def check(self, record: Record, *, where: str) -> None:
        """Take `record`, the next one; `where` opens the error if it cannot be."""
        if isinstance(record, RunRecord):
            self._check_run(record, where=where)
            self.run, self.updates = record, completed_at(record.resumed)
        elif self.run is None:
            raise RecordingError(
                f"{where}: the first record must be a run line, got {_kind(record)}: is the file "
                f"cut?"
            )
        elif self._ended and not opens_anew(record):
            raise RecordingError(
                f"{where}: after an end line must come a run line or the event {SEGMENT!r}, got "
                f"{_kind(record)}: two writers, or lines out of order."
            )
        elif isinstance(record, UpdateRecord):
            self._check_update(record, where=where)
            self.updates[record.optimizer] = record.update
        self._ended = isinstance(record, EndRecord)

    def _check_run(self, record: RunRecord, *, where: str) -> None:
        if self.run is None:
            return
        if record.run_id != self.run.run_id:
            raise RecordingError(
                f"{where}: 'run_id' must be {self.run.run_id} as before, got {record.run_id}: "
                f"two runs in one file."
            )
        if record.attempt <= self.run.attempt:
            raise RecordingError(
                f"{where}: 'attempt' must be above {self.run.attempt}, got {record.attempt}: "
                f"a resume opens the next attempt."
            )

    def _check_update(self, record: UpdateRecord, *, where: str) -> None:
        expected = self.updates.get(record.optimizer, 0) + 1
        if record.update != expected:
            raise RecordingError(
                f"{where}: 'update' of optimizer {record.optimizer} must be {expected}, got "
                f"{record.update}: lines are missing, doubled or out of order."
            )


def completed_at(resumed: ResumeFacts | None) -> dict[int, int]:
    """Updates that were completed where an attempt begins, by optimizer; none listed means none."""
    return {} if resumed is None else dict(enumerate(resumed.updates))


def opens_anew(record: Record) -> bool:
    """Whether `record` is the first of a sink that was opened on an existing file."""
    if isinstance(record, EventRecord):
        return record.event == SEGMENT
    return isinstance(record, RunRecord)


def _kind(record: Record) -> str:
    return str(type(record).__struct_config__.tag)

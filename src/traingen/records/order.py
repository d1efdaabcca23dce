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
    """Takes the records of one file in turn; raises at the first that cannot follow.

    What events and the end count must be what stands before them. A training that ends in the
    midst of an update (Ctrl-C) has completed one whose line it could not write any more, and a
    lockstep writes no update that one of its sides alone has done: then no update may follow, and
    the attempt must not have finished.

    Args:
        inside: it begins anywhere in the file; what came before is not known.
    """

    run: RunRecord | None  # of the attempt that is under way
    updates: dict[int, int]  # optimizer: its last update, at the checkpoint or since

    def __init__(self, *, inside: bool = False) -> None:
        self.run = None
        self.updates = {}
        self._inside = inside  # until the first run line
        self._ended = False
        self._lost = 0  # updates that the last event counts beyond those that stand
        self._short: RecordingError | None = None  # says so; no error if an end explains it

    @property
    def begun(self) -> bool:
        """Whether a line may be torn now: not the very first of a file."""
        return self._inside or self.run is not None

    def check(self, record: Record, *, where: str) -> None:
        """Take `record`, the next one; `where` opens the error if it cannot be."""
        if isinstance(record, RunRecord):
            self._check_whole()
            self._check_run(record, where=where)
            self.run, self.updates = record, completed_at(record.resumed)
            self._inside = False
        elif not self.begun:
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
            self._check_whole()
            self._check_update(record, where=where)
            self.updates[record.optimizer] = record.update
        elif self.run is not None:
            self._check_count(record, self.run, where=where)
        self._ended = isinstance(record, EndRecord)

    def finish(self) -> None:
        """The file ends here; raises if an update was counted that is not in it."""
        if self.run is not None and self.run.system is None:  # a lockstep may be left in any state
            self._check_whole()

    def _check_whole(self) -> None:
        if self._short is not None:
            raise self._short

    def _check_count(self, record: EventRecord | EndRecord, run: RunRecord, *, where: str) -> None:
        ends = isinstance(record, EndRecord)
        found = record.updates if isinstance(record, EndRecord) else record.update
        stand = sum(self.updates.values())
        lost = found - stand
        if lost == self._lost == 0:
            return
        error = RecordingError(
            f"{where}: '{'updates' if ends else 'update'}' must be {stand}, as many as stand "
            f"before it, got {found}: lines are missing, doubled or out of order."
        )
        if lost < self._lost or not _may_lose(lost, record, run):
            raise error
        self._lost, self._short = (0, None) if ends else (lost, self._short or error)

    def _check_run(self, record: RunRecord, *, where: str) -> None:
        before = None if record.resumed is None else record.resumed.attempt
        if before is not None and before >= record.attempt:
            raise RecordingError(
                f"{where}: 'resumed.attempt' must be below {record.attempt}, got {before}: a "
                f"checkpoint is made in an earlier attempt."
            )
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
        if self._inside and record.optimizer not in self.updates:
            return
        expected = self.updates.get(record.optimizer, 0) + 1
        if record.update != expected:
            raise RecordingError(
                f"{where}: 'update' of optimizer {record.optimizer} must be {expected}, got "
                f"{record.update}: lines are missing, doubled or out of order."
            )


def completed_at(resumed: ResumeFacts | None) -> dict[int, int]:
    """Updates that were completed where an attempt begins, by optimizer; none listed means none."""
    return {} if resumed is None else dict(enumerate(resumed.updates))


def _may_lose(lost: int, record: EventRecord | EndRecord, run: RunRecord) -> bool:
    """Whether so many completed updates may have no line where `record` counts them."""
    if isinstance(record, EndRecord) and record.reason == "finished":
        return False
    if run.system is not None:  # of a lockstep
        return True
    broken = isinstance(record, EventRecord) or record.reason in ("interrupted", "exception")
    return lost == 1 and broken


def opens_anew(record: Record) -> bool:
    """Whether `record` is the first of a sink that was opened on an existing file."""
    if isinstance(record, EventRecord):
        return record.event == SEGMENT
    return isinstance(record, RunRecord)


def _kind(record: Record) -> str:
    return str(type(record).__struct_config__.tag)

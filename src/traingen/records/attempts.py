"""What of a recording stands once its last attempt is counted, and what does not."""

from collections.abc import Iterable
from dataclasses import dataclass

from traingen.records.order import completed_at
from traingen.records.schema import (
    EndRecord,
    EventRecord,
    Record,
    ResumeFacts,
    RunRecord,
    UpdateRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededUpdates:
    """Updates of an attempt that a later one did over, from an earlier checkpoint."""

    attempt: int
    optimizer: int
    first: int
    last: int  # inclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingUpdates:
    """Updates that the run has completed and that this recording does not hold."""

    optimizer: int
    first: int
    last: int  # inclusive


class Survivors:
    """Takes checked records in file order and keeps what stands after the last attempt.

    A run line with a checkpoint supersedes what earlier attempts recorded beyond it: updates of a
    higher number, and events that lie beyond it.
    """

    runs: list[RunRecord]
    superseded: list[SupersededUpdates]
    end: EndRecord | None

    def __init__(self) -> None:
        self.runs = []
        self.superseded = []
        self.end = None
        self._updates: list[tuple[int, UpdateRecord]] = []  # with their attempts
        self._events: list[EventRecord] = []

    @property
    def updates(self) -> tuple[UpdateRecord, ...]:
        """Each update once."""
        return tuple(record for _, record in self._updates)

    @property
    def events(self) -> tuple[EventRecord, ...]:
        """All events that are not superseded."""
        return tuple(self._events)

    @property
    def missing(self) -> tuple[MissingUpdates, ...]:
        """What lies between the updates that stand, or between them and the last checkpoint."""
        return tuple(find_missing(self.updates, self.runs[-1].resumed if self.runs else None))

    def take(self, record: Record) -> None:
        """Take the next record of the file."""
        self.end = record if isinstance(record, EndRecord) else None
        if isinstance(record, UpdateRecord):
            self._updates.append((self.runs[-1].attempt, record))
        elif isinstance(record, EventRecord):
            self._events.append(record)
        elif isinstance(record, RunRecord):
            self._supersede(record.resumed)
            self.runs.append(record)

    def _supersede(self, resumed: ResumeFacts | None) -> None:
        completed = completed_at(resumed)
        over = self._drop_updates(completed)
        for attempt, optimizer in sorted(over):
            numbers = over[attempt, optimizer]
            self.superseded.append(
                SupersededUpdates(
                    attempt=attempt, optimizer=optimizer, first=min(numbers), last=max(numbers)
                )
            )
        self._events = [event for event in self._events if not lies_beyond(event, resumed)]

    def _drop_updates(self, completed: dict[int, int]) -> dict[tuple[int, int], list[int]]:
        """Take out all beyond `completed`; their numbers by attempt and optimizer.

        From the end backwards and no further than needed: of each optimizer the updates that
        stand rise through the list.
        """
        dropped: dict[tuple[int, int], list[int]] = {}
        stand: list[tuple[int, UpdateRecord]] = []
        open_ended = {record.optimizer for _, record in self._updates}
        while open_ended and self._updates:
            attempt, record = self._updates.pop()
            if record.update > completed.get(record.optimizer, 0):
                dropped.setdefault((attempt, record.optimizer), []).append(record.update)
            else:
                open_ended.discard(record.optimizer)
                stand.append((attempt, record))
        self._updates += reversed(stand)
        return dropped


def lies_beyond(event: EventRecord, resumed: ResumeFacts | None) -> bool:
    """Whether an attempt that began so supersedes `event`, which an earlier one has recorded.

    It came after more updates than were completed at the checkpoint, or after as many but at a
    later `global_step`: a step that the scaler skipped counts there and completes none.
    """
    updates = 0 if resumed is None else sum(resumed.updates)
    step = None if resumed is None else resumed.global_step
    if event.update != updates or step is None:
        return event.update > updates
    at = (event.details or {}).get("global_step")
    return isinstance(at, int) and at > step


def find_missing(
    updates: Iterable[UpdateRecord], resumed: ResumeFacts | None
) -> list[MissingUpdates]:
    """Gaps in `updates`, of each optimizer from its first to the last that is known of.

    `resumed` is what the last run line says: its checkpoint had seen that many, whether they are
    recorded here or not.
    """
    missing: list[MissingUpdates] = []
    last: dict[int, int] = {}
    for record in updates:
        missing += _gap(record.optimizer, last.get(record.optimizer, 0), record.update)
        last[record.optimizer] = record.update
    for optimizer, completed in completed_at(resumed).items():
        missing += _gap(optimizer, last.get(optimizer, 0), completed + 1)
    return missing


def _gap(optimizer: int, before: int, after: int) -> list[MissingUpdates]:
    if after <= before + 1:
        return []
    return [MissingUpdates(optimizer=optimizer, first=before + 1, last=after - 1)]

"""Each update counts once, as the last attempt that did it left it, and nothing else is silent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.make_golden import GOLDEN, GOLDEN_RESUMED
from tests.records.samples import make_event, make_resumed, make_run, make_update
from traingen.records import MissingUpdates, Record, SupersededUpdates, encode_line, read_recording
from traingen.records.attempts import Survivors


def superseded(attempt: int, optimizer: int, first: int, last: int) -> SupersededUpdates:
    return SupersededUpdates(attempt=attempt, optimizer=optimizer, first=first, last=last)


def missing(optimizer: int, first: int, last: int) -> MissingUpdates:
    return MissingUpdates(optimizer=optimizer, first=first, last=last)


def survive(*records: Record) -> Survivors:
    survivors = Survivors()
    for record in records:
        survivors.take(record)
    return survivors


def attempt(number: int, completed: int, last: int) -> list[Record]:
    """An attempt that began after `completed` updates and ended after `last`."""
    resumed = make_resumed(completed) if number > 1 else None
    updates = [make_update(n, loss=float(number)) for n in range(completed + 1, last + 1)]
    return [make_run(attempt=number, resumed=resumed), *updates]


def test_a_recording_of_one_attempt_has_neither_superseded_nor_missing_updates() -> None:
    recording = read_recording(GOLDEN)
    assert (recording.superseded, recording.missing, recording.fragments) == ((), (), ())
    assert recording.runs == (recording.run,)


def test_all_kinds_of_loss_are_reported_by_optimizer() -> None:
    recording = read_recording(GOLDEN_RESUMED)
    assert recording.superseded == (superseded(1, 0, 2, 3), superseded(1, 1, 2, 2))
    assert recording.missing == (missing(0, 3, 3), missing(1, 3, 4))


def test_an_attempt_may_supersede_several_earlier_ones() -> None:
    survivors = survive(*attempt(1, 0, 6), *attempt(2, 4, 9), *attempt(3, 2, 3))
    assert [(u.update, u.loss) for u in survivors.updates] == [(1, 1.0), (2, 1.0), (3, 3.0)]
    assert survivors.superseded == [
        superseded(1, 0, 5, 6),
        superseded(1, 0, 3, 4),
        superseded(2, 0, 5, 9),
    ]
    assert survivors.missing == ()


def test_each_optimizer_is_superseded_from_its_own_checkpoint() -> None:
    order = [(0, 1), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3)]
    updates = [make_update(number, optimizer=optimizer) for optimizer, number in order]
    survivors = survive(make_run(), *updates, make_run(attempt=2, resumed=make_resumed(2, 1)))
    assert survivors.updates == (updates[0], updates[1], updates[4])
    assert survivors.superseded == [superseded(1, 0, 3, 3), superseded(1, 1, 2, 3)]


def test_an_attempt_without_checkpoint_supersedes_everything() -> None:
    survivors = survive(*attempt(1, 0, 3), make_run(attempt=2, resumed=None), make_update(1))
    assert survivors.updates == (make_update(1),)
    assert survivors.superseded == [superseded(1, 0, 1, 3)]


def test_a_run_resumed_into_a_new_file_misses_what_came_before() -> None:
    survivors = survive(*attempt(2, 5, 7))
    assert survivors.missing == (missing(0, 1, 5),)


def test_updates_lost_before_the_checkpoint_are_missing_also_if_none_follows() -> None:
    assert survive(*attempt(1, 0, 3), *attempt(2, 6, 6)).missing == (missing(0, 4, 6),)
    assert survive(*attempt(1, 0, 3), *attempt(2, 6, 8)).missing == (missing(0, 4, 6),)


def test_what_was_missing_is_no_longer_when_it_is_done_over() -> None:
    survivors = survive(*attempt(1, 0, 3), *attempt(2, 6, 8), *attempt(3, 2, 9))
    assert survivors.missing == ()
    assert [u.update for u in survivors.updates] == list(range(1, 10))


def test_an_event_beyond_the_checkpoint_is_superseded() -> None:
    events = [make_event(update=update, details=None) for update in (1, 2, 3)]
    survivors = survive(*attempt(1, 0, 3), *events, *attempt(2, 2, 4))
    assert survivors.events == tuple(events[:2])


def test_a_skipped_step_after_the_checkpoint_is_superseded_though_no_update_came_between() -> None:
    kept, over = (make_event(update=2, details={"global_step": step}) for step in (2, 3))
    survivors = survive(*attempt(1, 0, 2), kept, over, *attempt(2, 2, 3))
    assert survivors.events == (kept,)


@st.composite
def attempts(draw: st.DrawFn) -> list[tuple[int, int]]:
    """For each attempt how many updates it began and ended with; checkpoints may outlive lines."""
    found, reached = [], 0
    for number in range(draw(st.integers(1, 5))):
        completed = 0 if number == 0 else draw(st.integers(0, reached + 2))
        reached = completed + draw(st.integers(0, 5))
        found.append((completed, reached))
    return found


@given(attempts())
def test_every_update_stands_is_superseded_or_is_missing(spans: list[tuple[int, int]]) -> None:
    survivors = survive(
        *(
            record
            for number, (completed, last) in enumerate(spans, start=1)
            for record in attempt(number, completed, last)
        )
    )
    last_to_do: dict[int, int] = {}
    for number, (completed, last) in enumerate(spans, start=1):
        last_to_do = {n: a for n, a in last_to_do.items() if n <= completed}
        last_to_do |= dict.fromkeys(range(completed + 1, last + 1), number)
    assert {u.update: u.loss for u in survivors.updates} == last_to_do
    assert [u.update for u in survivors.updates] == sorted(last_to_do)
    lost = {n for gap in survivors.missing for n in range(gap.first, gap.last + 1)}
    assert lost == set(range(1, spans[-1][1] + 1)) - set(last_to_do)
    over = [
        (part.attempt, n) for part in survivors.superseded for n in range(part.first, part.last + 1)
    ]
    written = {
        (number, n)
        for number, (completed, last) in enumerate(spans, start=1)
        for n in range(completed + 1, last + 1)
    }
    assert sorted(over) == sorted(written - {(a, n) for n, a in last_to_do.items()})


@pytest.mark.parametrize("count", [0, 1])
def test_a_recording_read_from_a_file_says_the_same(tmp_path: Path, count: int) -> None:
    records = [*attempt(1, 0, 3), *attempt(2, 2, 2 + count)]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_line, records)))
    recording, survivors = read_recording(path), survive(*records)
    assert recording.updates == survivors.updates
    assert recording.superseded == tuple(survivors.superseded) == (superseded(1, 0, 3, 3),)

"""What stands is the training that the last attempt has ended, and nothing else is silent."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.make_golden import GOLDEN, GOLDEN_RESUMED
from tests.records.samples import make_event, make_resumed, make_run, make_update
from traingen.records import (
    EventRecord,
    MissingUpdates,
    Record,
    RunRecord,
    SupersededUpdates,
    UpdateRecord,
    encode_line,
    read_recording,
)
from traingen.records.attempts import Ledger, find_lineage


def superseded(attempt: int, first: int, last: int, *, optimizer: int = 0) -> SupersededUpdates:
    return SupersededUpdates(attempt=attempt, optimizer=optimizer, first=first, last=last)


def missing(first: int, last: int, *, optimizer: int = 0) -> MissingUpdates:
    return MissingUpdates(optimizer=optimizer, first=first, last=last)


@dataclass(frozen=True)
class Survivors:
    """What a ledger lets stand of some records."""

    updates: list[UpdateRecord]
    events: list[EventRecord]
    ledger: Ledger

    @property
    def attempts(self) -> dict[int, int]:
        """Update: the attempt that did it, as `attempt` makes them."""
        return {u.update: int(u.loss or 0) for u in self.updates}

    @property
    def lost(self) -> tuple[MissingUpdates, ...]:
        return self.ledger.missing

    @property
    def over(self) -> tuple[SupersededUpdates, ...]:
        return self.ledger.superseded


def survive(*records: Record) -> Survivors:
    ledger = Ledger(record for record in records if isinstance(record, RunRecord))
    kept = [record for record in records if ledger.take(record)]
    return Survivors(
        [record for record in kept if isinstance(record, UpdateRecord)],
        [record for record in kept if isinstance(record, EventRecord)],
        ledger,
    )


def attempt(number: int, completed: int, last: int, *, of: int | None = None) -> list[Record]:
    """Its run line and updates: from a checkpoint of attempt `of`, else of the one before."""
    before = number - 1 if of is None else of
    resumed = make_resumed(completed, attempt=before) if number > 1 else None
    updates = [make_update(n, loss=float(number)) for n in range(completed + 1, last + 1)]
    return [make_run(attempt=number, resumed=resumed), *updates]


def test_a_recording_of_one_attempt_has_neither_superseded_nor_missing_updates() -> None:
    recording = read_recording(GOLDEN)
    assert (recording.superseded, recording.missing, recording.fragments) == ((), (), ())
    assert recording.runs == (recording.run,)


def test_all_kinds_of_loss_are_reported_by_optimizer() -> None:
    recording = read_recording(GOLDEN_RESUMED)
    assert recording.superseded == (superseded(1, 2, 3), superseded(1, 2, 2, optimizer=1))
    assert recording.missing == (missing(3, 3), missing(3, 4, optimizer=1))


def test_an_attempt_may_supersede_several_earlier_ones() -> None:
    survivors = survive(*attempt(1, 0, 6), *attempt(2, 4, 9), *attempt(3, 2, 3))
    assert survivors.attempts == {1: 1, 2: 1, 3: 3}
    assert survivors.over == (superseded(1, 3, 6), superseded(2, 5, 9))
    assert survivors.lost == ()


@pytest.mark.parametrize(("main", "side", "end"), [(20, 10, 30), (8, 7, 8)])
def test_a_return_to_the_main_line_leaves_the_side_branch_out(
    main: int, side: int, end: int
) -> None:
    survivors = survive(*attempt(1, 0, main), *attempt(2, 5, side), *attempt(3, main, end, of=1))
    expected = dict.fromkeys(range(1, main + 1), 1) | dict.fromkeys(range(main + 1, end + 1), 3)
    assert survivors.attempts == expected
    assert survivors.over == (superseded(2, 6, side),)
    assert survivors.lost == ()


def test_a_branch_that_is_gone_on_with_stands() -> None:
    survivors = survive(*attempt(1, 0, 20), *attempt(2, 5, 10), *attempt(3, 10, 12, of=2))
    assert list(survivors.attempts.values()) == [1] * 5 + [2] * 5 + [3] * 2


def test_events_of_a_side_branch_do_not_stand() -> None:
    aside, kept = make_event(update=4, details=None), make_event(update=6, details=None)
    survivors = survive(*attempt(1, 0, 6), kept, *attempt(2, 3, 5), aside, *attempt(3, 6, 7, of=1))
    assert survivors.events == [kept]


def test_each_optimizer_is_superseded_from_its_own_checkpoint() -> None:
    order = [(0, 1), (1, 1), (1, 2), (1, 3), (0, 2), (0, 3)]
    updates = [make_update(number, optimizer=optimizer) for optimizer, number in order]
    survivors = survive(make_run(), *updates, make_run(attempt=2, resumed=make_resumed(2, 1)))
    assert survivors.updates == [updates[0], updates[1], updates[4]]
    assert survivors.over == (superseded(1, 3, 3), superseded(1, 2, 3, optimizer=1))


@pytest.mark.parametrize("before", [None, 7], ids=["not known", "not in this file"])
def test_a_checkpoint_of_an_attempt_that_is_not_here_proves_nothing_of_those_that_are(
    before: int | None,
) -> None:
    later = make_run(attempt=9, resumed=make_resumed(2, attempt=before))
    survivors = survive(*attempt(1, 0, 3), later, make_update(3, loss=9.0))
    assert survivors.attempts == {3: 9}
    assert survivors.over == (superseded(1, 1, 3),)
    assert survivors.lost == (missing(1, 2),)


def test_an_attempt_without_checkpoint_supersedes_everything() -> None:
    survivors = survive(*attempt(1, 0, 3), make_run(attempt=2, resumed=None), make_update(1))
    assert survivors.updates == [make_update(1)]
    assert survivors.over == (superseded(1, 1, 3),)


def test_a_run_resumed_into_a_new_file_misses_what_came_before() -> None:
    assert survive(*attempt(2, 5, 7)).lost == (missing(1, 5),)


def test_updates_lost_before_the_checkpoint_are_missing_also_if_none_follows() -> None:
    assert survive(*attempt(1, 0, 3), *attempt(2, 6, 6)).lost == (missing(4, 6),)
    assert survive(*attempt(1, 0, 3), *attempt(2, 6, 8)).lost == (missing(4, 6),)


def test_what_was_missing_is_no_longer_when_it_is_done_over() -> None:
    survivors = survive(*attempt(1, 0, 3), *attempt(2, 6, 8), *attempt(3, 2, 9, of=1))
    assert survivors.lost == ()
    assert list(survivors.attempts) == list(range(1, 10))


def test_an_event_beyond_the_checkpoint_is_superseded() -> None:
    events = [make_event(update=update, details=None) for update in (1, 2, 3)]
    survivors = survive(*attempt(1, 0, 3), *events, *attempt(2, 2, 4))
    assert survivors.events == events[:2]


def test_a_skipped_step_after_the_checkpoint_is_superseded_though_no_update_came_between() -> None:
    kept, over = (make_event(update=2, details={"global_step": step}) for step in (2, 3))
    survivors = survive(*attempt(1, 0, 2), kept, over, *attempt(2, 2, 3))
    assert survivors.events == [kept]


def test_the_lineage_ends_where_an_attempt_does_not_say_what_it_goes_on_from() -> None:
    runs = [
        make_run(),
        make_run(attempt=2, resumed=make_resumed(3)),
        make_run(attempt=3, resumed=make_resumed(2, attempt=None)),
        make_run(attempt=4, resumed=make_resumed(5, attempt=3)),
        make_run(attempt=5, resumed=make_resumed(1)),
    ]
    lineages = [[run.attempt for run in find_lineage(runs[:count])] for count in range(6)]
    assert lineages == [[], [1], [1, 2], [3], [3, 4], [1, 5]]


def test_a_rank_that_missed_an_attempt_is_found_by_the_numbers_of_rank_0() -> None:
    """Rank 0 began attempt 2 and was killed; its attempt 3 is the second of rank 1."""

    def runs(rank: int, *numbers: int) -> list[RunRecord]:
        parents = {2: 1, 3: 1, 4: 3, 5: 4}
        return [
            make_run(
                attempt=number,
                rank=rank,
                resumed=None if number == 1 else make_resumed(9, attempt=parents[known]),
            )
            for number, known in zip(numbers, (1, 3, 4, 5) if rank else range(1, 6), strict=True)
        ]

    assert [run.attempt for run in find_lineage(runs(0, 1, 2, 3, 4, 5))] == [1, 3, 4, 5]
    assert [run.attempt for run in find_lineage(runs(1, 1, 2, 4, 5))] == [1, 2, 4, 5]


# ---- any tree of attempts, against the training replayed ----------------------------------------


@dataclass(frozen=True)
class Branch:
    """An attempt as a training does it: its weights are the list of who did which update."""

    number: int
    parent: int | None
    completed: int
    last: int


@st.composite
def trees(draw: st.DrawFn) -> list[Branch]:
    """Attempts, each from a checkpoint of any before it; checkpoints may outlive lines."""
    branches: list[Branch] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        parent = draw(st.sampled_from(branches)) if branches else None
        completed = 0
        if parent is not None:  # a checkpoint of an attempt is made in it, not before it
            completed = draw(st.integers(parent.completed, parent.last + 2))
        last = completed + draw(st.integers(0, 5))
        branches.append(Branch(number, parent and parent.number, completed, last))
    return branches


def replay(branches: list[Branch]) -> dict[int, int]:
    """Update: the attempt that did it, in the training that the last attempt has ended."""
    done: dict[int, dict[int, int]] = {}
    for one in branches:
        before = {} if one.parent is None else done[one.parent]
        kept = {update: who for update, who in before.items() if update <= one.completed}
        done[one.number] = kept | dict.fromkeys(range(one.completed + 1, one.last + 1), one.number)
    return done[branches[-1].number]


@given(trees())
def test_every_update_stands_is_superseded_or_is_missing(branches: list[Branch]) -> None:
    survivors = survive(
        *(
            record
            for one in branches
            for record in attempt(one.number, one.completed, one.last, of=one.parent)
        )
    )
    expected = replay(branches)
    assert survivors.attempts == expected
    assert [u.update for u in survivors.updates] == sorted(expected)
    lost = {n for gap in survivors.lost for n in range(gap.first, gap.last + 1)}
    assert lost == set(range(1, branches[-1].last + 1)) - set(expected)
    over = [(part.attempt, n) for part in survivors.over for n in range(part.first, part.last + 1)]
    written = {(b.number, n) for b in branches for n in range(b.completed + 1, b.last + 1)}
    assert sorted(over) == sorted(written - {(a, n) for n, a in expected.items()})


@pytest.mark.parametrize("count", [0, 1])
def test_a_recording_read_from_a_file_says_the_same(tmp_path: Path, count: int) -> None:
    records = [*attempt(1, 0, 3), *attempt(2, 2, 2 + count)]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_line, records)))
    recording, survivors = read_recording(path), survive(*records)
    assert list(recording.updates) == survivors.updates
    assert recording.superseded == survivors.over == (superseded(1, 3, 3),)

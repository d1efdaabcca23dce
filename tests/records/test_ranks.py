"""Ranks that recorded by themselves become one recording, and what does not fit is said."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.samples import (
    make_end,
    make_event,
    make_resumed,
    make_run,
    make_shard,
    make_update,
)
from traingen.errors import RecordingError
from traingen.records import (
    Record,
    Recording,
    SchedulerState,
    UnequalRanks,
    UpdateRecord,
    encode_line,
    merge_ranks,
    read_ranks,
    recording_path,
)
from traingen.records.ranks import AHEAD, LossSpread, RankMerger, Turn, merge_updates


def write_rank(folder: Path, rank: int, *records: Record, world_size: int = 2) -> None:
    folder.mkdir(exist_ok=True)
    run = make_run(rank=rank, world_size=world_size)
    lines = b"".join(map(encode_line, (run, *records)))
    recording_path(folder, rank=rank).write_bytes(lines)


def write_ranks(folder: Path, *ranks: list[Record]) -> tuple[Recording, ...]:
    for rank, records in enumerate(ranks):
        write_rank(folder, rank, *records, world_size=len(ranks))
    return read_ranks(folder)


def shards(*squares: tuple[float, float], **changes: Any) -> list[UpdateRecord]:
    """One update by rank, of shares (before, after clipping)."""
    without: dict[str, Any] = {
        "grad_norm": None,
        "grad_norm_clipped": None,
        "clipped": None,
        "clip_coefficient": None,
    }
    return [
        make_update(
            shard=make_shard(grad_norm_squared=before, grad_norm_clipped_squared=after),
            **(without | changes),
        )
        for before, after in squares
    ]


# ---- reading ------------------------------------------------------------------------------------


def test_all_ranks_are_read_by_folder_and_by_file(tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path, [make_update()], [make_update()], [make_update()])
    assert [recording.run.rank for recording in ranks] == [0, 1, 2]
    assert read_ranks(tmp_path / "updates.rank0.jsonl") == ranks
    for rank, recording in enumerate(ranks):
        recording.path.rename(recording_path(tmp_path / "a.jsonl", rank=rank))
    assert [recording.path.name for recording in read_ranks(tmp_path / "a.jsonl")] == [
        "a.jsonl",
        "a.rank1.jsonl",
        "a.rank2.jsonl",
    ]


def test_ranks_without_a_file_are_all_named(tmp_path: Path) -> None:
    write_ranks(tmp_path, *[[make_update()]] * 4)
    for rank in (1, 3):
        recording_path(tmp_path, rank=rank).unlink()
    with pytest.raises(RecordingError, match=r"'world_size' is 4, .* no recording of rank 1, 3:"):
        read_ranks(tmp_path)


def test_a_file_of_another_rank_is_refused(tmp_path: Path) -> None:
    write_ranks(tmp_path, [make_update()], [make_update()])
    content = recording_path(tmp_path).read_bytes()
    recording_path(tmp_path, rank=1).write_bytes(content)
    with pytest.raises(RecordingError, match=r"rank1\.jsonl: 'rank' must be 1 .* got 0"):
        read_ranks(tmp_path)


def test_a_damaged_rank_is_refused_at_its_line(tmp_path: Path) -> None:
    write_ranks(tmp_path, [make_update()], [make_update()])
    path = recording_path(tmp_path, rank=1)
    path.write_bytes(path.read_bytes().replace(b"2.3025", b"2.3026"))
    with pytest.raises(RecordingError, match=r"rank1\.jsonl:2: 'crc'"):
        read_ranks(tmp_path)


# ---- merging ------------------------------------------------------------------------------------


def test_losses_are_the_mean_over_ranks(tmp_path: Path) -> None:
    zero = make_update(loss=1.0, objective=0.5, micro_losses=[0.5, 1.5], loss_terms={"a": 2.0})
    one = make_update(loss=2.0, objective=1.0, micro_losses=[1.5, 2.5], loss_terms={"a": 4.0})
    merged = merge_ranks(write_ranks(tmp_path, [zero], [one]))
    (update,) = merged.updates
    assert (update.loss, update.objective, update.micro_losses) == (1.5, 0.75, [1.0, 2.0])
    assert update.loss_terms == {"a": 3.0}
    assert (merged.ranks, merged.disagreements, merged.unequal) == (2, (), ())


def test_what_one_rank_does_not_have_is_null() -> None:
    update = merge_updates([make_update(), make_update(loss=None, micro_losses=[1.0, 2.0])])
    assert (update.loss, update.micro_losses) == (None, None)
    assert update.objective == make_update().objective


def test_a_loss_that_is_not_finite_on_one_rank_is_not_finite() -> None:
    update = merge_updates([make_update(loss=math.inf), make_update(loss=-math.inf)])
    assert update.loss is not None and math.isnan(update.loss)


def test_all_else_is_of_rank_0(tmp_path: Path) -> None:
    zero = [make_update(micro_batches=2), make_event(update=1), make_end(updates=1)]
    other = make_update(micro_batches=2, rng={"torch": "other"}, batch=None)
    one = [other, make_end(updates=1)]
    ranks = write_ranks(tmp_path, zero, one)
    merged = merge_ranks(ranks)
    assert merged.updates == (zero[0],)
    assert (merged.run, merged.events, merged.end) == (ranks[0].run, (zero[1],), zero[2])
    assert merged.path == ranks[0].path


def test_norms_of_shards_are_the_root_of_the_sum_of_their_squares() -> None:
    update = merge_updates(shards((9.0, 2.25), (16.0, 4.0)))
    assert (update.grad_norm, update.grad_norm_clipped) == (5.0, 2.5)
    assert (update.clipped, update.clip_coefficient, update.shard) == (True, 0.5, None)
    assert update.grad_norm_source == "measured"


def test_shards_that_were_not_clipped_say_so() -> None:
    update = merge_updates(shards((9.0, 9.0), (16.0, 16.0)))
    assert (update.clipped, update.clip_coefficient) == (False, 1.0)
    update = merge_updates(shards((0.0, 0.0), (0.0, 0.0)))
    assert (update.grad_norm, update.clip_coefficient) == (0.0, 1.0)


def test_a_clip_by_value_has_no_one_factor(tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path, *[[update] for update in shards((9.0, 4.0), (16.0, 4.0))])
    for rank in (0, 1):
        run = make_run(rank=rank, world_size=2, clipping={"value": 0.5, "algorithm": "value"})
        (update,) = ranks[rank].updates
        ranks[rank].path.write_bytes(encode_line(run) + encode_line(update))
    (update,) = merge_ranks(read_ranks(tmp_path)).updates
    assert (update.clipped, update.clip_coefficient) == (True, None)


def test_sharded_norms_differ_between_ranks_without_a_word(tmp_path: Path) -> None:
    (zero,), (one,) = shards((9.0, 1.0)), shards((16.0, 1.0), parameters="e2", clipped=True)
    assert merge_ranks(write_ranks(tmp_path, [zero], [one])).disagreements == ()


def test_ranks_that_disagree_in_what_all_should_have_are_named_once(tmp_path: Path) -> None:
    zero = [make_update(n) for n in (1, 2, 3)]
    one = [make_update(n, grad_norm=2.43 if n > 1 else 1.93 + 1e-9) for n in (1, 2, 3)]
    (found,) = merge_ranks(write_ranks(tmp_path, zero, one)).disagreements
    assert (found.field, found.optimizer, found.update, found.count) == ("grad_norm", 0, 2, 2)
    assert found.values == (1.93, 2.43)


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": [0.002]},
        {"lr": [0.001, 0.001]},
        {"parameters": "e2"},
        {"micro_batches": 2},
        {"grad_norm": None},
        {"loss_terms": {"cross_entropy": 2.3}},
        {"shard": make_shard()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_kind_of_disagreement_is_found(tmp_path: Path, changes: dict[str, Any]) -> None:
    merged = merge_ranks(write_ranks(tmp_path, [make_update()], [make_update(**changes)]))
    assert [found.field for found in merged.disagreements] == [*changes]


def test_schedulers_that_do_not_tick_alike_are_found(tmp_path: Path) -> None:
    late = [SchedulerState(id=0, last_epoch=0, ticks=1)]
    zero, one = make_update(2), make_update(2, scheduler=late)
    merged = merge_ranks(write_ranks(tmp_path, [make_update(), zero], [make_update(), one]))
    (found,) = merged.disagreements
    assert (found.field, found.update, found.values) == ("last_epoch", 2, ([1], [0]))
    without = make_update(scheduler=None)
    merged = merge_ranks(write_ranks(tmp_path, [make_update()], [without]))
    assert {found.field for found in merged.disagreements} == {"ticks", "last_epoch"}


def test_norms_that_are_nan_on_all_ranks_agree(tmp_path: Path) -> None:
    ranks = write_ranks(tmp_path, *[[make_update(grad_norm=math.nan)]] * 2)
    assert merge_ranks(ranks).disagreements == ()


def test_ranks_of_unequal_length_are_merged_as_far_as_all_go(tmp_path: Path) -> None:
    zero = [make_update(n) for n in (1, 2, 3)]
    merged = merge_ranks(write_ranks(tmp_path, zero, zero[:2]))
    assert [update.update for update in merged.updates] == [1, 2]
    assert merged.unequal == (UnequalRanks(optimizer=0, updates=(3, 2), merged=2),)


def test_a_number_of_ranks_that_changed_is_refused(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, make_run(attempt=2, resumed=make_resumed(), rank=0, world_size=1))
    write_rank(tmp_path, 1)
    with pytest.raises(RecordingError, match=r"'world_size' must be 2 .* got 1 in attempt 2"):
        merge_ranks(read_ranks(tmp_path))
    with pytest.raises(RecordingError, match="got none"):
        merge_ranks([])


finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1, max_size=4), st.lists(st.floats(0, 1e6), min_size=2))
def test_merging_is_the_mean_and_the_root_whatever_the_numbers(
    losses: list[float], squares: list[float]
) -> None:
    update = merge_updates([make_update(loss=loss) for loss in losses])
    assert update.loss == pytest.approx(math.fsum(losses) / len(losses), abs=1e-6)
    whole = merge_updates(shards(*[(square, square) for square in squares]))
    assert whole.grad_norm == pytest.approx(math.hypot(*map(math.sqrt, squares)))
    assert whole.clipped is False


def test_ranks_that_recorded_alike_merge_into_rank_0(tmp_path: Path) -> None:
    records: list[Record] = [make_update(1, loss=2.0), make_update(2, loss=0.5)]
    ranks = write_ranks(tmp_path, records, records)
    assert merge_ranks(ranks).updates == ranks[0].updates


# ---- how far apart the losses lie ----------------------------------------------------------------


def spread_of(*losses: tuple[float | None, ...], **changes: Any) -> LossSpread:
    """Of updates with these losses by rank."""
    first, *others = (with_losses(of_rank, **changes) for of_rank in zip(*losses, strict=True))
    merger = RankMerger([map(Turn, records) for records in others])
    for record in first:
        assert merger.take(Turn(record)) is not None
    return merger.spreads[0]


def with_losses(losses: Sequence[float | None], **changes: Any) -> list[UpdateRecord]:
    return [make_update(n, loss=loss, **changes) for n, loss in enumerate(losses, start=1)]


def test_the_spread_tells_each_ranks_mean_and_where_they_lie_furthest_apart() -> None:
    spread = spread_of((1.0, 2.0), (1.0, 5.0), (4.0, 5.0))
    assert (spread.updates, spread.means) == (3, [2.0, 4.0])
    assert (spread.widest, spread.widest_at) == ([1.0, 5.0], 2)
    assert spread.nonfinite == [0, 0]


def test_the_rank_whose_loss_is_not_finite_is_told() -> None:
    spread = spread_of((1.0, 2.0), (1.0, math.nan), (math.inf, -math.inf))
    assert (spread.updates, spread.means, spread.nonfinite) == (1, [1.0, 2.0], [1, 2])


def test_without_a_loss_the_objectives_are_told_apart() -> None:
    spread = spread_of((None, None), objective=3.0)
    assert spread.means == [3.0, 3.0]
    assert spread_of((1.0, None)).updates == 0


# ---- a rank at a time ----------------------------------------------------------------------------


class Counted:
    """Updates, and how many of them were read."""

    def __init__(self, records: list[UpdateRecord]) -> None:
        self.records = records
        self.read = 0

    def __iter__(self) -> Iterator[Turn]:
        for record in self.records:
            self.read += 1
            yield Turn(record)


def test_ranks_are_read_side_by_side() -> None:
    records = [make_update(n) for n in range(1, 6)]
    other = Counted(records)
    merger = RankMerger([other])
    for number, record in enumerate(records, start=1):
        assert merger.take(Turn(record)) == record
        assert other.read == number


def alternating(count: int, *optimizers: int) -> list[UpdateRecord]:
    return [make_update(n, optimizer=o) for n in range(1, count + 1) for o in optimizers]


@pytest.mark.parametrize("lacking", [0, 1])
def test_an_optimizer_that_a_rank_lacks_holds_no_other_up(lacking: int) -> None:
    """And what is read of it is not kept: three times as much as a rank is read ahead."""
    sides = [alternating(3 * AHEAD, 1, 0), alternating(3 * AHEAD, 0)]
    first, second = sides[::-1] if lacking == 0 else sides
    other = Counted(second)
    merger = RankMerger([other])
    merged = 0
    for number, record in enumerate(first, start=1):
        merged += merger.take(Turn(record)) is not None
        assert other.read <= 2 * number + AHEAD
        waiting = merger._others[0]._waiting.values()
        assert sum(map(len, waiting)) <= 2 * AHEAD + 1
    merger.finish()
    assert merged == 3 * AHEAD
    (unequal,) = merger.unequal
    expected = (0, 3 * AHEAD) if lacking == 0 else (3 * AHEAD, 0)
    assert (unequal.optimizer, unequal.updates, unequal.merged) == (1, expected, 0)


@given(st.permutations([0] * 4 + [1] * 4), st.permutations([0] * 4 + [1] * 4))
def test_optimizers_in_another_order_are_merged_each_with_its_own(
    first: list[int], second: list[int]
) -> None:
    def numbered(order: list[int]) -> list[UpdateRecord]:
        counts = [0, 0]
        records = []
        for optimizer in order:
            counts[optimizer] += 1
            records.append(make_update(counts[optimizer], optimizer=optimizer))
        return records

    merger = RankMerger([map(Turn, numbered(second))])
    assert [merger.take(Turn(record)) for record in numbered(first)] == numbered(first)
    merger.finish()
    assert (merger.unequal, merger.disagreements) == ((), ())


@given(st.lists(st.sets(st.integers(1, 9)), min_size=3, max_size=3))
def test_the_updates_that_all_ranks_have_are_merged(held: list[set[int]]) -> None:
    turns = [[Turn(make_update(n)) for n in sorted(numbers)] for numbers in held]
    merger = RankMerger(turns[1:])
    merged = [record.update for turn in turns[0] if (record := merger.take(turn)) is not None]
    merger.finish()
    assert merged == sorted(held[0] & held[1] & held[2])
    unequal = len({*map(frozenset, held)}) > 1
    assert [one.updates for one in merger.unequal] == [tuple(map(len, held))] * unequal

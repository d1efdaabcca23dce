"""A RUN of several ranks is read as one recording, or a rank of it by itself."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading.recordings import (
    change,
    ended_after,
    make_training,
    make_updates,
    of_rank,
    resumed_at,
    seeing_run,
    write_file,
    write_ranks,
    write_recording,
)
from tests.records.samples import make_event, make_shard
from traingen.errors import RecordingError
from traingen.judge import judge_recording
from traingen.reading.opening import by_rank, open_run
from traingen.records import (
    UpdateRecord,
    iter_records,
    merge_ranks,
    read_ranks,
    recording_path,
)

TRAINING = make_training(4)


def read_through(path, **options):
    """The records, and how the ranks fit, once all were taken."""
    reader = open_run(path, **options)
    return list(reader.records()), reader.fit


def updates_in(records):
    return [record for record in records if isinstance(record, UpdateRecord)]


# ---- merged -------------------------------------------------------------------------------------


def test_a_single_rank_is_read_as_it_stands_in_its_file(tmp_path):
    path = write_recording(tmp_path / "run", TRAINING)
    assert read_through(path) == (TRAINING, None)


def test_losses_are_means_over_ranks_and_all_else_is_of_rank_0(tmp_path):
    other = change(TRAINING, 2, loss=5.0, rng={"torch": "other"})
    path = write_ranks(tmp_path / "run", TRAINING, other)
    records, fit = read_through(path)
    mean = (TRAINING[2].loss + 5.0) / 2
    assert records == of_rank(change(TRAINING, 2, loss=mean), 0)
    assert (fit.ranks, list(fit.tell())) == (2, [])
    assert read_through(path / "updates.rank0.jsonl")[0] == records


def test_norms_are_those_of_all_shards(tmp_path):
    def sharded(square):
        shard = make_shard(grad_norm_squared=square, grad_norm_clipped_squared=square)
        return make_training(2, shard=shard, grad_norm=None, grad_norm_clipped=None)

    records, fit = read_through(write_ranks(tmp_path / "run", sharded(9.0), sharded(16.0)))
    assert [record.grad_norm for record in updates_in(records)] == [5.0, 5.0]
    assert list(fit.tell()) == []


def test_it_can_be_named_by_a_file_of_its_own_name(tmp_path):
    for rank in range(2):
        write_file(recording_path(tmp_path / "a.jsonl", rank=rank), of_rank(TRAINING, rank))
    records, fit = read_through(tmp_path / "a.jsonl")
    assert (records, fit.ranks) == (of_rank(TRAINING, 0), 2)


@st.composite
def attempts(draw):
    """What two ranks recorded of a run that was resumed: either may have been killed earlier."""
    ranks = [[seeing_run()], [seeing_run()]]
    completed = 0
    for attempt in range(1, draw(st.integers(1, 4)) + 1):
        if attempt > 1:
            completed = draw(st.integers(0, completed + 4))
            for records in ranks:
                records.append(resumed_at(completed, attempt=attempt))
        made = [completed + draw(st.integers(0, 4)) for _ in ranks]
        for rank, last in enumerate(made):
            ranks[rank] += make_updates(completed + 1, last, loss=float(10 * attempt + rank))
        completed = min(made)
    return ranks


@given(ranks=attempts())
def test_read_line_by_line_it_is_what_it_is_as_a_whole(tmp_path_factory, ranks):
    path = write_ranks(tmp_path_factory.mktemp("ranks") / "run", *ranks)
    reader = open_run(path)
    standing = updates_in(reader.standing())
    whole = merge_ranks(read_ranks(path))
    assert tuple(standing) == whole.updates
    merger = reader.fit.merger
    assert (merger.unequal, merger.disagreements) == (whole.unequal, whole.disagreements)
    assert tuple(merger.spreads.values()) == whole.spreads


def test_what_a_resume_repeats_is_merged_on_both_sides_of_it(tmp_path):
    """Else the loss of rank 0 alone would be compared with the mean."""
    ranks = [
        [seeing_run(), *make_updates(1, 4, loss=loss), resumed_at(2),
         *make_updates(3, 5, loss=loss), ended_after(5)]
        for loss in (1.0, 2.0)
    ]  # fmt: skip
    records, _ = read_through(write_ranks(tmp_path / "run", *ranks))
    assert [record.loss for record in updates_in(records)] == [1.5] * 7
    ids = [finding.id for finding in judge_recording(records)]
    assert "TG-RECORD-NOT-REPEATED" not in ids
    ranks[1] = change(ranks[1][:5], 3, loss=9.0) + ranks[1][5:]
    records, _ = read_through(write_ranks(tmp_path / "changed", *ranks))
    assert "TG-RECORD-NOT-REPEATED" in [finding.id for finding in judge_recording(records)]


def test_a_loss_that_is_not_finite_on_any_rank_is_found_by_the_judge(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING, change(TRAINING, 3, loss=math.nan))
    records, fit = read_through(path)
    assert "TG-RECORD-NONFINITE-LOSS" in [finding.id for finding in judge_recording(records)]
    assert fit.merger.spreads[0].nonfinite == [0, 1]


# ---- what does not fit --------------------------------------------------------------------------


def test_ranks_that_disagree_are_named(tmp_path):
    other = change(change(TRAINING, 2, lr=[0.5]), 3, lr=[0.5], grad_norm_clipped=0.5)
    _, fit = read_through(write_ranks(tmp_path / "run", TRAINING, other))
    assert list(fit.tell()) == [
        "lr differs in 2 updates, first 2: [0.001] on rank 0; [0.5] on rank 1",
        "grad_norm_clipped differs in 1 updates, first 3: 1 on rank 0; 0.5 on rank 1",
    ]


def test_ranks_of_unequal_length_are_merged_as_far_as_all_go_and_named(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING, TRAINING[:3], TRAINING)
    records, fit = read_through(path)
    assert [record.update for record in updates_in(records)] == [1, 2]
    assert list(fit.tell()) == [
        "not equally long, updates: 4 on ranks 0, 2; 2 on rank 1; merged 2",
        "ends differ: finished on ranks 0, 2; no end line on rank 1",
    ]


def test_ranks_that_went_through_other_attempts_are_merged_in_what_stands(tmp_path):
    """Rank 1 was killed before it could write that it resumes; both did so once more."""
    again = [resumed_at(2, attempt=3), *make_updates(3, 4)]
    first = [seeing_run(), *make_updates(1, 3), resumed_at(2), *make_updates(3, 3, loss=9.0)]
    second = [seeing_run(), *make_updates(1, 3), *of_rank(again, 1)]
    records, fit = read_through(write_ranks(tmp_path / "run", [*first, *again], second))
    assert [record.update for record in updates_in(records)] == [1, 2, 3, 4]
    assert 9.0 not in [record.loss for record in updates_in(records)]
    assert list(fit.tell()) == ["attempts differ: [1, 2, 3] on rank 0; [1, 3] on rank 1"]


def test_all_of_it_is_told_as_json_values(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING, change(TRAINING, 3, lr=[0.5], loss=4.0)[:-1])
    _, fit = read_through(path)
    plain = fit.to_json()
    assert (plain["merged"], plain["ends"]) == (2, ["finished", "no end line"])
    assert list(plain["disagreements"][0]["values"]) == [[0.001], [0.5]]
    assert plain["spreads"][0]["widest_at"] == 3
    assert plain["unequal"] == []


def test_values_by_rank_are_few_words_however_many_ranks_there_are():
    assert by_rank([0.1, 0.1, 0.2]) == "0.1 on ranks 0, 1; 0.2 on rank 2"
    assert by_rank([1] * 60 + [2]) == "1 on 60 ranks; 2 on rank 60"
    assert len(by_rank(["x" * 500, "y"])) < 80


# ---- missing, and one by itself -----------------------------------------------------------------


def test_ranks_that_are_missing_are_named_with_the_way_out(tmp_path):
    path = write_ranks(tmp_path / "run", *[TRAINING] * 4)
    for rank in (1, 3):
        recording_path(path, rank=rank).unlink()
    with pytest.raises(RecordingError, match=r"no recording of rank 1, 3: .*--rank R"):
        open_run(path)
    assert read_through(path, rank=2)[0] == of_rank(TRAINING, 2, world_size=4)


def test_one_rank_is_read_alone_by_number_or_by_its_file(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING, make_training(3))
    alone = of_rank(make_training(3), 1)
    assert read_through(path, rank=1) == (alone, None)
    assert read_through(path / "updates.rank1.jsonl") == (alone, None)
    assert read_through(path, rank=0) == (of_rank(TRAINING, 0), None)
    assert list(iter_records(path, rank=1)) == alone


@pytest.mark.parametrize("options", [{}, {"rank": 1}], ids=["merged", "alone"])
def test_a_file_of_another_rank_is_refused(tmp_path, options):
    path = write_ranks(tmp_path / "run", TRAINING, TRAINING)
    write_file(recording_path(path, rank=1), of_rank(TRAINING, 0))
    with pytest.raises(RecordingError, match=r"rank1\.jsonl: 'rank' must be 1 .* got 0"):
        open_run(path, **options)


def test_a_rank_that_there_is_not_is_no_recording(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING, TRAINING)
    with pytest.raises(RecordingError, match=r"updates\.rank2\.jsonl: no such recording"):
        open_run(path, rank=2)


def test_another_number_of_ranks_in_a_later_attempt_is_refused(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING[:3], TRAINING[:3])
    alone = msgspec.structs.replace(resumed_at(2), rank=0, world_size=1)
    write_file(recording_path(path), [*of_rank(TRAINING[:3], 0), alone, *make_updates(3, 3)])
    with pytest.raises(RecordingError, match=r"got 1 in attempt 2: .*--rank R"):
        open_run(path)
    assert len(updates_in(read_through(path, rank=0)[0])) == 3


def test_another_number_of_ranks_in_an_attempt_that_was_given_up_is_no_obstacle(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING[:3], TRAINING[:3])
    alone = msgspec.structs.replace(resumed_at(2), rank=0, world_size=1)
    again = [resumed_at(2, attempt=3, before=1), *make_updates(3, 4)]
    first = [*of_rank(TRAINING[:3], 0), alone, *make_updates(3, 3), *of_rank(again, 0)]
    write_file(recording_path(path), first)
    write_file(recording_path(path, rank=1), of_rank([*TRAINING[:3], *again], 1))
    reader = open_run(path)
    assert [record.update for record in updates_in(reader.standing())] == [1, 2, 3, 4]
    assert reader.fit is not None and reader.fit.ranks == 2


def test_damage_to_any_rank_is_refused_at_its_line(tmp_path):
    path = write_ranks(tmp_path / "run", TRAINING, TRAINING)
    file = recording_path(path, rank=1)
    file.write_bytes(file.read_bytes().replace(b"2.3025", b"2.3026", 1))
    with pytest.raises(RecordingError, match=r"rank1\.jsonl:2: 'crc'"):
        read_through(path)


def test_events_are_those_of_rank_0(tmp_path):
    own = make_event(event="checkpoint", update=4)
    path = write_ranks(
        tmp_path / "run", [*TRAINING[:-1], make_event(update=4)], [*TRAINING[:-1], own]
    )
    assert read_through(path)[0][-1] == make_event(update=4)

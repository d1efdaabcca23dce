"""A recording that grows is read once, whole lines only, wherever one looks in between."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reading.recordings import (
    ended_after,
    make_training,
    make_updates,
    resumed_at,
    seeing_run,
    write_file,
)
from traingen.errors import RecordingError
from traingen.reading.follow import BLOCK, Follower, find_last_lines
from traingen.records import encode_line, iter_records

RECORDS = [seeing_run(), *make_updates(1, 4), resumed_at(2), *make_updates(3, 5), ended_after(5)]
LINES = [encode_line(record) for record in RECORDS]


@given(cuts=st.lists(st.integers(0, sum(map(len, LINES))), max_size=12))
def test_every_record_comes_once_wherever_the_writer_is_met(tmp_path_factory, cuts):
    path = tmp_path_factory.mktemp("grow") / "a.jsonl"
    whole, seen = b"".join(LINES), []
    follower = Follower(path)
    for cut in [*sorted(cuts), len(whole)]:
        path.write_bytes(whole[:cut])
        seen += follower.poll()
    assert seen == RECORDS
    assert list(follower.poll()) == []


def test_a_file_that_does_not_exist_yet_has_no_records(tmp_path):
    follower = Follower(tmp_path / "run")
    assert not follower.exists
    assert list(follower.poll()) == []
    (tmp_path / "run").mkdir()
    write_file(tmp_path / "run" / "updates.rank0.jsonl", RECORDS)
    assert follower.exists
    assert list(follower.poll()) == RECORDS


@pytest.mark.parametrize("lines", [1, 3, len(RECORDS), len(RECORDS) + 5])
def test_it_begins_with_the_last_lines(tmp_path, lines):
    path = write_file(tmp_path / "a.jsonl", [*RECORDS, b'{"kind":"run"'])
    assert list(Follower(path, lines=lines).poll()) == RECORDS[-lines:]


@given(
    sizes=st.lists(st.integers(0, 200), max_size=30), lines=st.integers(1, 35), tail=st.booleans()
)
def test_last_lines_are_found_as_by_splitting(tmp_path_factory, sizes, lines, tail):
    path = tmp_path_factory.mktemp("lines") / "a"
    parts = [b"x" * size + b"\n" for size in sizes]
    path.write_bytes(b"".join(parts) + (b"torn" if tail else b""))
    with path.open("rb") as file:
        offset = find_last_lines(file.fileno(), lines)
    assert path.read_bytes()[offset:].startswith(b"".join(parts[-lines:]))
    assert offset == sum(map(len, parts[:-lines]))


def test_lines_longer_than_a_block_are_found(tmp_path):
    parts = [b"a" * (2 * BLOCK) + b"\n", b"b" * BLOCK + b"\n", b"c\n"]
    path = tmp_path / "a"
    path.write_bytes(b"".join(parts) + b"t" * BLOCK)
    with path.open("rb") as file:
        found = [find_last_lines(file.fileno(), n) for n in (1, 2, 3, 4)]
    assert found == [sum(map(len, parts[:k])) for k in (2, 1, 0, 0)]


def test_a_torn_line_that_a_resume_parted_is_passed_over(tmp_path):
    torn = encode_line(make_updates(3, 3)[0])[:50]
    path = tmp_path / "a.jsonl"
    follower = Follower(path)
    write_file(path, [seeing_run(), *make_updates(1, 2), torn])
    assert len(list(follower.poll())) == 3
    resumed = [seeing_run(), *make_updates(1, 2), torn + b"\n", resumed_at(2)]
    write_file(path, resumed)
    assert list(follower.poll()) == [resumed_at(2)]
    assert list(iter_records(path))[-1] == resumed_at(2)


@pytest.mark.parametrize(
    "lines",
    [
        [encode_line(make_updates(1, 1)[0]).replace(b"2.3025", b"2.3026")],
        [b'{"kind":"update","upd\n', *make_updates(1, 1)],  # torn, and no resume follows
    ],
    ids=["edited", "torn"],
)
def test_damage_is_raised_after_all_that_came_before_it(tmp_path, lines):
    path = write_file(tmp_path / "a.jsonl", [seeing_run(), *lines])
    records = Follower(path).poll()
    assert next(records) == seeing_run()
    with pytest.raises(RecordingError, match=r"a\.jsonl: at byte \d+"):
        list(records)


def test_gaps_are_seen_from_where_it_begins(tmp_path):
    gap = [seeing_run(), *make_updates(1, 3), *make_updates(5, 6)]
    path = write_file(tmp_path / "a.jsonl", gap)
    assert list(Follower(path, lines=2).poll()) == make_updates(5, 6)  # it lies before
    for lines in (3, None):
        with pytest.raises(RecordingError, match="must be 4, got 5"):
            list(Follower(path, lines=lines).poll())


def test_a_file_that_took_its_place_is_read_from_the_beginning(tmp_path):
    path = write_file(tmp_path / "a.jsonl", RECORDS)
    follower = Follower(path, lines=2)
    assert len(list(follower.poll())) == 2
    assert not follower.replaced
    os.replace(write_file(tmp_path / "new.jsonl", make_training(20)), path)
    assert list(follower.poll()) == make_training(20)
    assert follower.replaced

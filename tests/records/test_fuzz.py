"""Whatever happens to a file: the reader raises its own error or returns only what was written."""

import random
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.records.make_golden import resumed_bytes
from tests.records.samples import golden_records, make_run, make_update, resumed_records
from traingen.errors import RecordingError
from traingen.records import Record, UpdateRecord, encode_line, iter_records, read_recording

CONTENTS = {
    "one attempt": b"".join(map(encode_line, golden_records())),
    "three attempts": resumed_bytes(),
}
RECORDS = [*golden_records(), *chain.from_iterable(resumed_records())]
WRITTEN = {repr(record) for record in RECORDS}  # repr, because NaN is no equal of itself

same_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_all(path: Path, content: bytes) -> list[Record]:
    """What the reader still gives of `content`; anything but its own error ends the test."""
    path.write_bytes(content)
    found: list[Record] = []
    try:
        for record in iter_records(path):
            found.append(record)
    except RecordingError:
        pass
    try:
        recording = read_recording(path)
    except RecordingError:
        return found
    numbers = [(update.optimizer, update.update) for update in recording.updates]
    assert len(numbers) == len(set(numbers))
    return [*found, *recording.updates, *recording.events, *recording.runs]


def check(path: Path, content: bytes) -> int:
    """How many updates of `content` were read, every one of them as it was written."""
    found = read_all(path, content)
    assert {repr(record) for record in found} <= WRITTEN
    return sum(isinstance(record, UpdateRecord) for record in found)


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_whole_files_give_all_their_updates(tmp_path: Path, content: bytes) -> None:
    assert check(tmp_path / "run.jsonl", content) >= 2 * 3


def test_a_file_cut_at_any_byte_gives_nothing_wrong(tmp_path: Path) -> None:
    content = CONTENTS["one attempt"]
    counts = [check(tmp_path / "run.jsonl", content[:cut]) for cut in range(len(content))]
    assert counts[0] == 0 and counts[-1] > 0


def test_a_resumed_file_cut_near_any_line_end_gives_nothing_wrong(tmp_path: Path) -> None:
    content = CONTENTS["three attempts"]
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    cuts = {end + near for end in ends for near in range(-22, 16)} | set(range(0, len(content), 9))
    counts = [check(tmp_path / "run.jsonl", content[: max(cut, 0)]) for cut in sorted(cuts)]
    assert counts[0] == 0 and counts[-1] > 0


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_file_that_lost_its_begin_gives_nothing_wrong(tmp_path: Path, content: bytes) -> None:
    for cut in range(1, len(content), 7):
        check(tmp_path / "run.jsonl", content[cut:])


def flip(content: bytes, choose: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(choose.randint(1, 8)):
        damaged[choose.randrange(len(damaged))] ^= 1 << choose.randrange(8)
    return bytes(damaged)


def zero_a_block(content: bytes, choose: random.Random) -> bytes:
    start = choose.randrange(len(content))
    length = choose.choice([1, 16, 512, 4096])
    return content[:start] + b"\0" * length + content[start + length :]


def shift_lines(content: bytes, choose: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    moved = lines.pop(choose.randrange(len(lines)))
    where = [choose.randrange(len(lines) + 1) for _ in range(choose.randint(0, 2))]
    for place in where:  # lost, moved, or doubled
        lines.insert(place, moved)
    return b"".join(lines)


def splice(content: bytes, choose: random.Random) -> bytes:
    first, second = sorted(choose.randrange(len(content)) for _ in range(2))
    return content[:second] + content[first:]


def cut_a_line(content: bytes, choose: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    chosen = choose.randrange(len(lines))
    lines[chosen] = lines[chosen][: choose.randrange(len(lines[chosen]))] + b"\n"
    return b"".join(lines)


DAMAGES = [flip, zero_a_block, shift_lines, splice, cut_a_line]


@settings(same_file, max_examples=300)
@given(
    content=st.sampled_from(list(CONTENTS.values())),
    damage=st.sampled_from(DAMAGES),
    seed=st.integers(0, 2**32),
)
def test_random_damage_gives_nothing_wrong(
    tmp_path: Path,
    content: bytes,
    damage: Callable[[bytes, random.Random], bytes],
    seed: int,
) -> None:
    check(tmp_path / "run.jsonl", damage(content, random.Random(seed)))


@same_file
@given(content=st.binary(max_size=200))
def test_any_bytes_at_all_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError):
        read_recording(path)


def test_an_update_that_nobody_wrote_would_be_noticed(tmp_path: Path) -> None:
    forged = [make_run(), make_update(1, loss=0.125)]
    with pytest.raises(AssertionError):
        check(tmp_path / "run.jsonl", b"".join(map(encode_line, forged)))

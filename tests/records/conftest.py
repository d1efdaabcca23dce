"""A recording in memory and on disk, for all tests of the recording layer."""

from pathlib import Path

import pytest

from tests.records.samples import golden_records
from traingen.records import Record, encode_line


@pytest.fixture
def records() -> list[Record]:
    return golden_records()


@pytest.fixture
def recording_file(tmp_path: Path, records: list[Record]) -> Path:
    """A whole recording on disk, written without the sink under test."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_line, records)))
    return path

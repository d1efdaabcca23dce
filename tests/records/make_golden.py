"""Write the golden recordings anew: `PYTHONPATH=src python -m tests.records.make_golden`.

Only when the format changes on purpose: they stand for every recording written so far.
"""

from pathlib import Path

from tests.records.samples import golden_records, resumed_records
from traingen.records import encode_line

GOLDEN = Path(__file__).parent / "golden" / "updates.rank0.jsonl"
GOLDEN_RESUMED = Path(__file__).parent / "golden" / "resumed.jsonl"
TORN = b'{"kind":"update","update":4,"optim'  # where the first attempt was killed


def resumed_bytes() -> bytes:
    first, *later = (b"".join(map(encode_line, attempt)) for attempt in resumed_records())
    return first + TORN + b"\n" + b"".join(later)


if __name__ == "__main__":
    GOLDEN.write_bytes(b"".join(map(encode_line, golden_records())))
    GOLDEN_RESUMED.write_bytes(resumed_bytes())

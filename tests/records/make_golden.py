"""Write the golden recording anew: `PYTHONPATH=src python -m tests.records.make_golden`.

Only when the format changes on purpose: the file stands for every recording written so far.
"""

from pathlib import Path

from tests.records.samples import golden_records
from traingen.records import encode_line

GOLDEN = Path(__file__).parent / "golden" / "updates.rank0.jsonl"

if __name__ == "__main__":
    GOLDEN.write_bytes(b"".join(map(encode_line, golden_records())))

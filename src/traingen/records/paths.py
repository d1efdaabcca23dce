"""Where the recording of one rank lies, and what its run is called."""

import os
import uuid
from pathlib import Path

SUFFIX = ".jsonl"


def recording_path(path: str | os.PathLike[str], *, rank: int = 0) -> Path:
    """The file in which `rank` records, for a RUN given as file or folder.

    A path that ends in `.jsonl` names the file of rank 0 itself; other ranks insert `.rank<r>`.
    Any other path is the RUN folder. Nothing is created.

    >>> str(recording_path("runs/a", rank=1)), str(recording_path("a.jsonl", rank=1))
    ('runs/a/updates.rank1.jsonl', 'a.rank1.jsonl')
    """
    path = Path(path)
    if path.suffix != SUFFIX:
        return path / f"updates.rank{rank}{SUFFIX}"
    return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{SUFFIX}")


def new_run_id() -> str:
    """32 lower-case hex digits from `os.urandom`, so that no RNG of the training moves."""
    return uuid.uuid4().hex

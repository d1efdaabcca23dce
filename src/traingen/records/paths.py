"""Where the recording and the times of one rank lie, and what their run is called."""

import os
import re
import uuid
from pathlib import Path

SUFFIX = ".jsonl"
_IN_FOLDER = re.compile(r"updates\.rank(\d+)\.jsonl")


def recording_path(path: str | os.PathLike[str], *, rank: int = 0) -> Path:
    """The file in which `rank` records, for a RUN given as file or folder.

    A path that ends in `.jsonl` names the file of rank 0 itself; other ranks insert `.rank<r>`.
    Any other path is the RUN folder, which may also be named by its file `updates.rank0.jsonl`.
    Nothing is created.

    >>> str(recording_path("runs/a", rank=1)), str(recording_path("a.jsonl", rank=1))
    ('runs/a/updates.rank1.jsonl', 'a.rank1.jsonl')
    """
    path = Path(path)
    if path.name == "updates.rank0.jsonl":
        path = path.parent
    elif path.suffix == SUFFIX:
        return path if rank == 0 else path.with_name(f"{path.stem}.rank{rank}{SUFFIX}")
    return path / f"updates.rank{rank}{SUFFIX}"


def times_path(path: str | os.PathLike[str], *, rank: int = 0) -> Path:
    """The file of times beside the recording that `recording_path` names.

    >>> [times_path("runs/a", rank=r).name for r in (0, 1)], times_path("a.jsonl").name
    (['times.jsonl', 'times.rank1.jsonl'], 'a.times.jsonl')
    """
    file = recording_path(path, rank=rank)
    match = _IN_FOLDER.fullmatch(file.name)
    if match is None:
        return file.with_name(f"{file.stem}.times{SUFFIX}")
    which = int(match[1])
    return file.with_name(f"times{SUFFIX}" if which == 0 else f"times.rank{which}{SUFFIX}")


def new_run_id() -> str:
    """32 lower-case hex digits from `os.urandom`, so that no RNG of the training moves."""
    return uuid.uuid4().hex

"""Several ranks of one training as one recording: no collective is needed while it runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from traingen.errors import RecordingError
from traingen.records.attempts import find_lineage
from traingen.records.paths import recording_path
from traingen.records.ranks import LossSpread, RankDisagreement, RankMerger, Turn, UnequalRanks
from traingen.records.reader import Recording, read_recording
from traingen.records.schema import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRecording(Recording):
    """All ranks of a training as one recording, and where they did not fit together."""

    ranks: int
    disagreements: tuple[RankDisagreement, ...]
    unequal: tuple[UnequalRanks, ...]
    spreads: tuple[LossSpread, ...]  # by optimizer


def read_ranks(path: str | os.PathLike[str]) -> tuple[Recording, ...]:
    """The recordings of all ranks of a RUN, rank 0 first, as many as its `world_size` says.

    Raises RecordingError for a bad recording, for ranks without a file (all are named), and for
    a file that is another rank's.
    """
    first = read_recording(path)
    files = find_ranks(first.path, first.runs)
    recordings = (first, *map(read_recording, files[1:]))
    for rank, recording in enumerate(recordings):
        check_rank(recording.path, recording.runs, rank)
    return recordings


def merge_ranks(recordings: Sequence[Recording]) -> MergedRecording:
    """One recording of what `recordings`, rank 0 first, computed together.

    Of every update that all ranks have: `loss`, `micro_losses`, `loss_terms` and `objective` are
    the mean over ranks, as the gradients are under data parallelism, and null where a rank has
    none; where parameters are sharded, `grad_norm` and `grad_norm_clipped` are the roots of the
    summed shares. All else, also run lines, events and the end, is rank 0's. `micro_batches` is
    per rank, and `rng` and `batch` differ between ranks: read the ranks to compare those.

    What should be alike on all ranks and is not (numbers by more than `RANKS_RTOL`), and ranks
    of unequal length, are part of the result. Raises RecordingError if there is nothing to merge
    or the number of ranks changed between attempts.
    """
    if not recordings:
        raise RecordingError("Ranks to merge: expected at least one recording, got none.")
    for recording in recordings:
        check_world(recording.path, recording.runs, ranks=len(recordings))
    others = [map(Turn, recording.updates) for recording in recordings[1:]]
    merger = RankMerger(others, by_value=clips_by_value(recordings[0].run))
    merged = [merger.take(Turn(record)) for record in recordings[0].updates]
    merger.finish()
    kept = {f.name: getattr(recordings[0], f.name) for f in fields(Recording)}
    return MergedRecording(
        **(kept | {"updates": tuple(record for record in merged if record is not None)}),
        ranks=merger.ranks,
        disagreements=merger.disagreements,
        unequal=merger.unequal,
        spreads=tuple(merger.spreads.values()),
    )


def find_ranks(first: Path, runs: Sequence[RunRecord]) -> list[Path]:
    """The files of all ranks of a RUN by its rank 0, which is `first` and has these run lines.

    Raises RecordingError that names every rank without a file.
    """
    world = find_world(runs)
    files = [first, *(recording_path(first, rank=rank) for rank in range(1, world))]
    lacking = [str(rank) for rank, file in enumerate(files) if not file.is_file()]
    if lacking:
        raise RecordingError(
            f"{first}: 'world_size' is {world}, but there is no recording of rank "
            f"{', '.join(lacking)}: copy the files of all ranks into one folder, or read one rank "
            f"by itself (--rank R, rank=R)."
        )
    return files


def find_world(runs: Sequence[RunRecord]) -> int:
    """How many ranks took part in what stands, at most."""
    return max(run.world_size for run in find_lineage(runs))


def check_rank(path: Path, runs: Sequence[RunRecord], rank: int) -> None:
    """Raise RecordingError unless the file `path` with these run lines is that of `rank`."""
    for run in runs:
        if run.rank != rank:
            raise RecordingError(
                f"{path}: 'rank' must be {rank} by the name of the file, got {run.rank}: was it "
                f"renamed?"
            )


def check_world(path: Path, runs: Sequence[RunRecord], *, ranks: int) -> None:
    """Raise RecordingError unless so many ranks took part in every attempt that stands."""
    for run in find_lineage(runs):
        if run.world_size != ranks:
            raise RecordingError(
                f"{path}: 'world_size' must be {ranks} in every attempt that stands, as many as "
                f"there are recordings, got {run.world_size} in attempt {run.attempt}: a run that "
                f"goes on with another number of ranks is read rank by rank (--rank R, rank=R)."
            )


def clips_by_value(run: RunRecord) -> bool:
    """Whether gradients are clipped by value, so that no one factor says how."""
    return (run.clipping or {}).get("algorithm") == "value"

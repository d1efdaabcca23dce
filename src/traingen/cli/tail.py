"""Print the updates of a recording as they are written: `traingen tail RUN`."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from traingen.cli.lockstep import positive_int
from traingen.cli.output import write_remark, write_text
from traingen.cli.ranks import add_rank
from traingen.errors import RecordingError
from traingen.records import EndRecord, Record, RunRecord, encode_line, iter_records

INTERVAL_SECONDS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `traingen tail`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the recording: a folder or file")
    parser.add_argument(
        "-n",
        "--lines",
        type=positive_int,
        default=10,
        metavar="N",
        help="begin with the last N lines (default: 10)",
    )
    parser.add_argument(
        "--once", action="store_true", help="print what is there and stop, instead of following"
    )
    parser.add_argument(
        "--wait", action="store_true", help="wait for a recording that does not exist yet"
    )
    add_rank(parser, help="follow this rank (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the lines as they are recorded")


def run(args: argparse.Namespace) -> int:
    """Follow the recording to its end line; returns 0.

    Raises:
        RecordingError: there is no recording, or it is damaged.
        KeyboardInterrupt: Ctrl-C, which is the way to leave a run that goes on.
    """
    from traingen.report.recording import render_record

    follow(
        args.run,
        rank=args.rank or 0,
        lines=args.lines,
        once=args.once,
        wait=args.wait,
        render=render_line if args.json else render_record,
    )
    return 0


def render_line(record: Record) -> str:
    """The record as its JSON line."""
    return encode_line(record).decode().rstrip("\n")


def remark_ranks(file: Path, remark: Callable[[str], None]) -> None:
    """Say whose recording this is, if there are others."""
    first = next(iter_records(file), None)
    if isinstance(first, RunRecord) and first.world_size > 1:
        remark(
            f"this is rank {first.rank} of {first.world_size}: --rank R follows another one, "
            f"show merges all"
        )


def follow(
    path: Path,
    *,
    rank: int = 0,
    lines: int,
    once: bool = False,
    wait: bool = False,
    render: Callable[[Record], str],
    write: Callable[[str], bool] = write_text,
    remark: Callable[[str], None] = write_remark,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Write every record from the last `lines` on, until the recording ends or nobody reads.

    Args:
        path: the file or RUN folder.
        rank: whose file it is.
        lines: how many of those that are there to begin with.
        once: stop when all that is there is written.
        wait: bear with a recording that does not exist.
        render: what to write of a record.
        write: takes a line; False ends it.
        remark: takes what is said once: that there are other ranks, or that a line is torn.
        pause: called with seconds before the file is looked at again.

    Raises:
        RecordingError: there is no recording, or it is damaged.
    """
    from traingen.reading.follow import Follower

    follower = Follower(path, rank=rank, lines=lines)
    ended = remarked = False
    doubted: RecordingError | None = None
    while not ended:
        if not follower.exists and not wait:
            raise RecordingError(
                f"{follower.file}: no such recording: name a RUN folder or its .jsonl file, or "
                f"wait for it with --wait."
            )
        for record in follower.poll():
            if not remarked:
                remarked = True
                remark_ranks(follower.file, remark)
            if not write(render(record)):
                return
            ended = isinstance(record, EndRecord)
        if once:
            follower.finish()
            return
        if follower.torn is not None and follower.torn is not doubted:
            doubted = follower.torn
            remark(f"{doubted} Waiting for a resume, which may go on after it.")
            ended = False
        if not ended:
            pause(INTERVAL_SECONDS)

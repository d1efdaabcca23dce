"""Say what a recording holds, and what is wrong with it: `traingen show RUN`."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traingen.cli.lockstep import positive_int
from traingen.cli.output import check_out, save_json, write_json, write_remark, write_text
from traingen.cli.ranks import add_rank
from traingen.errors import ConfigError

if TYPE_CHECKING:
    from traingen.compare.findings import Finding
    from traingen.reading.opening import RunReader
    from traingen.reading.overview import Overview
    from traingen.records import UpdateRecord


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `traingen show`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the recording: a folder or file")
    parser.add_argument(
        "--update", type=positive_int, metavar="N", help="print every field of this update instead"
    )
    add_rank(parser, help="read this rank alone, not all ranks merged")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, metavar="PATH", help="write the result as JSON here")


def run(args: argparse.Namespace) -> int:
    """Print an overview or one update; returns 0, 1 with an error found, 2 if nothing is recorded.

    Raises:
        TraingenError: the recording cannot be read, or holds no such update.
    """
    check_out(args.out, args.run)
    if args.update is not None:
        return show_update(args.run, args.update, rank=args.rank, as_json=args.json, out=args.out)
    return show_overview(args.run, rank=args.rank, as_json=args.json, out=args.out)


def show_overview(path: Path, *, rank: int | None, as_json: bool, out: Path | None) -> int:
    """Read the recording once, with memory for a few lines, and print what it shows."""
    from traingen.judge import judge_ranks, judge_recording
    from traingen.reading.opening import open_run
    from traingen.reading.overview import Overview
    from traingen.reading.pace import measure_pace
    from traingen.report.recording import render_overview

    reader = open_run(path, rank=rank)
    overview = Overview(reader)
    findings = judge_recording(overview.watch(reader.records()))
    if reader.fit is not None:
        findings = judge_ranks(reader.fit.merger.disagreements) + findings  # errors come first
    pace = measure_pace(reader.outline.file)
    result = describe(overview, findings) | {"pace": None if pace is None else asdict(pace)}
    if out is not None:
        save_json(result, out)
    if as_json:
        write_json(result)
    else:
        write_text(render_overview(overview, findings, pace))
    if result["exit_code"] == 2:
        write_remark(f"{reader.outline.file}: {say_empty(overview)}: nothing to judge.")
    return int(result["exit_code"])


def say_empty(overview: "Overview") -> str:
    """Why no update is there to be judged."""
    if overview.fit is not None and overview.fit.merger.unequal:
        return "no update is recorded that all ranks have"
    return "no update is recorded yet" if overview.ledger.end is None else "no update is recorded"


def describe(overview: "Overview", findings: Sequence["Finding"]) -> dict[str, Any]:
    """The fields that `--json` prints."""
    from traingen.compare.verdict import EXIT_CODES, plain_finding

    verdict = "pass"
    if overview.updates == 0:
        verdict = "inconclusive"
    if any(finding.severity == "error" for finding in findings):
        verdict = "fail"
    return {
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "updates": overview.updates,
        "first_divergence": None,
        "cause": None,
        "findings": [plain_finding(finding) for finding in findings],
        "not_exercised": find_unseen(overview),
        "recording": overview.to_json(),
    }


def find_unseen(overview: "Overview") -> list[str]:
    """What no attempt's recorder could see, so that nothing here speaks for it."""
    from traingen.compare.records import COMPARED_FIELDS

    seen = {field for run in overview.outline.runs for field in run.observes}
    return [f"{field}: the recorder does not see it" for field in sorted(COMPARED_FIELDS - seen)]


def show_update(
    path: Path, number: int, *, rank: int | None, as_json: bool, out: Path | None
) -> int:
    """Print one update, of every optimizer that has it.

    Raises:
        ConfigError: there is no such update, or it is superseded by none.
    """
    from traingen.reading.columns import flatten_update
    from traingen.reading.opening import open_run
    from traingen.records import plain_json
    from traingen.report.recording import render_fields

    reader = open_run(path, rank=rank)
    found = find_update(reader, number)
    ranks = None if reader.fit is None else reader.fit.ranks
    result = {"updates": [plain_json(record) for record in found], "ranks": ranks}
    if out is not None:
        save_json(result, out)
    if as_json:
        write_json(result)
    else:
        merged = {} if ranks is None else {"ranks": f"{ranks}, merged"}
        blocks = [render_fields(merged | flatten_update(record)) for record in found]
        write_text("\n\n".join(blocks))
    return 0


def find_update(reader: "RunReader", number: int) -> list["UpdateRecord"]:
    """The updates of this number that stand, by optimizer.

    Raises:
        ConfigError: there is none.
    """
    from traingen.records import UpdateRecord

    found: list[UpdateRecord] = []
    last = 0
    for record in reader.standing():
        if isinstance(record, UpdateRecord):
            last = max(last, record.update)
            if record.update == number:
                found.append(record)
    if not found and last == 0:
        raise ConfigError(f"{reader.outline.file}: holds no update {number}: it holds none at all.")
    if not found:
        raise ConfigError(
            f"{reader.outline.file}: holds no update {number}: its last one is {last}, and updates "
            f"before a resume into a new file are not in it."
        )
    return sorted(found, key=lambda record: record.optimizer)

"""Compare two recordings update by update: `traingen compare A B`."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from traingen.cli.lockstep import positive_int
from traingen.cli.output import check_out, save_json, write_json, write_text
from traingen.cli.ranks import add_rank
from traingen.compare.gates import EXACT, Gates
from traingen.compare.order import GATED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `traingen compare`."""
    parser.add_argument(
        "original", type=Path, metavar="A", help="recording of the original: a RUN folder or file"
    )
    parser.add_argument(
        "package", type=Path, metavar="B", help="recording that should reproduce it"
    )
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument(
        "--config", type=Path, metavar="PAIR.yaml", help="use the gates of this pair file"
    )
    limits.add_argument(
        "--gates", type=Path, metavar="FILE.yaml", help="use the gates in this file"
    )
    for name, meaning in (("rtol", "relative to the original's value"), ("atol", "absolute")):
        parser.add_argument(
            f"--{name}",
            type=stated_limit,
            action="append",
            default=[],
            metavar="QUANTITY=X",
            help=f"let this quantity differ by X, {meaning}; may be repeated",
        )
    parser.add_argument(
        "--report-only",
        choices=GATED,
        action="append",
        default=[],
        metavar="QUANTITY",
        help="report this quantity without a limit; may be repeated",
    )
    parser.add_argument(
        "--updates", type=positive_int, metavar="N", help="compare only the first N updates"
    )
    add_rank(parser, help="compare this rank of both alone, not all ranks merged")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--out", type=Path, metavar="PATH", help="write the result as JSON here")


def run(args: argparse.Namespace) -> int:
    """Compare the two recordings; returns the verdict's exit code.

    Raises:
        TraingenError: a recording cannot be read, or a limit cannot be used.
    """
    from traingen.compare.recordings import compare_recordings
    from traingen.report.comparison import render_comparison

    files = [given for given in (args.config, args.gates) if given is not None]
    check_out(args.out, args.original, args.package, *files)
    gates = choose_gates(args)
    result = compare_recordings(
        args.original, args.package, gates=gates, updates=args.updates, rank=args.rank
    )
    if args.out is not None:
        save_json(result.to_json(), args.out)
    if args.json:
        write_json(result.to_json())
    else:
        write_text(render_comparison(result, gates))
    return result.exit_code


def choose_gates(args: argparse.Namespace) -> Gates:
    """The gates of the file that was named, if any, with what the options state on top.

    Raises:
        ConfigError: the file cannot be used.
    """
    from traingen.limits import PAIR, load_gates

    gates = Gates()
    if args.config is not None:
        gates = load_gates(args.config, PAIR)
    elif args.gates is not None:
        gates = load_gates(args.gates)
    limits = dict(gates.limits)
    for option in ("rtol", "atol"):
        for quantity, limit in getattr(args, option):
            limits[quantity] = replace(limits.get(quantity, EXACT), **{option: limit})
    for quantity in args.report_only:
        limits[quantity] = replace(limits.get(quantity, EXACT), report_only=True)
    return Gates(limits)


def stated_limit(text: str) -> tuple[str, float]:
    """The quantity and limit in `QUANTITY=X`; argparse reports anything else as wrong usage."""
    quantity, _, number = text.partition("=")
    if quantity not in GATED:
        raise argparse.ArgumentTypeError(
            f"expected QUANTITY=X with one of {', '.join(GATED)}, got {text!r}"
        )
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise argparse.ArgumentTypeError(
            f"{quantity}: expected a finite number of 0 or more, got {number!r}"
        )
    return quantity, limit

"""The arguments of `traingen lockstep`, and the call they turn into."""

import argparse
from pathlib import Path

from traingen.errors import ConfigError

MODES = ("natural", "reseeded", "synchronized")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `traingen lockstep`."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="PAIR.yaml", help="the pair file"
    )
    parser.add_argument(
        "--out", type=Path, metavar="PATH", help="folder for recordings, differences and result"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="move an existing output aside instead of stopping"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--mode",
        dest="modes",
        action="append",
        choices=MODES,
        help="run this mode instead of the pair file's; may be repeated",
    )
    parser.add_argument(
        "--updates",
        type=positive_int,
        metavar="N",
        help="stop after N updates instead of the pair file's number",
    )
    parser.add_argument(
        "--measure-floor",
        action="store_true",
        help="measure how far the original differs from itself instead of running the pair",
    )


def run(args: argparse.Namespace) -> int:
    """Drive the pair in lockstep, or measure its floor; returns the exit code."""
    from traingen.cli.lockstep_run import run_floor, run_pair  # torch and Lightning load here

    modes = tuple(dict.fromkeys(args.modes)) if args.modes else None
    if args.measure_floor:
        if args.out is not None or args.overwrite:
            raise ConfigError(
                "--measure-floor writes to the pair's 'floor' file: drop --out and --overwrite."
            )
        return run_floor(config=args.config, modes=modes, updates=args.updates, as_json=args.json)
    return run_pair(
        config=args.config,
        out=args.out,
        overwrite=args.overwrite,
        as_json=args.json,
        modes=modes,
        updates=args.updates,
    )


def positive_int(text: str) -> int:
    """The integer that `text` states; argparse reports anything below 1 as wrong usage."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected an integer of 1 or more, got {text!r}")
    return value

"""Print what every finding means: `traingen findings`, the catalog of all ids."""

import argparse
import difflib
import json
from collections.abc import Iterable
from dataclasses import asdict

from traingen.cadence.kinds import KINDS as CADENCE
from traingen.cli.output import write_text
from traingen.compare.causes import KINDS as LOCKSTEP
from traingen.compare.findings import FindingKind
from traingen.errors import ConfigError
from traingen.judge.kinds import KINDS as RECORD
from traingen.report.findings import render_kinds

KINDS = (*CADENCE, *RECORD, *LOCKSTEP)
CATALOG = {kind.id: kind for kind in KINDS}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `traingen findings`."""
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="show only these, such as TG-SCHED-EPOCH"
    )
    parser.add_argument("--json", action="store_true", help="print them as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the kinds of findings asked for, or all of them; returns 0.

    Raises:
        ConfigError: there is no finding of such an id.
    """
    kinds = find_kinds(args.ids) if args.ids else KINDS
    if args.json:
        write_text(json.dumps({"findings": [asdict(kind) for kind in kinds]}))
    else:
        write_text(render_kinds(kinds))
    return 0


def find_kinds(ids: Iterable[str]) -> tuple[FindingKind, ...]:
    """The kinds of `ids`, in their order and each once; upper and lower case are the same.

    Raises:
        ConfigError: an id is not in the catalog.
    """
    names = dict.fromkeys(name.upper() for name in ids)
    for name in names:
        if name not in CATALOG:
            closest = difflib.get_close_matches(name, CATALOG, n=1, cutoff=0)[0]
            raise ConfigError(
                f"findings: no finding has the id {name!r}, the closest is {closest}: "
                f"'traingen findings' lists them all."
            )
    return tuple(CATALOG[name] for name in names)

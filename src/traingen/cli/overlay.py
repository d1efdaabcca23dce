"""Print where a shipped overlay lies: a YAML that adds a callback to any LightningCLI training."""

import argparse
from pathlib import Path

import traingen
from traingen.errors import ConfigError

FOLDER = Path(traingen.__file__).resolve().parent / "overlays"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `traingen overlay`."""
    parser.add_argument(
        "name",
        nargs="?",
        default="guard",
        metavar="NAME",
        help=f"which overlay, of {', '.join(overlays())} (default: guard)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the absolute path of the overlay; returns 0.

    Raises:
        ConfigError: there is no overlay of that name.
    """
    known = overlays()
    if args.name not in known:
        raise ConfigError(f"overlay: expected one of {', '.join(known)}, got {args.name!r}.")
    print(known[args.name])
    return 0


def overlays() -> dict[str, Path]:
    """Every shipped overlay by name."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.yaml"))}

"""Find the command that was asked for, run it, and say how it ended as an exit code."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from traingen import __version__
from traingen.errors import TraingenError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report Ctrl-C


class CommandModule(Protocol):
    """What the module of a command provides; it imports nothing heavy until `run` is called."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Carry the command out and return its exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command by name, and the module to import once it is asked for."""

    name: str
    help: str  # one line, without a full stop
    module: str

    def load(self) -> CommandModule:
        """Import the command's module."""
        return cast(CommandModule, import_module(self.module))


COMMANDS = (
    Command(
        name="lockstep",
        help="drive the original and the package one update at a time and compare them",
        module="traingen.cli.lockstep",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's own) and return its exit code.

    0 is a pass, 1 a fail, 2 bad input or no judgement, 130 Ctrl-C. As argparse does, `--help`,
    `--version` and wrong usage raise `SystemExit` instead of returning.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = find_command(arguments)
    args = build_parser(command).parse_args(arguments)
    assert command is not None  # the parser refuses any other name
    return run_command(command, args)


def find_command(arguments: Sequence[str]) -> Command | None:
    """The command named by the first argument that is not an option, if there is one."""
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    return next((command for command in COMMANDS if command.name == name), None)


def build_parser(selected: Command | None) -> argparse.ArgumentParser:
    """The parser for every command, with the arguments of `selected` only.

    The modules of the other commands are not imported.
    """
    parser = argparse.ArgumentParser(
        prog="traingen",
        description="Show, update by update, that one training loop reproduces another.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"traingen {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = subparsers.add_parser(
            command.name,
            help=command.help,
            description=f"{command.help[0].upper()}{command.help[1:]}.",
            allow_abbrev=False,
        )
        if command is selected:
            command.load().add_arguments(subparser)
    return parser


def run_command(command: Command, args: argparse.Namespace) -> int:
    """Run `command`; errors that the user can act on become one line on stderr and a code."""
    try:
        with importable_cwd():
            return command.load().run(args)
    except TraingenError as error:
        print(f"traingen: error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("traingen: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


@contextmanager
def importable_cwd() -> Iterator[None]:
    """Put the current directory first on `sys.path`, as `python -m` does, and restore the path.

    A pair file names the user's own modules, which lie where the command is run.
    """
    saved = sys.path[:]
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = saved

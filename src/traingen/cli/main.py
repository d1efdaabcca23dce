"""Find the command that was asked for, run it, and say how it ended as an exit code."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Protocol, cast

from traingen import __version__
from traingen.errors import CadenceViolation, TraingenError

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report Ctrl-C


class CommandModule(Protocol):
    """What the module of a command provides; it imports nothing heavy until `run` is called."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Carry the command out and return its exit code."""


class ParsingModule(Protocol):
    """What the module of a command with a parser of its own provides; it is as light."""

    def run_arguments(self, name: str, arguments: Sequence[str]) -> int:
        """Carry the command called `name` out on its untouched arguments; the exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command by name, and the module to import once it is asked for."""

    name: str
    help: str  # one line, without a full stop
    module: str
    own_parser: bool = False  # the module is a `ParsingModule`

    def load(self) -> CommandModule:
        """Import the command's module."""
        return cast(CommandModule, import_module(self.module))

    def load_parsing(self) -> ParsingModule:
        """Import the command's module, which parses its arguments itself."""
        return cast(ParsingModule, import_module(self.module))


COMMANDS = (
    Command(
        name="fit",
        help="train a Lightning model, its schedule guarded and, if asked, every update recorded",
        module="traingen.cli.fit",
        own_parser=True,
    ),
    Command(
        name="validate",
        help="run the validation of a Lightning model",
        module="traingen.cli.fit",
        own_parser=True,
    ),
    Command(
        name="test",
        help="run the test of a Lightning model",
        module="traingen.cli.fit",
        own_parser=True,
    ),
    Command(
        name="predict",
        help="run a Lightning model on the data to predict",
        module="traingen.cli.fit",
        own_parser=True,
    ),
    Command(
        name="lockstep",
        help="drive the original and the package one update at a time and compare them",
        module="traingen.cli.lockstep",
    ),
    Command(
        name="show",
        help="say what a recording holds, and what is wrong with it",
        module="traingen.cli.show",
    ),
    Command(
        name="tail",
        help="print the updates of a recording as they are written",
        module="traingen.cli.tail",
    ),
    Command(
        name="compare",
        help="compare two recordings update by update",
        module="traingen.cli.compare",
    ),
    Command(
        name="findings",
        help="say what each finding means and what to do about it",
        module="traingen.cli.findings",
    ),
    Command(
        name="overlay",
        help="print the path of a config that adds the guard or the recorder to a LightningCLI",
        module="traingen.cli.overlay",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's own) and return its exit code.

    0 is a pass, 1 a fail, 2 bad input or no judgement, 130 Ctrl-C. As argparse does, `--help`,
    `--version` and wrong usage raise `SystemExit` instead of returning.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = find_command(arguments)
    parser = build_parser(command)
    if command is not None and command.own_parser:
        own = arguments.index(command.name) + 1
        parser.parse_args(arguments[:own])  # what stands before the name is ours
        run_arguments = command.load_parsing().run_arguments
        return run_command(partial(run_arguments, command.name, arguments[own:]))
    args = parser.parse_args(arguments)
    assert command is not None  # the parser refuses any other name
    return run_command(partial(command.load().run, args))


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
        if command is selected and not command.own_parser:
            command.load().add_arguments(subparser)
    return parser


def run_command(run: Callable[[], int]) -> int:
    """What `run` returns; errors that the user can act on become text on stderr and their code.

    That text is one line, except for a cadence violation: its findings are paragraphs.
    """
    try:
        with importable_cwd():
            return run()
    except CadenceViolation as violation:
        print(violation, file=sys.stderr)
        return violation.exit_code
    except TraingenError as error:
        print(f"traingen: error: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("traingen: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


@contextmanager
def importable_cwd() -> Iterator[None]:
    """Put the current directory first on `sys.path`, as `python -m` does, and restore the path.

    Configs and pair files name the user's own modules, which lie where the command is run.
    """
    saved = sys.path[:]
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = saved

"""Ask for one rank of a RUN, where a command would read all of them."""

import argparse


def add_rank(parser: argparse.ArgumentParser, *, help: str) -> None:
    """Declare `--rank R`."""
    parser.add_argument("--rank", type=rank_number, metavar="R", help=help)


def rank_number(text: str) -> int:
    """The rank that `text` states; argparse reports anything below 0 as wrong usage."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a rank, counted from 0, got {text!r}")
    return int(text)

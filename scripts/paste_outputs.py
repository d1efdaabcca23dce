"""Paste what commands print into the documents that show it: `python scripts/paste_outputs.py`.

A block is pasted if a comment stands above it that names its command:

    <!-- prints: traingen show runs/first | lines 1..3, loss.. -->

Without `lines` everything is shown; what is left out between lines becomes one line `…`. A line
goes by its number, or by the word that the first such line begins with. `| stderr` takes what the
command says there. `<!-- runs: … -->` runs a command and shows nothing. Commands run in the
project's root, in the order of the document.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "docs/tutorial/prove-your-first-port.md")
BLOCK = re.compile(
    r"<!-- prints: (?P<told>[^\n]+?) -->\n+```text\n(?P<shown>.*?)```"
    r"|<!-- runs: (?P<runs>[^\n]+?) -->",
    re.DOTALL,
)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
LEFT_OUT = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a document and the command whose output it shows."""

    command: str
    lines: str | None = None  # which of them, as "1..3, loss.."; None for all
    stderr: bool = False
    shown: str | None = None  # None for a command that is only run
    span: tuple[int, int] = (0, 0)  # where `shown` stands in the document


def iter_blocks(text: str) -> Iterator[Block]:
    """The commands of a document in their order, with the blocks that they are pasted into."""
    for match in BLOCK.finditer(text):
        if match["runs"] is not None:
            yield Block(command=match["runs"])
            continue
        command, *options = (part.strip() for part in match["told"].split("|"))
        lines = [one.removeprefix("lines ") for one in options if one.startswith("lines ")]
        unknown = [one for one in options if one != "stderr" and not one.startswith("lines ")]
        if unknown:
            raise ValueError(f"{command}: unknown option {unknown[0]!r}, expected lines or stderr")
        yield Block(
            command=command,
            lines=lines[0] if lines else None,
            stderr="stderr" in options,
            shown=match["shown"],
            span=match.span("shown"),
        )


def select_lines(printed: str, lines: str | None) -> str:
    """The wanted lines of what was printed; a gap becomes one line.

    >>> select_lines("a\\nb\\nc\\nd\\n", "1, c..")
    'a\\n…\\nc\\nd\\n'
    """
    every = printed.rstrip("\n").split("\n")
    if lines is None:
        return "\n".join(every) + "\n"
    chosen: list[str] = []
    end = 0
    for part in lines.split(","):
        first, dots, last = part.strip().partition("..")
        start = _number(first, every) - 1
        chosen += [LEFT_OUT] if start > end > 0 else []
        end = len(every) if dots and not last else _number(last or first, every)
        chosen += every[start:end]
    chosen += [LEFT_OUT] if end < len(every) else []
    return "\n".join(chosen) + "\n"


def _number(line: str, every: list[str]) -> int:
    if line.isdigit():
        return int(line)
    return next(number for number, one in enumerate(every, start=1) if one.startswith(line))


def mask_numbers(text: str) -> str:
    """`text` without what depends on the processor, its threads and the clock.

    >>> mask_numbers("update 3:  loss 1.25e-07")
    'update #: loss #'
    """
    return re.sub(r"[ \n]+", " ", NUMBER.sub("#", text))


def run_command(command: str) -> tuple[str, str]:
    """What a command prints to stdout and stderr."""
    program, *arguments = command.split()
    own = {"traingen": [sys.executable, "-m", "traingen"], "python": [sys.executable]}
    done = subprocess.run(
        [*own[program], *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout, done.stderr


def paste(text: str, run: Callable[[str], tuple[str, str]]) -> str:
    """The document with every block as its command prints it now."""
    pasted = []
    for block in iter_blocks(text):
        out, err = run(block.command)
        if block.shown is not None:
            pasted.append((block, select_lines(err if block.stderr else out, block.lines)))
    for block, shown in reversed(pasted):
        start, end = block.span
        text = text[:start] + shown + text[end:]
    return text


def main() -> None:
    for name in DOCUMENTS:
        path = ROOT / name
        path.write_text(paste(path.read_text(encoding="utf-8"), run_command), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Where a command's words go: to who reads them, for as long as anybody does, and to files."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traingen.errors import ConfigError


def write_text(text: str) -> bool:
    """Print `text` as far as anybody reads it: `traingen findings | head` is no error.

    False once nobody does any more.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # what is left in the buffer goes nowhere, or the interpreter would complain at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def write_json(result: Mapping[str, Any]) -> None:
    """Print `result` as one line of strict JSON."""
    write_text(json.dumps(result, allow_nan=False))


def save_json(result: Mapping[str, Any], path: Path) -> None:
    """Write `result` into the file `path`, replacing an older one at once.

    Raises:
        ConfigError: it cannot be written.
    """
    beside = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(result, allow_nan=False, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror}.") from error


def check_out(out: Path | None, *inputs: Path) -> None:
    """Refuse, before anything is read, an output that would take the place of an input.

    Raises:
        ConfigError: `out` is one of `inputs`, a folder, or a recording.
    """
    if out is None:
        return
    taken = [given for given in inputs if given.exists() and out.resolve() == given.resolve()]
    if out.is_dir() or taken or out.suffix == ".jsonl":
        raise ConfigError(f"--out {out}: expected a new file for the result, such as result.json.")

"""Where a command's words go: to who reads them, for as long as anybody does, and to files."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traingen.errors import ConfigError


def write_text(text: str) -> bool:
    """Print `text` as far as anybody reads it: `traingen findings | head` is no error.

    What the encoding of the output has no character for becomes a `?`. False once nobody reads.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        try:
            print(text, flush=True)
        except UnicodeEncodeError as error:  # nothing of it was printed yet
            print(text.encode(error.encoding, "replace").decode(error.encoding), flush=True)
    except BrokenPipeError:
        _drop_rest()
        return False
    except OSError as error:
        _drop_rest()
        raise ConfigError(f"the output cannot be written: {error.strerror}.") from error
    return True


def _drop_rest() -> None:
    """What is left in the buffer goes nowhere, or the interpreter would complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def write_remark(text: str) -> None:
    """Print it where it is no part of the result."""
    print(f"traingen: {text}", file=sys.stderr, flush=True)


def write_json(result: Mapping[str, Any]) -> None:
    """Print `result` as one line of strict JSON."""
    write_text(json.dumps(result, allow_nan=False))


def save_json(result: Mapping[str, Any], path: Path) -> None:
    """Write `result` into the file `path`, replacing an older one at once.

    What is no regular file (a pipe, a device, a link to one or to a file) stays what it is, and is
    written to.

    Raises:
        ConfigError: it cannot be written.
    """
    text = json.dumps(result, allow_nan=False, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path, text)
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written: {error.strerror}.") from error


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # the first failure is the one to tell
            beside.unlink(missing_ok=True)
        raise


def check_out(out: Path | None, *inputs: Path) -> None:
    """Refuse, before anything is read, an output that would take the place of an input.

    Raises:
        ConfigError: `out` is one of `inputs`, a folder, or a recording.
    """
    if out is None:
        return
    target = os.path.realpath(out)  # a link is written through
    taken = [given for given in inputs if given.exists() and target == os.path.realpath(given)]
    if out.is_dir() or taken or ".jsonl" in (out.suffix, os.path.splitext(target)[1]):
        raise ConfigError(f"--out {out}: expected a new file for the result, such as result.json.")

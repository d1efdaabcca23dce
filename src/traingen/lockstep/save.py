"""Write the result of a lockstep run with what it depends on."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from traingen.lockstep.pair import PairFile
from traingen.lockstep.result import LockstepResult
from traingen.observe.environment import describe_devices, describe_git, describe_versions
from traingen.records import plain_json

RESULT = 1  # version of result.json


def save_result(
    result: LockstepResult, folder: Path, *, pair: PairFile, config: Path, horizon_source: str
) -> Path:
    """Write `FOLDER/result.json` and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "result.json"
    document: dict[str, Any] = {
        "lockstep": RESULT,
        **result.to_json(),
        "horizon_source": horizon_source,
        "config": str(config),
        "pair": msgspec.to_builtins(pair),
        "argv": list(sys.argv),
        "git": describe_git(),
        "versions": describe_versions(),
        "devices": describe_devices(),
        "sources": digest_sources(pair),
    }
    beside = path.with_suffix(".json.new")
    beside.write_bytes(
        msgspec.json.format(msgspec.json.encode(plain_json(document)), indent=2) + b"\n"
    )
    beside.replace(path)
    return path


def digest_sources(pair: PairFile) -> dict[str, str]:
    """SHA-256 of every imported file that belongs to one of the two systems.

    These are the files of the top-level packages that the pair file names, and imported files
    below the current directory that are not part of an environment.
    """
    named = {path.partition(".")[0] for path in _dotted_paths(pair)}
    digests = {}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or not Path(file).is_file():
            continue  # built in, or a namespace that names no file
        if name.partition(".")[0] in named or _is_own(Path(file)):
            digests[_shown(Path(file))] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return digests


def _dotted_paths(pair: PairFile) -> list[str]:
    paths = [pair.original.class_path, pair.package.class_path]
    for tap in pair.taps.values():
        paths += [spec.function for spec in (tap.original, tap.package) if spec.function]
    return paths


def _is_own(file: Path) -> bool:
    try:
        relative = file.resolve().relative_to(Path.cwd())
    except ValueError:
        return False
    return "site-packages" not in relative.parts and not relative.parts[0].startswith(".")


def _shown(file: Path) -> str:
    """Relative to the project, or from the installed package's folder on: no home folders."""
    if _is_own(file):
        return os.path.relpath(file)
    parts = file.parts
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1 :])
    return file.name

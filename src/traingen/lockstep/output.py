"""Where one mode of a lockstep run is written: two recordings and their differences."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import msgspec

from traingen.compare.differences import Comparison, Difference
from traingen.compare.summary import plain_difference
from traingen.compare.tensors import TensorComparison
from traingen.errors import ConfigError
from traingen.records import JsonlSink, Sink, plain_json


class OutputFolder:
    """The folder of one run; nothing of it is touched before `claim`.

    Args:
        path: the folder; None writes nothing.
        overwrite: move what is there aside, once there is something to write, instead of refusing.

    Raises:
        ConfigError: the folder exists and may not be moved aside.
    """

    def __init__(self, path: Path | None, *, overwrite: bool = False) -> None:
        self.path = path
        self._claimed = False
        if path is not None and path.exists() and not overwrite:
            raise ConfigError(
                f"{path}: exists already: choose another output, or move it aside with overwrite "
                "(--overwrite)."
            )

    def claim(self) -> None:
        """Create the folder; an existing one is moved aside."""
        if self._claimed or self.path is None:
            return
        self._claimed = True
        try:
            if self.path.exists():
                self.path.rename(free_name(self.path.with_name(f"{self.path.name}.old")))
            self.path.mkdir(parents=True)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: cannot be used as output: {error}.") from error


def free_name(path: Path) -> Path:
    """`path`, or the first of `path-2`, `path-3` … that does not exist."""
    candidate, number = path, 2
    while candidate.exists():
        candidate = path.with_name(f"{path.name}-{number}")
        number += 1
    return candidate


class ModeOutput:
    """`FOLDER/MODE/original`, `…/package` and `…/differences.jsonl`; nothing before `open`.

    With no folder, records are compared and dropped.
    """

    def __init__(self, folder: OutputFolder, *, mode: str) -> None:
        self.opened = False
        self.original: Sink = _NoSink()
        self.package: Sink = _NoSink()
        self._folder = folder
        self._mode = mode
        self._differences: IO[bytes] | None = None

    def open(self) -> None:
        """Create the files, once; they must not exist yet."""
        if self.opened:
            return
        self.opened = True
        if self._folder.path is None:
            return
        self._folder.claim()
        folder = self._folder.path / self._mode
        self.original = JsonlSink(folder / "original")
        self.package = JsonlSink(folder / "package")
        self._differences = (folder / "differences.jsonl").open("xb", buffering=0)

    def close(self) -> None:
        """Close what is open."""
        self.original.close()
        self.package.close()
        if self._differences is not None:
            self._differences.close()

    def write_differences(
        self, comparison: Comparison, tensors: list[TensorComparison], *, report_only: list[str]
    ) -> None:
        """Write the line of one update; of each quantity the largest difference is kept."""
        if self._differences is None:
            return
        line = describe_comparison(comparison, tensors, mode=self._mode, report_only=report_only)
        self._differences.write(msgspec.json.encode(plain_json(line)) + b"\n")


class _NoSink:
    def write(self, record: Any) -> None:
        """Drop the record."""

    def close(self) -> None:
        """Nothing is open."""


def describe_comparison(
    comparison: Comparison, tensors: list[TensorComparison], *, mode: str, report_only: list[str]
) -> dict[str, Any]:
    """The line of `differences.jsonl` for one update (see docs/reference/differences.md)."""
    return {
        "mode": mode,
        "update": comparison.update,
        "report_only": report_only,
        "loss_relative": comparison.loss_relative,
        "compared": comparison.compared,
        "tensors": {
            t.quantity: {
                "compared": t.compared,
                "equal": t.equal,
                "max_absolute": t.max_absolute,
                "max_path": t.max_path,
            }
            for t in tensors
        },
        "differing": _count(comparison.differences),
        "left": _count(comparison.left),
        "differences": [plain_difference(d) for d in _largest(comparison.differences)],
    }


def _count(differences: tuple[Difference, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for difference in differences:
        counts[difference.quantity] = counts.get(difference.quantity, 0) + 1
    return counts


def _largest(differences: tuple[Difference, ...]) -> list[Difference]:
    """Of each quantity the one that leaves its gate, then the largest; in causal order."""
    kept: dict[str, Difference] = {}
    for difference in differences:
        best = kept.get(difference.quantity)
        if best is None or _size(difference) > _size(best):
            kept[difference.quantity] = difference
    return list(kept.values())


def _size(difference: Difference) -> tuple[bool, float]:
    absolute = float("inf") if difference.absolute is None else difference.absolute
    return (difference.left, absolute)

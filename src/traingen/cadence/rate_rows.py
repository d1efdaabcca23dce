"""Read the learning rates that each line of a recording, of JSON lines or of a CSV file holds."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from traingen.errors import ConfigError
from traingen.records import RunRecord, UpdateRecord, iter_records, recording_path

Kind = Literal["recording", "jsonl", "csv"]
Rates = tuple[float, ...]  # one per parameter group

_RATE = ("lr", "learning_rate")
_STEP = ("update", "step", "global_step")  # the first that is there numbers the rates
_RECORDING = re.compile(r'^\{"kind":"run",|,"crc":"[0-9a-f]{8}"\}\s*$')
# LearningRateMonitor: lr-<optimizer's class>[-<number among its class>][/<parameter group>]
_MONITOR = re.compile(r"(?P<series>lr-[^/]+)(?:/(?P<group>.+))?(?<!-momentum)(?<!-weight_decay)")
_LONGEST = 40  # characters of what was found, in an error


class Row(NamedTuple):
    """The rates of one line."""

    where: str
    step: int | None  # as the line numbers them
    rates: Rates


def kind_of(file: Path) -> Kind:
    """What `file` is, judged by its first line: names say little about logs."""
    if file.is_dir():
        _check_folder(file)
        return "recording"
    if not file.is_file():
        raise ConfigError(f"{file}: no such file: name a recording, or a CSV or JSONL with rates.")
    with _open(file) as lines:
        first = next((line for line in lines if line.strip()), "")
    if not first:
        raise ConfigError(f"{file}: expected learning rates, found an empty file.")
    if "\0" in first:
        raise ConfigError(f"{file}: expected rates as text, found binary data.")
    if _RECORDING.search(first):
        return "recording"
    is_json = first.lstrip().startswith("{") or file.suffix in (".jsonl", ".ndjson")
    return "jsonl" if is_json else "csv"


def iter_rows(file: Path, kind: Kind, *, optimizer: int) -> Iterator[Row]:
    """Every line of `file` that holds rates; of a recording, the updates of `optimizer`.

    Raises ConfigError at a line that cannot be used, and at the end if there was no rate at all.
    """
    if kind == "recording":
        yield from _recorded_rows(file, optimizer=optimizer)
        return
    with _open(file) as lines:
        yield from _json_rows(lines, file) if kind == "jsonl" else _csv_rows(lines, file)


def _check_folder(folder: Path) -> None:
    inside = recording_path("").name
    if not (folder / inside).is_file():
        raise ConfigError(
            f"{folder}: expected a recording in this folder, found no {inside}: name the RUN "
            f"folder, or the CSV or JSONL file that has the rates."
        )


def _open(file: Path) -> TextIO:
    return file.open(encoding="utf-8-sig", newline="")  # spreadsheets begin with a byte order mark


# ---- recordings ---------------------------------------------------------------------------------


def _recorded_rows(file: Path, *, optimizer: int) -> Iterator[Row]:
    """The updates of `optimizer` as the run's last attempt leaves them."""
    rates: dict[int, list[float]] = {}
    others, begins = set(), False
    for record in iter_records(file):
        if isinstance(record, RunRecord):
            begins = True
        elif isinstance(record, UpdateRecord) and record.optimizer == optimizer:
            if begins:  # what earlier attempts did from here on is no part of the run any more
                rates = {update: lr for update, lr in rates.items() if update < record.update}
                begins = False
            rates[record.update] = record.lr
        elif isinstance(record, UpdateRecord):
            others.add(record.optimizer)
    if not rates:
        found = f"only of {_listed(sorted(others))}" if others else "no update at all"
        raise ConfigError(f"{file}: expected updates of optimizer {optimizer}, found {found}.")
    for update, lr in rates.items():
        where = f"{file}: update {update}"
        yield Row(where, update, _to_rates(lr, where, "lr"))


# ---- JSON lines ---------------------------------------------------------------------------------


def _json_rows(lines: Iterable[str], file: Path) -> Iterator[Row]:
    keys: dict[str, None] = {}
    column, rows = None, 0
    for number, line in enumerate(lines, start=1):
        where = f"{file}:{number}"
        entry = _to_object(line, where) if line.strip() else {}
        keys |= dict.fromkeys(entry)
        name = _the_only([key for key in _RATE if entry.get(key) is not None], where)
        if name is None:
            continue
        mine = next((key for key in _STEP if entry.get(key) is not None), None)
        if rows and mine != column:
            raise ConfigError(
                f"{where}: expected {_numbering(column)} as before, found {_numbering(mine)}: "
                f"number the rates alike in every line, or in none."
            )
        column, rows = mine, rows + 1
        step = None if mine is None else _to_step(entry[mine], where, mine)
        yield Row(where, step, _to_rates(entry[name], where, name))
    if not rows:
        raise _no_rates(file, keys)


def _numbering(column: str | None) -> str:
    return "no number of the update" if column is None else f"the update's number in {column!r}"


def _to_object(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{where}: expected one JSON object in a line, found {_shown(line)}."
        ) from error
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected one JSON object in a line, found {_shown(entry)}.")
    return entry


# ---- CSV ----------------------------------------------------------------------------------------


def _csv_rows(lines: Iterable[str], file: Path) -> Iterator[Row]:
    reader = csv.reader(lines, strict=True, skipinitialspace=True)
    header = next(([name.strip() for name in cells] for cells in reader if any(cells)), [])
    columns = _rate_columns(header, file)
    number = next((header.index(name) for name in _STEP if name in header), None)
    rows = 0
    for cells in reader:
        where = f"{file}:{reader.line_num}"
        if len(cells) > len(header):
            raise ConfigError(
                f"{where}: expected {len(header)} cells as in the header, found {len(cells)}: "
                f"quote cells with commas, write decimals with a point."
            )
        cells += [""] * (len(header) - len(cells))
        if any(cells[column].strip() for column in columns):
            rows += 1
            step = None
            if number is not None:
                step = _to_step(_to_number(cells[number]), where, header[number])
            yield Row(where, step, _cell_rates(cells, columns, header, where))
    if not rows:
        raise ConfigError(f"{file}: expected rates under {header[columns[0]]!r}, found none.")


def _cell_rates(
    cells: Sequence[str], columns: Sequence[int], header: Sequence[str], where: str
) -> Rates:
    return tuple(_to_rate(_to_number(cells[at]), where, header[at]) for at in columns)


def _rate_columns(header: Sequence[str], file: Path) -> list[int]:
    """Where the rates of the parameter groups stand, in the order of the groups."""
    groups: dict[str, str | None] = {}
    series: dict[str, None] = {}
    for name in header:
        match = _MONITOR.fullmatch(name)
        if match is None and name not in _RATE:
            continue
        if name in groups:
            raise ConfigError(f"{file}: expected one column {name!r}, found several: keep one.")
        groups[name] = match and match["group"]
        series[match["series"] if match else name] = None
    if _the_only(list(series), str(file)) is None:
        raise _no_rates(file, header)
    return [header.index(name) for name in _by_group(groups, file)]


def _by_group(groups: Mapping[str, str | None], file: Path) -> list[str]:
    """Column names in the order of their parameter groups: CSVLogger sorts them, pg10 before pg2.

    Where groups have names of their own, nothing in the file tells their order.
    """
    if len(groups) == 1:
        return list(groups)
    numbers = {f"pg{number}": number for number in range(1, len(groups) + 1)}
    if set(groups.values()) != set(numbers):
        raise ConfigError(
            f"{file}: cannot tell the order of the parameter groups {_listed(groups)}: name them "
            f"…/pg1 to …/pg{len(groups)} as the optimizer holds them."
        )
    return sorted(groups, key=lambda name: numbers[str(groups[name])])


# ---- what both kinds of text share --------------------------------------------------------------


def _the_only(names: Sequence[str], where: str) -> str | None:
    """The name in `names`, None without one."""
    if len(names) > 1:
        raise ConfigError(
            f"{where}: expected the rates of one optimizer, found {_listed(names)}: keep only "
            f"those to compare with."
        )
    return names[0] if names else None


def _no_rates(file: Path, found: Iterable[str]) -> ConfigError:
    return ConfigError(
        f"{file}: expected a column 'lr', 'learning_rate' or 'lr-<optimizer>', found "
        f"{_listed(found) or 'none'}: rename the one that holds the rates."
    )


def _to_rates(value: object, where: str, name: str) -> Rates:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ConfigError(f"{where}: {name!r} must hold a rate per parameter group, found none.")
    return tuple(_to_rate(item, where, name) for item in values)


def _to_rate(value: object, where: str, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        found = "an empty cell" if value == "" else _shown(value)
        raise ConfigError(f"{where}: {name!r} must be a number, found {found}.")
    try:
        rate = float(value)
    except OverflowError:
        rate = math.inf
    if not math.isfinite(rate):
        raise ConfigError(f"{where}: {name!r} must be a finite number, found {_shown(value)}.")
    return rate


def _to_step(value: object, where: str, name: str) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)  # pandas writes integers so if a cell of the column is empty
    if isinstance(value, bool) or not isinstance(value, int):
        found = "an empty cell" if value == "" else _shown(value)
        raise ConfigError(f"{where}: {name!r} must be an integer, found {found}.")
    return value


def _to_number(cell: str) -> int | float | str:
    """The number in `cell`, or else its text."""
    text = cell.strip()
    for kind in (int, float):
        try:
            return text if "_" in text else kind(text)
        except ValueError:
            pass
    return text


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python turns into text
        return "a huge number"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _listed(names: Iterable[object]) -> str:
    """The first eight names and how many more there are."""
    shown = [_shown(name) for name in names]
    more = f" and {len(shown) - 8} more" if shown[8:] else ""
    return ", ".join(shown[:8]) + more

"""Give a recording as columns: one array per recorded number, one row per update that stands."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec
import msgspec.inspect

from traingen.errors import ConfigError
from traingen.reading.opening import RunReader, open_run
from traingen.records import UpdateRecord
from traingen.records.attempts import Ledger
from traingen.records.paths import times_path
from traingen.records.times import iter_times

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[int], np.dtype[Any]]

CHUNK = 1 << 11  # rows that are held as Python values before they become arrays

_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_WHOLE = frozenset({float, int, str, bool})  # what has no members
_MEMBERED = (dict, msgspec.Struct)
_SPLIT = frozenset({"micro_losses", "lr", "hyper_parameters"})  # lists with a column per element
_NUMBERS = frozenset({msgspec.inspect.IntType, msgspec.inspect.FloatType, msgspec.inspect.NoneType})
_SINGLE = _NUMBERS | {
    msgspec.inspect.StrType, msgspec.inspect.LiteralType, msgspec.inspect.BoolType,
}  # fmt: skip
_FIELDS = tuple(
    field.name for field in msgspec.structs.fields(UpdateRecord) if field.name != "unknown"
)


@overload
def load(
    path: str | os.PathLike[str], *, rank: int | None = None, frame: None = None
) -> dict[str, Array]: ...


@overload
def load(
    path: str | os.PathLike[str], *, rank: int | None = None, frame: Literal["pandas", "polars"]
) -> Any: ...


def load(
    path: str | os.PathLike[str],
    *,
    rank: int | None = None,
    frame: Literal["pandas", "polars"] | None = None,
) -> Any:
    """The updates of the recording `path` (file or RUN folder) in columns, in file order.

    Each update stands once, as the last attempt left it; `attempt` says which that was. Columns
    are NumPy arrays by name: `loss`, `lr_0`, `loss_terms.<name>`, `scheduler.0.ticks`,
    `hyper_parameters.0.betas_0`, `batch.digest`. Numbers are float64, or int64 where every row has
    a whole one; what a row lacks is NaN. Text and everything else is an object array with None
    where a row has none. A column that no row has is left out. With a times file beside the
    recording there are `step_seconds` and `wait_seconds` too. A recording without updates has the
    columns of all fields that hold one value, such as `loss`, without rows.

    Args:
        path: the RUN folder or its file. Ranks are merged as `merge_ranks` does it: losses are
            means over ranks, norms those of the whole model, all else (times, too) is rank 0's.
        rank: read this rank alone.
        frame: give a pandas or polars DataFrame of these columns instead.

    Raises:
        RecordingError: there is no recording, a rank of it is missing, or it is damaged.
        ConfigError: the library for `frame` is not installed.
    """
    columns = _Columns()
    for row in _iter_rows(open_run(path, rank=rank)):
        columns.add(row)
    arrays = columns.finish() or _no_rows()
    if frame is None:
        return arrays
    return _make_frame(arrays, frame)


def _no_rows() -> dict[str, Array]:
    """Empty columns of the fields that have one each, under their own names."""
    import numpy as np

    columns: dict[str, Array] = {}
    for field in msgspec.structs.fields(UpdateRecord):
        kind = msgspec.inspect.type_info(field.type)
        kinds = {*map(type, kind.types if isinstance(kind, msgspec.inspect.UnionType) else [kind])}
        if kinds == {msgspec.inspect.IntType}:
            columns[field.name] = np.empty(0, dtype=np.int64)
        elif kinds <= _NUMBERS:
            columns[field.name] = np.empty(0, dtype=np.float64)
        elif kinds <= _SINGLE:
            columns[field.name] = np.empty(0, dtype=object)
    return columns | {"attempt": np.empty(0, dtype=np.int64)}


def _iter_rows(reader: RunReader) -> Iterator[dict[str, Any]]:
    outline = reader.outline
    ledger = Ledger(outline.runs)
    timed = times_path(outline.file).is_file()
    times = {
        (time.attempt, time.optimizer, time.update): time
        for time in (iter_times(outline.file) if timed else ())
    }
    for record in reader.records():
        if not ledger.take(record) or not isinstance(record, UpdateRecord):
            continue
        assert ledger.run is not None
        row = flatten_update(record)
        row["attempt"] = ledger.run.attempt
        time = times.get((ledger.run.attempt, record.optimizer, record.update))
        if time is not None:
            row["step_seconds"], row["wait_seconds"] = time.step_seconds, time.wait_seconds
        yield row


def flatten_update(record: UpdateRecord) -> dict[str, Any]:
    """The values of one update by column; what is null has none."""
    row: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(record, name)
        if type(value) in _WHOLE:
            row[name] = value
        elif value is not None:
            _flatten(row, name, value, split=name in _SPLIT)
    for name, value in record.unknown.items():
        _flatten(row, name, value, split=False)
    return row


def _flatten(row: dict[str, Any], name: str, value: Any, *, split: bool) -> None:
    """Members by dots; elements of a list, where it is `split`, by an underscore."""
    if value is None:
        return
    if type(value) in _WHOLE:
        row[name] = value
        return
    if isinstance(value, msgspec.Struct):
        members = msgspec.structs.asdict(value)
        unknown = members.pop("unknown", {})
        value = members | unknown
    if isinstance(value, dict):
        for key, item in value.items():
            if type(item) in _WHOLE:
                row[f"{name}.{key}"] = item
            elif item is not None:
                _flatten(row, f"{name}.{key}", item, split=split)
    elif isinstance(value, list) and value and all(isinstance(item, _MEMBERED) for item in value):
        for index, item in enumerate(value):
            _flatten(row, f"{name}.{index}", item, split=split)
    elif isinstance(value, list) and split:
        for index, item in enumerate(value):
            _flatten(row, f"{name}_{index}", item, split=split)
    else:
        row[name] = value


class _Columns:
    """Gathers rows, and turns every `CHUNK` of them into arrays so that memory stays small."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._chunks: list[tuple[int, dict[str, Array]]] = []  # rows, and the columns they have
        self._names: dict[str, None] = {}  # in the order in which they were first met

    def add(self, row: dict[str, Any]) -> None:
        """Take the next row."""
        self._rows.append(row)
        if len(self._rows) == CHUNK:
            self._flush()

    def finish(self) -> dict[str, Array]:
        """All columns, each as long as there are rows."""
        self._flush()
        return {name: self._join(name) for name in self._names}

    def _flush(self) -> None:
        if not self._rows:
            return
        names = dict.fromkeys(name for row in self._rows for name in row)
        self._names |= names
        self._chunks.append(
            (
                len(self._rows),
                {name: _make_array([row.get(name) for row in self._rows]) for name in names},
            )
        )
        self._rows = []

    def _join(self, name: str) -> Array:
        import numpy as np

        parts = [columns.get(name) for _, columns in self._chunks]
        is_text = any(part is not None and part.dtype == object for part in parts)
        filled = [
            part if part is not None else np.full(rows, None if is_text else math.nan)
            for part, (rows, _) in zip(parts, self._chunks, strict=True)
        ]
        if is_text:
            filled = [_to_objects(part) for part in filled]
        joined: Array = np.concatenate(filled)
        return joined


def _make_array(values: list[Any]) -> Array:
    """int64 or bool where each value is one, else float64, else objects."""
    import numpy as np

    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values, dtype=bool)
    if kinds <= {float, type(None)}:
        return np.array(values, dtype=np.float64)  # None becomes NaN
    if not kinds & {int, float, bool}:
        return _make_objects(values)
    if kinds == {int} and min(values) >= -(2**63) and max(values) < 2**63:
        return np.array(values, dtype=np.int64)
    numbers = [_to_number(value) for value in values]
    if any(number is None for number in numbers):
        return _make_objects(values)
    return np.array(numbers, dtype=np.float64)


def _make_objects(values: list[Any]) -> Array:
    import numpy as np

    array: Array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _to_number(value: Any) -> float | None:
    """A number, or the name of one that is not finite, as float; NaN for none; else None."""
    if value is None:
        return math.nan
    if isinstance(value, str):
        return _NONFINITE.get(value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None  # no int64 holds it, and a float would round it
    return float(value) if isinstance(value, int | float) else None


def _to_objects(part: Array) -> Array:
    """As objects, a missing number as None."""

    if part.dtype == object:
        return part
    values = part.tolist()
    return _make_objects([None if isinstance(v, float) and math.isnan(v) else v for v in values])


def _make_frame(arrays: Mapping[str, Array], frame: str) -> Any:
    if frame not in ("pandas", "polars"):
        raise ConfigError(f"load: frame must be 'pandas' or 'polars', got {frame!r}.")
    try:
        library = import_module(frame)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"load: frame={frame!r} needs {frame}, which is not installed: pip install {frame}, "
            f"or leave frame out for NumPy arrays."
        ) from error
    if frame == "pandas":
        return library.DataFrame(dict(arrays))
    columns = {
        name: array.tolist() if array.dtype == object else array for name, array in arrays.items()
    }
    return library.DataFrame(columns, strict=False)

"""Say which rates an original run used, update by update, and where a run used others."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from traingen.cadence.rate_rows import Kind, Rates, Row, iter_rows, kind_of
from traingen.errors import ConfigError, RecordingError

REFERENCE_RTOL = 1e-6  # above what rates computed in float32 or kept to 7 digits are off by
SIX_DIGITS_RTOL = 5e-6  # half a unit in the sixth digit: all that "%g" and its like keep
REFERENCE_ATOL = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """The rates that an original run used, from its first update on, without a gap."""

    path: Path
    kind: Kind
    rates: tuple[Rates, ...]  # [n - 1]: of every parameter group, as used by update n
    rtol: float = REFERENCE_RTOL  # closer rates cannot be told apart by the digits it keeps

    def covers(self, update: int) -> bool:
        """Whether the table has rates for `update` (from 1); beyond it nothing is compared."""
        return 1 <= update <= len(self.rates)


def load_rate_table(
    path: str | os.PathLike[str], *, optimizer: int = 0, limit: int | None = None
) -> RateTable:
    """Return the rates in `path`, of at most the first `limit` updates.

    `path` is a recording (a RUN folder or its file), of which the updates of `optimizer` count;
    or a file of one optimizer: JSON lines with `lr` or `learning_rate` (a number, or one per
    parameter group), or CSV with such a column or those of Lightning's LearningRateMonitor.
    Lines without a rate are skipped. A column `update`, `step` or `global_step` numbers the rates,
    from 0 or 1; without one every line is an update. A number may come again with the same rates
    (the monitor logs each micro-batch). A rate must be the one its update used, not the next one.

    Where a recording was resumed, an attempt takes the place of all that earlier ones did from
    its first update on. Text that keeps six digits or fewer is compared with SIX_DIGITS_RTOL.

    Raises:
        ConfigError: `path` cannot be read, holds no rates, or not those of every update.
    """
    file = Path(path)
    if limit is not None and limit < 1:
        raise ConfigError(f"{file}: the number of updates to read must be 1 or more, got {limit}.")
    try:
        kind = kind_of(file)
        rates = _in_order(iter_rows(file, kind, optimizer=optimizer), limit=limit)
    except RecordingError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        raise ConfigError(f"{file}: the reference cannot be read: {error.strerror}.") from error
    except csv.Error as error:
        raise ConfigError(f"{file}: the reference cannot be read as CSV: {error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: expected rates as UTF-8 text, found other bytes.") from error
    rtol = SIX_DIGITS_RTOL if kind != "recording" and _is_coarse(rates) else REFERENCE_RTOL
    return RateTable(path=file, kind=kind, rates=tuple(rates), rtol=rtol)


def compare_rates(
    table: RateTable,
    update: int,
    rates: Sequence[float],
    *,
    rtol: float | None = None,
    atol: float = REFERENCE_ATOL,
) -> str | None:
    """Say in words how `rates`, one per parameter group, differ from those of `table`, or None.

    Rates pass within `rtol` (of the larger; None: the table's own) or `atol`; one that is not
    finite never does. Another number of groups differs, unless one side has one group and all
    rates of the other are the same.

    Raises:
        LookupError: the table does not cover `update`: nothing compared is never a pass.
    """
    if not table.covers(update):
        raise LookupError(f"{table.path} ends at update {len(table.rates)}, asked for {update}")
    reference = table.rates[update - 1]
    if len(reference) == 1 and len(set(rates)) == 1:
        reference *= len(rates)
    if len(rates) == 1 and len(set(reference)) == 1:  # groups that differ in other options
        reference = reference[:1]
    if len(rates) != len(reference):
        return f"{_groups(len(rates))} where the reference has {len(reference)}"
    rtol = table.rtol if rtol is None else rtol
    wrong = [
        index
        for index, pair in enumerate(zip(rates, reference, strict=True))
        if not math.isclose(*pair, rel_tol=rtol, abs_tol=atol)
    ]
    return _differ(wrong, rates, reference) if wrong else None


def _differ(wrong: list[int], rates: Sequence[float], reference: Rates) -> str:
    if len(set(rates)) == len(set(reference)) == 1:
        return f"rate {rates[0]!r} where the reference has {reference[0]!r}"
    first = wrong[0]
    more = f", and {len(wrong) - 1} more of {len(rates)} groups" if wrong[1:] else ""
    return f"lr[{first}] is {rates[first]!r} where the reference has {reference[first]!r}{more}"


def _groups(count: int) -> str:
    return "1 parameter group" if count == 1 else f"{count} parameter groups"


# ---- every update, once -------------------------------------------------------------------------


def _in_order(rows: Iterable[Row], *, limit: int | None) -> list[Rates]:
    """The rates of updates 1, 2, …, at most `limit` of them: none missing, none of other length."""
    rates: list[Rates] = []
    start = 1
    for row in rows:
        if not rates:
            start = _first_step(row)
        update = len(rates) + 1 if row.step is None else row.step - start + 1
        if limit is not None and len(rates) == limit < update:
            break
        if rates and update == len(rates) and row.rates == rates[-1]:
            continue
        if update != len(rates) + 1:
            raise _out_of_order(row, expected=len(rates) + start, start=start)
        if rates and len(row.rates) != len(rates[-1]):
            raise ConfigError(
                f"{row.where}: expected {_groups(len(rates[-1]))} as before, found "
                f"{len(row.rates)}: compare up to there, or give a run whose groups stay."
            )
        rates.append(row.rates)
    return rates


def _first_step(row: Row) -> int:
    if row.step not in (None, 0, 1):
        raise ConfigError(
            f"{row.where}: updates must begin at 1 (or 0), the first is {row.step}: give the "
            f"rates of the whole run, logged at every update."
        )
    return 1 if row.step is None else row.step


def _out_of_order(row: Row, *, expected: int, start: int) -> ConfigError:
    if row.step is not None and row.step < expected:
        again = "comes again with other rates" if row.step == expected - 1 else "comes too late"
        return ConfigError(
            f"{row.where}: updates must ascend, {row.step} {again}: is this the log of one run?"
        )
    return ConfigError(
        f"{row.where}: updates {start} to {row.step} must all be there, {expected} is missing: log "
        f"every update (Lightning: log_every_n_steps=1)."
    )


def _is_coarse(rates: Iterable[Rates]) -> bool:
    """Whether no rate has more than six significant digits."""
    return all(
        len(Decimal(repr(rate)).normalize().as_tuple().digits) <= 6
        for groups in rates
        for rate in groups
    )

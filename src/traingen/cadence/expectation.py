"""What the user expects of each scheduler: step, epoch, the rates of a reference, or no word."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from traingen.cadence.reference import RateTable, load_rate_table
from traingen.cadence.schedule import Schedule
from traingen.errors import ConfigError

WORDS = ("auto", "step", "epoch")
Expected = str | RateTable  # one of WORDS, or the rates of an original run


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What is expected of every scheduler, or of each by name."""

    all: Expected = "auto"
    by_key: Mapping[str, Expected]

    def of(self, schedule: Schedule) -> Expected:
        """What is expected of `schedule`; its index goes before its name, its name before class."""
        keys = (str(schedule.index), schedule.name, type(schedule.scheduler).__name__)
        found = [self.by_key[key] for key in keys if key is not None and key in self.by_key]
        return found[0] if found else self.all

    def words(self) -> list[str]:
        """What is expected, whoever it is of; without the references."""
        return [one for one in (self.all, *self.by_key.values()) if isinstance(one, str)]

    def word(self, schedule: Schedule) -> str:
        """The same in a word: "reference" where there are rates."""
        expected = self.of(schedule)
        return "reference" if isinstance(expected, RateTable) else expected

    def references(self, schedules: Sequence[Schedule], *, optimizers: int) -> dict[int, RateTable]:
        """The rates expected of each optimizer; one without a scheduler has rates as well.

        Raises:
            ConfigError: one table that is no recording stands for several optimizers, or a
                recording has no updates of one of them.
        """
        found: dict[int, RateTable] = {}
        if isinstance(self.all, RateTable):
            if optimizers > 1 and self.all.kind != "recording":
                raise ConfigError(
                    f"CadenceGuard: {self.all.path} holds the rates of one optimizer and the "
                    f"trainer has {optimizers}: say whose, as in expected={{'0': PATH}}."
                )
            found = dict.fromkeys(range(optimizers), self.all)
        for schedule in schedules:
            expected = self.of(schedule)
            if isinstance(expected, RateTable):
                found[schedule.optimizer] = expected
        return {
            index: load_rate_table(table.path, optimizer=index) if index else table
            for index, table in found.items()
        }

    def check_keys(self, schedules: Sequence[Schedule]) -> None:
        """Raise for a name that no scheduler answers to.

        Raises:
            ConfigError: naming the schedulers there are.
        """
        for key in self.by_key:
            if not any(schedule.answers_to(key) for schedule in schedules):
                there = ", ".join(schedule.label for schedule in schedules) or "none"
                raise ConfigError(
                    f"CadenceGuard: expected names scheduler {key!r}, and there is none of that "
                    f"name, class or index: found {there}."
                )


def parse_expected(value: object) -> Expectation:
    """What `expected` says: a word, the path of a reference, or those by scheduler.

    Raises:
        ConfigError: for anything else, and for a reference that cannot be read.
    """
    if isinstance(value, Mapping):
        return Expectation(by_key={str(key): _parse_one(one) for key, one in value.items()})
    return Expectation(all=_parse_one(value), by_key={})


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no name that a file could have
        return False


def _parse_one(value: object) -> Expected:
    if isinstance(value, str) and value in WORDS:
        return value
    if isinstance(value, str | os.PathLike) and os.fspath(value) and _exists(Path(value)):
        return load_rate_table(Path(value))
    raise ConfigError(
        f"CadenceGuard: expected must be auto, step, epoch, the path of a recording, JSONL or CSV, "
        f"or those by scheduler; got {reprlib.repr(value)}, which is no such file either."
    )

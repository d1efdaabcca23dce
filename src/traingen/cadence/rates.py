"""Whether the rates that updates use are the expected ones, while a training runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from traingen.cadence import kinds
from traingen.cadence.reference import RateTable, compare_rates
from traingen.compare.findings import Finding

Rates = tuple[float, ...]  # per parameter group


@dataclass(slots=True, kw_only=True)
class RateWatch:
    """Compare the rates of every update with a reference, and with what schedulers left.

    Args:
        emit: takes each finding, at the moment it is made; one per optimizer and kind.
        references: by optimizer, the rates of an original run.
        compare: how many of them are compared.
        updates: by optimizer, those of an earlier part of the same training.
    """

    emit: Callable[[Finding], None]
    references: Mapping[int, RateTable] = field(default_factory=dict)
    compare: int = 300
    updates: dict[int, int] = field(default_factory=dict)
    unheard: set[int] = field(default_factory=set)  # optimizers whose ticks are not all heard
    compared: dict[int, int] = field(default_factory=dict)  # rates compared, by optimizer
    _before: dict[int, int] = field(init=False)  # updates of earlier parts
    _seen: dict[int, Rates] = field(default_factory=dict)
    _said: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._before = dict(self.updates)

    def left(self, optimizer: int, rates: Rates) -> None:
        """A scheduler has ticked, or training begins: these are the rates from now on."""
        self._seen[optimizer] = rates

    def about_to_change(self, optimizer: int, rates: Rates) -> None:
        """A scheduler is about to tick: nothing else has moved the rates since they were left."""
        before = self._seen.get(optimizer, rates)
        if len(before) == len(rates) and before != rates:
            after = f"after update {self.updates.get(optimizer, 0)}"
            self._moved(optimizer, after, before, rates)

    def updated(self, optimizer: int, rates: Rates) -> None:
        """The optimizer has applied an update at these rates."""
        update = self.updates[optimizer] = self.updates.get(optimizer, 0) + 1
        before = self._seen.get(optimizer, rates)
        self._seen[optimizer] = rates
        if len(before) == len(rates) and before != rates:
            self._moved(optimizer, f"before update {update}", before, rates)
        self._check_reference(optimizer, update, rates)

    def end(self) -> None:
        """Training is over: say how much of a reference was not compared."""
        for optimizer, table in self.references.items():
            compared = self.compared.get(optimizer, 0)
            wanted = max(self.compare - self._before.get(optimizer, 0), 0)
            if compared < wanted:
                self._say(
                    kinds.REFERENCE_SHORT.found(
                        f"optimizer {optimizer}: {compared} of {wanted} rates compared; "
                        f"{table.path} holds {len(table.rates)}"
                    ),
                    optimizer,
                )

    def _moved(self, optimizer: int, when: str, before: Rates, rates: Rates) -> None:
        if optimizer in self.unheard:
            return
        pairs = zip(before, rates, strict=True)
        group, (old, new) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        self._say(
            kinds.RATE_MOVED.found(
                f"optimizer {optimizer}, group {group}: the rate went from {old:.6g} to {new:.6g} "
                f"{when}, and no scheduler had ticked"
            ),
            optimizer,
        )

    def _check_reference(self, optimizer: int, update: int, rates: Rates) -> None:
        table = self.references.get(optimizer)
        if table is None or update > self.compare or not table.covers(update):
            return
        self.compared[optimizer] = self.compared.get(optimizer, 0) + 1
        different = compare_rates(table, update, rates)
        if different is not None:
            self._say(
                kinds.REFERENCE.found(f"optimizer {optimizer}, update {update}: {different}"),
                optimizer,
            )

    def _say(self, finding: Finding, optimizer: int) -> None:
        if (finding.id, optimizer) not in self._said:
            self._said.add((finding.id, optimizer))
            self.emit(finding)

"""Send the scalars of each update to the loggers that a training already has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from traingen.records import Record, Sink, UpdateRecord

PREFIX = "traingen/"
SCALARS = ("loss", "objective", "grad_norm", "grad_norm_clipped")


class Mirror:
    """A sink that hands everything on and keeps the newest update of each optimizer until `send`.

    Loggers are other people's code: they are called at the end of the batch, where Lightning calls
    them too, and not inside the optimizer's step.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._updates: dict[int, UpdateRecord] = {}  # by optimizer

    def write(self, record: Record) -> None:
        """Write to the sink behind; keep an update."""
        self._sink.write(record)
        if isinstance(record, UpdateRecord):
            self._updates[record.optimizer] = record

    def close(self) -> None:
        """Close the sink behind; an update not sent by now is in the recording only."""
        self._sink.close()

    def send(self, loggers: Iterable[Any], *, step: int) -> None:
        """Log the updates that were written since the last call, if there were any, at `step`.

        Of several by one optimizer the newest: there is one value per name and step.
        """
        updates, self._updates = self._updates, {}
        if not updates:
            return
        metrics = {name: x for _, one in sorted(updates.items()) for name, x in _named(one)}
        for logger in loggers:
            logger.log_metrics(metrics, step=step)


def metrics_of(update: UpdateRecord) -> dict[str, float]:
    """The scalars of `update` under the names that loggers are given; nulls are left out.

    Those of the first optimizer have no number, so that a training with one has plain names.
    """
    return dict(_named(update))


def _named(update: UpdateRecord) -> Iterator[tuple[str, float]]:
    prefix = PREFIX if update.optimizer == 0 else f"{PREFIX}optimizer-{update.optimizer}/"
    values: dict[str, float | None] = {name: getattr(update, name) for name in SCALARS}
    values |= {f"loss_terms/{name}": term for name, term in (update.loss_terms or {}).items()}
    values |= _name_rates(update.lr)
    for name, value in values.items():
        if value is not None:
            yield f"{prefix}{name}", value


def _name_rates(rates: list[float]) -> dict[str, float]:
    """`lr`, or `lr-0`, `lr-1`, … by parameter group if there are several."""
    if len(rates) == 1:
        return {"lr": rates[0]}
    return {f"lr-{group}": rate for group, rate in enumerate(rates)}

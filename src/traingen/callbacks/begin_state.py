"""Read what the record of an update says of a Lightning training beyond its optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl

from traingen.observe.averaging import describe_averaging, find_averaged, read_averaging
from traingen.observe.loaders import describe_loader, describe_sampler
from traingen.observe.probes import ProbeReader, StateProbe

FIELDS = ("sampler", "data_sampler", "ema")


class BeginState:
    """The training's loader, averaged weights and probes, read when an update begins.

    Args:
        trainer: the trainer, whose training loader exists.
        pl_module: the module that is trained.
        probes: what the user wants recorded.
    """

    def __init__(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, probes: Sequence[StateProbe]
    ) -> None:
        self._module = pl_module
        self._probes = ProbeReader(probes)
        self._loader, *self._others = [*iter_loaders(trainer.train_dataloader)] or [None]
        self._batches = trainer.num_training_batches
        callbacks: Sequence[Any] = trainer.callbacks  # type: ignore[attr-defined]
        self._averaged = find_averaged([*callbacks, *pl_module.modules()])

    def read(self) -> Mapping[str, Any]:
        """The fields of the record by name."""
        sampler, user = self._probes.read(self._module)
        return {
            "sampler": sampler,
            "user": user,
            "data_sampler": None if self._loader is None else describe_sampler(self._loader),
            "ema": None if self._averaged is None else read_averaging(self._averaged, self._module),
        }

    @property
    def loader(self) -> dict[str, Any] | None:
        """What the `run` line says of the loader, and of others that it is combined with.

        `batches` is what the trainer makes of an epoch, its limits included; null if it cannot say.
        """
        if self._loader is None:
            return None
        known = isinstance(self._batches, int)
        facts = describe_loader(self._loader) | {"batches": self._batches if known else None}
        if self._others:
            facts["others"] = [describe_loader(one) for one in self._others]
        return facts

    @property
    def averaging(self) -> dict[str, Any] | None:
        """What an event says of the averaged weights, if there are any."""
        return None if self._averaged is None else describe_averaging(self._averaged, self._module)


def iter_loaders(given: Any) -> Iterator[Any]:
    """The loaders in what a trainer was given: one, or several in lists and dicts."""
    if isinstance(given, Mapping):
        for one in given.values():
            yield from iter_loaders(one)
    elif isinstance(given, list | tuple):
        for one in given:
            yield from iter_loaders(one)
    elif given is not None:
        yield given

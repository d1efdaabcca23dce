"""What a lockstep run has put to the test, and what its verdict therefore does not speak for."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from traingen.compare.exercise import RecordExercise
from traingen.compare.tensors import same_bits
from traingen.lockstep.name_map import ResolvedMap
from traingen.observe.live import LiveState
from traingen.records import UpdateRecord


class Exercise:
    """Keeps what a run has not put to the test: a pass does not speak for it.

    Args:
        live: of the package, before its first update.
        names: those that are compared, and those that are excused.
        fed: whether the package's own loader, sampler and transforms were replaced.
    """

    def __init__(self, live: LiveState, names: ResolvedMap, *, fed: bool) -> None:
        self._fed = fed
        self._names = names
        self.excused = {
            **{f"original {name}": why for name, why in names.only_original.items()},
            **{f"package {name}": why for name, why in names.only_package.items()},
        }
        self._trained: set[str] = set()
        self._idle_parameters = set(live.parameters)
        self._still_buffers = {name: b.detach().clone() for name, b in live.buffers.items()}
        self._records = RecordExercise()

    def add(self, record: UpdateRecord, original: LiveState, live: LiveState) -> None:
        """Look at what one update of the package (`record`, `live`) has moved."""
        self._trained |= {f"original {n}" for n in _moved(original, self._names.only_original)}
        self._trained |= {f"package {n}" for n in _moved(live, self._names.only_package)}
        self._idle_parameters -= _moved(live, self._idle_parameters)
        for name, first in list(self._still_buffers.items()):
            if not same_bits(first, live.buffers[name]):
                del self._still_buffers[name]
        self._records.add(record)

    @property
    def excused_trained(self) -> list[str]:
        """Parameters that no comparison covers although they had a gradient."""
        return sorted(self._trained)

    def missing(self) -> list[str]:
        """What was not exercised, one line each."""
        lines = ["package data: it was fed the original's batches"] if self._fed else []
        lines += [
            f"parameter {name}: its gradient was zero throughout"
            for name in sorted(self._idle_parameters)
        ]
        lines += [f"buffer {name}: it never moved" for name in sorted(self._still_buffers)]
        lines += self._records.missing()
        lines.append("averaged weights and samplers of a plain loop: not observed")
        lines.append("initialization, validation results, the tail of the last update")
        return lines


def _moved(live: LiveState, names: Iterable[str]) -> set[str]:
    """Those of `names` that have a gradient with an element other than zero."""
    found = ((name, live.gradients.get(name)) for name in names)
    return {name for name, g in found if g is not None and bool(torch.any(g != 0))}

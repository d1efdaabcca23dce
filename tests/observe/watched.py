"""Watch the updates of a loop written by hand, through torch's hooks, as every loop is watched."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from traingen.observe.build import Options
from traingen.observe.forwarding import ObserverListener
from traingen.observe.listening import listening
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.update import UpdateObserver
from traingen.records import EventRecord, Record, UpdateRecord, decode_line, encode_line

Times = tuple[int, int, float, float]  # update, optimizer, seconds of the step, of the wait


class Watched(ObserverListener):
    """What was recorded of a loop; `begin` says that a batch was handed to it."""

    def __init__(
        self,
        *optimizers: torch.optim.Optimizer,
        clock: Callable[[], float] | None = None,
        **options: Any,
    ) -> None:
        self.records: list[Record] = []
        self.times: list[Times] = []
        self.batches = 0
        self.observer = UpdateObserver(
            optimizers,
            emit=self.records.append,
            schedulers=SchedulerBook(),
            options=Options(**options),
            clock=clock,
            emit_times=lambda *times: self.times.append(times),
        )

    def step_applied(self, optimizer: torch.optim.Optimizer) -> None:
        self.observer.applied(optimizer, global_step=None)

    def begin(self, batch: Any = 1, **place: Any) -> None:
        """The next batch is handed to the loop."""
        self.observer.begin(batch, epoch=0, batch_idx=self.batches, **place)
        self.batches += 1

    def over(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Hand each of `batches` to the loop."""
        for batch in batches:
            self.begin(batch)
            yield batch

    def updates(self, optimizer: int | None = None) -> list[UpdateRecord]:
        """The updates of one optimizer, or all in their order."""
        updates = [record for record in self.records if isinstance(record, UpdateRecord)]
        return [one for one in updates if optimizer in (None, one.optimizer)]

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and details of each event."""
        events = [record for record in self.records if isinstance(record, EventRecord)]
        return [(one.event, one.details) for one in events]


@contextmanager
def watching(*optimizers: torch.optim.Optimizer, **options: Any) -> Iterator[Watched]:
    """Watch the loop in the block; every record must survive being written."""
    watched = Watched(*optimizers, **options)
    with listening(watched):
        yield watched
    watched.observer.close("finished")
    for record in watched.records:
        assert decode_line(encode_line(record), where="here") == record


def norm_of(parameters: Iterable[torch.Tensor]) -> float:
    """The norm of the gradients that `parameters` have, by other means than the observer's."""
    gradients = [p.grad.to_dense() for p in parameters if p.grad is not None]
    return float(torch.cat([g.detach().flatten().double() for g in gradients]).norm())


def counts(updates: Sequence[UpdateRecord]) -> list[tuple[int, int]]:
    """Optimizer and number of each update."""
    return [(one.optimizer, one.update) for one in updates]

"""Run a training in a thread of its own, one turn at a time.

Exactly one of the threads involved runs at any moment: the conductor, or the system whose turn it
is. A system gives the turn back where it calls `park`, when its body ends, and when it raises.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from traingen.errors import SystemFailed
from traingen.lockstep.interrupt import interrupts
from traingen.lockstep.isolation import (
    ProcessState,
    capture_process_state,
    fresh_process_state,
    restore_process_state,
)
from traingen.observe.rng import seeded_rng

STALL_SECONDS = 600.0
POLL_SECONDS = 0.1  # how often a waiting conductor looks for an interrupt


class StopSystem(BaseException):
    """Ends a system at its park; not an Exception, so that training code does not swallow it."""


class StalledError(SystemFailed):
    """A system did not give its turn back in time; its thread cannot be joined."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The training returned by itself."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The training raised."""

    error: BaseException


class Worker:
    """One system's thread and the process-wide state that belongs to it.

    Args:
        name: of the system, for messages.
        body: the training; runs once.
        seed: for the generators that the body finds.
        stall_seconds: how long one turn may take before it is given up.
    """

    def __init__(
        self,
        name: str,
        body: Callable[[], None],
        *,
        seed: int,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self.name = name
        self.state: ProcessState = fresh_process_state(seeded_rng(seed))
        self.stopping = False
        self._body = body
        self._stall_seconds = stall_seconds
        self._turn = threading.Semaphore(0)
        self._back = threading.Event()  # set while the turn is ours
        self._report: Any = None
        self._device = torch.get_default_device()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"traingen-{name}", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs or is parked."""
        return self._thread.is_alive()

    def resume(self) -> Any:
        """Give the turn to the system; returns what it parks with, `Ended` or `Raised`.

        The outside process state is put back before this returns. After a SIGINT the system is
        stopped at its next park.

        Raises:
            StalledError: the turn took longer than `stall_seconds`.
            KeyboardInterrupt: a second SIGINT; the system is left behind.
        """
        if self._ended:
            return Ended()
        outside = capture_process_state()
        restore_process_state(self.state)
        try:
            self._back.clear()
            if self._thread.ident is None:
                self._thread.start()
            else:
                self._turn.release()
            return self._wait()
        finally:
            self.state = capture_process_state()
            restore_process_state(outside)

    def park(self, report: Any) -> None:
        """Called by the system's own thread: hand `report` over and wait for the next turn.

        Raises:
            StopSystem: the system was told to stop.
        """
        if self.stopping:
            raise StopSystem
        self._hand_back(report)
        self._turn.acquire()
        if self.stopping:
            raise StopSystem

    def stop(self) -> Any:
        """End the system at its park and wait for its thread; returns its last report."""
        self.stopping = True
        last = Ended() if self._thread.ident is None else self.resume()
        if self._back.is_set():  # else it was left behind: its thread cannot be joined
            self._thread.join(self._stall_seconds)
        self._ended = True
        return last

    def _run(self) -> None:
        try:
            if self._device != torch.device("cpu"):
                torch.set_default_device(self._device)
            self._body()
            report: Any = Ended()
        except StopSystem:
            report = Ended()
        except BaseException as error:
            report = Raised(error)
        self._ended = True
        self._hand_back(report)

    def _hand_back(self, report: Any) -> None:
        self._report = report
        self._back.set()

    def _wait(self) -> Any:
        """The report of this turn; a system that was interrupted is stopped at its next park."""
        deadline = time.monotonic() + self._stall_seconds
        while not self._back.wait(POLL_SECONDS):
            if interrupts() > 1:
                self._ended = True
                raise KeyboardInterrupt
            if interrupts():
                self.stopping = True
            if time.monotonic() > deadline:
                self._give_up()
        if self._ended:  # its body is over: the thread has nothing left to do
            self._thread.join(self._stall_seconds)
        return self._report

    def _give_up(self) -> NoReturn:
        faulthandler.dump_traceback(file=sys.__stderr__ or 2, all_threads=True)
        self._ended = True
        raise StalledError(
            f"{self.name}: no update for {self._stall_seconds:g} s, the stacks are above: "
            "raise stall_seconds if one update takes longer."
        )

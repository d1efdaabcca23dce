"""Let Ctrl-C end a lockstep run where nothing is half done.

A KeyboardInterrupt may arrive between any two bytecodes, also after a system has handed its turn
back and before that was noticed. Within a run a SIGINT is therefore counted, and looked at where
the run can end: the first one lets the running system come to its next park, a second one leaves
it behind.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_count = 0


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Count SIGINT within the block; elsewhere than in the main thread nothing changes."""
    global _count
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not usual:
        yield
        return
    _count = 0
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _count = 0


def interrupts() -> int:
    """How many SIGINT have arrived in the current block."""
    return _count


def raise_if_interrupted() -> None:
    """Raise the KeyboardInterrupt that was put off."""
    if _count:
        raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    global _count
    _count += 1
    if _count == 1:
        print(
            "traingen: ending after the running update; Ctrl-C again to leave at once",
            file=sys.stderr,
        )

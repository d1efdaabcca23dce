"""Tell listeners what the training code of their own thread does, as it does it.

A hook on torch is installed while somebody listens for it and taken out with the last listener.
Calls are routed by thread, so that two trainings in one process never hear each other.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from traingen.observe.events import Listener
from traingen.observe.hooking import Remove
from traingen.observe.torch_hooks import GROUPS, forget_unfinished_step

_lock = threading.RLock()
_listeners: dict[int, list[Listener]] = {}  # thread id -> its listeners, in order of arrival
_hearing: dict[tuple[int, str], list[Listener]] = {}  # thread id, group of hooks -> who hears it
_installed: dict[str, Remove] = {}

# A forked data-loading worker keeps the hooks of its parent but is not the thread they watch.
os.register_at_fork(after_in_child=lambda: _hearing.clear())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have `listener` hear what this thread does until the block is left, also by an error."""
    _add(listener, threading.get_ident())
    try:
        yield
    finally:
        _remove(listener)


def start_listening(listener: Listener) -> Remove:
    """The same without a block: returns the function that ends it (safe to call twice)."""
    stack = ExitStack()
    stack.enter_context(listening(listener))
    return stack.close


def listeners_here() -> tuple[Listener, ...]:
    """Those who listen in this thread, in order of arrival."""
    return tuple(_listeners.get(threading.get_ident(), ()))


def _add(listener: Listener, thread: int) -> None:
    with _lock:
        if thread not in _listeners:
            forget_unfinished_step()
        _listeners.setdefault(thread, []).append(listener)
        _install_what_is_heard()


def _remove(listener: Listener) -> None:
    with _lock:
        for thread, those in list(_listeners.items()):
            those[:] = [one for one in those if one is not listener]
            if not those:
                del _listeners[thread]
        _install_what_is_heard()


def _heard_by(listener: Listener) -> set[str]:
    """The groups of hooks that `listener` needs: those with a method it overrides."""
    return {
        group
        for group, (methods, _) in GROUPS.items()
        if any(getattr(type(listener), name) is not getattr(Listener, name) for name in methods)
    }


def _install_what_is_heard() -> None:
    """Bring routing and hooks in line with the listeners."""
    global _hearing
    wanted = {
        group
        for those in _listeners.values()
        for listener in those
        for group in _heard_by(listener)
    }
    hearing: dict[tuple[int, str], list[Listener]] = {}
    for thread, those in _listeners.items():
        for listener in those:
            for group in _heard_by(listener):
                hearing.setdefault((thread, group), []).append(listener)
    _hearing = hearing  # at once: other threads look into it meanwhile
    for group in list(_installed):
        if group not in wanted:
            _installed.pop(group)()
    for group in wanted - set(_installed):
        _installed[group] = GROUPS[group][1](functools.partial(_here, group))


def _here(group: str) -> Sequence[Listener]:
    """Those who listen to `group` in this thread."""
    return _hearing.get((threading.get_ident(), group), ())

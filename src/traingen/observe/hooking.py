"""What every hook on torch is made of: replace something, call who listens, put it back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from traingen.observe.events import Listener

Remove = Callable[[], None]
Here = Callable[[], Sequence[Listener]]  # those who listen in the calling thread

local = threading.local()  # how deep this thread is in calls of which the outermost counts


def replace(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Remove:
    """Replace the attribute `name` that `owner` itself defines by `make(original)`."""
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    return lambda: setattr(owner, name, original)


def overlay(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Remove:
    """Put `make(original)` in the place of the method `name` of one object.

    Several may lie over each other and are taken away in any order: one that others lie over stays
    until those are gone.
    """
    layer: Any = make(getattr(owner, name))
    layer.under, layer.is_gone = vars(owner).get(name), False
    setattr(owner, name, layer)

    def remove() -> None:
        layer.is_gone = True
        while getattr(vars(owner).get(name), "is_gone", False):
            under = vars(owner)[name].under
            if under is None:
                delattr(owner, name)
            else:
                setattr(owner, name, under)

    return remove


def all_of(removes: Sequence[Remove]) -> Remove:
    """One function that undoes all, the latest first."""

    def remove() -> None:
        for one in reversed(removes):
            one()

    return remove


def subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    """`cls` and every class that derives from it, once for each way it does."""
    yield cls
    for child in cls.__subclasses__():
        yield from subclasses(child)


class Depth:
    """How deep the calling thread is in nested calls of one kind; 0 outside of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __int__(self) -> int:
        return int(getattr(local, self._name, 0))

    def __enter__(self) -> None:
        setattr(local, self._name, int(self) + 1)

    def __exit__(self, *error: object) -> None:
        setattr(local, self._name, int(self) - 1)

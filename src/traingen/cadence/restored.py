"""What of a scheduler's own settings a checkpoint has overridden."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


def capture_settings(scheduler: object, *, prefix: str = "") -> dict[str, Any]:
    """The settings of `scheduler` and of its parts, by dotted name, copied; plain values only.

    Settings are the attributes that carry the name of an argument of its constructors, and the
    base rates. Whatever else it keeps is how far it has come.
    """
    settings: dict[str, Any] = {}
    arguments = _arguments_of(type(scheduler))
    for name, value in getattr(scheduler, "__dict__", {}).items():
        if name == "_schedulers":
            for position, part in enumerate(value):
                settings |= capture_settings(part, prefix=f"{prefix}{position}.")
        elif name in arguments and _is_plain(value):
            settings[prefix + name] = _copy(value)
    return settings


def describe_overridden(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The settings that differ, as `name before → after`; empty if none does."""
    changed = [
        f"{name} {value!r} → {after.get(name)!r}"
        for name, value in before.items()
        if repr(after.get(name)) != repr(value)  # NaN is what it was
    ]
    return ", ".join(changed)


def _arguments_of(cls: type) -> set[str]:
    constructors = [vars(one)["__init__"] for one in cls.__mro__ if "__init__" in vars(one)]
    names = {
        name
        for init in constructors
        if inspect.isfunction(init)
        for name in inspect.signature(init).parameters
    }
    return (names | {"base_lrs"}) - {"self", "optimizer", "last_epoch"}


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(one) for one in value.values())
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return value is None or isinstance(value, bool | int | float | str)


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(one) for key, one in value.items()}
    return [_copy(one) for one in value] if isinstance(value, list | tuple) else value

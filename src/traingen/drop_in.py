"""Add to every Trainer what the environment variable TRAINGEN asks for.

Lightning calls `make_callbacks` for each Trainer of an environment in which traingen is installed
(entry points `lightning.pytorch.callbacks_factory` and `pytorch_lightning.callbacks_factory`), also
for trainings that have nothing to do with us. So this module is light, does nothing unless it is
asked, and never raises.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning.pytorch import Callback

VARIABLE = "TRAINGEN"
WORDS = {"record": "record", "guard": "cadence"}  # word -> the key of a YAML file it stands for
KEYS = tuple(WORDS.values())  # as at the top level of `traingen fit`

_folders: set[Path] = set()  # given to the Trainers of this process
_warned: set[str] = set()


def make_callbacks() -> list[Callback]:
    """The guests that TRAINGEN asks for, new ones at each call; none if it is unset or empty.

    TRAINGEN is comma-separated words of `record` and `guard`, or the path of a YAML file with the
    keys `record` (true, a path, or arguments of StepRecorder) and `cadence` (true, or arguments of
    CadenceGuard). A value that cannot be used warns once and adds nothing.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if not value:
        return []
    try:
        return _make_guests(read_settings(value))
    except Exception as error:  # whatever it is: the Trainer that is being built is not ours
        reason = " ".join(str(error).split()) or type(error).__name__
        _warn_once(
            f"{VARIABLE}={value}: {reason} Nothing is recorded or guarded; the training goes on."
        )
        return []


def read_settings(value: str) -> dict[str, Any]:
    """What a value of TRAINGEN asks for, by the keys of a YAML file.

    Raises:
        ValueError: it is neither known words nor a YAML file with known keys.
    """
    words = [word.strip() for word in value.split(",") if word.strip()]
    unknown = [word for word in words if word not in WORDS]
    if words and not unknown:
        return {WORDS[word]: True for word in words}
    path = Path(value)
    if not path.is_file():
        raise ValueError(
            f"expected {', '.join(WORDS)} or the path of a YAML file, "
            f"found neither: {(unknown or [value])[0]!r}."
        )
    return _read_file(path)


def fresh_folder(now: datetime, *, pid: int) -> Path:
    """A folder below `recordings/` of the current directory that nobody else is given."""
    base = Path.cwd() / "recordings" / f"{now:%Y%m%d-%H%M%S}-{pid}"
    folder, number = base, 2
    while folder in _folders or folder.exists():
        folder = base.with_name(f"{base.name}-{number}")
        number += 1
    _folders.add(folder)
    return folder


def _read_file(path: Path) -> dict[str, Any]:
    import yaml

    expected = f"expected a YAML file with the keys {' and '.join(KEYS)}"
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{expected}, found one that cannot be read: {error}.") from error
    if not isinstance(found, Mapping) or not found:
        raise ValueError(f"{expected}, found {found!r:.40}.")
    unknown = [key for key in found if key not in KEYS]
    if unknown:
        raise ValueError(f"{expected}, found the key {unknown[0]!r}.")
    return dict(found)


def _make_guests(settings: Mapping[str, Any]) -> list[Callback]:
    """The recorder comes first: a violation is the end of its recording."""
    from traingen.callbacks.guest import Guest

    cadence, record = settings.get("cadence", False), settings.get("record")
    guards = [] if cadence is False else [_make_guard(cadence)]
    recorders = [] if record is None or record is False else [_make_recorder(record)]
    return [Guest(callback) for callback in (*recorders, *guards)]


def _make_guard(setting: Any) -> Callback:
    from traingen.callbacks.cadence_guard import CadenceGuard

    return CadenceGuard(**_checked(CadenceGuard, {} if setting is True else setting, key="cadence"))


def _make_recorder(setting: Any) -> Callback:
    from lightning.pytorch.utilities import rank_zero_info

    from traingen.callbacks.step_recorder import StepRecorder

    given = {"path": setting} if setting and isinstance(setting, str) else setting
    given = {} if setting is True else given
    arguments = _checked(StepRecorder, given, key="record")
    if "path" not in given:
        arguments["path"] = str(fresh_folder(datetime.now(), pid=os.getpid()))
    recorder = StepRecorder(**arguments)
    rank_zero_info(f"traingen: {VARIABLE} records this Trainer's updates in {arguments['path']}")
    return recorder


def _checked(cls: type[Callback], given: Any, *, key: str) -> dict[str, Any]:
    """All arguments of `cls`, with those `given` checked as on the command line.

    Raises:
        ValueError: they are no mapping, or one is unknown or of the wrong type.
    """
    from jsonargparse import ArgumentParser

    if not isinstance(given, Mapping):
        raise ValueError(f"{key}: expected true or a mapping of arguments, found {given!r:.40}.")
    parser = ArgumentParser(exit_on_error=False, default_env=False)
    parser.add_class_arguments(cls)
    try:
        arguments: dict[str, Any] = parser.parse_object(dict(given)).as_dict()
    except Exception as error:  # its kind depends on the version of jsonargparse
        raise ValueError(f"{key}: {error}.") from error
    return arguments


def _warn_once(message: str) -> None:
    """Warn; where warnings are errors it is logged, because nothing may be raised."""
    if message in _warned:
        return
    _warned.add(message)
    try:
        warnings.warn(message, stacklevel=2)
    except Warning:
        logging.getLogger(__name__).warning(message)

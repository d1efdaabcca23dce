"""The pair file: one YAML that names both systems and how they are to be compared."""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from traingen.compare.gates import Gates
from traingen.errors import ConfigError
from traingen.limits import PAIR, GateSpec, check_gates, gates_of, load_yaml, readable
from traingen.lockstep.name_map import NameMap

Mode = Literal["natural", "reseeded", "synchronized"]
MOST_STALL_SECONDS = 7 * 24 * 3600.0
MODES: tuple[Mode, ...] = ("natural", "reseeded", "synchronized")


class SystemSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system: what makes it and how it is driven."""

    class_path: str  # dotted path of the factory
    init_args: dict[str, Any] = {}  # its keyword arguments; nested class_path objects are built
    system: Literal["loop", "trainer"]  # a training function, or a Trainer.fit
    stall_seconds: float = 600.0  # how long one update may take


class NameMapSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules from names of the original to names of the package; see `NameMap`."""

    exact: dict[str, str] = {}
    patterns: list[tuple[str, str]] = []
    only_original: dict[str, str] = {}
    only_package: dict[str, str] = {}


class TapSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one system's value is found; see `Tap`."""

    module: str | None = None
    function: str | None = None
    output: int | str | None = None


class TapPair(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same value in both systems."""

    original: TapSpec
    package: TapSpec


class PairFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pair file, version 1, as written; paths are relative to the current directory."""

    pair: Literal[1]
    original: SystemSpec
    package: SystemSpec
    name_map: NameMapSpec = NameMapSpec()
    taps: dict[str, TapPair] = {}
    gates: dict[str, GateSpec] = {}
    modes: list[Mode] = msgspec.field(default_factory=lambda: list(MODES))
    updates: int = 300  # completed optimizer updates per mode
    seed: int = 0
    floor: str | None = None  # file of the measured floor and horizon
    vendor_stack_mode: str | None = None


def load_pair(path: Path) -> PairFile:
    """Read and check a pair file.

    A file may start from another one with `extends: FILE`: mappings are merged key by key,
    anything else replaces what was there. Like every path in it, FILE is relative to the current
    directory.

    Raises:
        ConfigError: the file is missing, is no YAML, or does not fit the schema.
    """
    data = load_yaml(path, PAIR)
    try:
        pair = msgspec.convert(data, PairFile, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {readable(str(error))}.") from error
    _check(pair, path)
    return pair


def pair_schema() -> dict[str, Any]:
    """The JSON Schema of the pair file."""
    return msgspec.json.schema(PairFile)


def make_name_map(pair: PairFile) -> NameMap:
    """The checked name map of a pair."""
    spec = pair.name_map
    return NameMap(
        exact=spec.exact,
        patterns=tuple(spec.patterns),
        only_original=spec.only_original,
        only_package=spec.only_package,
    )


def make_gates(pair: PairFile) -> Gates:
    """The gates of a pair."""
    return gates_of(pair.gates)


def make_factory(spec: SystemSpec, *, where: str) -> Callable[[], Any]:
    """The factory of a system; nested objects of its arguments are built anew at every call.

    Raises:
        ConfigError: a class_path cannot be imported.
    """
    target = import_dotted(spec.class_path, where=where)

    def factory() -> Any:
        return target(**_build(copy.deepcopy(spec.init_args), where=f"{where}.init_args"))

    _check_paths(spec.init_args, where=f"{where}.init_args")
    return functools.wraps(target)(factory) if callable(target) else factory


def import_dotted(path: Any, *, where: str) -> Any:
    """Import the object that a dotted path names.

    Raises:
        ConfigError: there is no such object, or importing it failed.
    """
    if not isinstance(path, str):
        raise ConfigError(f"{where}: class_path must be a dotted path, got {path!r}.")
    module, _, name = path.rpartition(".")
    if not module or path.startswith("."):
        raise ConfigError(
            f"{where}: class_path {path!r} must be a dotted path, package.module.name."
        )
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{where}: class_path {path!r} cannot be imported: {error}. Is its package installed, "
            "and the command run from the project's root?"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{where}: class_path {path!r} cannot be imported: its module raised "
            f"{type(error).__name__}: {error}."
        ) from error
    if not hasattr(found, name):
        raise ConfigError(f"{where}: module {module!r} has no {name!r}, named by class_path.")
    return getattr(found, name)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) in (
        {"class_path"},
        {"class_path", "init_args"},
    )


def _build(value: Any, *, where: str) -> Any:
    if _is_object(value):
        target = import_dotted(value["class_path"], where=where)
        return target(**_build(value.get("init_args", {}), where=where))
    if isinstance(value, Mapping):
        return {key: _build(item, where=f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_build(item, where=where) for item in value]
    return value


def _check_paths(value: Any, *, where: str) -> None:
    """Import every class_path now, so that a wrong one stops before anything runs."""
    if _is_object(value):
        import_dotted(value["class_path"], where=where)
        value = value.get("init_args", {})
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_paths(item, where=f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            _check_paths(item, where=where)


def _check(pair: PairFile, path: Path) -> None:
    if pair.updates < 1:
        raise ConfigError(f"{path}: 'updates' must be at least 1, got {pair.updates}.")
    if not pair.modes or len(set(pair.modes)) != len(pair.modes):
        raise ConfigError(f"{path}: 'modes' must name each of {', '.join(MODES)} at most once.")
    if not 0 <= pair.seed < 2**32:
        raise ConfigError(f"{path}: 'seed' must be from 0 to 4294967295, got {pair.seed}.")
    for side in ("original", "package"):
        if not 0 < getattr(pair, side).stall_seconds <= MOST_STALL_SECONDS:
            raise ConfigError(
                f"{path}: {side}.stall_seconds must be more than 0 and at most "
                f"{MOST_STALL_SECONDS:g}."
            )
    check_gates(pair.gates, path)

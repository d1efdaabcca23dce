"""The pair file: one YAML that names both systems and how they are to be compared."""

from __future__ import annotations

import copy
import functools
import importlib
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from traingen.compare.gates import Gates, Tolerance
from traingen.compare.order import GATED
from traingen.errors import ConfigError
from traingen.lockstep.name_map import NameMap

Mode = Literal["natural", "reseeded", "synchronized"]
MOST_STALL_SECONDS = 7 * 24 * 3600.0
MOST_ULPS = 2**20
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


class GateSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one quantity may differ; see `Tolerance`."""

    rtol: float = 0.0
    atol: float = 0.0
    max_ulps: int | None = None
    report_only: bool = False
    why: str | None = None  # required with any limit that is not exact


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
    data = _load_yaml(path, seen=())
    try:
        pair = msgspec.convert(data, PairFile, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_readable(str(error))}.") from error
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
    return Gates({n: Tolerance(**msgspec.structs.asdict(g)) for n, g in pair.gates.items()})


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


class _Loader(yaml.SafeLoader):
    """YAML 1.2 floats: `1e-6` is a number, not text; and no key may stand twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; a key that stands twice would silently lose its first value."""
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        double = [key for key in keys if keys.count(key) > 1 and key != "<<"]
        if double:
            raise yaml.YAMLError(f"key {double[0]!r} stands twice {node.start_mark}")
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)[eE][-+]?\d+"
        r"|[-+]?\d[\d_]*\.[\d_]*|[-+]?\.\d[\d_]*)$"
    ),
    list("-+0123456789."),
)


def _load_yaml(path: Path, *, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in seen:
        raise ConfigError(f"{path}: 'extends' leads back to this file.")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such pair file; --config expects a YAML file.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping with 'pair: 1', got {type(data).__name__}.")
    base = data.pop("extends", None)
    if base is None:
        return data
    return _merge(_load_yaml(Path(str(base)), seen=(*seen, path.resolve())), data)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


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
    _check_gates(pair, path)


def _check_gates(pair: PairFile, path: Path) -> None:
    for name, gate in pair.gates.items():
        if name not in GATED:
            raise ConfigError(
                f"{path}: gates: unknown quantity {name!r}, expected one of {', '.join(GATED)}."
            )
        exact = not (gate.rtol or gate.atol or gate.max_ulps or gate.report_only)
        if not exact and not (gate.why or "").strip():
            raise ConfigError(f"{path}: gates.{name}: a limit that is not exact needs a 'why'.")
        limits = (gate.rtol, gate.atol, gate.max_ulps or 0)
        if not all(0 <= limit < math.inf for limit in limits) or limits[2] > MOST_ULPS:
            raise ConfigError(
                f"{path}: gates.{name}: limits must be finite and not negative, max_ulps at most "
                f"{MOST_ULPS}; to look without a limit use report_only."
            )


def _readable(message: str) -> str:
    """msgspec's 'Expected `int`, got `str` - at `$.updates`' with the place first."""
    text, _, place = message.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    return f"{place}: {text}" if place else text

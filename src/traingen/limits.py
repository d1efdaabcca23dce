"""Read from YAML how far each quantity may differ: a pair file's `gates`, or a file of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from traingen.compare.gates import Gates, Tolerance
from traingen.compare.order import GATED
from traingen.errors import ConfigError

MOST_ULPS = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """What a YAML file is called, and what it should hold, for who names a wrong one."""

    name: str
    option: str
    example: str


PAIR = FileKind(name="pair file", option="--config", example="'pair: 1'")
GATES = FileKind(name="file of gates", option="--gates", example="quantities and their limits")


class GateSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far one quantity may differ; see `Tolerance`."""

    rtol: float = 0.0
    atol: float = 0.0
    max_ulps: int | None = None
    report_only: bool = False
    why: str | None = None  # required with any limit that is not exact


def load_gates(path: Path, kind: FileKind = GATES) -> Gates:
    """The gates of a pair file, or of a file that holds only what stands there under `gates`.

    Raises:
        ConfigError: the file is missing, is no YAML, or states no limits that can be used.
    """
    data = load_yaml(path, kind)
    if kind is PAIR and not data.keys() & {"pair", "gates"}:
        raise ConfigError(
            f"{path}: neither 'pair' nor 'gates' stands in it: no {kind.name}; {GATES.option} "
            f"reads a {GATES.name}."
        )
    stated = data.get("gates", {}) if kind is PAIR or "gates" in data else data
    if not isinstance(stated, dict):
        raise ConfigError(f"{path}: gates: expected {GATES.example}, got {type(stated).__name__}.")
    specs = {str(name): _read_gate(name, gate, path) for name, gate in stated.items()}
    check_gates(specs, path)
    return gates_of(specs)


def _read_gate(name: Any, gate: Any, path: Path) -> GateSpec:
    try:
        return msgspec.convert(gate, GateSpec, strict=True)
    except msgspec.ValidationError as error:
        where, separator, text = readable(str(error)).rpartition(": ")
        place = f"gates.{name}.{where}" if separator else f"gates.{name}"
        raise ConfigError(f"{path}: {place}: {text}.") from error


def gates_of(specs: Mapping[str, GateSpec]) -> Gates:
    """The gates that `specs` describe."""
    return Gates({n: Tolerance(**msgspec.structs.asdict(g)) for n, g in specs.items()})


def check_gates(specs: Mapping[str, GateSpec], path: Path) -> None:
    """Refuse unknown quantities, limits without a reason, and limits that are none.

    Raises:
        ConfigError: says which and where.
    """
    for name, gate in specs.items():
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


def load_yaml(path: Path, kind: FileKind) -> dict[str, Any]:
    """The mapping in a YAML file, merged over the file that its `extends` names.

    Raises:
        ConfigError: it is missing, is no YAML, or holds no mapping.
    """
    return _load(path, kind, seen=())


def _load(path: Path, kind: FileKind, *, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in seen:
        raise ConfigError(f"{path}: 'extends' leads back to this file.")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: no such {kind.name}; {kind.option} expects a YAML file."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}.") from error
    try:
        data = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: no valid YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: expected a mapping with {kind.example}, got {type(data).__name__}."
        )
    base = data.pop("extends", None)
    if base is None:
        return data
    return _merge(_load(Path(str(base)), kind, seen=(*seen, path.resolve())), data)


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def readable(message: str) -> str:
    """msgspec's 'Expected `int`, got `str` - at `$.updates`' with the place first."""
    text, _, place = message.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    return f"{place}: {text}" if place else text

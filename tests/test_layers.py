"""Which part of the package may import what, held as data and read off the source."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import traingen

LIGHTNING = frozenset({"lightning", "pytorch_lightning", "lightning_fabric", "lightning_utilities"})
TORCH = frozenset({"torch", "torchmetrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One part of the package: it imports itself and the layers before it, within these limits."""

    name: str
    never: frozenset[str] = frozenset()  # other distributions' top-level names it must not import
    only: frozenset[str] | None = None  # if set, the only such names it may import
    also: dict[str, frozenset[str]] = field(default_factory=dict)  # module -> names for it alone
    not_from: frozenset[str] = frozenset()  # earlier layers that it must not import either


LAYERS = (
    Layer(name="errors", only=frozenset()),
    Layer(name="records", never=TORCH | LIGHTNING | {"numpy"}),
    Layer(
        name="reading",
        only=frozenset({"msgspec"}),
        also={"traingen.reading.columns": frozenset({"numpy"})},
    ),
    Layer(
        name="compare",
        only=frozenset({"msgspec"}),
        also={
            "traingen.compare.envelopes": frozenset({"numpy"}),
            "traingen.compare.tensors": frozenset({"torch"}),
        },
    ),
    Layer(name="judge", only=frozenset({"msgspec"})),
    Layer(name="limits", only=frozenset({"msgspec", "yaml"})),
    Layer(name="observe", never=LIGHTNING),
    Layer(name="cadence", never=LIGHTNING),
    Layer(name="callbacks"),
    Layer(name="drop_in"),
    Layer(name="loops", never=LIGHTNING, not_from=frozenset({"callbacks"})),
    Layer(name="lockstep"),
    Layer(name="stages"),
    Layer(name="evidence"),
    Layer(name="launch"),
    Layer(name="report"),
    Layer(name="testing"),
    Layer(name="cli"),
)
ORDER = {layer.name: position for position, layer in enumerate(LAYERS)}
IMPORTED_BY_NOTHING = {"testing", "cli"}
ROOT = ("traingen", "traingen.__main__")  # the lazy front and `python -m`: they point anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import as written: `module` names `target`, in `line`."""

    module: str
    target: str  # dotted, with the imported name appended: it may be a module too
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def find_violations(source: Path) -> list[str]:
    """Every import below `source` (the folder of the package) that the table forbids."""
    imports = [
        found for path in sorted(source.rglob("*.py")) for found in iter_imports(path, source)
    ]
    findings = ((found, complaint(found)) for found in imports if found.module not in ROOT)
    return [f"{found}: {reason}" for found, reason in findings if reason]


def iter_imports(path: Path, source: Path) -> Iterator[Import]:
    """Every import in a file, wherever it stands: at the top, in a function, for types only."""
    parts = ("traingen", *path.relative_to(source).with_suffix("").parts)
    package = parts[:-1]
    module = ".".join(package if parts[-1] == "__init__" else parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for target in targets_of(node, package):
            yield Import(module=module, target=target, line=node.lineno)


def targets_of(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """The dotted names a node imports; none if it is not an import."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=base, names=names, level=level):
            parents = package[: len(package) - (level - 1)] if level else ()
            start = ".".join([*parents, *([base] if base else [])])
            return [f"{start}.{alias.name}" for alias in names]
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(attr=name),
            args=[ast.Constant(value=str(target)), *_],
        ) if name in {"import_module", "__import__"}:
            return [target]
    return []


def complaint(found: Import) -> str | None:
    """Why this import is against the table, or None."""
    importer = found.module.split(".")[1]
    if importer not in ORDER:
        return f"'{importer}' is in no layer: add it to the table"
    layer = LAYERS[ORDER[importer]]
    top = found.target.split(".")[0]
    if top != "traingen":
        return third_party_complaint(found.module, layer, top)
    imported = layer_of(found.target)
    if imported is None or imported == importer:
        return None
    if imported not in ORDER:
        return f"'{imported}' is in no layer: add it to the table"
    if imported in IMPORTED_BY_NOTHING:
        return f"nothing imports '{imported}'"
    if ORDER[imported] > ORDER[importer] or imported in layer.not_from:
        return f"'{importer}' may not import '{imported}'"
    return None


def layer_of(target: str) -> str | None:
    """The layer a `traingen...` name lies in; None for the package itself and its plain values."""
    target = traingen._LAZY.get(target.removeprefix("traingen."), target)
    name = [*target.split("."), ""][1]
    is_value = target.count(".") == 1 and name in traingen.__all__
    return None if is_value or name in {"", "*"} else name


def third_party_complaint(module: str, layer: Layer, top: str) -> str | None:
    if top in sys.stdlib_module_names or top in layer.also.get(module, ()):
        return None
    if top in layer.never or (layer.only is not None and top not in layer.only):
        return f"'{layer.name}' may not import '{top}'"
    return None


def test_every_import_keeps_to_the_layers():
    violations = find_violations(Path(traingen.__file__).parent)
    assert violations == []


def violations_of(tmp_path: Path, module: str, code: str) -> list[str]:
    """What the check says about a package that consists of one module."""
    path = tmp_path.joinpath(*module.split("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return find_violations(tmp_path)


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("records/a.py", "import traingen.observe.rng"),
        ("records/a.py", "from traingen.observe import rng"),
        ("records/a.py", "from traingen import observe"),
        ("records/a.py", "from traingen import StepRecorder"),
        ("records/a.py", "from .. import observe"),
        ("records/deep/a.py", "from ...observe.rng import capture_rng"),
        ("records/__init__.py", "from ..observe import rng"),
        ("records/a.py", "def f():\n    import traingen.observe"),
        (
            "records/a.py",
            "def f():\n    import importlib\n    importlib.import_module('traingen.cli')",
        ),
        ("records/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("records/a.py", "import numpy as np"),
        ("errors.py", "from traingen.records import sinks"),
        ("errors.py", "import msgspec"),
        ("compare/a.py", "import yaml"),
        ("compare/a.py", "import numpy"),
        ("compare/envelopes.py", "import torch"),
        ("observe/a.py", "from lightning.pytorch import Trainer"),
        ("loops/a.py", "from traingen.callbacks import step_recorder"),
        ("loops/a.py", "import lightning.pytorch as pl"),
        ("report/a.py", "from traingen.cli import main"),
        ("cli/a.py", "from traingen import testing"),
        ("stages/a.py", "import traingen.novel"),
        ("novel/a.py", "import os"),
    ],
)
def test_import_against_the_layers_is_reported(tmp_path, module, code):
    violations = violations_of(tmp_path, module, code)
    assert len(violations) == 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("records/a.py", "import json, msgspec\nfrom traingen import __version__\nimport traingen"),
        (
            "records/a.py",
            "from . import b\nfrom .b import c\nfrom traingen.errors import RecordingError",
        ),
        ("compare/envelopes.py", "import numpy as np"),
        ("compare/tensors.py", "import torch"),
        ("callbacks/a.py", "import lightning\nfrom traingen.observe import rng"),
        ("lockstep/a.py", "from traingen.callbacks import step_recorder\nimport lightning"),
        ("cli/a.py", "from traingen.report import terminal"),
    ],
)
def test_import_within_the_layers_is_silent(tmp_path, module, code):
    assert violations_of(tmp_path, module, code) == []


def test_a_violation_names_the_place_and_both_layers(tmp_path):
    violations = violations_of(tmp_path, "records/a.py", "\nfrom traingen.observe import rng")
    assert violations == [
        "traingen.records.a:2 imports traingen.observe.rng: 'records' may not import 'observe'"
    ]

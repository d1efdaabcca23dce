"""The pair file: what fits is read as written, what does not is refused at its place."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from scripts.make_schemas import SCHEMAS, render_schema
from scripts.make_schemas import main as make_schemas
from tests.schemas import schema_errors
from traingen.compare.gates import Tolerance
from traingen.errors import ConfigError
from traingen.lockstep.pair import (
    MODES,
    PairFile,
    SystemSpec,
    import_dotted,
    load_pair,
    make_factory,
    make_gates,
    make_name_map,
    pair_schema,
)

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "configs" / "lockstep").rglob("*.yaml"))

SMALL = """
pair: 1
original: {class_path: builtins.dict, system: loop}
package: {class_path: builtins.dict, system: trainer}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a pair file into the current directory."""
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "pair.yaml") -> Path:
        Path(name).write_text(text, encoding="utf-8")
        return Path(name)

    return write


# ---- what is read -------------------------------------------------------------------------------


def test_a_small_pair_has_defaults(write):
    pair = load_pair(write(SMALL))
    assert pair.modes == list(MODES)
    assert (pair.updates, pair.seed, pair.floor) == (300, 0, None)
    assert (pair.original.system, pair.package.system) == ("loop", "trainer")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E5", 1e5),
        ("-1e-6", -1e-6),
        ("2.5e3", 2.5e3),
        ("1.e2", 1e2),
        (".5e1", 5.0),
        ("+.5", 0.5),
        ("1.", 1.0),
        ("0.25", 0.25),
        ("12", 12),
        ("-3", -3),
        ("1e", "1e"),
        ("e5", "e5"),
        ("1e-6x", "1e-6x"),
        ("4.1.0", "4.1.0"),
        ("127.0.0.1", "127.0.0.1"),
        ("3.11-slim", "3.11-slim"),
        ("2.0e-2 s", "2.0e-2 s"),
        ("'1e-6'", "1e-6"),
        ("yes", True),
        ("~", None),
    ],
)
def test_numbers_are_numbers_and_other_text_is_text(write, text, value):
    pair = load_pair(write(SMALL.replace("loop}", f"loop, init_args: {{x: {text}}}}}")))
    found = pair.original.init_args["x"]
    assert found == value
    assert type(found) is type(value)


def test_gates_become_tolerances(write):
    text = SMALL + "gates: {gradients: {rtol: 1e-6, max_ulps: 3, why: rounding}}"
    gates = make_gates(load_pair(write(text)))
    assert gates.of("gradients") == Tolerance(rtol=1e-6, max_ulps=3, why="rounding")
    assert gates.of("parameters") == Tolerance()


def test_name_map_is_made_of_the_rules(write):
    text = SMALL + r"name_map: {exact: {a: b}, patterns: [['c\.(.)', 'd.\1']]}"
    resolved = make_name_map(load_pair(write(text))).resolve(["a", "c.1"], ["b", "d.1"])
    assert resolved.pairs == (("a", "b"), ("c.1", "d.1"))


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("update: 3", "unknown field `update`"),
        ("updates: '3'", r"pair\.yaml: updates: Expected `int`, got `str`"),
        ("updates: 0", "'updates' must be at least 1, got 0"),
        ("seed: 1.5", "seed: Expected `int`"),
        ("modes: [sideways]", r"modes\[0\]|modes\[\.\.\.\]"),
        ("modes: [natural, natural]", "'modes' must name each of"),
        ("modes: []", "'modes' must name each of"),
        ("gates: {weather: {}}", "gates: unknown quantity 'weather', expected one of"),
        ("gates: {lr: {rtol: -1.0, why: x}}", r"gates\.lr: limits must be finite and not negative"),
        ("gates: {lr: {atol: -1.0, why: x}}", r"gates\.lr: limits must be finite and not negative"),
        ("gates: {lr: {atol: .inf, why: x}}", r"gates\.lr: limits must be finite"),
        ("gates: {lr: {rtol: .nan, why: x}}", r"gates\.lr: limits must be finite"),
        ("gates: {lr: {max_ulps: 99999999, why: x}}", r"max_ulps at most"),
        ("seed: -1", r"'seed' must be from 0"),
        ("seed: 5000000000", r"'seed' must be from 0"),
        (
            "gates: {lr: {max_ulps: -1, why: x}}",
            r"gates\.lr: limits must be finite and not negative",
        ),
        ("gates: {lr: {rtol: 1e-3}}", r"gates\.lr: a limit that is not exact needs a 'why'"),
        ("gates: {lr: {atol: 1e-3, why: ' '}}", r"gates\.lr: .* needs a 'why'"),
        ("gates: {lr: {max_ulps: 1}}", r"gates\.lr: .* needs a 'why'"),
        ("gates: {lr: {report_only: true}}", r"gates\.lr: .* needs a 'why'"),
        ("gates: {lr: {rtol: tight}}", r"gates\[\.\.\.\]\.rtol: Expected `float`, got `str`"),
        ("gates: {lr: {tol: 1}}", "unknown field `tol`"),
        ("name_map: {patterns: [[a]]}", r"name_map\.patterns\[0\]|name_map\.patterns\[\.\.\.\]"),
        ("taps: {ce: {original: {module: a}}}", "taps.* required field `package`"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(write, more, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_pair(write(SMALL + more))
    assert str(caught.value).startswith("pair.yaml: ")


@pytest.mark.parametrize("gate", ["{}", "{rtol: 0.0}", "{max_ulps: 0}", "{why: a wish}"])
def test_an_exact_gate_needs_no_why(write, gate):
    pair = load_pair(write(SMALL + f"gates: {{lr: {gate}}}"))
    assert list(pair.gates) == ["lr"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pair: 2" + SMALL.replace("pair: 1", ""), "pair: Invalid enum value 2"),
        (SMALL.replace("pair: 1", ""), "required field `pair`"),
        (SMALL.replace("system: loop", "system: rail"), "original.system: Invalid enum value"),
        (SMALL.replace("builtins.dict, system: loop", "3, system: loop"), "original.class_path: "),
        ("- a\n- b", "expected a mapping with 'pair: 1', got list"),
        ("", "expected a mapping with 'pair: 1', got NoneType"),
        ("a: [", "no valid YAML: .*line 1"),
        ("a: !!python/name:os.system x", "no valid YAML"),
    ],
    ids=lambda value: value[:24],
)  # fmt: skip
def test_what_is_no_pair_file_is_refused(write, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_pair(write(text))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: no such pair file"):
        load_pair(tmp_path / "none.yaml")


@pytest.mark.parametrize("break_", ["folder", "bytes"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, break_):
    path = tmp_path / "odd.yaml"
    path.mkdir() if break_ == "folder" else path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match=r"odd\.yaml: cannot be read"):
        load_pair(path)


# ---- extends ------------------------------------------------------------------------------------


def test_a_file_that_extends_another_is_merged_key_by_key(write):
    write(SMALL + "gates: {lr: {why: a}, loss_terms: {why: b}}\nmodes: [natural]", "base.yaml")
    pair = load_pair(
        write("extends: base.yaml\ngates: {lr: {rtol: 1e-6}}\nmodes: [reseeded]\nupdates: 5")
    )
    assert (pair.gates["lr"].rtol, pair.gates["lr"].why) == (1e-6, "a")
    assert pair.gates["loss_terms"].why == "b"
    assert (pair.modes, pair.updates) == (["reseeded"], 5)


def test_extends_is_relative_to_the_current_directory(write, tmp_path):
    write(SMALL + "updates: 5", "base.yaml")
    (tmp_path / "deep").mkdir()
    path = write("extends: base.yaml", "deep/pair.yaml")
    write("pair: 2", "deep/base.yaml")
    assert load_pair(path).updates == 5


def test_extends_goes_on(write):
    write(SMALL + "updates: 5\nseed: 1", "a.yaml")
    write("extends: a.yaml\nseed: 2", "b.yaml")
    pair = load_pair(write("extends: b.yaml\nupdates: 6"))
    assert (pair.updates, pair.seed) == (6, 2)


@pytest.mark.parametrize("back", ["pair.yaml", "other.yaml"])
def test_extends_that_leads_back_is_refused(write, back):
    write("extends: pair.yaml", "other.yaml")
    path = write(f"extends: {back}")
    with pytest.raises(ConfigError, match="'extends' leads back to this file"):
        load_pair(path)


def test_extends_of_nothing_is_named(write):
    with pytest.raises(ConfigError, match=r"gone\.yaml: no such pair file"):
        load_pair(write("extends: gone.yaml"))


# ---- factories ----------------------------------------------------------------------------------


class Part:
    made = 0

    def __init__(self, **settings: Any) -> None:
        Part.made += 1
        self.settings = settings


def gather(**arguments: Any) -> dict[str, Any]:
    """Stands for a factory."""
    return arguments


def spec(**init_args: Any) -> SystemSpec:
    return SystemSpec(class_path=f"{__name__}.gather", init_args=init_args, system="loop")


def test_nested_objects_are_built_anew_at_every_call():
    part = {"class_path": f"{__name__}.Part", "init_args": {"width": 3}}
    arguments = {"parts": [part, {"class_path": f"{__name__}.Part"}], "deep": {"one": part}, "n": 1}
    Part.made = 0

    factory = make_factory(spec(**arguments), where="original")
    assert Part.made == 0
    first, second = factory(), factory()

    assert Part.made == 6
    assert first["parts"][0] is not second["parts"][0]
    assert first["parts"][0].settings == first["deep"]["one"].settings == {"width": 3}
    assert first["n"] == 1


def test_what_a_factory_does_to_its_arguments_is_not_seen_by_the_next_call():
    factory = make_factory(spec(options={"a": 1}, rest=[1]), where="original")
    first = factory()
    first["options"].pop("a")
    first["rest"].append(2)
    assert factory() == {"options": {"a": 1}, "rest": [1]}


def test_a_factory_keeps_the_name_of_what_it_calls():
    assert make_factory(spec(), where="original").__name__ == "gather"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_package.module.f", "cannot be imported: .*no_such_package"),
        ("traingen.no_such_module.f", "cannot be imported"),
        ("traingen.errors.NoSuchError", "'traingen.errors' has no 'NoSuchError'"),
        ("f", "must be a dotted path"),
        (".errors.ConfigError", "must be a dotted path"),
        ("", "must be a dotted path"),
    ],
)
def test_what_cannot_be_imported_is_refused_at_its_place(path, message):
    with pytest.raises(ConfigError, match=message) as caught:
        import_dotted(path, where="package.init_args.model")
    assert str(caught.value).startswith("package.init_args.model: ")


def test_what_can_be_imported_is_found():
    assert import_dotted("traingen.errors.ConfigError", where="original") is ConfigError


def test_a_wrong_nested_class_path_stops_before_anything_runs():
    wrong = {"class_path": "no_such_package.Part"}
    with pytest.raises(ConfigError, match=r"package\.init_args\.parts\.model: .*no_such_package"):
        make_factory(spec(parts={"model": [wrong]}), where="package")


def test_a_mapping_with_more_than_class_path_is_left_as_it_is():
    value = {"class_path": "no_such_package.Part", "weight": 2}
    assert make_factory(spec(part=value), where="original")() == {"part": value}


# ---- what is shipped ----------------------------------------------------------------------------


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_shipped_pair_file_loads_and_fits_the_schema(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    pair = load_pair(path)
    assert schema_errors(msgspec.to_builtins(pair), pair_schema()) == []
    assert make_gates(pair).limits.keys() == pair.gates.keys()  # without any, all is exact
    assert make_name_map(pair).patterns


def test_there_are_shipped_pair_files():
    assert len(SHIPPED) > 1


def test_a_whole_pair_file_fits_the_schema_as_it_is_written():
    document = yaml.safe_load((ROOT / "configs/lockstep/tabnet_digits.yaml").read_text())
    assert schema_errors(document, pair_schema()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"pair": 2},
        {"updates": "3"},
        {"modes": ["sideways"]},
        {"novel": 1},
        {"original": {"system": "loop"}},
        {"gates": {"lr": {"rtol": "tight"}}},
        {"name_map": {"patterns": [["a"]]}},
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_reader_refuses(change):
    document = yaml.safe_load(SMALL) | change
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(document, PairFile)
    assert schema_errors(document, pair_schema()) != []
    assert schema_errors(yaml.safe_load(SMALL), pair_schema()) == []


@pytest.mark.parametrize("path", SCHEMAS, ids=str)
def test_the_committed_schema_is_current(path):
    committed = (ROOT / path).read_text(encoding="utf-8")
    assert committed == render_schema(path), "run scripts/make_schemas.py"


def test_every_line_of_the_golden_recording_fits_the_schema():
    schema = json.loads(render_schema("docs/reference/recording.schema.json"))
    lines = (ROOT / "tests/records/golden/updates.rank0.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines]
    assert [schema_errors(document, schema) for document in documents] == [[]] * len(lines)
    assert schema_errors(documents[1] | {"lr": "0.1"}, schema) != []
    assert schema_errors(documents[1] | {"kind": "novel"}, schema) != []


def test_schemas_are_written_where_they_are_committed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_schemas()
    written = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.json")}
    assert written == set(SCHEMAS)

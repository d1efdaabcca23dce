"""Gates as they stand in a YAML file, of their own or in a pair file."""

import pytest

from traingen.compare.gates import Tolerance
from traingen.errors import ConfigError
from traingen.limits import GATES, PAIR, load_gates, load_yaml

STATED = "lr: {rtol: 1e-6, why: float32 rates}\nobjective: {report_only: true, why: another loss}\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a file in a folder of its own, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def write_text(text, name="gates.yaml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write_text


def indented(text):
    return "".join(f"  {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("text", [STATED, f"gates:\n{indented(STATED)}"], ids=["alone", "under"])
def test_a_file_of_gates_states_them_alone_or_as_a_pair_file_does(write, text):
    gates = load_gates(write(text))
    assert gates.limits == {
        "lr": Tolerance(rtol=1e-6, why="float32 rates"),
        "objective": Tolerance(report_only=True, why="another loss"),
    }


def test_of_a_pair_file_only_its_gates_are_read(write):
    text = "pair: 1\noriginal: {class_path: not.there}\n"
    path = write(text + "gates: {lr: {atol: 0.5, why: it is}}\n")
    assert load_gates(path, PAIR).limits == {"lr": Tolerance(atol=0.5, why="it is")}
    assert load_gates(write(text), PAIR).limits == {}


def test_gates_extend_those_of_another_file(write):
    write(STATED, "base.yaml")
    gates = load_gates(write("extends: base.yaml\nlr: {rtol: 1e-3}\n"))
    assert gates.limits["lr"] == Tolerance(rtol=1e-3, why="float32 rates")
    assert "objective" in gates.limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: {rtol: 1e-6}", r"gates\.lr: a limit that is not exact needs a 'why'"),
        ("loss: {rtol: 1e-6, why: x}", "unknown quantity 'loss', expected one of .*objective"),
        ("lr: {rtol: -1, why: x}", r"gates\.lr: limits must be finite and not negative"),
        ("lr: {rtol: .inf, why: x}", r"gates\.lr: limits must be finite"),
        ("lr: {tolerance: 1, why: x}", "unknown field `tolerance`"),
        ("lr: 1e-6", r"gates\.lr: Expected `object`, got `float`"),
        ("lr: {rtol: a, why: x}", r"gates\.lr\.rtol: Expected `float`, got `str`"),
        ("gates: [lr]", "gates: expected quantities and their limits, got list"),
        ("- lr", "expected a mapping with quantities and their limits, got list"),
    ],
)
def test_limits_that_cannot_be_used_are_refused(write, text, message):
    with pytest.raises(ConfigError, match=message):
        load_gates(write(text))


def test_a_missing_file_is_named_with_its_option(tmp_path):
    for kind, message in ((GATES, "file of gates; --gates"), (PAIR, "pair file; --config")):
        with pytest.raises(ConfigError, match=f"no such {message} expects a YAML file"):
            load_yaml(tmp_path / "none.yaml", kind)


def test_a_file_that_is_no_pair_file_is_not_taken_for_one_without_gates(write):
    path = write(STATED)
    with pytest.raises(ConfigError, match=r"neither 'pair' nor 'gates' .*--gates reads a file"):
        load_gates(path, PAIR)
    assert load_gates(path, GATES).limits.keys() == {"lr", "objective"}
    assert load_gates(write("gates: {}\n"), PAIR).limits == {}

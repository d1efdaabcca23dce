import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

import traingen
from traingen.cli.main import COMMANDS, main
from traingen.errors import CadenceViolation, TraingenError


class Failed(TraingenError):
    exit_code = 1


@pytest.fixture
def fit_gets(monkeypatch):
    """What the commands with a parser of their own were given, by name, instead of running."""
    calls = []

    def run_arguments(name, arguments):
        calls.append((name, list(arguments)))
        return 0

    monkeypatch.setattr("traingen.cli.fit.run_arguments", run_arguments)
    return calls


@pytest.fixture
def lockstep_does(monkeypatch):
    """Let `traingen lockstep` do what the test says instead."""

    def replace(run):
        monkeypatch.setattr("traingen.cli.lockstep.run", run)

    return replace


def raising(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize("code", [0, 1, 2])
def test_exit_code_is_the_commands_own(lockstep_does, code):
    lockstep_does(lambda args: code)
    assert main(["lockstep", "--config", "pair.yaml"]) == code


def test_bad_input_is_one_line_and_exit_code_2(lockstep_does, capsys):
    lockstep_does(raising(TraingenError("pair.yaml:3: expected a list\nof names.")))
    assert main(["lockstep", "--config", "pair.yaml"]) == 2
    assert capsys.readouterr().err == ("traingen: error: pair.yaml:3: expected a list of names.\n")


def test_an_error_brings_its_own_exit_code(lockstep_does, capsys):
    lockstep_does(raising(Failed("one\nline")))
    assert main(["lockstep", "--config", "pair.yaml"]) == 1
    assert capsys.readouterr().err == "traingen: error: one line\n"


def test_a_cadence_violation_is_printed_as_it_is(lockstep_does, capsys):
    lockstep_does(raising(CadenceViolation("first\n  Fix: it\n\nsecond")))
    assert main(["lockstep", "--config", "pair.yaml"]) == 1
    assert capsys.readouterr().err == "first\n  Fix: it\n\nsecond\n"


def test_ctrl_c_is_one_line_and_exit_code_130(lockstep_does, capsys):
    lockstep_does(raising(KeyboardInterrupt()))
    assert main(["lockstep", "--config", "pair.yaml"]) == 130
    assert capsys.readouterr().err == "traingen: interrupted\n"


def test_a_bug_keeps_its_traceback(lockstep_does):
    lockstep_does(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["lockstep", "--config", "pair.yaml"])


@pytest.mark.parametrize("arguments", [[], ["unheard-of"], ["lockstep"], ["--nonsense"]], ids=str)
def test_wrong_usage_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("usage: traingen")


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"traingen {traingen.__version__}\n"


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(command.name in text for command in COMMANDS)


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_a_command_with_its_own_parser_gets_its_arguments_untouched(fit_gets, command):
    arguments = ["-c", "a.yaml", "--help", "--", "--version", "a b", "--trainer.devices=[0,1]", ""]
    assert main([command, *arguments]) == 0
    assert fit_gets == [(command, arguments)]


def test_the_name_of_a_command_may_come_again_after_it(fit_gets):
    assert main(["fit", "fit", "test"]) == 0
    assert fit_gets == [("fit", ["fit", "test"])]


@pytest.mark.parametrize(("option", "code"), [("--version", 0), ("--help", 0), ("--config=a", 2)])
def test_an_option_before_the_command_is_not_the_commands(fit_gets, option, code, capsys):
    with pytest.raises(SystemExit) as stop:
        main([option, "fit", "--trainer.devices=1"])
    assert stop.value.code == code
    assert fit_gets == []


def test_every_command_has_arguments_and_help(capsys):
    for command in COMMANDS:
        if command.own_parser:
            continue  # see test_fit.py
        with pytest.raises(SystemExit) as stop:
            main([command.name, "--help"])
        assert stop.value.code == 0
        assert callable(command.load().run)
    assert "--config" in capsys.readouterr().out


@pytest.mark.parametrize("error", [None, TraingenError("no")], ids=["return", "error"])
def test_current_directory_is_importable_while_a_command_runs(
    lockstep_does, tmp_path, monkeypatch, error
):
    seen: list[ModuleType] = []

    def run(args):
        seen.append(__import__("module_beside_the_pair_file"))
        if error:
            raise error
        return 0

    (tmp_path / "module_beside_the_pair_file.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    before = list(sys.path)
    lockstep_does(run)

    main(["lockstep", "--config", "pair.yaml"])

    assert Path(seen[0].__file__).parent == Path(os.getcwd())
    assert sys.path == before

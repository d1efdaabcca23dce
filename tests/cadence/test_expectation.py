"""What `expected` may say, whom it means, and how it is refused."""

from pathlib import Path
from typing import Any

import pytest

from traingen.cadence.expectation import parse_expected
from traingen.cadence.reference import RateTable
from traingen.cadence.schedule import Schedule
from traingen.errors import ConfigError


class Cosine:
    pass


class Warmup:
    pass


COSINE, WARMUP = Cosine(), Warmup()


def schedule(index: int = 0, *, scheduler: Any = COSINE, name: str | None = None) -> Schedule:
    return Schedule(
        index=index, scheduler=scheduler, optimizer=0, interval="step", frequency=1, name=name
    )


def write_rates(path: Path, rate: float = 0.1) -> Path:
    path.write_text(f"step,lr\n1,{rate}\n2,{rate / 2}\n")
    return path


@pytest.mark.parametrize("word", ["auto", "step", "epoch"])
def test_a_word_is_said_of_every_scheduler(word):
    expectation = parse_expected(word)
    assert expectation.of(schedule()) == word
    assert expectation.of(schedule(3, scheduler=WARMUP, name="x")) == word


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_file_is_a_reference_for_every_scheduler(tmp_path, as_path):
    file = write_rates(tmp_path / "rates.csv")
    found = parse_expected(as_path(file)).of(schedule())
    assert isinstance(found, RateTable)
    assert found.rates == ((0.1,), (0.05,))


def test_a_word_is_a_word_even_where_a_file_is_called_so(tmp_path, monkeypatch):
    write_rates(tmp_path / "step")
    monkeypatch.chdir(tmp_path)
    assert parse_expected("step").of(schedule()) == "step"
    assert isinstance(parse_expected("./step").of(schedule()), RateTable)


# ---- by scheduler -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["1", 1, "warm", "Warmup"])
def test_a_scheduler_is_named_by_index_name_or_class(key):
    expectation = parse_expected({key: "epoch"})
    assert expectation.of(schedule(1, scheduler=WARMUP, name="warm")) == "epoch"
    assert expectation.of(schedule(0)) == "auto"


def test_an_index_goes_before_a_name_and_a_name_before_a_class():
    by_class, by_name = {"Warmup": "epoch"}, {"warm": "auto"}
    one = schedule(1, scheduler=WARMUP, name="warm")
    assert parse_expected(by_class).of(one) == "epoch"
    assert parse_expected(by_class | by_name).of(one) == "auto"
    assert parse_expected(by_class | by_name | {1: "step"}).of(one) == "step"


def test_a_class_names_all_of_its_schedulers():
    expectation = parse_expected({"Cosine": "epoch", "1": "step"})
    found = [expectation.of(schedule(index)) for index in range(3)]
    assert found == ["epoch", "step", "epoch"]


def test_a_scheduler_may_have_a_reference_of_its_own(tmp_path):
    file = write_rates(tmp_path / "warmup.csv", rate=0.5)
    expectation = parse_expected({"Warmup": str(file), "Cosine": "step"})
    found = expectation.of(schedule(scheduler=WARMUP))
    assert isinstance(found, RateTable)
    assert found.path == file
    assert expectation.of(schedule()) == "step"


def test_a_mapping_that_names_nobody_leaves_all_to_auto():
    expectation = parse_expected({})
    expectation.check_keys([])
    assert expectation.of(schedule()) == "auto"


def test_names_that_schedulers_answer_to_are_accepted():
    schedules = [schedule(0), schedule(1, scheduler=WARMUP, name="warm")]
    for key in ("0", 1, "warm", "Cosine", "Warmup"):
        parse_expected({key: "step"}).check_keys(schedules)
    parse_expected("epoch").check_keys([])


@pytest.mark.parametrize("key", ["2", -1, "cosine", "Linear"])
def test_a_name_that_nobody_answers_to_is_refused_with_those_there_are(key):
    schedules = [schedule(0), schedule(1, scheduler=WARMUP)]
    with pytest.raises(ConfigError) as refused:
        parse_expected({"Cosine": "step", key: "step"}).check_keys(schedules)
    assert f"{str(key)!r}" in str(refused.value)
    assert "Cosine (scheduler 0), Warmup (scheduler 1)" in str(refused.value)


def test_a_name_is_refused_where_there_is_no_scheduler():
    with pytest.raises(ConfigError, match="found none"):
        parse_expected({"0": "step"}).check_keys([])


# ---- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "steps",
        "Step",
        "reference",
        "",
        " ",
        None,
        3,
        1.0,
        True,
        ["step"],
        b"step",
        "a\0b",
        "a" * 5000,
    ],
)
def test_anything_else_is_refused_with_what_there_is_to_say(value):
    for given in (value, {"0": value}):
        with pytest.raises(ConfigError) as refused:
            parse_expected(given)
        assert "auto, step, epoch" in str(refused.value)
        assert len(str(refused.value)) < 1000


def test_a_mapping_in_a_mapping_is_refused():
    with pytest.raises(ConfigError, match="must be auto, step, epoch"):
        parse_expected({"0": {"1": "step"}})


def test_a_file_that_is_missing_is_refused_by_its_name(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.csv"):
        parse_expected(str(tmp_path / "gone.csv"))


def test_a_folder_without_a_recording_is_refused_by_its_name(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    with pytest.raises(ConfigError) as refused:
        parse_expected(folder)
    assert str(folder) in str(refused.value)
    assert "recording" in str(refused.value)


def test_a_file_without_rates_is_refused_at_once(tmp_path):
    file = tmp_path / "loss.csv"
    file.write_text("step,loss\n1,0.5\n")
    with pytest.raises(ConfigError, match=r"loss\.csv.*learning_rate"):
        parse_expected({"Cosine": str(file)})

"""How a watch counts what it found, and how it reads what events say."""

import math

import pytest

from traingen.judge.watch import RECENT, Tally, count, index, number, text, times


def tally(*occurrences: tuple[int, int], step: int | None = None) -> Tally:
    made = Tally()
    for at, n in occurrences:
        made.add((at, step), f"at {at}", n)
    return made


@pytest.mark.parametrize(("to", "left"), [(9, 6), (5, 6), (4, 3), (3, 3), (2, 1), (1, 1), (0, 0)])
def test_a_tally_takes_back_what_came_later(to, left):
    made = tally((1, 1), (3, 2), (5, 3))
    made.rewind((to, None))
    assert made.count == left
    made.add((9, None), "at 9")
    assert made.count == left + 1
    assert made.told == ("at 1" if left else "at 9")


def test_a_tally_that_has_forgotten_single_occurrences_keeps_the_first():
    made = tally(*((at, 1) for at in range(1, RECENT + 11)))
    assert made.count == RECENT + 10
    made.rewind((1, None))
    assert (made.told, made.count) == ("at 1", 10)
    made.rewind((0, None))
    assert made.count == 0


@pytest.mark.parametrize(
    ("step", "to", "left"),
    [(7, (3, 6), 0), (7, (3, 7), 1), (None, (3, 6), 1), (7, (3, None), 1), (5, (2, 6), 0)],
)
def test_between_two_updates_the_counter_tells_what_came_later(step, to, left):
    made = tally((3, 1), step=step)
    made.rewind(to)
    assert made.count == left


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (0.5, 0.5),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("x", None),
        (True, None),
        (None, None),
        ([], None),
    ],
)
def test_a_number_of_an_event(value, expected):
    assert number({"x": value}, "x") == expected
    assert number({}, "x") is None
    assert number(None, "x") is None


def test_not_a_number_of_an_event():
    value = number({"x": "NaN"}, "x")
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize(("value", "expected"), [(3, 3), (None, 7), ("x", 7), (math.inf, 7)])
def test_a_count_of_an_event(value, expected):
    assert count({"x": value}, "x", default=7) == expected


@pytest.mark.parametrize(
    ("value", "whole", "words"), [(1, 1, None), ("a", None, "a"), (None, None, None)]
)
def test_an_index_and_a_text_of_an_event(value, whole, words):
    details = {"optimizer": value, "by": value}
    assert index(details) == whole
    assert text(details, "by") == words


def test_words_fit_their_number():
    assert [times(n, "batch", "es") for n in (0, 1, 2)] == ["0 batches", "1 batch", "2 batches"]

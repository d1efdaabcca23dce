"""Only a function that does nothing but compute is called pure; any doubt is a no."""

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from traingen.cadence.purity import is_pure

TOTAL, WARMUP, NAME = 450, 30.0, "linear"
SHAPE = (1.0, (0.5, 0.25))
LOG: list[int] = []
SETTINGS = {"total": 450}
COUNT = 0


# ---- pure ---------------------------------------------------------------------------------------


def arithmetic(tick: int) -> float:
    half = tick // 2
    if half > 100 and tick % 3 != 1:
        return -half * 0.5 + 2**half
    return (half << 1) / 7 if half else 1.0


def of_the_module(tick: int) -> float:
    return min(tick / WARMUP, max(0.0, 1 - tick / TOTAL)) * (NAME == "linear") + SHAPE[0]


def with_math(tick: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * tick / TOTAL)) + math.exp(-math.sqrt(abs(tick)))


def with_builtins(tick: int) -> float:
    return float(round(sum((tick, int(bool(tick)), len(NAME)))) + pow(2, max(range(3))))


def with_a_loop(tick: int) -> float:
    factor = 1.0
    for milestone in (100, 200, 300):
        while tick > milestone > 0:
            factor, milestone = factor * 0.1, 0
    return factor


def with_defaults(
    tick: int, base: float = 0.97, *, floor: float = 0.1, shape: Any = SHAPE
) -> float:
    return max(base**tick, floor) * shape[0]


def calling_another(tick: int) -> float:
    return with_math(tick) * with_defaults(tick, floor=0.2)


def recursive(tick: int) -> float:
    return 1.0 if tick <= 0 else 0.5 * recursive(tick - 1)


def even(tick: int) -> bool:
    return tick == 0 or odd(tick - 1)


def odd(tick: int) -> bool:
    return tick != 0 and even(tick - 1)


def catching(tick: int) -> float:
    try:
        return 1 / tick
    except:  # noqa: E722 - a named exception is a name to look up
        return 0.0


def closing_over(*values: Any) -> Callable[[int], Any]:
    first, second = values

    def function(tick: int) -> Any:
        return second if tick else first

    return function


def recursive_within() -> Callable[[int], float]:
    def factor(tick: int) -> float:
        return 1.0 if tick <= 0 else factor(tick - 1) / 2

    return factor


@pytest.mark.parametrize(
    "function",
    [
        lambda tick: 0.95**tick,
        lambda tick: 1,
        arithmetic,
        of_the_module,
        with_math,
        with_builtins,
        with_a_loop,
        with_defaults,
        calling_another,
        recursive,
        even,
        catching,
        recursive_within(),
        closing_over(1, 2.5),
        closing_over(None, (True, "text", (1, 2))),
        closing_over(math.cos, with_math),
        closing_over(math, abs),
        closing_over(float("nan"), -math.inf),
        functools.partial(with_defaults, 0.9, floor=0.2),
        functools.partial(functools.partial(with_defaults, base=0.9), floor=0.2),
        functools.partial(closing_over(1, 2), 3),
        math.sqrt,
        abs,
        float,
    ],
)
def test_a_function_that_only_computes_is_pure(function):
    assert is_pure(function)


# ---- not pure -----------------------------------------------------------------------------------


def drawing(tick: int) -> float:
    return random.random()


def printing(tick: int) -> float:
    print(tick)
    return 1.0


def appending(tick: int) -> float:
    LOG.append(tick)
    return 1.0


def writing_a_global(tick: int) -> float:
    global COUNT
    COUNT += 1
    return 1.0


def deleting_a_global(tick: int) -> float:
    global COUNT
    del COUNT
    return 1.0


def reading_a_dictionary(tick: int) -> float:
    return tick / SETTINGS["total"]


def writing_an_attribute(tick: int) -> float:
    with_math.calls = tick  # type: ignore[attr-defined]
    return 1.0


def writing_an_attribute_that_math_has_too(tick: int) -> float:
    with_math.tau = tick  # type: ignore[attr-defined]
    return 1.0


def deleting_an_attribute(tick: int) -> float:
    del with_math.calls  # type: ignore[attr-defined]
    return 1.0


def writing_an_element(tick: int) -> float:
    counts = (0, 1)
    counts[0] = tick  # type: ignore[index]
    return 1.0


def generating(tick: int) -> Any:
    yield tick


async def waiting(tick: int) -> float:
    return 1.0


def defining(tick: int) -> float:
    def inner() -> int:
        return tick

    return inner()


def with_a_lambda(tick: int) -> float:
    return (lambda: tick)()


def with_a_generator(tick: int) -> float:
    return sum(one for one in range(tick))


def importing(tick: int) -> float:
    import random as drawn

    return drawn.random()


def raising(tick: int) -> float:
    raise ValueError(tick)


def opening(tick: int) -> float:
    return float(open(NAME).read())


def evaluating(tick: int) -> float:
    return eval("tick")


def with_torch(tick: int) -> float:
    return float(torch.cos(torch.tensor(tick)))


def with_numpy(tick: int) -> float:
    return float(numpy.cos(tick))


def with_a_method_of_its_argument(tick: int) -> float:
    return tick.bit_length()


def with_a_name_that_is_nowhere(tick: int) -> float:
    return tick / nowhere  # type: ignore[name-defined]  # noqa: F821


def calling_an_impure_one(tick: int) -> float:
    return with_math(tick) + drawing(tick)


def recursive_and_drawing(tick: int) -> float:
    return drawing(tick) if tick <= 0 else recursive_and_drawing(tick - 1)


def with_a_list(tick: int, seen: list[int] = []) -> float:  # noqa: B006
    return len(seen)


def with_an_impure_keyword(tick: int, *, draw: Any = random.random) -> float:
    return draw()


def writing_a_closure() -> Callable[[int], float]:
    calls = 0

    def factor(tick: int) -> float:
        nonlocal calls
        calls += 1
        return 1 / calls

    return factor


class Schedule:
    def __init__(self) -> None:
        self.calls = 0

    def factor(self, tick: int) -> float:
        self.calls += 1
        return 1.0

    @staticmethod
    def constant(tick: int) -> float:
        return 1.0

    @classmethod
    def named(cls, tick: int) -> float:
        return float(len(cls.__name__))

    def __call__(self, tick: int) -> float:
        return self.factor(tick)


class Counts(float):
    """A number whose arithmetic is somebody's own code."""

    calls = 0

    def __rpow__(self, tick: Any, modulus: Any = None) -> float:
        Counts.calls += 1
        return 1.0


def with_a_schedule(tick: int, schedule: Any = Schedule()) -> float:  # noqa: B008
    return schedule(tick)


@pytest.mark.parametrize(
    "function",
    [
        drawing,
        printing,
        appending,
        writing_a_global,
        deleting_a_global,
        reading_a_dictionary,
        writing_an_attribute,
        writing_an_attribute_that_math_has_too,
        deleting_an_attribute,
        writing_an_element,
        writing_a_closure(),
        generating,
        waiting,
        defining,
        with_a_lambda,
        with_a_generator,
        importing,
        raising,
        opening,
        evaluating,
        with_torch,
        with_numpy,
        with_a_method_of_its_argument,
        with_a_name_that_is_nowhere,
        calling_an_impure_one,
        recursive_and_drawing,
        with_a_list,
        with_an_impure_keyword,
        with_a_schedule,
        closing_over(1, []),
        closing_over(1, (2, {})),
        closing_over(torch.zeros(1), 1),
        closing_over(numpy.zeros(1), 1),
        closing_over(numpy.float64(0.1), 1),  # a float whose arithmetic is numpy's
        closing_over(random, 1),
        closing_over(LOG.append, 1),
        closing_over(Schedule().factor, 1),
        functools.partial(with_defaults, LOG),
        functools.partial(with_defaults, floor=torch.tensor(0.1)),
        functools.partial(drawing),
        functools.partial(LOG.append),
        Schedule(),
        Schedule().factor,
        Schedule.named,
        torch.nn.Identity(),
        random.random,
        print,
        list,
        Schedule,
    ],
)
def test_a_function_that_may_do_more_is_not_pure(function):
    assert not is_pure(function)


def test_a_static_method_is_a_function_like_any_other():
    assert is_pure(Schedule.constant)


def test_a_number_with_arithmetic_of_its_own_is_not_just_a_number():
    assert not is_pure(closing_over(Counts(2), 1))


def test_nothing_is_called_to_find_out():
    schedule, state = Schedule(), random.getstate()
    for function in (schedule, schedule.factor, drawing, functools.partial(schedule, 3)):
        assert not is_pure(function)
    assert schedule.calls == 0
    assert random.getstate() == state


def test_asking_again_gives_the_same_answer():
    assert [is_pure(recursive), is_pure(recursive)] == [True, True]
    assert [is_pure(recursive_and_drawing), is_pure(recursive_and_drawing)] == [False, False]

"""How far a quantity may differ before its gate is left."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traingen.compare.gates import EXACT, Gates, Tolerance
from traingen.compare.order import CAUSAL_ORDER
from traingen.errors import ConfigError

INF, NAN = math.inf, math.nan
numbers = st.floats(allow_nan=True, allow_infinity=True)
limits = st.floats(min_value=0, max_value=1e6)


@pytest.mark.parametrize(
    ("original", "package", "limit", "passes"),
    [
        (1.0, 1.0, {}, True),
        (1.0, math.nextafter(1.0, 2), {}, False),
        (0.0, -0.0, {}, True),
        (100.0, 101.0, {"rtol": 0.01}, True),
        (100.0, 101.01, {"rtol": 0.01}, False),
        (-100.0, -101.0, {"rtol": 0.01}, True),
        (0.0, 1e-9, {"rtol": 0.5}, False),  # relative to the original, which is zero
        (0.0, 1e-9, {"atol": 1e-9}, True),
        (100.0, 102.0, {"rtol": 0.01, "atol": 1.0}, True),
        (100.0, 102.5, {"rtol": 0.01, "atol": 1.0}, False),
        (2, 3, {"atol": 1.0}, True),
        (NAN, NAN, {}, True),
        (NAN, 1.0, {"rtol": 1e300, "atol": 1e300}, False),
        (1.0, NAN, {"rtol": 1e300, "atol": 1e300}, False),
        (INF, INF, {}, True),
        (-INF, -INF, {}, True),
        (INF, -INF, {"rtol": 1.0}, False),
        (INF, 1.0, {"rtol": 1.0}, False),
        (1.0, INF, {"rtol": 1.0, "atol": 1e300}, False),
    ],
)
def test_number_passes_within_its_limit_only(original, package, limit, passes):
    assert Tolerance(**limit).admits(original, package) is passes


@given(original=numbers, package=numbers, rtol=limits, atol=limits, more=limits, extra=limits)
def test_looser_tolerance_never_turns_a_pass_into_a_fail(
    original, package, rtol, atol, more, extra
):
    strict = Tolerance(rtol=rtol, atol=atol)
    loose = Tolerance(rtol=rtol + more, atol=atol + extra)
    assert loose.admits(original, package) or not strict.admits(original, package)


@given(number=numbers)
def test_number_against_itself_passes_the_exact_gate(number):
    assert EXACT.admits(number, number)


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        ({}, "exact"),
        ({"rtol": 1e-5}, "rtol=1e-05"),
        ({"rtol": 1e-5, "atol": 0.5}, "rtol=1e-05, atol=0.5"),
        ({"max_ulps": 4}, "max_ulps=4"),
        ({"max_ulps": 0}, "max_ulps=0"),
        ({"atol": 2.0, "max_ulps": 1}, "atol=2, max_ulps=1"),
        ({"rtol": 1.0, "report_only": True}, "report-only"),
    ],
    ids=str,
)
def test_limit_in_words(tolerance, text):
    assert Tolerance(**tolerance).limit == text


def test_unknown_gate_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'gradient', expected one of .*gradients"):
        Gates.of_numbers(gradient={"rtol": 1e-5})


def test_a_tail_is_no_gate_of_its_own():
    with pytest.raises(ConfigError, match=r"tail\.rng"):
        Gates({"tail.rng": Tolerance()})


def test_gate_judges_its_quantity_and_its_tail():
    gates = Gates.of_numbers(scheduler={"atol": 1.0})
    assert gates.of("tail.scheduler") == Tolerance(atol=1.0)
    assert {gates.of(q) for q in CAUSAL_ORDER if q != "tail.scheduler"} == {EXACT}


def test_numbers_become_tolerances():
    gates = Gates.of_numbers(loss_terms={"rtol": 1e-5, "why": "measured"}, parameters={})
    assert gates.of("loss_terms") == Tolerance(rtol=1e-5, why="measured")
    assert gates.of("parameters") == EXACT

"""What it usually means that a quantity is the first to differ."""

from typing import Any

import pytest

from traingen.compare.causes import EXCUSED, KINDS, LENGTH, ORDER, explain_difference
from traingen.compare.differences import Difference
from traingen.compare.order import CAUSAL_ORDER, GATED


def difference(quantity: str, **changes: Any) -> Difference:
    fields = {"update": 7, "path": f"{quantity}.x", "original": 1.0, "package": 2.0} | changes
    return Difference(quantity=quantity, **fields)


@pytest.mark.parametrize("quantity", CAUSAL_ORDER)
def test_every_quantity_has_a_cause(quantity):
    finding = explain_difference(difference(quantity))
    gate = quantity.removeprefix("tail.")
    assert finding.id == f"TG-LOCKSTEP-{gate.upper().replace('_', '-')}"
    assert finding.severity == "error"
    assert finding.meaning.endswith(".")
    assert finding.fix.endswith(".")


def test_every_gate_has_one_kind_and_nothing_else_but_length_order_and_excuses_does():
    of_gates = [f"TG-LOCKSTEP-{gate.upper().replace('_', '-')}" for gate in GATED]
    assert sorted(kind.id for kind in KINDS) == sorted([*of_gates, LENGTH.id, ORDER.id, EXCUSED.id])


@pytest.mark.parametrize("quantity", CAUSAL_ORDER)
def test_a_finding_says_what_its_kind_says(quantity):
    finding = explain_difference(difference(quantity))
    (kind,) = (kind for kind in KINDS if kind.id == finding.id)
    assert kind.found(finding.measured) == finding


def test_no_two_gates_share_a_meaning():
    meanings = {explain_difference(difference(q)).meaning for q in CAUSAL_ORDER}
    assert len(meanings) == len(CAUSAL_ORDER) - 1  # rng is looked at twice


def test_finding_states_place_values_and_limit():
    finding = explain_difference(difference("lr", path="lr[0]", limit="rtol=0.1"))
    assert finding.measured == (
        "lr[0] differs at update 7: original 1.0, package 2.0 (gate: rtol=0.1)"
    )


def test_a_tail_is_blamed_on_the_update_before():
    finding = explain_difference(difference("tail.rng"))
    assert "when update 7 began, left so by update 6" in finding.measured
    assert "left so by" not in explain_difference(difference("rng")).measured


def test_no_update_is_blamed_for_what_differs_from_the_start():
    finding = explain_difference(difference("tail.rng", update=1))
    assert "differs when update 1 began: original" in finding.measured


def test_long_values_are_shortened_and_short_ones_are_not():
    finding = explain_difference(difference("batch", original="a" * 64, package="b" * 40))
    assert f"original {'a' * 16}…" in finding.measured
    assert "b" * 40 in finding.measured

"""The tensors of two parked systems: gradients as before clipping, everything by name map."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from traingen.compare.gates import Gates
from traingen.compare.tensors import TensorComparison
from traingen.lockstep.live_compare import compare_live
from traingen.lockstep.name_map import NameMap, ResolvedMap
from traingen.observe.live import LiveState

EXACT = Gates()
NAMES = NameMap(exact={"a.w": "b.w", "a.mean": "b.mean"}).resolve(
    ["a.w", "a.mean"], ["b.w", "b.mean"]
)
GRADIENT = torch.tensor([0.1, -0.3, 7.0, 1e-7, 123.456])


def live(side: str, **changes: Any) -> LiveState:
    state = LiveState(
        parameters={f"{side}.w": torch.linspace(-1, 1, 5)},
        gradients={f"{side}.w": GRADIENT.clone()},
        buffers={f"{side}.mean": torch.ones(2)},
        optimizer_state={f"{side}.w": {"step": torch.tensor(3.0), "exp_avg": torch.ones(5)}},
        clip_coefficient=1.0,
    )
    return replace(state, **changes)


def compare(
    original: LiveState, package: LiveState, gates: Gates = EXACT, names: ResolvedMap = NAMES
) -> dict[str, TensorComparison]:
    return {c.quantity: c for c in compare_live(2, original, package, names, gates)}


def paths(found: dict[str, TensorComparison]) -> list[str]:
    return [d.path for c in found.values() for d in c.differences]


def test_equal_systems_do_not_differ_and_everything_was_compared():
    found = compare(live("a"), live("b"))
    assert paths(found) == []
    assert {q: c.compared for q, c in found.items()} == {
        "gradients": 1, "optimizer_state": 2, "parameters": 1, "buffers": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("parameters", "parameters.b.w"),
        ("gradients", "gradients.b.w"),
        ("buffers", "buffers.b.mean"),
    ],
)
def test_one_other_bit_is_found_under_the_packages_name(field, path):
    package = live("b")
    tensor = next(iter(getattr(package, field).values()))
    tensor[1] = torch.nextafter(tensor[1], torch.tensor(9.0))
    found = compare(live("a"), package)
    assert paths(found) == [path]
    assert found[field].differences[0].left


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"step": torch.tensor(4.0), "exp_avg": torch.ones(5)}, "optimizer_state.step.b.w"),
        ({"step": torch.tensor(3.0), "exp_avg": torch.zeros(5)}, "optimizer_state.exp_avg.b.w"),
        ({"step": torch.tensor(3.0)}, "optimizer_state.exp_avg.b.w"),
    ],
    ids=["step", "exp_avg", "missing"],
)
def test_optimizer_state_is_compared_key_by_key(state, path):
    found = compare(live("a"), live("b", optimizer_state={"b.w": state}))
    assert paths(found) == [path]
    assert found["optimizer_state"].compared == 2


def test_state_that_only_the_package_has_is_found():
    state = live("b").optimizer_state["b.w"] | {"max_exp_avg_sq": torch.ones(5)}
    found = compare(live("a"), live("b", optimizer_state={"b.w": state}))
    assert paths(found) == ["optimizer_state.max_exp_avg_sq.b.w"]


def test_systems_without_optimizer_state_have_none_to_compare():
    found = compare(live("a", optimizer_state={}), live("b", optimizer_state={}))
    assert found["optimizer_state"].compared == 0
    assert paths(found) == []


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_gradient_that_one_system_lacks_is_found(side):
    original, package = live("a"), live("b")
    (original if side == "a" else package).gradients.clear()
    found = compare(original, package)
    assert paths(found) == ["gradients.b.w"]
    assert found["gradients"].differences[0].left


def test_gates_judge_their_own_quantity():
    package = live("b", buffers={"b.mean": torch.ones(2) * 1.5})
    loose = compare(live("a"), package, Gates.of_numbers(buffers={"atol": 0.5}))
    other = compare(live("a"), package, Gates.of_numbers(parameters={"atol": 0.5}))
    assert [d.left for d in loose["buffers"].differences] == [False]
    assert [d.left for d in other["buffers"].differences] == [True]


# ---- gradients as before clipping ---------------------------------------------------------------

COEFFICIENTS = [0.5, 0.123456, 1e-3, 0.999999, 1 / 3]


def clipped(side: str, coefficient: float | None, gradient: torch.Tensor = GRADIENT) -> LiveState:
    factor = 1.0 if coefficient is None else coefficient
    return live(side, gradients={f"{side}.w": gradient * factor}, clip_coefficient=coefficient)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("who", ["original", "package", "both"])
def test_equal_gradients_that_were_clipped_otherwise_do_not_differ(coefficient, who):
    original = clipped("a", 1.0 if who == "package" else coefficient)
    package = clipped("b", {"original": 1.0, "package": coefficient, "both": 0.7}[who])
    found = compare(original, package)
    assert found["gradients"].differences == ()
    assert (found["gradients"].compared, found["gradients"].equal) == (1, 1)


@pytest.mark.parametrize("coefficient", COEFFICIENTS)
@pytest.mark.parametrize("factor", [1.00001, -1.0, 2.0])
def test_gradients_that_differed_before_clipping_are_found(coefficient, factor):
    found = compare(clipped("a", 1.0), clipped("b", coefficient, GRADIENT * factor))
    assert paths(found) == ["gradients.b.w"]
    assert found["gradients"].differences[0].left
    assert (found["gradients"].compared, found["gradients"].equal) == (1, 0)


def test_the_gate_judges_gradients_as_before_clipping():
    gates = Gates.of_numbers(gradients={"rtol": 1e-4})
    inside = compare(clipped("a", 1.0), clipped("b", 0.1, GRADIENT * 1.00001), gates)
    outside = compare(clipped("a", 1.0), clipped("b", 0.1, GRADIENT * 1.001), gates)
    assert [d.left for d in inside["gradients"].differences] == [False]
    assert [d.left for d in outside["gradients"].differences] == [True]


def test_equal_clipping_leaves_gradients_exact():
    package = clipped("b", 0.5)
    package.gradients["b.w"][0] *= 1 + 2**-23
    found = compare(clipped("a", 0.5), package)
    assert paths(found) == ["gradients.b.w"]
    assert compare(clipped("a", 0.5), clipped("b", 0.5))["gradients"].equal == 1


def test_a_gradient_that_a_clipped_system_lacks_is_found():
    found = compare(clipped("a", 1.0), replace(clipped("b", 0.5), gradients={}))
    assert paths(found) == ["gradients.b.w"]


def test_clipping_that_is_no_single_factor_leaves_gradients_as_they_are():
    same = compare(clipped("a", 1.0), clipped("b", None))
    other = compare(clipped("a", 1.0), replace(clipped("b", None), gradients={"b.w": GRADIENT / 2}))
    assert paths(same) == []
    assert paths(other) == ["clipping.b.w"]


def test_gradients_are_only_read():
    original, package = clipped("a", 1.0), clipped("b", 0.5)
    compare(original, package)
    assert original.gradients["a.w"].tolist() == GRADIENT.tolist()
    assert package.gradients["b.w"].tolist() == (GRADIENT * 0.5).tolist()


def test_after_a_clip_by_value_what_is_left_is_compared_as_clipping():
    gradients = {"w": torch.tensor([0.5, 2.0])}
    clipped = {"w": torch.tensor([0.5, 1.0])}
    base = {"parameters": gradients, "buffers": {}, "optimizer_state": {}}
    original = LiveState(gradients=clipped, clip_coefficient=None, **base)
    package = LiveState(gradients=gradients, clip_coefficient=1.0, **base)
    names = ResolvedMap(pairs=(("w", "w"),), only_original={}, only_package={})
    found = compare_live(1, original, package, names, Gates())[0]
    assert (found.quantity, found.max_path) == ("clipping", "clipping.w")
    assert found.differences[0].left
    assert compare_live(1, original, original, names, Gates())[0].differences == ()

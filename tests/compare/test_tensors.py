"""Live tensors: equal bits pass, one other bit is found at its name, limits hold to the edge."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from traingen.compare import tensors as module
from traingen.compare.gates import EXACT, Tolerance
from traingen.compare.tensors import (
    TensorComparison,
    compare_tensors,
    count_ulps,
    same_bits,
)

INF, NAN = math.inf, math.nan
WIDE_OPEN = Tolerance(rtol=1e30, atol=1e30, max_ulps=2**62)
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = {torch.float16: torch.int16, torch.bfloat16: torch.int16,
            torch.float32: torch.int32, torch.float64: torch.int64}  # fmt: skip


def compare(original: Any, package: Any, tolerance: Tolerance = EXACT) -> TensorComparison:
    return compare_tensors(1, "parameters", [("w", original, package)], tolerance)


def leaves(original: Any, package: Any, tolerance: Tolerance = EXACT) -> bool:
    """Whether the one pair leaves its gate; a difference inside of it is none here."""
    return any(d.left for d in compare(original, package, tolerance).differences)


def spread(*shape: int) -> torch.Tensor:
    return torch.linspace(-1, 1.3, math.prod(shape)).reshape(shape)


# ---- equal --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        spread(3, 4),
        spread(3, 4).t(),
        spread(5).double(),
        spread(5).half(),
        spread(5).bfloat16(),
        torch.tensor([NAN, INF, -INF, -0.0, 1e-45]),
        torch.arange(4),
        torch.tensor([True, False]),
        torch.tensor(3.0),
        torch.complex(spread(3), spread(3)),
        torch.empty(0, 3),
    ],
    ids=lambda t: f"{t.dtype}-{tuple(t.shape)}",
)
def test_a_tensor_does_not_differ_from_its_copy_and_was_compared(value):
    comparison = compare(value, value.clone())
    assert comparison.differences == ()
    assert (comparison.compared, comparison.equal) == (1, 1)
    assert (comparison.max_absolute, comparison.max_path) == (0.0, None)


def test_nothing_to_compare_is_counted_as_nothing():
    comparison = compare_tensors(1, "buffers", [("a", None, None)], EXACT)
    assert (comparison.compared, comparison.equal, comparison.differences) == (0, 0, ())


def test_layout_is_no_difference():
    value = spread(4, 6)
    assert compare(value, value.t().contiguous().t()).equal == 1


def test_tensors_are_only_read():
    a, b = torch.tensor([1.0, NAN], requires_grad=True), torch.tensor([2.0, INF])
    before = a.detach().clone(), b.clone()
    comparison = compare(a, b, Tolerance(rtol=1.0, max_ulps=3))
    assert len(comparison.differences) == 1
    assert same_bits(a.detach(), before[0])
    assert same_bits(b, before[1])
    assert a.grad is None


# ---- one bit ------------------------------------------------------------------------------------


@given(data=st.data(), dtype=st.sampled_from(FLOATS))
def test_one_flipped_bit_is_found_at_its_name(data, dtype):
    shapes = {"first.weight": (2, 3), "first.bias": (3,), "last": ()}
    original = {name: torch.ones(shape, dtype=dtype) * 1.5 for name, shape in shapes.items()}
    package = {name: tensor.clone() for name, tensor in original.items()}
    name = data.draw(st.sampled_from(sorted(shapes)))
    bits = package[name].view(INTEGERS[dtype]).view(-1)
    width = bits.element_size() * 8
    index = data.draw(st.integers(0, bits.numel() - 1))
    bit = data.draw(st.integers(0, width - 1))
    bits[index] ^= (1 << bit) if bit < width - 1 else torch.iinfo(bits.dtype).min

    named = [(n, original[n], package[n]) for n in shapes]
    comparison = compare_tensors(9, "gradients", named, EXACT)

    assert [(d.update, d.path, d.left) for d in comparison.differences] == [
        (9, f"gradients.{name}", True)
    ]
    assert (comparison.compared, comparison.equal) == (3, 2)
    assert comparison.max_path == f"gradients.{name}"


@pytest.mark.parametrize("index", [0, 2, 3, 4, 6, 7, 9])
def test_one_flipped_bit_is_found_across_chunks(monkeypatch, index):
    monkeypatch.setattr(module, "CHUNK", 4)
    original = torch.arange(10.0)
    package = original.clone()
    package[index] = torch.nextafter(package[index], torch.tensor(INF))
    (difference,) = compare(original, package).differences
    assert difference.left
    assert difference.absolute == float((package - original).abs().max())


def test_elements_of_every_chunk_are_weighed(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 4)
    original, package = torch.zeros(10), torch.zeros(10)
    package[1], package[5], package[9] = 0.5, 2.0, 0.25
    original[8] = -4.0
    package[8] = -4.0
    comparison = compare(original, package, Tolerance(atol=1.0))
    (difference,) = comparison.differences
    assert (difference.left, difference.absolute, difference.relative) == (True, 2.0, 0.5)
    assert not leaves(original, package, Tolerance(atol=2.0))


def test_negative_zero_has_other_bits_and_no_other_value():
    zero, negative = torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])
    comparison = compare(zero, negative)
    assert not same_bits(zero, negative)
    assert (comparison.equal, len(comparison.differences)) == (0, 1)
    assert not comparison.differences[0].left
    assert comparison.max_absolute == 0.0


# ---- shape, dtype, missing, other values --------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "package", "shown"),
    [
        (torch.ones(2), torch.ones(3), ("torch.float32 (2,)", "torch.float32 (3,)")),
        (torch.ones(2, 1), torch.ones(2), ("torch.float32 (2, 1)", "torch.float32 (2,)")),
        (torch.ones(2), torch.ones(2).double(), ("torch.float32 (2,)", "torch.float64 (2,)")),
        (torch.ones(2), torch.ones(2).int(), ("torch.float32 (2,)", "torch.int32 (2,)")),
        (torch.ones(2), None, ("torch.float32 (2,)", "absent")),
        (None, torch.ones(2), ("absent", "torch.float32 (2,)")),
        (torch.tensor(1.0), 1.0, ("torch.float32 ()", "1.0")),
        (3, None, ("3", "absent")),
        (3, 3.0, ("3", "3.0")),
        (True, 1, ("True", "1")),
        (3, 4, ("3", "4")),
        ([1, 2], [1, 3], ("[1, 2]", "[1, 3]")),
        ([torch.ones(2)], [torch.zeros(2)], ("[tensor([1., 1.])]", "[tensor([0., 0.])]")),
    ],
    ids=str,
)
def test_what_cannot_be_the_same_leaves_every_gate(original, package, shown):
    comparison = compare(original, package, WIDE_OPEN)
    (difference,) = comparison.differences
    assert (difference.original, difference.package) == shown
    assert difference.left
    assert (comparison.compared, comparison.max_absolute) == (1, INF)


@pytest.mark.parametrize(
    "value",
    [3, 2.5, NAN, True, "adam", [1, 2], (NAN,), [torch.ones(2), torch.tensor([NAN, 1.0])],
     {"dirs": [torch.zeros(3)], "n": 4}],
    ids=str,
)  # fmt: skip
def test_state_without_tensors_at_the_top_is_compared_too(value):
    twin = copy.deepcopy(value)
    comparison = compare(value, twin)
    assert (comparison.compared, comparison.equal) == (1, 1)


def test_each_pair_is_counted_once():
    named = [("a", torch.ones(1), torch.ones(1)), ("b", torch.ones(1), None), ("c", None, None),
             ("d", 1, 2), ("e", torch.ones(1), torch.ones(1) * 3)]  # fmt: skip
    comparison = compare_tensors(1, "optimizer_state", named, EXACT)
    assert (comparison.compared, comparison.equal) == (4, 1)
    assert [d.path for d in comparison.differences] == [f"optimizer_state.{n}" for n in "bde"]


@pytest.mark.parametrize(
    ("original", "package"),
    [
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        (torch.tensor([2**60]), torch.tensor([2**60 + 1])),
        (torch.tensor(2**62, dtype=torch.int64), torch.tensor(2**62 - 1, dtype=torch.int64)),
        (torch.tensor([True]), torch.tensor([False])),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 3j])),
        (torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j])),
        (torch.tensor([3], dtype=torch.uint8), torch.tensor([4], dtype=torch.uint8)),
    ],
    ids=str,
)
def test_other_than_real_numbers_are_exact_by_default(original, package):
    assert leaves(original, package)
    assert not leaves(original, original.clone())


def test_integers_may_have_a_tolerance():
    original, package = torch.tensor([100, 7]), torch.tensor([102, 7])
    assert not leaves(original, package, Tolerance(rtol=0.02))
    assert leaves(original, package, Tolerance(rtol=0.01))
    assert leaves(original, package, Tolerance(max_ulps=5))  # integers have none


# ---- tolerances ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "package", "limit", "left"),
    [
        ([4.0, 8.0], [4.5, 9.0], {"rtol": 0.125}, False),
        ([4.0, 8.0], [4.5, 9.0], {"rtol": 0.1249}, True),
        ([4.0, 1000.0], [5.0, 1000.0], {"rtol": 0.125}, True),  # element by element
        ([4.0], [4.5], {"atol": 0.5}, False),
        ([4.0], [4.5], {"atol": 0.4999}, True),
        ([4.0], [5.0], {"rtol": 0.125, "atol": 0.5}, False),
        ([-4.0], [-4.5], {"rtol": 0.125}, False),
        ([0.0], [1e-30], {"rtol": 0.5}, True),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_element_is_held_to_its_own_limit(original, package, limit, left, dtype):
    mine, theirs = torch.tensor(original, dtype=dtype), torch.tensor(package, dtype=dtype)
    assert leaves(mine, theirs, Tolerance(**limit)) is left


@pytest.mark.parametrize(
    ("original", "package"),
    [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, INF), (INF, -INF), (INF, NAN),
     (INF, torch.finfo(torch.float32).max)],
)  # fmt: skip
@pytest.mark.parametrize(
    "tolerance",
    [Tolerance(rtol=1e30), Tolerance(atol=1e30), Tolerance(max_ulps=2**31), WIDE_OPEN],
    ids=lambda t: t.limit,
)
def test_no_limit_admits_what_is_not_finite(original, package, tolerance):
    mine, theirs = torch.tensor([2.0, original]), torch.tensor([2.0, package])
    comparison = compare(mine, theirs, tolerance)
    assert comparison.differences[0].left
    assert comparison.max_absolute == INF


def test_equal_infinities_and_nans_pass_beside_a_small_difference():
    mine, theirs = torch.tensor([NAN, INF, -INF, 1.0]), torch.tensor([NAN, INF, -INF, 1.5])
    comparison = compare(mine, theirs, Tolerance(atol=0.5))
    assert not comparison.differences[0].left
    assert comparison.max_absolute == 0.5


anything = st.floats(width=32)
limits = st.floats(min_value=0, max_value=1e6)


@given(
    pair=st.tuples(anything, anything),
    rtol=limits,
    atol=limits,
    ulps=st.none() | st.integers(0, 9),
    more=limits,
)
def test_looser_tolerance_never_turns_a_pass_into_a_fail(pair, rtol, atol, ulps, more):
    mine, theirs = (torch.tensor([x]) for x in pair)
    strict = Tolerance(rtol=rtol, atol=atol, max_ulps=ulps)
    loose = Tolerance(rtol=rtol + more, atol=atol + more, max_ulps=(ulps or 0) + 1)
    assert leaves(mine, theirs, strict) or not leaves(mine, theirs, loose)


@given(pair=st.tuples(anything, anything), rtol=limits, atol=limits)
def test_one_element_is_judged_like_a_number(pair, rtol, atol):
    tolerance = Tolerance(rtol=rtol, atol=atol)
    mine, theirs = (torch.tensor([x]) for x in pair)
    assert leaves(mine, theirs, tolerance) is not tolerance.admits(*pair)


def test_report_only_is_never_left_but_found():
    for mine, theirs in [(torch.ones(2), torch.zeros(2)), (torch.ones(2), None), (1, 2)]:
        comparison = compare(mine, theirs, Tolerance(report_only=True))
        assert [d.left for d in comparison.differences] == [False]


# ---- representable numbers ----------------------------------------------------------------------


def walk(start: float, steps: int, dtype: torch.dtype, towards: float) -> torch.Tensor:
    """`start` moved by so many representable numbers."""
    value, goal = torch.tensor([start], dtype=dtype), torch.tensor([towards], dtype=dtype)
    for _ in range(steps):
        value = torch.nextafter(value, goal)
    return value


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("towards", [INF, -INF])
@pytest.mark.parametrize("start", [1.0, -1.0, 1e-30, 0.0, -0.0, 2.0, -3e30])
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_steps_between_numbers_are_counted(dtype, towards, start, steps):
    original, package = torch.tensor([start], dtype=dtype), walk(start, steps, dtype, towards)
    assert count_ulps(original, package).tolist() == [steps]
    assert not leaves(original, package, Tolerance(max_ulps=steps))
    assert steps == 0 or leaves(original, package, Tolerance(max_ulps=steps - 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_counted_across_zero(dtype):
    below, above = walk(0.0, 2, dtype, -INF), walk(0.0, 3, dtype, INF)
    assert count_ulps(below, above).tolist() == [5]
    assert count_ulps(above, below).tolist() == [5]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("original", "package"), [(2.0, -2.0), (4.0, -1.0), (-1.0, 4.0), (1e4, -1e4)]
)
def test_numbers_of_opposite_sign_are_far_apart(dtype, original, package):
    mine, theirs = torch.tensor([original], dtype=dtype), torch.tensor([package], dtype=dtype)
    assert int(count_ulps(mine, theirs)) > 2**14
    assert leaves(mine, theirs, Tolerance(max_ulps=100))


@given(a=st.floats(), b=st.floats(), c=st.floats())
def test_more_numbers_lie_between_those_further_apart(a, b, c):
    low, middle, high = sorted([x if math.isfinite(x) else 0.0 for x in (a, b, c)])
    tensors = [torch.tensor([x], dtype=torch.float64) for x in (low, middle, high)]
    assert 0 <= int(count_ulps(tensors[0], tensors[1])) <= int(count_ulps(tensors[0], tensors[2]))


def test_either_limit_is_enough():
    original, package = torch.tensor([1.0, 1e-30]), torch.tensor([1.5, 1e-30])
    package[1] = torch.nextafter(package[1], torch.tensor(INF))
    assert not leaves(original, package, Tolerance(atol=0.5, max_ulps=1))
    assert leaves(original, package, Tolerance(max_ulps=1))


# ---- what is reported ---------------------------------------------------------------------------


def test_sizes_are_the_largest_over_the_elements():
    comparison = compare(torch.tensor([1.0, -8.0, 2.0]), torch.tensor([1.5, -6.0, 2.0]))
    (difference,) = comparison.differences
    assert (difference.absolute, difference.relative) == (2.0, 0.25)
    assert (difference.original, difference.package) == ("max |.| 8", "max |difference| 2")


def test_a_single_number_is_shown_itself():
    (difference,) = compare(torch.tensor(2.0), torch.tensor(3.0)).differences
    assert (difference.original, difference.package) == (2.0, 3.0)


def test_relative_size_against_zeros_is_unknown():
    (difference,) = compare(torch.zeros(2), torch.ones(2)).differences
    assert (difference.absolute, difference.relative) == (1.0, None)


def test_the_worst_tensor_is_named():
    named = [("a", torch.zeros(1), torch.ones(1)), ("b", torch.zeros(1), torch.ones(1) * 3),
             ("c", torch.zeros(1), torch.ones(1) * 2)]  # fmt: skip
    comparison = compare_tensors(1, "buffers", named, Tolerance(atol=2.5))
    assert (comparison.max_absolute, comparison.max_path) == (3.0, "buffers.b")
    assert [d.left for d in comparison.differences] == [False, True, False]
    assert {d.limit for d in comparison.differences} == {"atol=2.5"}

"""The norm is that of exact arithmetic, at any size and in any layout."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from traingen.observe.norms import LARGE, ROW, measure_norm

SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)
SIZES = (1, ROW - 1, ROW, ROW + 1, LARGE, LARGE + 1, LARGE + ROW // 2)


def reference(*tensors: torch.Tensor) -> float:
    """By math.fsum where that is affordable, else float64."""
    flat = torch.cat([t.detach().reshape(-1).double() for t in tensors])
    if flat.numel() < 10_000:
        return math.sqrt(math.fsum(x * x for x in flat.tolist()))
    return float(torch.linalg.vector_norm(flat))


def random_tensor(*shape: int, seed: int = 0, scale: float = 1.0, offset: float = 0.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator) * scale + offset


@given(
    shapes=st.lists(SHAPES, min_size=1, max_size=4),
    seed=st.integers(0, 99),
    scale=st.sampled_from([1e-30, 1e-8, 1.0, 1e8, 1e30]),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_the_norm_is_that_of_all_elements(shapes, seed, scale, dtype):
    if dtype is torch.float16:
        scale = 1.0  # its range ends at 65504
    tensors = [random_tensor(*shape, seed=seed, scale=scale).to(dtype) for shape in shapes]
    assert measure_norm(tensors) == pytest.approx(reference(*tensors), rel=1e-9, abs=0)


@pytest.mark.parametrize("size", SIZES)
def test_every_element_counts_at_every_size(size):
    tensor = random_tensor(size)
    tensor[-1] = 1000.0
    without = tensor[:-1]
    assert measure_norm([tensor]) == pytest.approx(reference(tensor), rel=1e-7)
    assert measure_norm([tensor]) > measure_norm([without]) + 100


@pytest.mark.parametrize(
    "lay_out",
    [lambda x: x, lambda x: x.view(2, 1000, 1000).transpose(0, 2), lambda x: x.view(2, -1).t()],
    ids=["contiguous", "permuted", "transposed"],
)
def test_a_large_tensor_is_measured_better_than_by_torch(lay_out):
    tensor = lay_out(random_tensor(2_000_000, scale=0.01, offset=100.0))
    exact = reference(tensor)
    by_torch = float(torch.linalg.vector_norm(tensor.reshape(-1)))
    assert abs(measure_norm([tensor]) / exact - 1) < 1e-6
    assert abs(by_torch / exact - 1) > 1e-4


def test_one_large_element_among_millions_is_not_lost():
    tensor = torch.full((1_000_003,), 1e-3)
    tensor[500_000] = 1.0
    assert measure_norm([tensor]) == pytest.approx(reference(tensor), rel=1e-6)


@pytest.mark.parametrize(
    ("total", "rel"), [(3 * 257, 1e-12), (60_000, 1e-12), (300_007, 3e-9), (1_200_001, 3e-9)]
)
def test_a_split_of_a_fused_tensor_has_the_same_norm(total, rel):
    fused = random_tensor(total, scale=0.01, offset=0.02)
    splits = [fused.chunk(parts) for parts in (1, 2, 3, 50)]
    by_torch = {float(torch.stack(torch._foreach_norm(split)).norm()) for split in splits}
    assert [measure_norm(split) for split in splits] == pytest.approx(
        [measure_norm([fused])] * 4, rel=rel
    )
    assert max(by_torch) / min(by_torch) - 1 > 10 * rel, "torch's own depends on the split"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_may_have_a_norm_beyond_their_range(dtype):
    small, large = torch.full((100,), 6e4, dtype=dtype), torch.full((LARGE + 1,), 6e4, dtype=dtype)
    assert measure_norm([small]) == pytest.approx(reference(small), rel=1e-7)
    assert measure_norm([large]) == pytest.approx(reference(large), rel=1e-6)
    assert dtype is torch.bfloat16 or torch.linalg.vector_norm(small).isinf()


def test_tensors_of_several_types_are_measured_together():
    tensors = [torch.full((4,), 2.0, dtype=d) for d in (torch.bfloat16, torch.float64)]
    assert measure_norm(tensors) == math.sqrt(32)


@pytest.mark.parametrize("size", [3, LARGE + ROW // 2])
def test_complex_elements_count_with_both_parts(size):
    tensor = torch.full((size,), 3 + 4j)
    assert measure_norm([tensor]) == pytest.approx(5 * math.sqrt(size), rel=1e-7)
    assert measure_norm([tensor.conj()]) == measure_norm([tensor])


@pytest.mark.parametrize("size", [3, LARGE + 1])
def test_a_nonfinite_element_makes_the_norm_nonfinite(size):
    tensor = torch.ones(size)
    tensor[1] = math.inf
    assert measure_norm([tensor]) == math.inf
    tensor[0] = math.nan
    assert math.isnan(measure_norm([tensor]))


def test_of_nothing_the_norm_is_0():
    assert measure_norm([]) == 0.0
    assert measure_norm(iter([torch.empty(0), torch.zeros(3)])) == 0.0


def test_measuring_makes_no_graph_and_changes_nothing():
    tensor = torch.full((LARGE + 1,), 2.0, requires_grad=True)
    small = torch.ones(3, requires_grad=True)
    state, versions = torch.get_rng_state(), (tensor._version, small._version)
    norm = measure_norm([tensor * 1.0, small])
    assert type(norm) is float
    assert (tensor.grad, small.grad) == (None, None)
    assert (tensor._version, small._version) == versions
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()

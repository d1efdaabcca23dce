"""The norm is that of exact arithmetic, at any size and in any layout."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from traingen.observe.norms import (
    LARGE,
    ROW,
    is_sharded,
    measure_norm,
    norm_by_name,
    shard_share,
    subtract,
)

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


def sparse_gradient(rows: list[int], *, width: int = 3) -> torch.Tensor:
    """The gradient of an embedding of which `rows` were looked up, as the optimizer gets it."""
    table = torch.nn.Embedding(50_000, width, sparse=True)
    found = table(torch.tensor(rows, dtype=torch.int64))
    (found * random_tensor(len(rows), width)).sum().backward()
    return table.weight.grad


@pytest.mark.parametrize("rows", [[1, 2, 3], [7, 7, 2, 7], [], list(range(40_000)) * 2])
def test_a_sparse_gradient_has_the_norm_of_the_dense_one(rows):
    gradient = sparse_gradient(rows)
    exact = reference(gradient.to_dense())
    assert measure_norm([gradient]) == pytest.approx(exact, rel=1e-6)
    assert norm_by_name({"w": gradient}) == {"w": pytest.approx(exact, rel=1e-6)}


def test_what_is_looked_up_twice_is_summed_before_it_is_squared():
    gradient = sparse_gradient([7, 7, 2, 7])
    stored = reference(gradient._values())
    assert measure_norm([gradient]) == pytest.approx(reference(gradient.to_dense()))
    assert abs(measure_norm([gradient]) / stored - 1) > 0.1, "the stored entries have another norm"
    assert not gradient.is_coalesced(), "the optimizer still gets it as it came"
    assert gradient._nnz() == 4


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state:UserWarning")
@pytest.mark.parametrize("convert", ["to_sparse_csr", "to_sparse_csc", "to_mkldnn"])
def test_every_layout_is_measured(convert):
    tensor = random_tensor(4, 3)
    assert measure_norm([getattr(tensor, convert)()]) == pytest.approx(reference(tensor))


@pytest.mark.parametrize("size", [5, LARGE + ROW // 2])
@pytest.mark.parametrize(
    "dtype",
    [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int64, torch.uint16, torch.bool],
)
def test_eight_bit_floats_and_integers_count_by_their_value(dtype, size):
    tensor = (torch.arange(size) % 2).to(dtype)
    assert measure_norm([tensor]) == pytest.approx(math.sqrt(size // 2), rel=1e-7)
    assert measure_norm([tensor, torch.ones(9)]) == pytest.approx(math.sqrt(size // 2 + 9))


PACKED = [
    getattr(torch, name)
    for name in ("bits8", "uint4", "float4_e2m1fn_x2")
    if hasattr(torch, name)  # torch gained them one by one
]


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_of_a_packed_type_the_norm_is_not_a_number(dtype):
    assert math.isnan(measure_norm([torch.zeros(4, dtype=torch.uint8).view(dtype)]))


def test_each_name_has_the_norm_of_its_tensor():
    named = {"b": random_tensor(LARGE + 1), "a": random_tensor(3), "empty": torch.empty(0)}
    norms = norm_by_name(named)
    assert list(norms) == ["b", "a", "empty"]
    assert norms == {name: pytest.approx(measure_norm([one])) for name, one in named.items()}
    assert norm_by_name({}) == {}


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_of_a_plain_tensor_every_rank_has_an_equal_share(world_size):
    tensors = [random_tensor(7), random_tensor(LARGE + 1)]
    share = shard_share(tensors, world_size=world_size)
    assert share * world_size == pytest.approx(measure_norm(tensors) ** 2, rel=1e-12)
    assert not is_sharded(tensors)


def test_outside_of_a_process_group_the_share_is_all():
    assert shard_share([torch.full((4,), 2.0)]) == 16.0
    assert shard_share([]) == 0.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_difference_is_that_of_exact_arithmetic(dtype):
    ones, tiny = torch.ones(3, dtype=dtype), torch.full((3,), 2.0**-16).to(dtype)
    [one, other] = subtract([ones, tiny], [tiny, tiny])
    assert one.tolist() == [1 - 2.0**-16] * 3
    assert other.tolist() == [0.0] * 3
    assert (ones.tolist(), subtract([], [])) == ([1.0] * 3, [])


def test_a_difference_may_be_of_two_types():
    [one] = subtract([torch.full((2,), 1 + 2.0**-20)], [torch.ones(2, dtype=torch.bfloat16)])
    assert one.tolist() == [2.0**-20] * 2

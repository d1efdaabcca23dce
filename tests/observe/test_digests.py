"""Equal content has one digest wherever it lies; anything else has another."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from traingen.observe.digests import combine_digests, digest_batch

DTYPES = (
    torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64,
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3)
)
BATCHES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner)
)


def as_tuples(value):
    """`value` with tuples for lists and each mapping in the opposite order."""
    if isinstance(value, list):
        return tuple(as_tuples(item) for item in value)
    if isinstance(value, dict):
        return OrderedDict((key, as_tuples(value[key])) for key in reversed(list(value)))
    return value


@given(batch=BATCHES)
def test_lists_are_tuples_and_the_order_of_keys_does_not_count(batch):
    assert digest_batch(as_tuples(batch)) == digest_batch(batch)


@given(a=BATCHES, b=BATCHES)
def test_batches_of_different_content_have_different_digests(a, b):
    same = repr(as_sorted(a)) == repr(as_sorted(b))
    assert (digest_batch(a) == digest_batch(b)) == same


def as_sorted(value):
    """A canonical form to compare with, told apart by type as well: True is not 1."""
    if isinstance(value, list):
        return [as_sorted(item) for item in value]
    if isinstance(value, dict):
        return {"keys": sorted((key, repr(as_sorted(item))) for key, item in value.items())}
    return value


def test_the_order_of_a_sequence_counts():
    assert digest_batch([1, 2]) != digest_batch([2, 1])
    assert digest_batch([[1], 2]) != digest_batch([1, [2]])


def test_a_named_tuple_is_a_sequence():
    pair = namedtuple("Pair", "x y")
    assert digest_batch(pair(1, 2)) == digest_batch([1, 2])


@given(
    values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9), data=st.data()
)
def test_one_flipped_bit_gives_another_digest(values, data):
    tensor = torch.tensor(values)
    flipped = tensor.clone()
    place = data.draw(st.integers(0, len(values) * 4 - 1))
    flipped.view(torch.uint8)[place] ^= 1 << data.draw(st.integers(0, 7))
    assert digest_batch({"x": [tensor]}) == digest_batch({"x": [tensor.clone()]})
    assert digest_batch({"x": [tensor]}) != digest_batch({"x": [flipped]})


def test_negative_zero_is_not_zero():
    assert digest_batch(torch.tensor(0.0)) != digest_batch(torch.tensor(-0.0))
    assert digest_batch(0.0) != digest_batch(-0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_its_own_digest_also_for_equal_bytes(dtype):
    zeros = {str(other): digest_batch(torch.zeros(2, dtype=other)) for other in DTYPES}
    assert list(zeros.values()).count(zeros[str(dtype)]) == 1
    assert digest_batch(torch.ones(2, dtype=dtype)) != zeros[str(dtype)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (3,)], ids=str)
def test_scalars_and_empty_tensors_have_digests(dtype, shape):
    digest = digest_batch(torch.zeros(shape, dtype=dtype))
    assert digest == digest_batch(torch.zeros(shape, dtype=dtype))
    assert len(digest) == 64


def test_the_shape_counts():
    shapes = [(6,), (1, 6), (2, 3), (3, 2), (6, 1), (), (1,), (0,), (0, 1)]
    assert len({digest_batch(torch.zeros(shape)) for shape in shapes}) == len(shapes)


def test_the_key_counts():
    x = torch.ones(1)
    assert digest_batch({"x": x}) != digest_batch({"y": x})
    assert digest_batch({"x": x}) != digest_batch([x])
    assert digest_batch({1: x}) != digest_batch({"1": x})


def test_where_and_how_a_tensor_lies_does_not_count():
    tensor = torch.arange(12.0).reshape(3, 4)
    transposed = tensor.t().contiguous().t()
    part = torch.cat([tensor, tensor])[3:]
    assert not transposed.is_contiguous()
    assert digest_batch(transposed) == digest_batch(part) == digest_batch(tensor)
    assert digest_batch(tensor.t()) != digest_batch(tensor)
    assert digest_batch(tensor.requires_grad_()) == digest_batch(part)


def test_a_lazily_conjugated_tensor_is_what_it_says():
    tensor = torch.tensor([1 + 2j])
    assert digest_batch(tensor.conj()) == digest_batch(torch.tensor([1 - 2j]))
    assert digest_batch(tensor.conj()) != digest_batch(tensor)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.arange(6)[::-1],
        np.arange(12).reshape(3, 4).T,
        np.array(3.0),
        np.array([True, False]),
        np.zeros((0, 2), dtype=np.float32),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_has_the_digest_of_the_tensor_of_its_content(array):
    assert digest_batch(array) == digest_batch(torch.tensor(array.copy()))
    assert digest_batch(array) != digest_batch(array.reshape(-1, 1))


def test_a_read_only_array_is_digested_in_silence():
    array = np.arange(3)
    array.flags.writeable = False
    assert digest_batch(array) == digest_batch(np.arange(3))


def test_numpy_scalars_differ_from_plain_numbers_and_by_dtype():
    ones = [1, 1.0, True, "1", b"1", np.int64(1), np.float32(1), np.float64(1), None]
    assert len({digest_batch(one) for one in ones}) == len(ones)


def test_the_digest_is_stable_across_versions():
    batch = {"x": torch.tensor([[1.0, 2.0]]), "y": [1, "a", None]}
    assert digest_batch(batch) == (
        "eb2e7d84637d22beefe2dc9266cf7b32bb2eea1d01e814bd75d85ebff77943ba"
    )


@pytest.mark.parametrize("odd", [object(), {1, 2}, iter([1]), 1j], ids=lambda o: type(o).__name__)
def test_what_has_no_content_is_refused_by_name(odd):
    name = type(odd).__name__
    with pytest.raises(TypeError, match=f"batch holds a {name}, expected tensors, .* collate_fn"):
        digest_batch([torch.ones(1), {"x": odd}])


def test_digesting_changes_nothing():
    tensor = torch.rand(3, requires_grad=True)
    state, version = torch.get_rng_state(), tensor._version
    digest_batch([tensor])
    assert torch.equal(torch.get_rng_state(), state)
    assert (tensor._version, tensor.grad) == (version, None)


@given(digests=st.lists(st.text("0123456789abcdef", min_size=64, max_size=64), min_size=2))
def test_one_digest_stands_for_itself_and_several_for_their_order(digests):
    assert combine_digests(digests[:1]) == digests[0]
    combined = combine_digests(iter(digests))
    assert len(combined) == 64
    assert combined not in digests
    assert (combine_digests(digests[::-1]) == combined) == (digests[::-1] == digests)

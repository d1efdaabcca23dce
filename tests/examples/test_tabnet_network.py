"""Our TabNet and pytorch-tabnet 4.1.0's give equal bits from equal weights and batches."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import pytest
import torch
from pytorch_tabnet.tab_network import TabNet as OriginalTabNet
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from examples.tabnet.data import DigitsData, load_digits_split, updates_per_epoch
from examples.tabnet.faults import ExtraDraw
from examples.tabnet.module import TabNetModule
from examples.tabnet.network import TabNet, make_linear, negative_entropy, sparsemax

LAMBDA_SPARSE = 1e-3

# Original name -> ours, the first rule that matches the whole name.
NAME_RULES = [
    (r"tabnet\.encoder\.initial_bn\.(.+)", r"encoder.input_norm.\1"),
    (r"tabnet\.encoder\.initial_splitter\.shared\.shared_layers\.(.+)", r"encoder.shared.\1"),
    (
        r"tabnet\.encoder\.initial_splitter\.shared\.glu_layers\.(\d+)\.bn\.bn\.(.+)",
        r"encoder.first.shared.\1.norm.norm.\2",
    ),
    (
        r"tabnet\.encoder\.initial_splitter\.specifics\.glu_layers\.(\d+)\.fc\.(.+)",
        r"encoder.first.own.\1.linear.\2",
    ),
    (
        r"tabnet\.encoder\.initial_splitter\.specifics\.glu_layers\.(\d+)\.bn\.bn\.(.+)",
        r"encoder.first.own.\1.norm.norm.\2",
    ),
    (
        r"tabnet\.encoder\.feat_transformers\.(\d+)\.shared\.glu_layers\.(\d+)\.bn\.bn\.(.+)",
        r"encoder.transformers.\1.shared.\2.norm.norm.\3",
    ),
    (
        r"tabnet\.encoder\.feat_transformers\.(\d+)\.specifics\.glu_layers\.(\d+)\.fc\.(.+)",
        r"encoder.transformers.\1.own.\2.linear.\3",
    ),
    (
        r"tabnet\.encoder\.feat_transformers\.(\d+)\.specifics\.glu_layers\.(\d+)\.bn\.bn\.(.+)",
        r"encoder.transformers.\1.own.\2.norm.norm.\3",
    ),
    (r"tabnet\.encoder\.att_transformers\.(\d+)\.fc\.(.+)", r"encoder.attentions.\1.linear.\2"),
    (
        r"tabnet\.encoder\.att_transformers\.(\d+)\.bn\.bn\.(.+)",
        r"encoder.attentions.\1.norm.norm.\2",
    ),
    (r"tabnet\.final_mapping\.(.+)", r"head.\1"),
]
NEVER_CALLED = r"tabnet\.initial_bn\..+"  # built by the original, used by none of its forwards

Pair = tuple[OriginalTabNet, TabNet]
Named = Iterable[tuple[str, Tensor]]


def rename(original_name: str) -> str:
    """Our name of the original's parameter or buffer."""
    for pattern, ours in NAME_RULES:
        match = re.fullmatch(pattern, original_name)
        if match:
            return match.expand(ours)
    raise KeyError(original_name)


def renamed(named: Named) -> dict[str, Tensor]:
    """The original's tensors under our names, less those that it never uses."""
    used = [(name, value) for name, value in named if not re.fullmatch(NEVER_CALLED, name)]
    return {rename(name): value for name, value in used}


def named_state(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers, shared ones once."""
    yield from network.named_parameters()
    yield from network.named_buffers()


def make_pair(**sizes: int) -> Pair:
    """Both networks for the digits, ours with the original's state; the norms are not trivial."""
    torch.manual_seed(0)
    shape = {"steps": 3, "independent": 2, "shared": 2, **sizes}
    original = OriginalTabNet(
        64,
        10,
        n_steps=shape["steps"],
        n_independent=shape["independent"],
        n_shared=shape["shared"],
        virtual_batch_size=64,
        group_attention_matrix=torch.eye(64),
    )
    ours = TabNet(features=64, classes=10, ghost_batch=64, **shape)
    for module in original.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.1)
    copies = renamed(named_state(original))
    with torch.no_grad():
        for name, value in named_state(ours):
            value.copy_(copies[name])
    return original, ours


def digit_batches(batch_size: int = 128) -> list[tuple[Tensor, Tensor]]:
    """The first three batches of the training rows."""
    x, y, _, _ = map(torch.from_numpy, load_digits_split())
    return list(islice(zip(x.split(batch_size), y.split(batch_size), strict=True), 3))


def total_loss(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """What both sides differentiate."""
    logits, sparsity = network(x)
    return cross_entropy(logits, y) - LAMBDA_SPARSE * sparsity


def differing_bits(
    expected: Mapping[str, Tensor | None], found: Mapping[str, Tensor | None]
) -> list[str]:
    """Names on one side only or with other bytes; even 0 and -0 differ."""
    names = expected.keys() | found.keys()
    return sorted(name for name in names if raw(expected.get(name)) != raw(found.get(name)))


def raw(tensor: Tensor | None) -> bytes | None:
    """The tensor's bytes."""
    return None if tensor is None else tensor.detach().numpy().tobytes()


def project_by_bisection(row: Tensor) -> Tensor:
    """The simplex projection, found by searching for the threshold at which the sum is 1."""
    low, high = row.min() - 1, row.max()
    for _ in range(100):
        middle = (low + high) / 2
        too_low = (row - middle).clamp(min=0).sum() > 1
        low, high = (middle, high) if too_low else (low, middle)
    return (row - low).clamp(min=0)


# --- same bits as the original -------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [128, 104, 64, 7])
def test_logits_and_sparsity_in_training_mode_have_the_original_bits(batch_size: int) -> None:
    original, ours = make_pair()
    x, _ = digit_batches(batch_size)[0]

    expected, found = original(x), ours(x)

    assert raw(found[0]) == raw(expected[0])
    assert raw(found[1]) == raw(expected[1])


def test_loss_has_the_original_bits() -> None:
    original, ours = make_pair()
    x, y = digit_batches()[0]

    expected, found = total_loss(original, x, y), total_loss(ours, x, y)

    assert raw(found) == raw(expected)


@pytest.mark.parametrize(
    "sizes", [{}, {"steps": 1}, {"steps": 5}, {"shared": 0}, {"independent": 0}, {"shared": 3}]
)
def test_every_gradient_has_the_original_bits(sizes: dict[str, int]) -> None:
    original, ours = make_pair(**sizes)
    x, y = digit_batches()[0]

    total_loss(original, x, y).backward()
    total_loss(ours, x, y).backward()

    expected = {name: p.grad for name, p in renamed(original.named_parameters()).items()}
    found = {name: p.grad for name, p in ours.named_parameters()}
    assert differing_bits(expected, found) == []
    assert all(gradient is not None for gradient in found.values())


def test_running_statistics_have_the_original_bits_after_three_batches() -> None:
    original, ours = make_pair()
    before = {name: buffer.clone() for name, buffer in ours.named_buffers()}

    for x, _ in digit_batches():
        original(x)
        ours(x)

    after = dict(ours.named_buffers())
    assert differing_bits(renamed(original.named_buffers()), after) == []
    assert differing_bits(before, after) == sorted(before)


def test_eval_mode_has_the_original_bits_and_moves_no_statistics() -> None:
    original, ours = make_pair()
    for x, _ in digit_batches():
        original(x)
        ours(x)
    before = {name: buffer.clone() for name, buffer in ours.named_buffers()}
    _, _, valid_x, _ = map(torch.from_numpy, load_digits_split())

    expected, found = original.eval()(valid_x), ours.eval()(valid_x)

    assert [raw(part) for part in found] == [raw(part) for part in expected]
    assert differing_bits(before, dict(ours.named_buffers())) == []


def test_one_changed_weight_shows_in_the_logits() -> None:
    original, ours = make_pair()
    x, _ = digit_batches()[0]
    with torch.no_grad():
        ours.get_parameter("encoder.shared.0.weight")[0, 20] += 1e-3

    expected, found = original(x), ours(x)

    assert raw(found[0]) != raw(expected[0])


# --- parameters ----------------------------------------------------------------------------


def test_parameters_are_the_original_ones_in_the_original_order() -> None:
    original, ours = make_pair()

    expected = [(n, p.shape) for n, p in renamed(original.named_parameters()).items()]
    found = [(n, p.shape) for n, p in ours.named_parameters()]

    assert found == expected


def test_only_the_norm_that_is_never_called_is_missing() -> None:
    original, ours = make_pair()
    count = {side: sum(p.numel() for p in side.parameters()) for side in (original, ours)}

    assert count[ours] == 9_808
    assert count[original] - count[ours] == 2 * 64


def test_norm_momenta_are_the_original_ones() -> None:
    original, ours = make_pair()

    expected = [
        module.momentum
        for name, module in original.named_modules()
        if isinstance(module, nn.BatchNorm1d) and name != "tabnet.initial_bn"
    ]
    found = [m.momentum for m in ours.modules() if isinstance(m, nn.BatchNorm1d)]

    assert found == expected


@pytest.mark.parametrize(("gated", "variance"), [(False, 0.125), (True, 0.25)])
def test_linears_are_drawn_with_the_stated_variance(gated: bool, variance: float) -> None:
    torch.manual_seed(0)

    weight = make_linear(64, 4096, gated=gated).weight

    assert weight.var().item() == pytest.approx(variance, rel=0.02)


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 step and 1 gated layer"):
        TabNet(features=64, classes=10, independent=0, shared=0)


# --- sparsemax -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_sparsemax_rows_are_probabilities(scale: float) -> None:
    torch.manual_seed(1)

    weights = sparsemax(torch.randn(200, 64) * scale)

    assert bool((weights >= 0).all())
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(200))


def test_sparsemax_is_the_projection_onto_the_simplex() -> None:
    torch.manual_seed(2)
    scores = torch.randn(50, 12, dtype=torch.float64) * 2

    found = sparsemax(scores)

    expected = torch.stack([project_by_bisection(row) for row in scores])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert bool((found == 0).any())


def test_sparsemax_leaves_probabilities_and_its_input_as_they_are() -> None:
    torch.manual_seed(3)
    scores = torch.rand(20, 6, dtype=torch.float64).softmax(dim=1)
    before = scores.clone()

    weights = sparsemax(scores)

    torch.testing.assert_close(weights, before)
    assert torch.equal(scores, before)


def test_sparsemax_ignores_a_shift_of_the_row() -> None:
    torch.manual_seed(4)
    scores = torch.randn(20, 6, dtype=torch.float64)

    torch.testing.assert_close(sparsemax(scores + 7), sparsemax(scores))


def test_sparsemax_gradient_is_the_numeric_one() -> None:
    torch.manual_seed(5)
    scores = torch.randn(8, 10, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(sparsemax, (scores,))


def test_negative_entropy_is_zero_for_one_feature_and_lowest_for_all_alike() -> None:
    one, alike = torch.eye(4), torch.full((4, 4), 0.25)

    assert negative_entropy(one).item() == pytest.approx(0.0, abs=1e-6)
    assert negative_entropy(alike).item() == pytest.approx(-torch.tensor(4.0).log().item())


# --- digits and module ---------------------------------------------------------------------


def test_digits_split_has_1437_and_360_rows_of_scaled_pixels() -> None:
    train_x, train_y, valid_x, valid_y = load_digits_split()

    assert (train_x.shape, train_y.shape) == ((1437, 64), (1437,))
    assert (valid_x.shape, valid_y.shape) == ((360, 64), (360,))
    assert (train_x.dtype.name, train_y.dtype.name) == ("float32", "int64")
    assert (train_x.min(), train_x.max()) == (0.0, 1.0)


def test_digits_data_serves_full_training_batches_and_every_validation_row() -> None:
    data = DigitsData()
    data.setup("fit")

    train = [len(y) for _, y in data.train_dataloader()]
    valid = [len(y) for _, y in data.val_dataloader()]

    assert train == [128] * updates_per_epoch(128) == [128] * 11
    assert sum(valid) == 360


def test_module_parts_are_reached_by_path() -> None:
    module = TabNetModule()
    x, _ = digit_batches()[0]
    tapped: list[Tensor] = []
    encoder = module.get_submodule("network.encoder")
    encoder.register_forward_hook(lambda _module, _args, output: tapped.append(output[1]))

    _, sparsity = module(x)

    assert raw(tapped[0]) == raw(sparsity)
    assert [name for name, _ in module.named_buffers() if "accuracy" in name] == []


def test_extra_draw_advances_the_generator_and_nothing_else() -> None:
    torch.manual_seed(6)
    loss = torch.tensor(1.0)
    torch.rand(1)
    expected = torch.random.get_rng_state()
    torch.manual_seed(6)

    ExtraDraw().on_before_backward(None, None, loss)  # type: ignore[arg-type]

    assert torch.equal(torch.random.get_rng_state(), expected)
    assert loss.item() == 1.0

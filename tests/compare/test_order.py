"""The causal order of a step, and the gate that judges each of its quantities."""

import pytest

from traingen.compare.order import CAUSAL_ORDER, GATED, causal_rank, gate_name


def test_every_quantity_has_a_place_of_its_own():
    ranks = [causal_rank(quantity) for quantity in CAUSAL_ORDER]
    assert ranks == list(range(len(CAUSAL_ORDER)))
    assert len(set(CAUSAL_ORDER)) == len(CAUSAL_ORDER)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("tail.rng", "batch"),
        ("tail.scheduler", "rng"),
        ("batch", "loss_terms"),
        ("rng", "loss_terms"),
        ("loss_terms", "objective"),
        ("objective", "gradients"),
        ("gradients", "clipping"),
        ("clipping", "lr"),
        ("lr", "optimizer_state"),
        ("optimizer_state", "parameters"),
        ("parameters", "buffers"),
    ],
)
def test_what_makes_something_ranks_before_it(earlier, later):
    assert causal_rank(earlier) < causal_rank(later)


def test_the_tail_of_the_last_update_ranks_before_everything_of_this_one():
    tail = [q for q in CAUSAL_ORDER if q.startswith("tail.")]
    rest = [q for q in CAUSAL_ORDER if not q.startswith("tail.")]
    assert tail
    assert max(map(causal_rank, tail)) < min(map(causal_rank, rest))


def test_what_is_found_late_is_judged_like_what_is_found_in_time():
    assert gate_name("tail.rng") == gate_name("rng") == "rng"
    assert set(map(gate_name, CAUSAL_ORDER)) == set(GATED)


def test_unknown_quantity_has_no_rank():
    with pytest.raises(ValueError, match="not in tuple"):
        causal_rank("weather")

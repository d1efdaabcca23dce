"""Random generators are read and put back without moving, and named by their state."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from traingen.observe.rng import (
    GENERATORS,
    capture_rng,
    digest_rng,
    digest_rng_state,
    replay_draws,
    restore_rng,
    seed_rng,
    seeded_rng,
)

DRAWS: dict[str, Callable[[], object]] = {
    "python": random.random,
    "numpy": np.random.rand,
    "torch": lambda: float(torch.rand(1)),
}
HALF_DRAWS: dict[str, Callable[[], object]] = {  # each keeps the second of a pair of normals
    "python": lambda: random.gauss(0, 1),
    "numpy": np.random.randn,
}


def draw_all() -> list[object]:
    return [draw() for draw in [*DRAWS.values(), *HALF_DRAWS.values()] for _ in range(3)]


def test_later_draws_repeat_after_a_restore():
    state = capture_rng()
    first = draw_all()
    restore_rng(state)
    assert draw_all() == first
    assert draw_all() != first


@pytest.mark.parametrize("name", HALF_DRAWS)
def test_the_second_of_a_pair_of_normals_is_part_of_the_state(name):
    HALF_DRAWS[name]()
    state = capture_rng()
    second = HALF_DRAWS[name]()
    restore_rng(state)
    assert HALF_DRAWS[name]() == second


def test_a_captured_state_is_an_independent_copy():
    state = capture_rng()
    before = digest_rng_state(state)
    draw_all()
    seed_rng(1)
    assert digest_rng_state(state) == before
    assert not state.equals(capture_rng())


@given(seed=st.integers(0, 2**40))
def test_seeding_gives_the_usual_streams(seed):
    seed_rng(seed)
    found = [draw() for draw in DRAWS.values()]
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    assert found == [draw() for draw in DRAWS.values()]


def test_another_seed_gives_other_streams():
    seed_rng(1)
    first = [draw() for draw in DRAWS.values()]
    seed_rng(2)
    assert all(a != draw() for a, draw in zip(first, DRAWS.values(), strict=True))


@given(seed=st.integers(0, 2**32))
def test_a_seeded_state_is_made_without_touching_the_streams(seed):
    before = digest_rng()
    state = seeded_rng(seed)
    assert digest_rng() == before
    seed_rng(seed)
    assert state.equals(capture_rng())


@pytest.mark.parametrize("name", GENERATORS)
def test_one_draw_changes_the_digest_of_its_generator_only(name):
    before = digest_rng()
    assert digest_rng() == before, "digesting draws nothing"
    DRAWS[name]()
    after = digest_rng()
    assert {n for n in GENERATORS if after[n] != before[n]} == {name}


@pytest.mark.parametrize("name", HALF_DRAWS)
def test_half_a_pair_of_normals_changes_the_digest(name):
    HALF_DRAWS[name]()
    before = digest_rng((name,))
    HALF_DRAWS[name]()
    assert digest_rng((name,)) != before


def test_only_the_named_generators_are_digested():
    assert digest_rng(("torch",)) == {"torch": digest_rng()["torch"]}
    assert digest_rng(()) == {}


def test_digests_of_a_captured_state_are_those_of_its_moment():
    now = digest_rng()
    state = capture_rng()
    draw_all()
    assert digest_rng_state(state) == now
    assert digest_rng() != now


def test_a_state_equals_another_only_if_every_generator_does():
    state = capture_rng()
    assert state.equals(capture_rng())
    for draw in DRAWS.values():
        draw()
        assert not state.equals(capture_rng())
        restore_rng(state)


@pytest.mark.parametrize("name", GENERATORS)
def test_draws_are_replayed_only_where_the_generator_stands_at_their_begin(name):
    before = capture_rng()
    for draw in DRAWS.values():
        draw()
    after = capture_rng()
    restore_rng(before)
    DRAWS[name]()
    DRAWS[name]()
    moved = digest_rng()[name]
    replay_draws(before, after)
    assert digest_rng() == digest_rng_state(after) | {name: moved}

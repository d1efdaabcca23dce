"""Over all ranks the shares of the squared norm sum up to it, and no rank asks another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.observe import sharded

Found = tuple[dict[str, Any], ...]  # by rank: what each case found
KNOWN = sorted(set(sharded.CASES) - {"partial"})


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(
        sharded.observe_shards, args=(str(folder),), nprocs=sharded.WORLD, join=True
    )
    return tuple(
        json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(sharded.WORLD)
    )


@pytest.mark.parametrize("case", KNOWN)
def test_the_shares_of_all_ranks_sum_up_to_the_squared_norm(found: Found, case: str) -> None:
    total = sum(rank[case]["share"] for rank in found)
    assert total == pytest.approx(found[0][case]["exact"], rel=2e-9)


@pytest.mark.parametrize("case", sorted(sharded.CASES))
def test_no_rank_asks_another(found: Found, case: str) -> None:
    assert [rank[case]["collectives"] for rank in found] == [0] * sharded.WORLD


@pytest.mark.parametrize("case", ["sharded", "large", "uneven", "strided", "fully_shard", "half"])
def test_a_share_is_less_than_all_where_each_rank_holds_a_part(found: Found, case: str) -> None:
    for rank in found:
        assert 0 < rank[case]["share"] < 0.99 * rank[case]["exact"]
        assert (rank[case]["sharded"], rank[case]["by_name"]) == (True, {})


@pytest.mark.parametrize("case", ["replicated", "plain", "mesh_of_two_dimensions"])
def test_what_every_rank_holds_whole_is_measured_whole_and_shared_equally(
    found: Found, case: str
) -> None:
    for rank in found:
        assert rank[case]["share"] == pytest.approx(rank[case]["exact"] / sharded.WORLD)
        assert rank[case]["by_name"]["0"] ** 2 == pytest.approx(rank[case]["exact"])
        assert not rank[case]["sharded"]


def test_an_empty_shard_adds_nothing(found: Found) -> None:
    assert found[1]["empty_shard"]["share"] == 0.0
    assert found[0]["empty_shard"]["share"] == pytest.approx(found[0]["empty_shard"]["exact"])


def test_a_rank_outside_of_the_mesh_adds_nothing_and_knows_that_it_does_not_know(
    found: Found,
) -> None:
    outside, inside = (rank["mesh_over_one_rank"] for rank in found)
    assert (outside["share"], outside["sharded"], outside["by_name"]) == (0.0, True, {})
    assert (inside["share"], inside["sharded"]) == (pytest.approx(inside["exact"]), False)


def test_of_a_gradient_that_is_still_to_be_summed_no_rank_knows_a_share(found: Found) -> None:
    for rank in found:
        assert (rank["partial"]["share"], rank["partial"]["sharded"]) == (None, True)


def test_among_sharded_tensors_the_whole_ones_have_their_norms_by_name(found: Found) -> None:
    assert [list(rank["mixed"]["by_name"]) for rank in found] == [["1", "2"]] * sharded.WORLD


def test_the_cases_are_what_they_are_named(found: Found) -> None:
    placements = found[0]["fully_shard_of_a_split_layer"]["placements"]
    assert placements == ["_StridedShard", "Shard"]
    assert found[0]["fully_shard"]["sharded_moments"] == 4


def test_the_norm_of_a_part_is_refused_and_not_taken_for_the_whole(found: Found) -> None:
    for rank in found:
        assert "take shard_share and add up the ranks" in rank["fully_shard"]["refused"]
        assert rank["fully_shard"]["measured"] ** 2 == pytest.approx(rank["fully_shard"]["exact"])


def test_sharded_moments_are_left_out_and_plain_ones_are_not(found: Found) -> None:
    for rank in found:
        assert rank["fully_shard"]["moments"] == {}
        assert list(rank["fully_shard"]["moments_plain"]) == ["exp_avg", "exp_avg_sq"]


def test_the_digest_of_sharded_parameters_is_that_of_this_rank_s_own(found: Found) -> None:
    digests = [rank["fully_shard"]["digest"] for rank in found]
    assert digests[0] != digests[1]
    for rank in found:
        case = rank["fully_shard"]
        assert case["digest"] == case["digest_again"] == case["digest_of_locals"]

"""Whether the ranks of a run train one model."""

import pytest

from tests.records.samples import make_update
from traingen.judge import judge_ranks
from traingen.records import RankDisagreement, SchedulerState, UpdateRecord
from traingen.records.ranks import RankMerger, Turn

ID = "TG-RECORD-RANKS"


def merged(*ranks: list[UpdateRecord]) -> RankMerger:
    merger = RankMerger([map(Turn, updates) for updates in ranks[1:]])
    for record in ranks[0]:
        merger.take(Turn(record))
    merger.finish()
    return merger


def training(last, first=1, **changes):
    return [make_update(number, **changes) for number in range(first, last + 1)]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lr": [0.3]}, "lr differs in 4 updates, first 3: [0.001] on rank 0; [0.3] on rank 1"),
        (
            {"hyper_parameters": [make_update(1).hyper_parameters[0] | {"eps": 1e-3}]},
            "hyper_parameters differs in 4 updates, first 3: eps of group 0 1e-08 on rank 0; "
            "0.001 on rank 1",
        ),
        (
            {"hyper_parameters": [make_update(1).hyper_parameters[0], {"eps": 0.5}]},
            "hyper_parameters differs in 4 updates, first 3: "
            "[{'betas': [0.9, 0.999], 'eps': 1e-08, '…] on rank 0; "
            "[{'betas': [0.9, 0.999], 'eps': 1e-08, '…, {'eps': 0.5}] on rank 1",
        ),
        (
            {"scheduler": [SchedulerState(id=0, last_epoch=1, ticks=9)]},
            "ticks differs in 4 updates, first 3: [2] on rank 0; [9] on rank 1",
        ),
        (
            {"grad_norm_clipped": 0.25},
            "grad_norm_clipped differs in 4 updates, first 3: 1 on rank 0; 0.25 on rank 1",
        ),
        (
            {"parameters": "e2"},
            "parameters differs in 4 updates, first 3: e1 on rank 0; e2 on rank 1",
        ),
    ],
)
def test_what_makes_models_differ_is_an_error(changes, told):
    other = training(2) + training(6, 3, **changes)
    [finding] = judge_ranks(merged(training(6), other).disagreements)
    assert (finding.id, finding.severity, finding.measured) == (ID, "error", told)


def test_the_most_telling_is_first_and_the_optimizer_is_named():
    both = [make_update(n, optimizer=i) for n in (1, 2) for i in (0, 1)]
    other = [make_update(n, optimizer=i) for n in (1,) for i in (0, 1)]
    other += [make_update(2, parameters="e2"), make_update(2, optimizer=1, lr=[0.3])]
    [finding] = judge_ranks(merged(both, other).disagreements)
    assert finding.measured == (
        "lr of optimizer 1 differs in 1 update, first 2: [0.001] on rank 0; [0.3] on rank 1; "
        "parameters differs in 1 update, first 2: e1 on rank 0; e2 on rank 1"
    )


@pytest.mark.parametrize(
    "other",
    [
        training(6),
        training(3),  # killed
        training(6, loss=9.0, objective=9.0),  # its own data
        training(6, lr=[0.001 * (1 + 1e-8)]),
        training(6, parameters=None, lr=[0.001]),  # not recorded
        training(6, micro_batches=2),
    ],
    ids=["equal", "killed", "its own loss", "rounded", "not recorded", "more batches"],
)
def test_ranks_that_train_one_model_are_silent(other):
    assert judge_ranks(merged(training(6), other).disagreements) == []


def test_of_three_ranks_one_may_be_unknown():
    def one(*values):
        return RankDisagreement(field="parameters", optimizer=0, update=1, values=values, count=1)

    assert judge_ranks([one("e1", "e1", None)]) == []
    assert len(judge_ranks([one("e1", "e2", None)])) == 1

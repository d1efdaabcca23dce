"""Two update records: equal ones do not differ, and one changed field is found at its place."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.samples import make_update
from traingen.compare.gates import Gates
from traingen.compare.order import GATED, causal_rank
from traingen.compare.records import (
    ABSENT,
    COMPARED_FIELDS,
    compare_updates,
    relative_difference,
)
from traingen.records import BatchFacts, ClosureFacts, SchedulerState, ShardFacts, UpdateRecord

INF, NAN = math.inf, math.nan
EXACT = Gates()
LOOSE = Gates.of_numbers(**{name: {"rtol": 1e9, "atol": 1e9} for name in GATED})
WHOLE = make_update(
    4,
    ema={"decay": 0.999, "updates": 4},
    sampler={"history": [1, 2], "active": "uniform"},
    user={"temperature": {"value": 0.5, "steps": [1, 2]}, "note": "a"},
    loss_terms={"cross_entropy": 2.3, "sparsity": 0.0025},
    closure=ClosureFacts(evaluations=3, first_objective=0.5, last_objective=0.25),
    lr=[0.001, 0.002],
    scheduler=[
        SchedulerState(id=0, last_epoch=3, ticks=3),
        SchedulerState(id=1, last_epoch=None, ticks=0),
    ],
)

FIRST, SECOND = WHOLE.scheduler
(GROUP,) = WHOLE.hyper_parameters
# field, its changed value, quantity and path of the one difference
CHANGES: list[tuple[str, Any, str, str]] = [
    (
        "scheduler",
        [SchedulerState(id=0, last_epoch=3, ticks=4), SECOND],
        "tail.scheduler",
        "scheduler[0].ticks",
    ),
    (
        "scheduler",
        [SchedulerState(id=0, last_epoch=2, ticks=3), SECOND],
        "tail.scheduler",
        "scheduler[0].last_epoch",
    ),
    (
        "scheduler",
        [FIRST, SchedulerState(id=1, last_epoch=0, ticks=0)],
        "tail.scheduler",
        "scheduler[1].last_epoch",
    ),
    ("scheduler", WHOLE.scheduler[:1], "tail.scheduler", "scheduler[1]"),
    ("ema", {"decay": 0.99, "updates": 4}, "tail.ema", "ema.decay"),
    ("ema", {"decay": 0.999}, "tail.ema", "ema.updates"),
    ("ema", None, "tail.ema", "ema"),
    ("sampler", {"history": [1, 2], "active": "importance"}, "tail.sampler", "sampler.active"),
    ("sampler", {"history": [1, 3], "active": "uniform"}, "tail.sampler", "sampler.history[1]"),
    ("sampler", {"history": [1], "active": "uniform"}, "tail.sampler", "sampler.history"),
    ("sampler", None, "tail.sampler", "sampler"),
    (
        "user",
        {"temperature": {"value": 50.0, "steps": [1, 2]}, "note": "a"},
        "tail.user",
        "user.temperature.value",
    ),
    (
        "user",
        {"temperature": {"value": 0.5, "steps": [1, 3]}, "note": "a"},
        "tail.user",
        "user.temperature.steps[1]",
    ),
    ("user", {"temperature": {"value": 0.5, "steps": [1, 2]}}, "tail.user", "user.note"),
    ("amp_scale", 32768.0, "tail.scaler", "amp_scale"),
    ("amp_scale", None, "tail.scaler", "amp_scale"),
    ("amp_growth", 0, "tail.scaler", "amp_growth"),
    ("amp_growth", None, "tail.scaler", "amp_growth"),
    ("rng", {"python": "aa", "torch": "b0"}, "tail.rng", "rng.begin.torch"),
    ("rng", {"torch": "bb"}, "tail.rng", "rng.begin.python"),
    ("micro_batches", 2, "batch", "batch.micro_batches"),
    ("batch", BatchFacts(digest="d2", ids=WHOLE.batch.ids), "batch", "batch.digest"),
    ("batch", None, "batch", "batch.digest"),
    ("rng_forward", {"torch": "b0"}, "rng", "rng.first_forward.torch"),
    ("rng_forward", None, "rng", "rng.first_forward.torch"),
    ("rng_after", {"torch": "c0"}, "rng", "rng.after_update.torch"),
    ("rng_after", None, "rng", "rng.after_update.torch"),
    ("loss_terms", {"cross_entropy": 2.3, "sparsity": 0.003}, "loss_terms", "loss_terms.sparsity"),
    ("loss_terms", {"cross_entropy": 2.3}, "loss_terms", "loss_terms.sparsity"),
    ("objective", 0.25, "objective", "objective"),
    ("objective", None, "objective", "objective"),
    ("loss", 0.25, "objective", "loss"),
    ("grad_norm", 1.94, "grad_norm", "grad_norm"),
    ("grad_norm", None, "grad_norm", "grad_norm"),
    ("clipped", False, "clipping", "clipping.clipped"),
    ("clipped", None, "clipping", "clipping.clipped"),
    ("grad_norm_clipped", 1.1, "clipping", "clipping.grad_norm_clipped"),
    ("grad_norm_clipped", None, "clipping", "clipping.grad_norm_clipped"),
    ("clip_coefficient", 0.5, "clipping", "clipping.clip_coefficient"),
    ("clip_coefficient", None, "clipping", "clipping.clip_coefficient"),
    (
        "closure",
        ClosureFacts(evaluations=3, first_objective=0.6, last_objective=0.25),
        "objective",
        "closure.first_objective",
    ),
    (
        "closure",
        ClosureFacts(evaluations=4, first_objective=0.5, last_objective=0.25),
        "optimizer_state",
        "closure.evaluations",
    ),
    (
        "closure",
        ClosureFacts(evaluations=3, first_objective=0.5, last_objective=0.24),
        "optimizer_state",
        "closure.last_objective",
    ),
    ("lr", [0.001, 0.003], "lr", "lr[1]"),
    ("hyper_parameters", [GROUP | {"eps": 1e-7}], "hyper_parameters", "hyper_parameters[0].eps"),
    (
        "hyper_parameters",
        [GROUP | {"betas": [0.8, 0.999]}],
        "hyper_parameters",
        "hyper_parameters[0].betas",
    ),
    (
        "hyper_parameters",
        [{"betas": [0.9, 0.999], "eps": 1e-08}],
        "hyper_parameters",
        "hyper_parameters[0].weight_decay",
    ),
    ("hyper_parameters", [], "hyper_parameters", "hyper_parameters[0]"),
    ("layer_norms", {"weight": 1.8, "bias": 0.3}, "gradients", "layer_norms.weight"),
    ("update_ratios", {"weight": 0.001, "bias": 0.02}, "parameters", "update_ratios.bias"),
    (
        "moment_norms",
        {"exp_avg": 0.2, "exp_avg_sq": 0.003},
        "optimizer_state",
        "moment_norms.exp_avg",
    ),
    ("moment_norms", {"exp_avg": 0.19}, "optimizer_state", "moment_norms.exp_avg_sq"),
    ("parameters", "e2", "parameters", "parameters"),
    ("parameters", None, "parameters", "parameters"),
]

# What is not weighed here, and why.
NOT_COMPARED = {
    "update": "the caller pairs records by it",
    "optimizer": "the caller pairs records by it",
    "global_step": "the loop's own way of counting",
    "epoch": "the loop's own way of counting",
    "batch_idx": "the loop's own way of counting",
    "total_batch_idx": "the loop's own way of counting",
    "batches_that_stepped": "the loop's own way of counting",
    "micro_losses": "their mean is the loss",
    "shard": "see the tests of shares",
    "divisor": "shows in the objective",
    "grad_norm_source": "how it was measured",
    "data_sampler": "shows in the batch",
    "unknown": "a newer writer's",
}


def changed(**changes: Any) -> UpdateRecord:
    return msgspec.structs.replace(WHOLE, **changes)


def test_every_field_is_either_compared_or_left_out_for_a_reason():
    fields = {field.name for field in msgspec.structs.fields(UpdateRecord)}
    changed_fields = {field for field, *_ in CHANGES}
    assert changed_fields | set(NOT_COMPARED) == fields
    assert {"micro_batches", "user", *COMPARED_FIELDS} == changed_fields | {"shard"}


def test_a_record_does_not_differ_from_itself_and_much_was_compared():
    comparison = compare_updates(WHOLE, WHOLE, EXACT)
    assert comparison.differences == ()
    assert comparison.loss_relative == 0.0
    assert comparison.compared == {
        "tail.scheduler": 3, "tail.ema": 1, "tail.sampler": 1, "tail.user": 2, "tail.scaler": 2,
        "tail.rng": 2, "batch": 2, "rng": 2, "loss_terms": 2, "objective": 3, "gradients": 2,
        "grad_norm": 1, "clipping": 3, "optimizer": 1, "lr": 2, "hyper_parameters": 3,
        "optimizer_state": 4, "parameters": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value", "quantity", "path"),
    CHANGES,
    ids=[f"{change[3]}-{number}" for number, change in enumerate(CHANGES)],
)
@pytest.mark.parametrize("swapped", [False, True], ids=["package", "original"])
def test_one_changed_field_is_found_at_its_place(field, value, quantity, path, swapped):
    pair = (WHOLE, changed(**{field: value}))
    comparison = compare_updates(*(pair[::-1] if swapped else pair), EXACT)
    assert [(d.quantity, d.path) for d in comparison.differences] == [(quantity, path)]
    assert comparison.left == comparison.differences


@pytest.mark.parametrize("field", sorted(set(NOT_COMPARED) - {"unknown", "shard"}))
def test_a_field_that_is_left_out_makes_no_difference(field):
    value = "clip" if field == "grad_norm_source" else 99
    comparison = compare_updates(WHOLE, changed(**{field: value}), EXACT)
    assert comparison.differences == ()


def test_a_difference_states_both_values_and_its_sizes():
    comparison = compare_updates(WHOLE, changed(grad_norm=2.93), EXACT)
    (difference,) = comparison.differences
    assert (difference.update, difference.original, difference.package) == (4, 1.93, 2.93)
    assert difference.absolute == 2.93 - 1.93
    assert difference.relative == (2.93 - 1.93) / 1.93
    assert difference.limit == "exact"


def test_what_one_system_lacks_is_named_absent():
    package = changed(grad_norm=None, amp_scale=None)
    comparison = compare_updates(WHOLE, package, LOOSE)
    assert [(d.path, d.original, d.package) for d in comparison.left] == [
        ("amp_scale", 65536.0, ABSENT),
        ("grad_norm", 1.93, ABSENT),
    ]
    assert all(d.absolute is None for d in comparison.left)


def test_what_both_systems_lack_is_not_counted():
    nothing = {
        name: None
        for name in ("scheduler", "ema", "sampler", "amp_scale", "rng", "rng_forward", "rng_after",
                     "batch", "loss_terms", "objective", "loss", "grad_norm", "clipped",
                     "grad_norm_clipped", "clip_coefficient", "amp_growth", "closure",
                     "layer_norms", "update_ratios", "moment_norms", "parameters", "user")
    }  # fmt: skip
    bare = changed(**nothing, lr=[], hyper_parameters=[])
    comparison = compare_updates(bare, bare, EXACT)
    assert comparison.compared == {"batch": 1, "optimizer": 1}  # the numbers of either
    assert comparison.loss_relative is None


def test_loss_terms_that_only_one_system_taps_are_not_compared():
    comparison = compare_updates(WHOLE, changed(loss_terms=None), EXACT)
    assert "loss_terms" not in comparison.compared
    assert comparison.differences == ()


def test_differences_stand_in_causal_order():
    package = changed(lr=[1.0, 1.0], loss=9.0, rng={"python": "x", "torch": "y"}, micro_batches=3)
    comparison = compare_updates(WHOLE, package, EXACT)
    ranks = [causal_rank(d.quantity) for d in comparison.differences]
    assert ranks == sorted(ranks)
    assert comparison.differences[0].quantity == "tail.rng"


def test_nan_equals_nan():
    poor = changed(loss=NAN, objective=NAN, grad_norm=NAN, lr=[NAN, NAN])
    comparison = compare_updates(poor, poor, EXACT)
    assert comparison.differences == ()
    assert comparison.nonfinite == ("original", "package")


@pytest.mark.parametrize(("original", "package"), [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (INF, -INF)])
def test_a_number_that_is_not_finite_against_another_is_left_and_infinitely_far(original, package):
    comparison = compare_updates(changed(grad_norm=original), changed(grad_norm=package), LOOSE)
    (difference,) = comparison.left
    assert difference.absolute == INF
    assert difference.relative == INF


def test_the_system_whose_loss_is_not_finite_is_named():
    comparison = compare_updates(WHOLE, changed(loss=-INF), EXACT)
    assert comparison.nonfinite == ("package",)
    assert compare_updates(WHOLE, WHOLE, EXACT).nonfinite == ()


@pytest.mark.parametrize(
    ("sources", "left"),
    [
        (("measured", "measured"), ["grad_norm", "clipping.grad_norm_clipped"]),
        (("clip", "measured"), []),
        (("measured", "clip"), []),
        (("clip", "clip"), ["grad_norm", "clipping.grad_norm_clipped"]),
    ],
    ids=str,
)
def test_norms_that_a_clip_computed_may_be_less_accurate(sources, left):
    mine = changed(grad_norm=2.0, grad_norm_clipped=1.0, grad_norm_source=sources[0])
    theirs = changed(grad_norm=2.0019, grad_norm_clipped=1.0009, grad_norm_source=sources[1])
    comparison = compare_updates(mine, theirs, EXACT)
    assert [d.path for d in comparison.left] == left
    assert len(comparison.differences) == 2
    assert comparison.allowed == (() if left else ("grad_norm", "clipping"))


def test_norms_that_a_clip_computed_have_a_limit_too():
    mine = changed(grad_norm=2.0, grad_norm_source="clip")
    comparison = compare_updates(mine, changed(grad_norm=2.003), EXACT)
    assert [(d.path, d.limit) for d in comparison.left] == [("grad_norm", "rtol=0.001")]


def test_a_clip_makes_nothing_else_less_accurate():
    mine = changed(grad_norm_source="clip")
    comparison = compare_updates(mine, changed(objective=WHOLE.objective * 1.0001), EXACT)
    assert [d.path for d in comparison.left] == ["objective"]


def test_a_gate_admits_a_difference_and_keeps_it():
    gates = Gates.of_numbers(lr={"rtol": 0.1})
    comparison = compare_updates(WHOLE, changed(lr=[0.00101, 0.002]), gates)
    assert [(d.path, d.left) for d in comparison.differences] == [("lr[0]", False)]
    assert comparison.left == ()


def test_report_only_is_never_left():
    gates = Gates.of_numbers(batch={"report_only": True})
    comparison = compare_updates(WHOLE, changed(batch=BatchFacts(digest="x", ids=None)), gates)
    assert [(d.path, d.limit) for d in comparison.differences] == [("batch.digest", "report-only")]
    assert comparison.left == ()


@pytest.mark.parametrize(
    ("original", "package", "expected"),
    [
        (2.0, 2.0, 0.0),
        (2.0, 3.0, 0.5),
        (-2.0, -3.0, 0.5),
        (0.0, 0.0, 0.0),
        (0.0, 1e-30, INF),
        (NAN, NAN, 0.0),
        (INF, INF, 0.0),
        (INF, -INF, INF),
        (NAN, 1.0, INF),
        (1.0, INF, INF),
        (None, 1.0, None),
        (1.0, None, None),
        (None, None, None),
    ],
)
def test_relative_difference_is_relative_to_the_original(original, package, expected):
    assert relative_difference(original, package) == expected


@given(original=st.floats() | st.none(), package=st.floats() | st.none())
def test_relative_difference_is_never_nan_or_negative(original, package):
    relative = relative_difference(original, package)
    assert relative is None or relative >= 0.0


def test_groups_of_another_number_are_told_by_their_number_and_not_by_index():
    comparison = compare_updates(WHOLE, changed(lr=[0.001]), EXACT)
    assert [(d.quantity, d.path, d.original, d.package) for d in comparison.differences] == [
        ("optimizer", "optimizer.groups", 2, 1)
    ]
    assert "lr" not in comparison.compared


def test_a_loss_that_a_loop_does_not_tell_is_not_compared_and_the_objective_is():
    comparison = compare_updates(WHOLE, changed(loss=None), EXACT)
    assert comparison.differences == ()
    assert comparison.compared["objective"] == 2  # the closure's too
    assert comparison.loss_relative == 0.0  # that of the objective


def test_an_update_without_a_batch_of_its_own_is_told_before_what_its_begin_lacks():
    bare = changed(micro_batches=0, batch=None, scheduler=None, rng=None, rng_forward=None)
    (difference,) = compare_updates(WHOLE, bare, EXACT).differences
    assert (difference.path, difference.package) == ("batch.micro_batches", 0)


@pytest.mark.parametrize("field", ["loss", "objective", "grad_norm"])
def test_a_number_that_is_not_finite_is_noted_for_its_system(field):
    comparison = compare_updates(WHOLE, changed(**{field: NAN}), EXACT)
    assert comparison.nonfinite == ("package",)


# ---- what can be told apart, and what cannot -----------------------------------------------------


@pytest.mark.parametrize(
    ("ema", "paths"),
    [
        ({"class_path": "other.Ema", "decay": 0.999, "updates": 4}, []),
        ({"decay": None, "updates": 4}, []),
        ({"decay": None, "updates": 5}, ["ema.updates"]),
        ({"decay": 0.999, "updates": 4, "distance": 1.5}, ["ema.distance"]),
    ],
    ids=str,
)
def test_averaged_weights_differ_by_what_both_owners_tell_and_not_by_their_class(ema, paths):
    comparison = compare_updates(WHOLE, changed(ema=ema), EXACT)
    assert [d.path for d in comparison.differences] == paths


@pytest.mark.parametrize(("field", "name"), [("layer_norms", "0.weight"), ("update_ratios", "w")])
def test_parameters_of_other_names_cannot_be_paired(field, name):
    comparison = compare_updates(WHOLE, changed(**{field: {name: 9.0}}), EXACT)
    assert comparison.differences == ()


def test_the_distance_of_averaged_weights_meets_its_limit():
    mine = changed(ema={"decay": 0.9, "updates": 4, "distance": 1.0})
    theirs = changed(ema={"decay": 0.9, "updates": 4, "distance": 1.05})
    gates = Gates.of_numbers(ema={"rtol": 0.1})
    assert compare_updates(mine, theirs, gates).left == ()
    assert [d.path for d in compare_updates(mine, theirs, EXACT).left] == ["ema.distance"]


def share(of_norm: float = 4.0, of_clipped: float = 1.0) -> ShardFacts:
    return ShardFacts(grad_norm_squared=of_norm, grad_norm_clipped_squared=of_clipped)


@pytest.mark.parametrize(
    ("theirs", "paths"),
    [
        ({"shard": share()}, []),
        ({"shard": share(of_norm=5.0)}, ["shard.grad_norm_squared"]),
        ({"shard": share(of_clipped=2.0)}, ["shard.grad_norm_clipped_squared"]),
        ({"shard": None}, []),  # a whole norm against a share of one
    ],
    ids=str,
)
def test_shares_of_a_norm_are_compared_with_shares(theirs, paths):
    mine = changed(shard=share(), grad_norm=None, grad_norm_clipped=None)
    comparison = compare_updates(mine, changed(**theirs), EXACT)
    assert [d.path for d in comparison.differences] == paths


def test_a_digest_is_asserted_only_where_parameters_must_be_equal():
    other = changed(parameters="e2")
    (difference,) = compare_updates(
        WHOLE, other, Gates.of_numbers(parameters={"rtol": 1e-9})
    ).differences
    assert (difference.left, difference.limit) == (False, "report-only")
    (difference,) = compare_updates(WHOLE, other, EXACT).differences
    assert (difference.left, difference.limit) == (True, "exact")
    assert compare_updates(WHOLE, other, EXACT).reported == {}


def test_digests_that_no_limit_can_judge_are_counted_apart():
    for limit in ({"rtol": 1e-9}, {"max_ulps": 1}, {"report_only": True}):
        found = compare_updates(WHOLE, WHOLE, Gates.of_numbers(parameters=limit))
        assert (found.compared["parameters"], found.reported) == (3, {"parameters": 1})


def test_a_flag_has_no_limit_that_is_not_exact():
    mine = changed(grad_norm_source="clip")
    gates = Gates.of_numbers(clipping={"rtol": 0.5})
    (difference,) = compare_updates(mine, changed(clipped=False), gates).left
    assert (difference.path, difference.limit) == ("clipping.clipped", "exact")


def test_a_closure_that_one_side_has_is_a_difference():
    (difference,) = compare_updates(WHOLE, changed(closure=None), EXACT).left
    assert (difference.path, difference.original) == ("closure.evaluations", 3)


@pytest.mark.parametrize("field", ["loss_terms", "layer_norms", "moment_norms", "user"])
def test_what_one_side_has_counts_only_where_both_have_looked_for_it(field):
    theirs = changed(**{field: None})
    assert compare_updates(WHOLE, theirs, EXACT).differences == ()
    seen = frozenset({field})
    assert compare_updates(WHOLE, theirs, EXACT, seen=seen).left != ()
    assert compare_updates(theirs, theirs, EXACT, seen=seen).differences == ()


def test_skipped_steps_are_compared_where_they_are_known():
    assert compare_updates(WHOLE, WHOLE, EXACT, skipped=(2, 2)).differences == ()
    (difference,) = compare_updates(WHOLE, WHOLE, EXACT, skipped=(2, 3)).left
    assert (difference.quantity, difference.path) == ("tail.scaler", "skipped_steps")

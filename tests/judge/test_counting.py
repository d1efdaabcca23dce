"""Whether what the loop counts as steps are updates, made of whole windows and of gradients."""

import pytest

from tests.judge.recordings import end, event, judged, resumed, run, skip, update, updates
from tests.records.samples import make_resumed
from traingen.judge import judge_recording
from traingen.records import ClosureFacts, ShardFacts

NOTHING = {"objective": None, "loss": None, "grad_norm": None, "grad_norm_clipped": None}


# ---- updates without a gradient -----------------------------------------------------------------


@pytest.mark.parametrize("norm", [None, 0.0])
@pytest.mark.parametrize("which", [{1}, {3, 5}, {2, 3, 4}])
def test_updates_without_a_gradient_are_a_warning(norm, which):
    none = NOTHING | {"grad_norm": norm, "grad_norm_clipped": norm}
    found = judged(run(), [update(n, **(none if n in which else {})) for n in range(1, 6)], end())
    assert list(found) == ["TG-RECORD-NO-GRADIENT"]
    finding = found["TG-RECORD-NO-GRADIENT"]
    assert finding.severity == "warning"
    assert finding.measured.startswith(f"update {min(which)} had ")
    assert finding.measured.endswith(f"{len(which)} of 5 updates are such")


@pytest.mark.parametrize(
    "changes",
    [
        {"grad_norm": 0.0, "grad_norm_clipped": 0.0},  # a loss that is flat there
        {"objective": None, "loss": None},  # a gradient that no backward brought
        NOTHING | {"shard": ShardFacts(grad_norm_squared=1.0, grad_norm_clipped_squared=1.0)},
    ],
    ids=["flat", "own gradients", "sharded"],
)
def test_updates_that_had_one_are_silent(changes):
    assert judged(run(), updates(1, 3, **changes), end()) == {}


@pytest.mark.parametrize("norm", [None, 0.0])
@pytest.mark.parametrize("steps", [3, 20])
def test_an_optimizer_that_never_had_a_gradient_is_an_error(norm, steps):
    none = NOTHING | {"grad_norm": norm, "grad_norm_clipped": norm}
    found = judged(run(), updates(1, steps, **none), end())
    assert list(found) == ["TG-RECORD-NO-GRADIENT"]
    assert found["TG-RECORD-NO-GRADIENT"].severity == "error"
    assert found["TG-RECORD-NO-GRADIENT"].measured.endswith(
        f"{steps} of {steps} updates are such; optimizer 0 never had one"
    )


@pytest.mark.parametrize(
    "records",
    [
        [*updates(1, 2, **NOTHING)],  # too few to say "never"
        [*updates(1, 9, **NOTHING), update(10)],
        [update(1), *updates(2, 10, **NOTHING)],
        [update(1, grad_norm=0.0, grad_norm_clipped=0.0), *updates(2, 10, **NOTHING)],
    ],
    ids=["two", "late", "early", "flat"],
)
def test_an_optimizer_that_once_had_a_gradient_is_a_warning(records):
    assert judged(run(), records, end())["TG-RECORD-NO-GRADIENT"].severity == "warning"


@pytest.mark.parametrize("idle", [0, 1])
def test_one_of_two_optimizers_that_never_had_a_gradient_is_named(idle):
    both = [
        update(n, optimizer=one, global_step=None, **(NOTHING if one == idle else {}))
        for n in range(1, 5)
        for one in (0, 1)
    ]
    finding = judged(run(optimizers=2), both, end())["TG-RECORD-NO-GRADIENT"]
    assert finding.severity == "error"
    assert finding.measured == (
        f"update 1 of optimizer {idle} had no gradient: no backward, or none that was not cleared "
        f"again; 4 of 8 updates are such; optimizer {idle} never had one"
    )


def test_gradients_that_a_resume_supersedes_were_never_there_and_lost_ones_may_have_been():
    first = [*updates(1, 4, **NOTHING), update(5)]
    again = [resumed(4), *updates(5, 6, **NOTHING), end()]
    assert judged(run(), first)["TG-RECORD-NO-GRADIENT"].severity == "warning"
    assert judged(run(), first, again)["TG-RECORD-NO-GRADIENT"].severity == "error"
    elsewhere = judged(resumed(4), updates(5, 9, **NOTHING), end())
    assert elsewhere["TG-RECORD-NO-GRADIENT"].severity == "warning"


def test_a_step_after_batch_norms_were_renewed_is_silent_and_one_before_is_not():
    renewed = event("batch_norm_epoch", buffers="ab", global_step=3, epoch=1)
    assert judged(run(), updates(1, 3), renewed, update(4, **NOTHING), end()) == {}
    found = judged(run(), update(1), update(2, **NOTHING), renewed, update(3, **NOTHING), end())
    assert found["TG-RECORD-NO-GRADIENT"].measured.startswith("update 2 had ")
    assert found["TG-RECORD-NO-GRADIENT"].measured.endswith("1 of 3 updates are such")


@pytest.mark.parametrize("norm", [0.5, 2.0])
def test_an_old_gradient_after_batch_norms_were_renewed_is_a_warning(norm):
    renewed = event("batch_norm_epoch", buffers="ab", global_step=3, epoch=1)
    old = NOTHING | {"grad_norm": norm, "grad_norm_clipped": norm}
    found = judged(run(), updates(1, 3), renewed, update(4, **old), end())
    assert list(found) == ["TG-RECORD-AVERAGE-MOVED"]
    assert f"update 4 applied a gradient of norm {norm:g} " in (
        found["TG-RECORD-AVERAGE-MOVED"].measured
    )
    assert judged(run(), updates(1, 3), update(4, **old), end()) == {}


@pytest.mark.parametrize("observes", [["lr"], ["lr", "grad_norm"], ["lr", "objective"]])
def test_what_an_observer_cannot_see_is_not_missing(observes):
    assert judged(run(observes=observes), updates(1, 3, **NOTHING), end()) == {}


# ---- the loop's counter -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "total"), [([1], "1 counted step had"), ([2, 3], "5 counted steps had")]
)
def test_counted_steps_without_an_update_are_a_warning(counts, total):
    events = [event("counted_without_update", count=k, global_step=9) for k in counts]
    found = judged(run(), updates(1, 3), events, update(4), end())
    assert list(found) == ["TG-RECORD-NO-UPDATE"]
    assert found["TG-RECORD-NO-UPDATE"].severity == "warning"
    assert found["TG-RECORD-NO-UPDATE"].measured == f"{total} no update, first after update 3"


@pytest.mark.parametrize("steps", [1, 20])
@pytest.mark.parametrize("reason", ["finished", "stopped"])
def test_a_training_that_made_no_update_at_all_is_an_error(steps, reason):
    events = [event("counted_without_update", count=1, global_step=n + 1) for n in range(steps)]
    found = judged(run(), events, end(reason=reason))
    assert list(found) == ["TG-RECORD-NO-UPDATE"]
    finding = found["TG-RECORD-NO-UPDATE"]
    assert finding.severity == "error"
    assert finding.measured.startswith(f"{steps} counted step")
    assert finding.measured.endswith(" had no update, and none was ever made")


def saved_at(step: int, *completed: int):
    """The run line of a resume from a checkpoint at this `global_step`."""
    facts = make_resumed(*completed or (0,), global_step=step)
    return run(attempt=2, resumed=facts, optimizers=len(completed) or 1)


@pytest.mark.parametrize(("step", "left"), [(4, 4), (9, 4), (3, 0), (0, 0)])
def test_steps_that_were_counted_after_the_checkpoint_do_not_stand(step, left):
    without = event("counted_without_update", count=4, global_step=4)
    found = judged(run(), without, saved_at(step), updates(1, 3), end())
    told = [f"{left} counted steps had no update, first before the first update"]
    assert [one.measured for one in found.values()] == (told if left else [])


@pytest.mark.parametrize(("completed", "told"), [((3, 3), (5, 2, 3)), ((4, 4), (7, 3, 4))])
def test_a_global_step_is_that_of_what_stands(completed, told):
    """Attempt 2 goes on with one optimizer."""
    made = sum(completed)
    facts = make_resumed(*completed)
    on = [update(n, global_step=made + n - completed[0]) for n in range(completed[0] + 1, 15)]
    found = judged(run(optimizers=2), alternating(9), run(attempt=2, resumed=facts), on, end())
    found.pop("TG-RECORD-NOT-REPEATED", None)
    assert [one.measured for one in found.values()] == [
        f"global_step rose by {told[0]} over {told[1]} of optimizer 0 and {told[2]} of optimizer 1"
    ]
    none = run(attempt=2, resumed=make_resumed(1, 1))
    alone = [update(n, global_step=n + 1) for n in range(2, 9)]
    assert "TG-RECORD-GLOBAL-STEP" not in judged(run(optimizers=2), alternating(9), none, alone)


@pytest.mark.parametrize(
    "after",
    [
        [],  # it still runs
        [end(reason="exception")],
        [end(reason="interrupted")],
        [update(1), end()],
        [end(), event("segment", fit=2, global_step=4), update(1), end()],
        [end(), event("segment", fit=2, global_step=4)],
        [end(), saved_at(4), update(1), end()],
        [end(), saved_at(4)],
    ],
    ids=[
        "runs",
        "exception",
        "interrupted",
        "update",
        "another fit",
        "another fit runs",
        "resume",
        "resume runs",
    ],
)
def test_a_training_that_may_still_make_updates_or_has_is_a_warning(after):
    without = event("counted_without_update", count=4, global_step=4)
    found = judged(run(), without, after)
    assert found["TG-RECORD-NO-UPDATE"].severity == "warning"
    assert found["TG-RECORD-NO-UPDATE"].measured.endswith(", first before the first update")


def test_a_resume_that_made_no_update_has_those_before_it():
    without = event("counted_without_update", count=9, global_step=14)
    assert judged(resumed(5), without, end())["TG-RECORD-NO-UPDATE"].severity == "warning"
    lost = [run(), *updates(1, 3), resumed(0), without, end()]
    assert judged(lost)["TG-RECORD-NO-UPDATE"].severity == "error"


def test_steps_that_a_scaler_skipped_are_no_counted_steps_without_update():
    assert "TG-RECORD-NO-UPDATE" not in judged(run(), skip(1), skip(2), end())


def test_updates_behind_the_loops_back_are_a_warning_for_each_optimizer():
    events = [
        event("uncounted_update", optimizer=one, count=k, global_step=1)
        for one, k in [(1, 2), (1, 1), (0, 1)]
    ]
    first, second = judge_recording([run(), update(1), *events, end()])
    assert (first.id, first.severity) == ("TG-RECORD-UNCOUNTED", "warning")
    assert first.measured == "3 updates of optimizer 1 were not counted, first after update 1"
    assert second.measured == "1 update of optimizer 0 was not counted, first after update 1"


def test_an_optimizer_that_the_loop_was_never_given_is_a_warning():
    there = event(
        "optimizer_found", optimizer=1, class_path="torch.optim.SGD", groups=1, parameters=3
    )
    found = judged(run(), update(1), there, update(1, optimizer=1, global_step=1), end())
    assert list(found) == ["TG-RECORD-OPTIMIZER-FOUND"]
    finding = found["TG-RECORD-OPTIMIZER-FOUND"]
    assert finding.severity == "warning"
    assert finding.measured == "optimizer 1 (SGD) stepped, first after update 1"


@pytest.mark.parametrize("events", [[], [event("validation", global_step=2, epoch=0)]])
def test_a_loop_that_counts_its_updates_is_silent(events):
    assert judged(run(), updates(1, 2), events, updates(3, 5), end()) == {}


def alternating(batches: int, *, optimizers: int = 2, counted: bool = True):
    step = 0
    for batch in range(1, batches + 1):
        for optimizer in range(optimizers):
            step += counted or optimizer == 0
            yield update(batch, optimizer=optimizer, global_step=step)


@pytest.mark.parametrize("optimizers", [2, 3])
def test_a_global_step_that_counts_every_optimizer_is_told(optimizers):
    found = judged(run(optimizers=optimizers), alternating(5, optimizers=optimizers), end())
    assert list(found) == ["TG-RECORD-GLOBAL-STEP"]
    assert found["TG-RECORD-GLOBAL-STEP"].severity == "info"
    assert found["TG-RECORD-GLOBAL-STEP"].measured.startswith(
        f"global_step rose by {5 * optimizers - 1} over 4 of optimizer 0 and 5 of optimizer 1"
    )


@pytest.mark.parametrize(
    "records",
    [
        [run(), *updates(1, 9)],
        [run(optimizers=2), *alternating(5, counted=False)],
        [
            run(optimizers=2),
            *(update(n, optimizer=o, global_step=None) for n in (1, 2) for o in (0, 1)),
        ],
    ],
    ids=["one optimizer", "one of two is counted", "no counter"],
)
def test_a_global_step_that_does_not_is_not(records):
    assert judge_recording(records) == []


# ---- accumulation -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "divisor", "share"), [(1, 2, "0.5"), (3, 4, "0.75"), (1, 8, "0.125")]
)
def test_a_window_that_is_cut_short_is_a_warning(batches, divisor, share):
    whole = {"micro_batches": divisor, "divisor": divisor}
    short = update(3, micro_batches=batches, divisor=divisor, epoch=0, batch_idx=4)
    again = update(6, micro_batches=batches, divisor=divisor, epoch=1, batch_idx=4)
    records = [*updates(1, 2, **whole), short, *updates(4, 5, **whole), again]
    found = judged(run(accumulation=divisor), records, end())
    assert list(found) == ["TG-RECORD-PARTIAL-WINDOW"]
    finding = found["TG-RECORD-PARTIAL-WINDOW"]
    assert finding.severity == "warning"
    assert finding.measured.startswith(f"update 3 (epoch 0, batch 4): {batches} micro-batch")
    assert f"divided by {divisor}, the gradient is {share} of that" in finding.measured
    assert finding.measured.endswith("2 of 6 updates are such")


@pytest.mark.parametrize(
    ("batches", "losses", "divisor", "told"),
    [
        (2, 1, 2, "1 micro-batch (1 more had no loss) divided by 2, the gradient is 0.5 of"),
        (4, 1, 4, "1 micro-batch (3 more had no loss) divided by 4, the gradient is 0.25 of"),
        (3, 2, 4, "2 micro-batches (1 more had no loss) divided by 4, the gradient is 0.5 of"),
        (1, None, 2, "1 micro-batch divided by 2, the gradient is 0.5 of"),
    ],
)
def test_micro_batches_without_a_loss_do_not_count(batches, losses, divisor, told):
    each = None if losses is None else [0.7] * losses
    short = update(2, micro_batches=batches, divisor=divisor, micro_losses=each)
    found = judged(run(accumulation=divisor), update(1), short, update(3), end())
    assert list(found) == ["TG-RECORD-PARTIAL-WINDOW"]
    assert f": {told} that of their mean" in found["TG-RECORD-PARTIAL-WINDOW"].measured


@pytest.mark.parametrize(
    ("batches", "losses", "divisor"), [(3, 2, 2), (2, 2, 2), (2, None, 2), (5, 4, 4)]
)
def test_windows_with_as_many_losses_as_they_were_divided_by_are_silent(batches, losses, divisor):
    each = None if losses is None else [0.7] * losses  # the scaler skipped, and the window went on
    records = updates(1, 3, micro_batches=batches, divisor=divisor, micro_losses=each)
    assert judged(run(accumulation=divisor), records, end()) == {}


@pytest.mark.parametrize(
    "windows",
    [
        [(1, 1), (1, 1)],
        [(4, 4), (4, 4)],
        [(4, 4), (2, 2), (1, 1)],  # a factor that changes along the way
        [(4, None), (1, None)],  # a loop that does not say what it divides by
        [(2, 1), (4, 1)],  # sums of gradients
        [(0, 2)],  # nothing was handed over that could be counted
    ],
)
def test_whole_windows_are_silent(windows):
    records = [
        update(n, micro_batches=batches, divisor=divisor)
        for n, (batches, divisor) in enumerate(windows, start=1)
    ]
    assert judged(run(accumulation=4), records, end()) == {}


# ---- closures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("evaluations", "most"), [([4, 4], 4), ([2, 5], 5)])
def test_evaluations_of_a_closure_are_told(evaluations, most):
    records = [
        update(n, closure=ClosureFacts(evaluations=k, first_objective=2.0, last_objective=1.0))
        for n, k in enumerate(evaluations, start=1)
    ]
    found = judged(run(), records, end())
    assert list(found) == ["TG-RECORD-CLOSURE"]
    assert found["TG-RECORD-CLOSURE"].severity == "info"
    assert found["TG-RECORD-CLOSURE"].measured == (
        f"update 1: {evaluations[0]} evaluations of its closure; 2 of 2 updates took several, at "
        f"most {most}"
    )


@pytest.mark.parametrize(("completed", "told"), [(1, None), (2, "1 of 6"), (3, "2 of 6")])
def test_evaluations_that_a_resume_supersedes_are_taken_back(completed, told):
    lost = [
        update(n, closure=ClosureFacts(evaluations=k, first_objective=2.0, last_objective=1.0))
        for n, k in enumerate([1, 3, 4, 9], start=1)
    ]
    found = judged(run(), lost, resumed(completed), updates(completed + 1, 6), end())
    most = completed + 1
    assert [one.measured for one in found.values()] == ([] if told is None else [
        f"update 2: 3 evaluations of its closure; {told} updates took several, at most {most}"
    ])  # fmt: skip


@pytest.mark.parametrize(
    "closure", [None, ClosureFacts(evaluations=1, first_objective=2.0, last_objective=2.0)]
)
def test_one_evaluation_is_not_worth_a_word(closure):
    assert judged(run(), updates(1, 3, closure=closure), end()) == {}


@pytest.mark.parametrize("applied", [0.25, 3.0])
def test_a_gradient_that_is_known_only_as_it_was_applied_is_one(applied):
    replaced = {"objective": None, "grad_norm": None, "grad_norm_source": None, "clipped": None}
    found = judged(run(), updates(1, 3), update(4, grad_norm_clipped=applied, **replaced), end())
    assert "TG-RECORD-NO-GRADIENT" not in found
    found = judged(run(), updates(1, 3), update(4, grad_norm_clipped=None, **replaced), end())
    assert "TG-RECORD-NO-GRADIENT" in found

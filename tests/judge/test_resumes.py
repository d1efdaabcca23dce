"""Whether a resumed attempt repeats what was made beyond its checkpoint before."""

import math

import msgspec
import pytest

from tests.judge.recordings import end, event, judged, resumed, run, scheduler, update, updates
from tests.records.samples import make_resumed
from traingen.judge.resumes import KEPT, MOST

ID = "TG-RECORD-NOT-REPEATED"
RATE = "TG-RECORD-RATE-MOVED"


# ---- other values -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"loss": 0.7}, "loss 0.38375, then 0.7"),
        ({"parameters": "e2"}, "parameters e1, then e2"),
    ],
)
def test_other_values_than_before_are_told(changes, first):
    again = [*updates(4, 5), update(6, **changes)]
    found = judged(run(), updates(1, 6), resumed(3), again, end())
    assert list(found) == [ID]
    assert found[ID].severity == "info"
    assert found[ID].measured == (
        f"update 6 in attempt 2: {first}; 1 of 3 updates that were made again"
    )


@pytest.mark.parametrize(
    ("name", "told"), [("updates", "averages 5, then 4"), ("distance", "distance 5, then 4")]
)
def test_averages_that_do_not_go_on_are_told(name, told):
    before = [*updates(1, 5), update(6, ema={name: 5})]
    found = judged(run(), before, resumed(5), update(6, ema={name: 4}), end())
    assert found[ID].measured.startswith(f"update 6 in attempt 2: {told}")
    assert judged(run(), before, resumed(5), update(6, ema={name: 5}), end()) == {}


def test_of_every_quantity_the_first_update_is_told_the_most_telling_first():
    again = [
        update(6, rng={"python": "aa", "torch": "x"}),
        update(7, rng={"python": "y", "torch": "x"}, loss=9.0, parameters="e2"),
        update(8, loss=8.0, objective=8.0, parameters="e3"),
    ]
    found = judged(run(), updates(1, 8), resumed(5), again)
    assert found[ID].measured == (
        "update 7 in attempt 2: loss 0.328929, then 9; update 8: objective 0.287813, then 8; "
        "update 7: parameters e1, then e2; update 6: rng of torch; 3 of 3 updates that were made "
        "again"
    )


@pytest.mark.parametrize("streams", [{"torch": "zz"}, {"python": "aa", "torch": "zz"}])
def test_random_generators_alone_are_not_told(streams):
    other = updates(4, 6, rng=streams)
    assert judged(run(), updates(1, 6), resumed(3), other, end()) == {}
    with_loss = judged(run(), updates(1, 6), resumed(3), other[:2], update(6, loss=9.0))
    assert with_loss[ID].measured.startswith("update 6 in attempt 2: loss 0.38375, then 9; ")
    assert "update 4: rng of " in with_loss[ID].measured


@pytest.mark.parametrize(("one", "other"), [("clip", "measured"), ("measured", "clip")])
def test_a_norm_that_was_found_another_way_is_no_other_norm(one, other):
    """A clip's own is of float32."""
    first = updates(1, 6, grad_norm_source=one)
    norm = {"grad_norm": 0.5000001}
    again = updates(4, 6, grad_norm_source=other, **norm)
    assert judged(run(), first, resumed(3), again, end()) == {}
    alike = updates(4, 6, grad_norm_source=one, **norm)
    found = judged(run(), first, resumed(3), alike, end())
    assert found[ID].measured.startswith("update 4 in attempt 2: grad_norm 0.5, then 0.5000001; ")


@pytest.mark.parametrize("changes", [{"batch_idx": 7}, {"epoch": 1, "batch_idx": 0}])
def test_a_boundary_resume_with_other_windows_only_shifts_numbers(changes):
    """Another accumulation or batch size: the update of this number is of another place."""
    found = judged(run(), updates(1, 6), resumed(3), updates(4, 5, **changes))
    assert found.keys() == {ID}
    assert found[ID].severity == "info"


def test_a_resume_that_repeats_is_silent():
    lost = updates(4, 6, loss=math.nan, grad_norm_clipped=0.5)
    again = updates(4, 9, loss=math.nan)
    found = judged(run(), updates(1, 3), lost, resumed(3), again, end())
    assert found.keys() == {"TG-RECORD-NONFINITE-LOSS"}


@pytest.mark.parametrize("completed", [6, 8])
def test_nothing_is_said_where_nothing_was_made_before(completed):
    again = updates(completed + 1, 12, lr=[0.5])
    assert judged(run(), updates(1, completed), resumed(completed), again, end()) == {}


def test_what_an_attempt_did_not_record_is_not_known():
    unknown = {"parameters": None, "rng": None, "lr": [], "hyper_parameters": [], "batch": None}
    for one, other in (({}, unknown), (unknown, {})):
        found = judged(run(), updates(1, 6, **one), resumed(3), updates(4, 6, **other))
        assert found == {}


def test_nothing_is_made_again_from_a_checkpoint_that_says_of_no_attempt():
    """It was made without a recorder: its first update here is no first one."""
    unknown = run(attempt=2, resumed=make_resumed(attempt=None, global_step=3))
    assert judged(run(), updates(1, 6), unknown, updates(1, 3, lr=[0.5], loss=9.0)) == {}
    told = run(attempt=2, resumed=make_resumed(attempt=1, global_step=0))
    found = judged(run(), updates(1, 6), told, updates(1, 3, lr=[0.5], loss=9.0))
    assert found.keys() == {RATE, ID}


def test_optimizers_are_told_apart():
    first = [update(n, optimizer=i, global_step=None) for n in (1, 2) for i in (0, 1)]
    again = [update(2, optimizer=1, global_step=None, loss=1.0)]
    found = judged(run(optimizers=2), first, resumed(2, 1), again)
    assert found[ID].measured.startswith("update 2 of optimizer 1 in attempt 2: loss ")


# ---- other rates --------------------------------------------------------------------------------


def decayed(first, last, factor=0.9, **changes):
    """Updates at the rates of LambdaLR(0.9**k) from 0.1."""
    return [
        update(number, lr=[0.1 * factor ** (number - 1)], **changes)
        for number in range(first, last + 1)
    ]


@pytest.mark.parametrize(
    ("completed", "rate", "told"),
    [
        (10, 0.01, "update 12 in attempt 2: lr 0.0313811, then 0.01"),
        (5, 0.02, "update 7 in attempt 2: lr 0.0531441, then 0.02"),
    ],
)
def test_another_schedule_is_a_warning_beside_other_random_numbers(completed, rate, told):
    """The rate of the first update comes from the checkpoint, the next from the new schedule."""
    other = {"loss": 7.0}
    again = [
        *decayed(completed + 1, completed + 1, **other),
        *updates(completed + 2, 20, lr=[rate], **other),
    ]
    found = judged(run(), decayed(1, 20), resumed(completed), again, end())
    assert found.keys() == {RATE, ID}
    assert (found[RATE].severity, found[RATE].measured) == ("warning", told)
    assert (found[ID].severity, "lr" in found[ID].measured) == ("info", False)
    assert f"update {completed + 1} in attempt 2: loss " in found[ID].measured


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([{"betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.1}], "weight_decay 0, then 0.1"),
        ([{"betas": [0.5, 0.999], "eps": 1e-08, "weight_decay": 0}], "betas [0.9, 0.999], then"),
    ],
)
def test_another_hyper_parameter_is_a_warning(options, told):
    again = [update(4), *updates(5, 6, hyper_parameters=options)]
    found = judged(run(), updates(1, 6), resumed(3), again)
    assert found.keys() == {RATE}
    assert found[RATE].measured.startswith(f"update 5 in attempt 2: {told}")


def test_the_group_is_named_and_a_group_more_or_less_too():
    before = updates(1, 6, lr=[0.1, 0.2])
    found = judged(run(), before, resumed(3), updates(4, 6, lr=[0.1, 0.3]))
    assert found[RATE].measured == "update 4 in attempt 2: lr of group 1 0.2, then 0.3"
    found = judged(run(), before, resumed(3), updates(4, 6, lr=[0.1]))
    assert found[RATE].measured == "update 4 in attempt 2: lr of 2 groups, then of 1"


def test_a_faithful_schedule_is_silent_also_if_it_rounds_otherwise_or_a_library_adds_an_option():
    [options] = update(1).hyper_parameters
    more = {"hyper_parameters": [options | {"novel": True}]}
    for first, again in (({}, more), (more, {})):
        rest = decayed(6, 20, factor=0.9 + 1e-14, **again)
        assert judged(run(), decayed(1, 20, **first), resumed(5), rest, end()) == {}


@pytest.mark.parametrize("attempt", [1, 2])
def test_after_a_scheduler_was_swapped_other_rates_are_no_warning(attempt):
    """Whichever of the two has the swap; it is told for itself."""
    swap = event("scheduler_swapped", id=0, before="A", after="SWALR", by="Averaging")
    swaps = {1: [], 2: []} | {attempt: [swap]}
    first = [run(schedulers=[scheduler()]), *updates(1, 5), *swaps[1], *updates(6, 9)]
    again = [*swaps[2], *updates(6, 9, lr=[0.5])]
    found = judged(first, resumed(5, schedulers=[scheduler()]), again, end())
    assert RATE not in found
    assert found[ID].severity == "info"
    assert found[ID].measured.startswith("update 6 in attempt 2: lr 0.001, then 0.5;")


def test_a_swap_of_another_optimizer_or_in_an_attempt_before_excuses_nothing():
    swap = event("scheduler_swapped", id=1, before="A", after="SWALR", by="Averaging")
    runs = {"schedulers": [scheduler(), scheduler(1, optimizer=1)]}
    again = updates(6, 9, lr=[0.5])
    found = judged(run(**runs), swap, updates(1, 9), resumed(5, **runs), swap, again)
    assert RATE in found
    swap = msgspec.structs.replace(swap, details=swap.details | {"id": 0})
    others = [run(**runs), *updates(1, 5), swap, resumed(5, **runs), *updates(6, 9)]
    assert RATE in judged(others, resumed(5, attempt=3, **runs), again)


# ---- several resumes ----------------------------------------------------------------------------

OTHER = {"loss": 8.0}


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize(("late", "early", "count"), [(15, 5, 20), (12, 8, 20), (18, 2, 20)])
def test_updates_are_counted_each_time_they_are_made_again(before, late, early, count):
    found = judged(
        run(), updates(1, 20),
        resumed(late), updates(late + 1, 20, **OTHER),
        resumed(early, attempt=3, before=before), updates(early + 1, 20, loss=9.0),
    )  # fmt: skip
    assert found[ID].measured.endswith(f"; {count} of {count} updates that were made again")


def test_what_stands_is_told_before_what_does_not():
    found = judged(
        run(), updates(1, 20), resumed(15), updates(16, 20, loss=7.0),
        resumed(5, attempt=3, before=1), updates(6, 20, loss=6.0, parameters="e2"),
    )  # fmt: skip
    assert found[ID].measured.startswith("update 6 in attempt 3: loss ")


def test_what_an_attempt_did_not_come_to_may_be_made_again_by_the_next():
    found = judged(
        run(), updates(1, 20), resumed(5), updates(6, 8),
        resumed(8, attempt=3), updates(9, 20, **OTHER),
    )  # fmt: skip
    assert found[ID].measured.endswith("12 of 15 updates that were made again")


def test_a_return_to_the_main_line_is_not_compared_with_the_side_branch():
    """Attempt 2 tries other rates from update 5 on; attempt 3 goes on from the end of the first."""
    branch = [resumed(5), *updates(6, 30, lr=[0.5])]
    back = [resumed(20, attempt=3, before=1), *updates(21, 30), end()]
    assert RATE in judged(run(), updates(1, 20), branch)
    found = judged(run(), updates(1, 20), branch, back)
    assert found.keys() == {ID}
    assert found[ID].measured.startswith("update 6 in attempt 2: lr 0.001, then 0.5;")
    assert found[ID].measured.endswith("15 of 15 updates that were made again")


def test_one_that_makes_the_main_line_again_is_compared_with_that():
    branch = [resumed(5), *updates(6, 30, lr=[0.5])]
    back = [resumed(12, attempt=3, before=1), *updates(13, 30)]
    found = judged(run(), updates(1, 20), branch, back)
    assert found.keys() == {ID}
    wrong = [resumed(12, attempt=3, before=1), *updates(13, 30, lr=[0.5])]
    found = judged(run(), updates(1, 20), branch, wrong)
    assert found[RATE].measured == "update 13 in attempt 3: lr 0.001, then 0.5"


def test_other_rates_are_a_warning_as_long_as_an_attempt_goes_on_from_them():
    branch = [resumed(5), *updates(6, 20, lr=[0.5])]
    goes_on = [resumed(8, attempt=3), *updates(9, 20, lr=[0.5])]
    found = judged(run(), updates(1, 20), branch, goes_on)
    assert found[RATE].measured == "update 6 in attempt 2: lr 0.001, then 0.5"
    mended = [resumed(5, attempt=4, before=2), *updates(6, 20)]
    assert RATE not in judged(run(), updates(1, 20), branch, goes_on, mended)


@pytest.mark.parametrize(("first", "completed"), [(9, 8), (12, 6)])
def test_other_rates_beyond_the_next_checkpoint_do_not_stand(first, completed):
    """The attempt that had them is gone on from, but not from there."""
    lost = [*updates(6, first - 1), *updates(first, 20, lr=[0.5])]
    start = [run(), *updates(1, 20), resumed(5), *lost]
    assert RATE in judged(start)
    assert judged(start, resumed(completed, attempt=3)).keys() == {ID}
    wrong = judged(start, resumed(completed, attempt=3), lost[completed - 5 :])
    assert wrong[RATE].measured == f"update {first} in attempt 3: lr 0.001, then 0.5"
    kept = judged(start, resumed(first, attempt=3), updates(first + 1, 20, lr=[0.5]))
    assert kept[RATE].measured == f"update {first} in attempt 2: lr 0.001, then 0.5"


def test_only_the_latest_updates_are_kept():
    lost = updates(1, KEPT + 10)
    found = judged(run(), lost, resumed(0), updates(1, KEPT + 10, loss=1.5))
    assert found[ID].measured.endswith(f"{KEPT} of {KEPT} updates that were made again")


def test_the_oldest_updates_are_let_go_of():
    attempts = [run(), *updates(1, KEPT)]
    for attempt in range(2, 2 + MOST // KEPT):
        made = KEPT * (attempt - 1)
        attempts += [resumed(made, attempt=attempt), *updates(made + 1, made + KEPT)]
    back = [resumed(0, attempt=9, before=1), *updates(1, KEPT + 10, loss=1.5)]
    assert judged(attempts, back)[ID].measured.endswith("10 of 10 updates that were made again")


def test_of_many_attempts_the_latest_updates_are_kept():
    attempts = [run(), *updates(1, KEPT)]
    for attempt in range(2, 7):
        attempts += [resumed(0, attempt=attempt, before=1), *updates(1, KEPT)]
    last = [resumed(0, attempt=7, before=1), *updates(1, KEPT, loss=1.5)]
    again = 6 * KEPT
    assert again > MOST
    found = judged(attempts, last)
    assert found[ID].measured.endswith(f"{KEPT} of {again} updates that were made again")

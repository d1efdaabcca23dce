"""Whether a resumed attempt goes on in the data where its checkpoint stood."""

import msgspec
import pytest

from tests.judge.recordings import end, event, judged, resumed, run, skip, update, updates
from tests.records.samples import make_resumed
from traingen.judge.resumes import KEPT
from traingen.records import BatchFacts

ID = "TG-RECORD-DATA-PLACE"
REPEATED = "TG-RECORD-NOT-REPEATED"
LOADER = {"batches": 10}


def batch(digest, ids=None):
    return BatchFacts(digest=digest, ids=ids)


def epochs(first, last, *, length=10, digest="b{0}", **changes):
    """Updates of epochs so long, each of its own batch, the same ones in every epoch."""
    return [
        update(
            number,
            epoch=(number - 1) // length,
            batch_idx=(number - 1) % length,
            batch=batch(digest.format((number - 1) % length)),
            **changes,
        )
        for number in range(first, last + 1)
    ]


def begun_anew(first, last, *, length=10, completed):
    """The loop goes on counting, the loader begins its epoch anew."""
    return [
        msgspec.structs.replace(record, batch=batch(f"b{(record.update - 1 - completed) % length}"))
        for record in epochs(first, last, length=length)
    ]


def at_checkpoint(*completed, attempt=2, before=1, **facts):
    """An attempt from a checkpoint that says where in the data it stood."""
    made = make_resumed(*completed, attempt=before, **facts)
    return run(attempt=attempt, resumed=made, optimizers=len(completed), loader=LOADER)


# ---- batches that were used before --------------------------------------------------------------


@pytest.mark.parametrize(("length", "completed", "used"), [(6, 9, 7), (10, 15, 11), (8, 11, 9)])
@pytest.mark.parametrize("beyond", [0, 4])
def test_batches_of_an_epoch_that_come_again_in_it_are_found(length, completed, used, beyond):
    """Whether they were made again or not: with max_steps, nothing is."""
    rest = begun_anew(completed + 1, completed + 9, length=length, completed=completed)
    first = epochs(1, completed + beyond, length=length)
    found = judged(run(), first, resumed(completed), rest, end())
    assert found[ID].severity == "warning"
    epoch = completed // length
    assert found[ID].measured.startswith(
        f"update {completed + 1} in attempt 2: the batch of update {used} again, in epoch {epoch}"
    )
    if beyond:
        assert f"; batch b{completed % length}, then b0 in epoch {epoch}" in found[ID].measured
        assert found[REPEATED].severity == "info"


@pytest.mark.parametrize("beyond", [0, 4])
@pytest.mark.parametrize(("length", "completed"), [(6, 9), (6, 12), (8, 11), (10, 10)])
def test_a_loader_that_goes_on_is_silent(length, completed, beyond):
    rest = epochs(completed + 1, completed + 9, length=length)
    first = epochs(1, completed + beyond, length=length)
    assert judged(run(), first, resumed(completed), rest, end()) == {}


@pytest.mark.parametrize("length", [1, 3])
def test_batches_that_come_over_and_over_show_nothing(length):
    """Within one epoch of ten: seen before the checkpoint, or in what went on from there."""
    first, rest = (
        [
            msgspec.structs.replace(one, batch=batch(f"b{one.batch_idx % length}"))
            for one in epochs(*numbers)
        ]
        for numbers in ((1, 10), (8, 10))
    )
    assert judged(run(), first[:7], resumed(7), rest, end()) == {}
    assert judged(run(), first, resumed(2), first[2:], end()) == {}


def test_several_updates_of_one_batch_are_no_batch_that_came_before():
    """A critic makes two updates of each; a loader that begins anew is found nevertheless."""
    twice = [
        update(number, epoch=0, batch_idx=place // 2, batch=batch(f"b{place // 2}"))
        for number, place in ((n, n - 1) for n in range(1, 13))
    ]
    anew = [msgspec.structs.replace(one, batch=twice[one.update - 9].batch) for one in twice[8:]]
    assert judged(run(), twice[:8], resumed(8), twice[8:], end()) == {}
    found = judged(run(), twice[:8], resumed(8), anew, end())
    assert found[ID].measured.startswith("update 9 in attempt 2: the batch of update 1 again")


def test_a_batch_of_an_epoch_before_or_of_another_optimizer_is_not_used_again():
    rest = [msgspec.structs.replace(one, batch=batch("b7")) for one in epochs(16, 16)]
    assert judged(run(), epochs(1, 15), resumed(15), rest) == {}
    both = [
        msgspec.structs.replace(one, optimizer=i, global_step=None)
        for one in epochs(1, 4) for i in (0, 1)
    ]  # fmt: skip
    assert judged(run(optimizers=2), both[:7], resumed(4, 3), both[7:]) == {}


@pytest.mark.parametrize("completed", [2 * KEPT, 3 * KEPT])
def test_the_begin_of_a_long_epoch_is_remembered(completed):
    length = 4 * KEPT
    rest = begun_anew(completed + 1, completed + 3, length=length, completed=completed)
    found = judged(run(), epochs(1, completed, length=length), resumed(completed), rest)
    assert f"update {completed + 1} in attempt 2: the batch of update 1 again" in found[ID].measured
    on = epochs(completed + 1, completed + 3, length=length)
    assert judged(run(), epochs(1, completed, length=length), resumed(completed), on) == {}


def test_only_what_an_attempt_added_to_the_training_was_used():
    """Attempt 1 went on to b8 and b9; attempt 2 does not know, and has not used them."""
    other = [msgspec.structs.replace(one, batch=batch(f"c{one.batch_idx}")) for one in epochs(6, 8)]
    last = [msgspec.structs.replace(one, batch=batch("b7")) for one in epochs(9, 9)]
    begin = [run(), *epochs(1, 5)]
    assert ID not in judged(begin, resumed(5), other, resumed(8, attempt=3), last)
    lost = judged(begin, epochs(6, 10), resumed(5), other, resumed(8, attempt=3), last)
    assert " the batch of " not in lost[ID].measured


def test_what_a_long_attempt_left_behind_was_not_used():
    """Of attempt 2 the midst is forgotten; of attempt 1 the same numbers are still known."""
    length = 4 * KEPT
    first = [run(), *epochs(1, 1500, length=length)]
    second = [resumed(200), *epochs(201, 2500, length=length, digest="c{0}")]
    for digest, found in (("b1300", False), ("b100", True), ("c1100", True)):
        last = [msgspec.structs.replace(one, batch=batch(digest)) for one in epochs(2501, 2501)]
        last = [msgspec.structs.replace(one, epoch=0, batch_idx=2500) for one in last]
        judgement = judged(first, second, resumed(2500, attempt=3), last)[ID].measured
        assert ("in attempt 3: the batch of" in judgement) == found


def test_what_does_not_stand_is_not_told():
    anew = [resumed(15), *begun_anew(16, 20, completed=15)]
    begin = [run(), *epochs(1, 20)]
    assert ID in judged(begin, anew)
    found = judged(begin, anew, resumed(15, attempt=3, before=1), epochs(16, 20))
    assert found.keys() == {REPEATED}
    late = [resumed(15), *epochs(16, 18), *epochs(19, 20, digest="x{0}")]
    assert ID in judged(begin, late, resumed(19, attempt=3))
    assert ID not in judged(begin, late, resumed(18, attempt=3))


def test_one_that_repeats_what_was_wrong_is_wrong_too():
    late = [resumed(15), *epochs(16, 18), *epochs(19, 20, digest="x{0}")]
    again = [resumed(17, attempt=3), *epochs(18, 18), *epochs(19, 20, digest="x{0}")]
    found = judged(run(), epochs(1, 20), late, again)
    assert found[ID].measured == (
        "update 19 in attempt 3: batch b8, then x8 in epoch 1, which was under way"
    )


def test_a_second_fit_begins_its_data_anew():
    fit = event("segment", fit=2, global_step=15)
    again = begun_anew(18, 20, completed=17)
    records = [run(), *epochs(1, 15), resumed(15), *epochs(16, 17), end(), fit, *again]
    assert judged(records, end()) == {}


# ---- the place of the first update --------------------------------------------------------------


@pytest.mark.parametrize(("batches", "windows", "first"), [(3, 1, 2), (3, 1, 0), (4, 2, 2)])
def test_a_first_update_before_the_checkpoint_is_found(batches, windows, first):
    begun = update(1 + batches // windows, epoch=0, batch_idx=first + windows - 1,
                   micro_batches=windows, batch=batch("new"))  # fmt: skip
    made = [update(1 + n, epoch=0, batch_idx=windows * (n + 1) - 1, micro_batches=windows,
                   batch=batch(f"b{n}")) for n in range(batches // windows)]  # fmt: skip
    start = at_checkpoint(batches // windows, epoch=0, batches=batches)
    found = judged(run(), made, start, begun)
    assert found.keys() == {ID}
    assert found[ID].measured == (
        f"update {begun.update} in attempt 2: begins at batch {first} of epoch 0, of which "
        f"{batches} were completed"
    )
    on = msgspec.structs.replace(begun, batch_idx=batches + windows - 1)
    assert judged(run(), made, start, on) == {}


@pytest.mark.parametrize("batches", [3, 10, None])
def test_where_the_file_begins_later_only_a_count_below_the_whole_tells(batches):
    """A loop that has not begun its epoch still has the count of the one before."""
    start = at_checkpoint(13, epoch=1, batches=batches)
    found = judged(start, _numbered(14, epoch=1, batch_idx=0))
    assert (ID in found) == (batches == 3)


def _numbered(number, **place):
    return [update(number, batch=batch("new"), **place)]


@pytest.mark.parametrize(
    ("facts", "epoch", "left"),
    [
        ({"epoch": 0, "batches": 10}, 2, "epoch 1 was"),
        ({"epoch": 0, "batches": None}, 3, "epochs 1 to 2 were"),
        ({"epoch": 1, "batches": 0}, 2, "epoch 1 was"),
        ({"epoch": 1, "batches": 10}, 2, "epoch 1 was"),  # the count of the one before
        ({"epoch": None, "batches": None}, 2, "epoch 1 was"),
    ],
)
def test_a_whole_epoch_that_was_left_out_is_found(facts, epoch, left):
    start = [run(), *epochs(1, 10), at_checkpoint(10, **facts)]
    found = judged(start, _numbered(11, epoch=epoch, batch_idx=0))
    assert found.keys() == {ID}
    assert found[ID].measured == (
        f"update 11 in attempt 2: is of epoch {epoch}, and {left} left out"
    )
    assert judged(start, _numbered(11, epoch=1, batch_idx=0)) == {}


def test_an_epoch_without_updates_is_not_left_out():
    """Its batches are counted; or a scaler has skipped all of it, or one window goes over it."""
    counted = [run(), *epochs(1, 10), at_checkpoint(10, epoch=1, batches=4)]
    assert judged(counted, _numbered(11, epoch=2, batch_idx=0)) == {}
    start = [run(), *epochs(1, 10), at_checkpoint(10, epoch=0, batches=10)]
    assert ID not in judged(start, skip(11), _numbered(11, epoch=2, batch_idx=0))
    wide = update(11, epoch=2, batch_idx=9, micro_batches=20, batch=batch("new"))
    assert judged(start, wide) == {}


# ---- other batches in an epoch that was under way -----------------------------------------------


@pytest.mark.parametrize(("length", "completed"), [(10, 15), (8, 11)])
def test_other_data_in_an_epoch_that_was_under_way_are_a_warning(length, completed):
    rest = epochs(completed + 1, 20, length=length, digest="x{0}")
    found = judged(run(), epochs(1, 20, length=length), resumed(completed), rest)
    place = completed % length
    assert found.keys() == {ID, REPEATED}
    assert found[ID].measured == (
        f"update {completed + 1} in attempt 2: batch b{place}, then x{place} in epoch 1, which was "
        "under way"
    )


@pytest.mark.parametrize(("length", "completed"), [(10, 10), (8, 16), (10, 0)])
def test_another_order_from_the_begin_of_an_epoch_is_no_warning(length, completed):
    rest = epochs(completed + 1, 20, length=length, digest="x{0}")
    found = judged(run(), epochs(1, 20, length=length), resumed(completed), rest)
    assert found.keys() == {REPEATED}
    assert found[REPEATED].severity == "info"


def test_another_order_of_the_epochs_after_the_one_under_way_is_no_warning():
    rest = [*epochs(16, 20), *epochs(21, 30, digest="x{0}")]
    found = judged(run(), epochs(1, 30), resumed(15), rest)
    assert found.keys() == {REPEATED}
    assert found[REPEATED].measured.startswith("update 21 in attempt 2: batch b0, then x0;")


def windows(first, last, *, size, digest="w{0}"):
    """Updates of `size` batches each, in epochs of two windows."""
    return [
        update(n, epoch=(n - 1) // 2, batch_idx=(n - 1) % 2 * size + size - 1, micro_batches=size,
               batch=batch(digest.format(n)))
        for n in range(first, last + 1)
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "batches"), [(4, 2), (5, 3)])
def test_an_epoch_may_be_under_way_before_its_first_update(size, batches):
    rest = windows(3, 6, size=size, digest="x{0}")
    start = [run(), *windows(1, 6, size=size)]
    under_way = judged(start, at_checkpoint(2, epoch=1, batches=batches), rest)
    assert under_way.keys() == {ID, REPEATED}
    assert "batch w3, then x3 in epoch 1, which was under way" in under_way[ID].measured
    whole = judged(start, at_checkpoint(2, epoch=0, batches=2 * size), rest)
    assert whole.keys() == {REPEATED}


@pytest.mark.parametrize("changes", [{"micro_batches": 2}, {"batch_idx": 8}, {"epoch": 2}])
def test_an_update_of_another_place_is_of_other_batches(changes):
    """Another accumulation or batch size moves the numbers of updates, and no data."""
    rest = [msgspec.structs.replace(one, **changes) for one in epochs(16, 16, digest="x{0}")]
    assert ID not in judged(run(), epochs(1, 20), resumed(15), rest)


def test_the_same_samples_that_look_different_are_no_warning():
    first, other = (
        [
            msgspec.structs.replace(record, batch=batch(f"{look}{n}", ids=[n, n + 1]))
            for n, record in enumerate(epochs(1, 20))
        ]
        for look in "ab"
    )
    found = judged(run(), first, resumed(15), other[15:])
    assert found.keys() == {REPEATED}
    moved = [
        msgspec.structs.replace(record, batch=batch("c0", ids=[0, 1])) for record in other[15:]
    ]
    assert ID in judged(run(), first, resumed(15), moved)


@pytest.mark.parametrize(("completed", "found"), [(15, True), (10, False)])
def test_where_the_file_begins_later_the_place_in_the_epoch_tells(completed, found):
    first = [resumed(completed), *epochs(completed + 1, 20)]
    rest = epochs(completed + 1, 20, digest="x{0}")
    assert (ID in judged(first, resumed(completed, attempt=3), rest)) == found


@pytest.mark.parametrize(("batch_idx", "found"), [(1, False), (3, True)])
def test_a_whole_window_at_the_begin_of_an_epoch_is_its_begin(batch_idx, found):
    first = updates(11, 12, batch_idx=batch_idx, micro_batches=2, epoch=1)
    again = updates(11, 12, batch_idx=batch_idx, micro_batches=2, epoch=1, batch=batch("x"))
    assert (ID in judged(resumed(10), first, resumed(10, attempt=3), again)) == found

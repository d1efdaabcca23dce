"""Whether averaged weights are updated as asked."""

import pytest

from tests.judge.recordings import end, event, judged, resumed, run, update
from traingen.records import Record

NEVER, CADENCE = "TG-RECORD-EMA-NEVER", "TG-RECORD-EMA-CADENCE"
LIGHTNING = "lightning.pytorch.callbacks.weight_averaging.EMAWeightAveraging"
OWN = "package.averages.MyAveraging"


def announced(class_path: str = LIGHTNING, **changes):
    details = {
        "class_path": class_path, "decay": 0.999, "every": 1, "starts": None, "device": "cpu",
        "model_device": "cpu",
    }  # fmt: skip
    return event("averaging", **(details | changes))


def averaging(
    batches: int,
    *,
    per_batch: int = 1,
    every: int = 1,
    starts: int = 0,
    class_path: str = LIGHTNING,
    epoch_of: int = 1000,
    first: int = 1,
    averaged: int = 0,
) -> list[Record]:
    """A training whose average goes by (step - 1) % every, looked at once per batch.

    `per_batch`: optimizers, which step one after the other in each batch.
    """
    records: list[Record] = []
    step = (first - 1) * per_batch
    for batch in range(first, first + batches):
        ema = {"class_path": class_path, "decay": 0.999, "updates": averaged, "distance": 0.1}
        for optimizer in range(per_batch):
            step += 1
            place = {"epoch": (batch - 1) // epoch_of, "global_step": step}
            records.append(update(batch, optimizer=optimizer, ema=ema, **place))
        averaged += every > 0 and step - 1 >= starts and (step - 1) % every == 0
    return records


def judge(*parts):
    """What is found, without what is said of every training with two optimizers."""
    found = judged(*parts)
    found.pop("TG-RECORD-GLOBAL-STEP", None)
    return found


# ---- never --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("optimizers", "every", "batches"), [(2, 2, 4), (2, 4, 9), (3, 3, 6)])
def test_an_average_that_two_optimizers_keep_from_its_step_is_an_error(optimizers, every, batches):
    records = averaging(batches, per_batch=optimizers, every=every)
    assert {record.ema["updates"] for record in records} == {0}
    found = judge(run(optimizers=optimizers), announced(every=every), records, end())
    assert list(found) == [NEVER]
    assert found[NEVER].severity == "error"
    assert f"EMAWeightAveraging is to average every {every} steps: 0 times" in found[NEVER].measured
    assert f"{batches - 1} updates of optimizer 0" in found[NEVER].measured


@pytest.mark.parametrize(("optimizers", "every"), [(1, 1), (1, 2), (1, 7), (2, 1), (2, 3), (3, 2)])
def test_an_average_that_lightning_updates_is_silent(optimizers, every):
    records = averaging(60, per_batch=optimizers, every=every, epoch_of=13)
    assert records[-1].ema["updates"] > 0
    assert judge(run(optimizers=optimizers), announced(every=every), records, end()) == {}


@pytest.mark.parametrize("batches", [1, 2])
def test_it_is_not_said_before_it_can_be_known(batches):
    records = averaging(batches, per_batch=2, every=2)
    assert judge(run(optimizers=2), announced(every=2), records) == {}


@pytest.mark.parametrize("starts", [40, 100])
def test_an_average_that_starts_later_is_silent_before_and_after(starts):
    records = averaging(120, starts=starts)
    for upto in (5, starts, starts + 1, 120):
        assert judge(run(), announced(starts=starts), records[:upto], end()) == {}


def test_an_average_that_does_not_start_when_it_should_is_an_error():
    records = averaging(60, starts=10**6)
    assert judge(run(), announced(starts=20), records)[NEVER].severity == "error"


@pytest.mark.parametrize(
    ("every", "ending", "severity"),
    [(1, [end()], "warning"), (5, [], "warning"), (5, [end()], "error")],
)
def test_somebodys_own_class_may_start_when_it_likes(every, ending, severity):
    records = averaging(20, every=0, class_path=OWN)
    found = judge(run(), announced(OWN, every=every), records, ending)
    assert found[NEVER].severity == severity


def test_an_average_that_stops_after_a_resume_is_an_error():
    records = averaging(9, first=10, every=0, averaged=9)
    assert judge(resumed(9), announced(), records)[NEVER].severity == "error"
    assert judge(resumed(9), announced(), averaging(9, first=10, averaged=9)) == {}


@pytest.mark.parametrize(("batches", "epoch_of"), [(60, 1000), (9, 3)])
def test_an_average_of_unknown_pace_is_missed_when_the_whole_run_is_over(batches, epoch_of):
    records = averaging(batches, every=0, class_path=OWN, epoch_of=epoch_of)
    asked = announced(OWN, every=None)
    found = judge(run(), asked, records, end())
    assert found[NEVER].severity == "warning"
    assert "0 times in the whole run" in found[NEVER].measured
    for ending in ([], [end(reason="exception")]):
        assert judge(run(), asked, records, ending) == {}


@pytest.mark.parametrize("changes", [{"every": None, "starts": 500}, {"every": 0, "starts": 500}])
def test_an_average_that_is_known_to_start_later_is_not_missed(changes):
    records = averaging(60, every=0, class_path=OWN)
    assert judge(run(), announced(OWN, **changes), records, end()) == {}


def test_an_average_by_epoch_is_not_missed_within_its_first_epoch():
    # the first averaging comes after the last update of the epoch, where no record shows it
    records = averaging(9, every=0, class_path=OWN, epoch_of=9)
    assert judge(run(), announced(OWN, every=None), records, end()) == {}


@pytest.mark.parametrize("ema", [None, {"class_path": LIGHTNING, "updates": None}, {}])
def test_an_average_that_keeps_no_count_is_not_judged(ema):
    records = [update(n, ema=ema) for n in range(1, 80)]
    assert judge(run(), announced(), records, end()) == {}


# ---- another pace -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "real", "severity"),
    [(10, 1, "error"), (2, 1, "error"), (2, 10, "error"), (1, 5, "warning")],
)
def test_another_pace_than_asked_for_is_found(asked, real, severity):
    found = judge(run(), announced(every=asked), averaging(60, every=real), end())
    assert list(found) == [CADENCE]
    assert found[CADENCE].severity == severity
    times = len(range(0, 59, real))
    assert f": {times} times in 59 counted steps" in found[CADENCE].measured
    assert f"where about {59 // asked} were expected" in found[CADENCE].measured


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_pace_may_begin_at_any_step(phase):
    records = averaging(60, every=3)
    shifted = [
        update(n, ema={"class_path": LIGHTNING, "updates": (n - 1 + phase) // 3})
        for n in range(1, 61)
    ]
    assert judge(run(), announced(every=3), records, end()) == {}
    assert judge(run(), announced(every=3), shifted, end()) == {}


def test_averagings_at_the_ends_of_epochs_may_come_on_top():
    records = [
        update(
            n,
            epoch=(n - 1) // 5,
            ema={"class_path": LIGHTNING, "updates": (n + 9) // 10 + (n - 1) // 5},
        )
        for n in range(1, 61)
    ]
    assert judge(run(), announced(every=10), records, end()) == {}


def test_a_resume_and_another_fit_begin_to_count_anew():
    segment = event("segment", fit=2, global_step=30)
    second = averaging(30, first=31, averaged=0)
    assert judge(run(), announced(), averaging(30), end(), segment, announced(), second) == {}
    again = averaging(30, first=21, averaged=20)
    assert judge(run(), announced(), averaging(30), resumed(20), announced(), again) == {}


def test_what_a_resume_supersedes_is_taken_back():
    wrong = [resumed(30), announced(every=10), *averaging(30, first=31, averaged=3)]
    right = [announced(every=10), *averaging(30, first=31, averaged=3, every=10)]
    start = [run(), announced(every=10), *averaging(30, every=10)]
    assert CADENCE in judge(start, wrong)
    found = judge(start, wrong, resumed(30, attempt=3), right, end())
    assert found.keys() == {"TG-RECORD-NOT-REPEATED"}  # other averages than before
    assert CADENCE in judge(
        start, wrong, resumed(50, attempt=3), averaging(9, first=51, averaged=23)
    )


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("completed", [12, 20])
def test_an_average_that_never_was_is_counted_up_to_the_checkpoint(completed, ended):
    start = [run(), announced(), *averaging(30, every=0)]
    start += [end()] if ended else []
    assert "in 29 counted steps (29 updates)" in judge(start)[NEVER].measured
    on = [resumed(completed), announced(), *averaging(9, first=completed + 1)]
    found = judge(start, on)[NEVER].measured
    assert f"in {completed} counted steps ({completed} updates)" in found
    found = judge(start, resumed(1), announced(), averaging(9, first=2))
    assert found.keys() == {"TG-RECORD-NOT-REPEATED"}

"""Whether averaged weights lie with the model, and leave out the steps that a scaler skipped."""

import pytest

from tests.judge.recordings import event, judged, run, skip, update
from tests.judge.test_averaging import LIGHTNING, OWN, announced

SKIPPED, DEVICE = "TG-RECORD-EMA-SKIPPED", "TG-RECORD-EMA-DEVICE"


def scaled(pattern: str, *, every: int, counts_skipped: bool, phase: int = 0, extra: int = 0):
    """A training of steps, `u` an update and `s` a skipped one, with its average."""
    averaged = applied = 0
    for step, what in enumerate(pattern, start=1):
        if what == "s":
            yield skip(step)
        else:
            applied += 1
            ema = {"class_path": LIGHTNING, "decay": 0.9, "updates": averaged, "distance": 0.0}
            yield update(applied, global_step=step, ema=ema)
        if what == "u" or counts_skipped:
            averaged += (step - 1 + phase) % every == 0
            averaged += extra if what == "u" else 0


@pytest.mark.parametrize(
    ("pattern", "every", "counted"),
    [
        ("sssuu", 1, 3),
        ("usuuu", 1, 1),
        ("uusuussu", 1, 3),
        ("uusuuu", 2, 1),
        ("uuusuu", 3, 1),
        ("ssssuuuu", 2, 2),
    ],
)
def test_averagings_on_skipped_steps_are_a_warning(pattern, every, counted):
    found = judged(run(), announced(every=every), scaled(pattern, every=every, counts_skipped=True))
    assert list(found) == [SKIPPED, "TG-RECORD-SKIPPED"]
    assert found[SKIPPED].severity == "warning"
    assert found[SKIPPED].measured.startswith(f"{counted} averaging")


@pytest.mark.parametrize("pattern", ["sssuu", "usuuu", "uusuussu", "ssssuuuu", "uuuuu"])
@pytest.mark.parametrize("every", [1, 2])
def test_an_average_that_leaves_them_out_is_silent(pattern, every):
    records = scaled(pattern, every=every, counts_skipped=False)
    assert SKIPPED not in judged(run(), announced(every=every), records)


@pytest.mark.parametrize(("phase", "extra"), [(1, 0), (0, 1), (1, 2)])
def test_an_average_that_goes_another_way_is_not_accused(phase, extra):
    pattern = "uuuu" + "us" * 5 + "uu"
    records = scaled(pattern, every=2, counts_skipped=False, phase=phase, extra=extra)
    assert SKIPPED not in judged(run(), announced(every=2), records)


def test_a_pace_that_is_not_known_is_taken_as_every_step():
    records = [*scaled("uusu", every=1, counts_skipped=True)]
    assert SKIPPED in judged(run(), announced(OWN, every=None), records)


def test_an_averaging_at_the_end_of_an_epoch_is_not_taken_for_one_on_a_skipped_step():
    ema = [{"class_path": LIGHTNING, "updates": n} for n in (0, 1, 3)]
    records = [update(1, ema=ema[0]), update(2, ema=ema[1]), skip(3)]
    assert SKIPPED not in judged(run(), records, update(3, epoch=1, ema=ema[2]))
    assert SKIPPED in judged(run(), records, update(3, epoch=0, ema=ema[2]))


@pytest.mark.parametrize(("averaged", "counted"), [(3, None), (4, 2), (5, 2), (6, None)])
def test_what_exceeds_it_there_is_one_on_a_skipped_step(averaged, counted):
    ema = [{"class_path": LIGHTNING, "updates": n} for n in (0, 1, averaged)]
    records = [update(1, ema=ema[0]), update(2, ema=ema[1]), skip(3), skip(4)]
    found = judged(run(), records, update(3, epoch=1, ema=ema[2]))
    assert (SKIPPED in found) == (counted is not None)
    if counted:
        assert found[SKIPPED].measured.startswith(f"{counted} averagings came on skipped steps")


def test_another_optimizers_update_is_reason_enough():
    ema = [{"class_path": LIGHTNING, "updates": n} for n in (0, 2)]
    records = [update(1, ema=ema[0]), update(1, optimizer=1), skip(3), update(2, optimizer=1)]
    assert SKIPPED not in judged(run(optimizers=2), records, update(2, ema=ema[1]))


# ---- device -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "model"), [("cpu", "cuda:0"), ("cuda:1", "cuda:0"), ("cpu", "mps")]
)
def test_an_average_on_another_device_is_a_warning(device, model):
    found = judged(run(), announced(device=device, model_device=model), update(1))
    assert list(found) == [DEVICE]
    assert found[DEVICE].severity == "warning"
    assert found[DEVICE].measured == (
        f"EMAWeightAveraging averages on {device}, the model is on {model}"
    )


@pytest.mark.parametrize(
    ("device", "model"),
    [("cpu", "cpu"), ("cuda:0", "cuda:0"), ("cuda", "cuda:0"), (None, "cpu"), ("cpu", None)],
)
def test_an_average_on_the_models_device_is_silent(device, model):
    assert judged(run(), announced(device=device, model_device=model), update(1)) == {}


def test_lightnings_swa_moves_its_copy_when_it_starts():
    path = "lightning.pytorch.callbacks.StochasticWeightAveraging"
    asked = announced(path, every=None, device="cpu", model_device="cuda:0")
    assert judged(run(), asked, update(1)) == {}


def test_other_events_tell_no_device():
    assert judged(run(), event("novel", device="cpu", model_device="cuda:0"), update(1)) == {}

"""Public reports of schedulers that ran at the wrong cadence, and what the guard says of each.

Every report has a sibling with other numbers and a healthy neighbour that must stay silent. The
numbers are those of the reports' issues in Lightning's and torch's trackers.
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)
from torch.utils.data import DataLoader

from tests.callbacks.guarded import (
    RATE,
    Custom,
    Guarded,
    Manual,
    Model,
    Unsized,
    by_step,
    loader,
    train,
)
from tests.callbacks.small import make_trainer
from traingen import CadenceGuard
from traingen.errors import CadenceViolation

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def rates_used(model: Model, **options: Any) -> tuple[list[float], Guarded]:
    """The rate of each update as the optimizer used it, under a guard."""
    rates: list[float] = []

    class Spy(ModelCheckpoint):  # last in order, and a hook before the update
        def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
            rates.append(optimizer.param_groups[0]["lr"])

    spy = Spy(save_top_k=0)
    done = train(model, callbacks=[spy], enable_checkpointing=True, **options)
    return rates, done


# ---- pytorch#65417, Lightning#19774: OneCycleLR moves once per epoch, and nothing is said --------


@pytest.mark.parametrize(("batches", "epochs"), [(5, 2), (7, 3)])
def test_one_cycle_by_epoch_is_stopped_before_the_first_update(batches, epochs):
    guard = CadenceGuard()
    model = Model(lambda m, o: ([o], [OneCycleLR(o, RATE, total_steps=batches * epochs)]))
    trainer = make_trainer([guard], max_epochs=epochs)

    with pytest.raises(CadenceViolation, match="TG-SCHED-EPOCH"):
        trainer.fit(model, loader(batches))

    assert trainer.global_step == 0
    assert f"({epochs} of {batches * epochs} expected ticks)" in guard.findings[0].measured


def test_one_cycle_by_step_is_silent():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(OneCycleLR(o, RATE, total_steps=10)),
        }
    )
    assert done.ids == []
    assert done.guard.verdict == "pass"


def test_one_cycle_over_epochs_is_not_called_a_mistake():
    done = train(lambda m, o: ([o], [OneCycleLR(o, RATE, total_steps=6)]), max_epochs=6)
    assert done.errors == []


def test_the_documentation_s_snippet_without_an_interval_is_found():
    def snippet(module: Model, optimizer: Any) -> Any:
        steps = module.trainer.estimated_stepping_batches
        return [optimizer], [OneCycleLR(optimizer, max_lr=1e-3, total_steps=int(steps))]

    done = train(snippet, batches=4, max_epochs=3)
    assert done.errors == ["TG-SCHED-EPOCH"]


# ---- Lightning#15340: a horizon in updates, ticked by epoch --------------------------------------


@pytest.mark.parametrize(("batches", "epochs"), [(5, 2), (9, 4)])
def test_a_horizon_of_exactly_the_updates_by_epoch_is_an_error(batches, epochs):
    done = train(
        lambda m, o: ([o], [CosineAnnealingLR(o, T_max=batches * epochs)]),
        batches=batches,
        max_epochs=epochs,
    )
    assert done.errors == ["TG-SCHED-EPOCH"]
    assert f"({epochs} of {batches * epochs} expected ticks)" in done.measured("TG-SCHED-EPOCH")
    assert f"T_max={batches * epochs}" in done.measured("TG-SCHED-EPOCH")


@pytest.mark.parametrize("ticks", [40, 1000])
def test_a_horizon_far_beyond_the_epochs_is_an_error(ticks):
    done = train(lambda m, o: ([o], [CosineAnnealingLR(o, T_max=ticks)]), batches=3, max_epochs=4)
    assert done.errors == ["TG-SCHED-EPOCH"]


def test_a_warmup_that_the_epochs_never_leave_is_an_error():
    done = train(
        lambda m, o: ([o], [SequentialLR(
            o, [LinearLR(o, total_iters=100), CosineAnnealingLR(o, 900)], milestones=[100]
        )]),
    )  # fmt: skip
    assert done.errors == ["TG-SCHED-EPOCH"]


@pytest.mark.parametrize("epochs", [2, 5])
def test_a_cosine_over_the_epochs_is_silent(epochs):
    done = train(lambda m, o: ([o], [CosineAnnealingLR(o, T_max=epochs)]), max_epochs=epochs)
    assert done.ids == []
    assert done.guard.verdict == "pass"


def test_a_step_schedule_within_the_epochs_is_silent():
    done = train(lambda m, o: ([o], [StepLR(o, step_size=2)]), max_epochs=4)
    assert done.ids == []


def test_without_proof_the_default_interval_asks_for_an_expectation():
    done = train(lambda m, o: ([o], [ExponentialLR(o, 0.9)]))
    assert done.ids == ["TG-SCHED-UNSURE"]
    assert "expected" in done.messages[0]


def test_said_to_be_meant_by_epoch_the_same_is_silent():
    done = train(
        lambda m, o: ([o], [ExponentialLR(o, 0.9)]),
        guard=CadenceGuard(expected="epoch", on_violation="warn"),
    )
    assert done.ids == []


def test_written_as_by_epoch_the_same_is_silent():
    done = train(lambda m, o: ([o], [{"scheduler": ExponentialLR(o, 0.9), "interval": "epoch"}]))
    assert done.ids == []


def test_expected_by_step_the_same_is_an_error():
    done = train(
        lambda m, o: ([o], [ExponentialLR(o, 0.9)]),
        guard=CadenceGuard(expected="step", on_violation="warn"),
    )
    assert done.errors == ["TG-SCHED-EPOCH"]


# ---- Lightning#4929, #6948: the interval stands where nothing reads it ---------------------------


@pytest.mark.parametrize("more", [{"interval": "step"}, {"interval": "step", "frequency": 2}])
def test_an_interval_beside_the_scheduler_is_an_error(more):
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": CosineAnnealingLR(o, 8), **more}, batches=4
    )
    assert set(done.errors) == {"TG-SCHED-MISPLACED-KEY"}
    assert "in effect is interval 'epoch'" in done.guard.findings[0].measured


def test_a_misspelt_interval_is_an_error():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": {"scheduler": CosineAnnealingLR(o, 8), "intervall": "step"},
        },
        batches=4,
    )
    assert done.errors == ["TG-SCHED-MISPLACED-KEY"]


@pytest.mark.parametrize("key", ["lr_schedulers", "scheduler"])
def test_a_scheduler_under_a_key_that_nothing_reads_is_an_error(key):
    done = train(lambda m, o: {"optimizer": o, key: by_step(CosineAnnealingLR(o, 8))}, batches=4)
    assert done.errors == ["TG-SCHED-MISPLACED-KEY"]
    assert repr(key) in done.measured("TG-SCHED-MISPLACED-KEY")


def test_an_interval_in_its_place_is_silent():
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": by_step(CosineAnnealingLR(o, 8))}, batches=4
    )
    assert done.ids == []


def test_a_monitor_beside_a_bare_plateau_is_in_its_place():
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": ReduceLROnPlateau(o), "monitor": "val_loss"},
        validation=1,
    )
    assert done.ids == []


# ---- Lightning#9475: manual optimization accepts any interval ------------------------------------


def tick(module: Manual, updated: bool) -> None:
    if updated:
        module.lr_schedulers().step()


@pytest.mark.parametrize("interval", ["steps", "banana"])
def test_a_nonsense_interval_in_manual_optimization_is_an_error(interval):
    configure = lambda m, o: ([o], [{"scheduler": StepLR(o, 3), "interval": interval}])  # noqa: E731
    done = train(Manual(configure, after=tick))
    assert done.errors == ["TG-SCHED-INVALID-INTERVAL"]
    assert repr(interval) in done.measured("TG-SCHED-INVALID-INTERVAL")


def test_a_sound_interval_in_manual_optimization_is_silent():
    configure = lambda m, o: ([o], [by_step(StepLR(o, 3))])  # noqa: E731
    done = train(Manual(configure, after=tick))
    assert done.ids == []


# ---- Lightning#17544: frequency counts batches and starts anew each epoch ------------------------


@pytest.mark.parametrize(("batches", "frequency", "epochs"), [(2, 3, 3), (4, 5, 2)])
def test_a_frequency_above_the_epoch_never_fires(batches, frequency, epochs):
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(ExponentialLR(o, 0.9), frequency=frequency),
        },
        batches=batches,
        max_epochs=epochs,
    )
    assert done.errors == ["TG-SCHED-FREQUENCY-NEVER"]
    assert f"0 ticks in {batches * epochs} updates" in done.measured("TG-SCHED-FREQUENCY-NEVER")
    assert "LR will be constant" in done.measured("TG-SCHED-FREQUENCY-NEVER")


@pytest.mark.parametrize("frequency", [0, None, 1.5])
def test_a_frequency_that_is_no_count_is_an_error_before_it_crashes(frequency):
    guard = CadenceGuard()
    model = Model(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(ExponentialLR(o, 0.9), frequency=frequency),
        }
    )
    trainer = make_trainer([guard])

    with pytest.raises(CadenceViolation, match="TG-SCHED-FREQUENCY-NEVER"):
        trainer.fit(model, loader(3))

    assert trainer.global_step == 0


# frequency, accumulation, batches, epochs → counted steps after which the scheduler ticks
UNEVEN = [
    (2, 4, 8, 1, [1, 2]),
    (3, 2, 12, 1, [3, 6]),
    (4, 4, 10, 2, [1, 2, 4, 5]),
    (2, 1, 5, 2, [2, 4, 7, 9]),
    (3, 1, 7, 2, [3, 6, 10, 13]),
]


@pytest.mark.parametrize(("frequency", "accumulate", "batches", "epochs", "ticks"), UNEVEN)
def test_the_exact_steps_of_a_frequency_are_expected(frequency, accumulate, batches, epochs, ticks):
    model = Model(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(LambdaLR(o, lambda n: 1.0 + n), frequency=frequency),
        }
    )
    rates, done = rates_used(
        model, batches=batches, max_epochs=epochs, accumulate_grad_batches=accumulate
    )
    moved = [step for step in range(1, len(rates)) if rates[step] != rates[step - 1]]
    assert moved == [step for step in ticks if step < len(rates)]
    assert done.ids == ["TG-SCHED-FREQUENCY-BATCHES"]
    assert f"{len(ticks)} ticks" in done.measured("TG-SCHED-FREQUENCY-BATCHES")
    assert done.guard.verdict == "pass"


# ---- Lightning#1476: warmup too short under accumulation (mended since) --------------------------


@pytest.mark.parametrize("accumulate", [2, 3])
def test_one_tick_per_update_under_accumulation_is_silent(accumulate):
    updates = 2 * -(-12 // accumulate)
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": by_step(CosineAnnealingLR(o, updates))},
        batches=12,
        accumulate_grad_batches=accumulate,
    )
    assert done.ids == []
    assert f"ticked {updates} times, {updates} were due" in done.guard.describe()


def test_a_scheduler_ticked_per_micro_batch_by_hand_is_an_error():
    configure = lambda m, o: ([o], [by_step(StepLR(o, 30))])  # noqa: E731
    model = Manual(configure, accumulate=4, after=lambda m, updated: m.lr_schedulers().step())
    done = train(model, batches=8)
    assert done.errors == ["TG-SCHED-TICK-WITHOUT-UPDATE"]


# ---- Lightning#5943, #2316, #1156: patience of a plateau is spent on updates ---------------------


@pytest.mark.parametrize(("batches", "every"), [(12, 6), (8, 4)])
def test_a_plateau_by_step_on_a_validation_metric_is_warned_of(batches, every):
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(
                ReduceLROnPlateau(o, patience=2), monitor="val_loss", strict=False
            ),
        },
        batches=batches,
        max_epochs=1,
        val_check_interval=every,
        validation=1,
    )
    assert done.ids == ["TG-SCHED-PLATEAU-STEPS"]


def test_a_plateau_by_step_on_a_training_metric_is_silent():
    class Logging(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            self.log("loss", loss)
            return loss

    model = Logging(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(ReduceLROnPlateau(o), monitor="loss"),
        }
    )
    assert train(model).ids == []


def plateau_by_epoch(module: Model, optimizer: Any, **more: Any) -> Any:
    scheduler = ReduceLROnPlateau(optimizer, patience=2)
    return {
        "optimizer": optimizer,
        "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss", **more},
    }


def test_a_plateau_by_epoch_fed_the_same_validation_again_is_warned_of():
    done = train(
        lambda m, o: plateau_by_epoch(m, o, strict=False),
        validation=1,
        max_epochs=7,
        check_val_every_n_epoch=3,
    )
    assert done.ids == ["TG-SCHED-PLATEAU-STALE"]


@pytest.mark.parametrize("every", [1, 3])
def test_a_plateau_fed_each_validation_once_is_silent(every):
    done = train(
        lambda m, o: plateau_by_epoch(m, o, frequency=every),
        validation=1,
        max_epochs=6,
        check_val_every_n_epoch=every,
    )
    assert done.ids == []


def test_a_plateau_that_lightning_leaves_out_after_a_resume_is_silent(tmp_path):
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1, save_top_k=1)
    train(plateau_by_epoch, callbacks=[saver], enable_checkpointing=True, validation=1)
    done = train(plateau_by_epoch, ckpt_path=saver.best_model_path, validation=1, max_epochs=5)
    assert done.ids == []


def test_a_plateau_whose_metric_never_comes_is_warned_of():
    done = train(lambda m, o: plateau_by_epoch(m, o, strict=False), max_epochs=2)
    assert done.ids == ["TG-SCHED-PLATEAU-STALE"]
    assert "the metric was missing" in done.messages[0]


# ---- Lightning#19534: somebody's own scheduler on the default interval ---------------------------


def test_a_custom_scheduler_on_the_default_interval_asks_for_an_expectation():
    done = train(lambda m, o: ([o], [{"scheduler": Custom(o), "name": "x"}]))
    assert done.ids == ["TG-SCHED-UNSURE"]


def test_a_custom_scheduler_that_holds_the_updates_as_horizon_is_an_error():
    class Known(Custom):
        def __init__(self, optimizer: Any, total_steps: int) -> None:
            self.total_steps = total_steps
            super().__init__(optimizer)

    done = train(lambda m, o: ([o], [Known(o, 12)]), batches=4, max_epochs=3)
    assert done.errors == ["TG-SCHED-EPOCH"]


def test_a_custom_scheduler_expected_by_name_is_judged_by_it():
    guard = CadenceGuard(expected={"x": "step"}, on_violation="warn")
    done = train(lambda m, o: ([o], [{"scheduler": Custom(o), "name": "x"}]), guard=guard)
    assert done.errors == ["TG-SCHED-EPOCH"]


# ---- Lightning#12894, timm#1235: the horizon was written in batches ------------------------------


@pytest.mark.parametrize(("batches", "accumulate"), [(12, 4), (10, 2), (10, 4)])
def test_a_horizon_in_batches_under_accumulation_is_named(batches, accumulate):
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": by_step(CosineAnnealingLR(o, batches * 2))},
        batches=batches,
        accumulate_grad_batches=accumulate,
    )
    assert done.ids == ["TG-SCHED-HORIZON"]
    assert f"(accumulation {accumulate})" in done.measured("TG-SCHED-HORIZON")


def test_a_horizon_of_estimated_stepping_batches_is_silent():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(
                CosineAnnealingLR(o, int(m.trainer.estimated_stepping_batches))
            ),
        },
        batches=10,
        accumulate_grad_batches=4,
    )
    assert done.ids == []


# ---- casanovo#693: the rate climbs again past T_max ----------------------------------------------


@pytest.mark.parametrize(("batches", "horizon"), [(4, 4), (6, 5)])
def test_a_cosine_that_climbs_again_is_warned_of(batches, horizon):
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": by_step(CosineAnnealingLR(o, horizon))},
        batches=batches,
    )
    assert done.ids == ["TG-SCHED-RISING"]
    assert done.guard.verdict == "pass"


# ---- Lightning#14209: the length of the data is not known ----------------------------------------


def test_a_horizon_of_minus_one_is_an_error():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(
                CosineAnnealingLR(o, int(m.trainer.estimated_stepping_batches))
            ),
        },
        batches=DataLoader(Unsized(), batch_size=2),
    )
    assert done.errors == ["TG-SCHED-UNKNOWN-HORIZON"]
    assert "T_max=-1" in done.measured("TG-SCHED-UNKNOWN-HORIZON")


def test_an_infinite_horizon_is_an_error():
    def endless(module: Model, optimizer: Any) -> Any:
        total = module.trainer.estimated_stepping_batches
        return {
            "optimizer": optimizer,
            "lr_scheduler": by_step(LambdaLR(optimizer, lambda n: 1 - n / total)),
        }

    class Stop(pl.Callback):
        def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
            trainer.should_stop = True

    done = train(endless, max_epochs=-1, callbacks=[Stop()])
    assert done.errors == ["TG-SCHED-UNKNOWN-HORIZON"]


def test_unsized_data_with_max_steps_has_a_length_to_compare_with():
    by_epoch = train(
        lambda m, o: ([o], [CosineAnnealingLR(o, 5)]),
        batches=DataLoader(Unsized(), batch_size=2),
        max_epochs=-1,
        max_steps=5,
    )
    too_long = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": by_step(CosineAnnealingLR(o, 50))},
        batches=DataLoader(Unsized(), batch_size=2),
        max_epochs=-1,
        max_steps=5,
    )
    restarts = train(
        lambda m, o: ([o], [CosineAnnealingWarmRestarts(o, 5)]),
        batches=DataLoader(Unsized(), batch_size=2),
        max_epochs=-1,
        max_steps=5,
    )
    assert by_epoch.errors == ["TG-SCHED-EPOCH"]
    assert restarts.errors == []  # a part of a schedule that is as long as the run proves nothing
    assert too_long.ids == ["TG-SCHED-HORIZON"]


def test_unsized_data_with_max_steps_is_silent():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(
                CosineAnnealingLR(o, int(m.trainer.estimated_stepping_batches))
            ),
        },
        batches=DataLoader(Unsized(), batch_size=2),
        max_epochs=-1,
        max_steps=5,
    )
    assert done.ids == []
    assert done.guard.verdict == "pass"


# ---- pytorch#162591, #119168, #185872: SequentialLR ----------------------------------------------


def test_the_outer_counter_of_a_sequential_schedule_is_what_counts():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": by_step(
                SequentialLR(
                    o, [LinearLR(o, total_iters=4), CosineAnnealingLR(o, 6)], milestones=[4]
                )
            ),
        }
    )
    (config,) = done.trainer.lr_scheduler_configs
    assert [part.last_epoch for part in config.scheduler._schedulers] != [10, 10]
    assert done.ids == []
    assert "ticked 10 times, 10 were due" in done.guard.describe()


# ---- Lightning#7637, #1772, #4655: the scheduler's state after a resume (mended since) -----------


def cosine_over(ticks: int) -> Any:
    return lambda m, o: {"optimizer": o, "lr_scheduler": by_step(CosineAnnealingLR(o, ticks))}


@pytest.mark.parametrize("step", [3, 5, 7])
def test_a_resumed_schedule_is_silent_and_goes_on_where_it_was(step, tmp_path):
    whole, _ = rates_used(Model(cosine_over(10)))
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_train_steps=step, save_top_k=1, monitor=None)
    train(Model(cosine_over(10)), callbacks=[saver], enable_checkpointing=True, max_steps=step)

    rates, done = rates_used(Model(cosine_over(10)), ckpt_path=saver.best_model_path)

    assert done.ids == []
    assert rates == whole[step:]
    assert f"ticked {10 - step} times, {10 - step} were due" in done.guard.describe()


# ---- Lightning#19865, #15462, #5455: a checkpoint's horizon wins ---------------------------------


def test_a_checkpoint_that_overrides_the_horizon_is_warned_of(tmp_path):
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1)
    train(Model(cosine_over(15)), callbacks=[saver], enable_checkpointing=True, max_epochs=1)

    done = train(Model(cosine_over(30)), ckpt_path=saver.best_model_path, max_epochs=3)

    assert done.ids == ["TG-SCHED-CHECKPOINT"]
    assert "T_max 30 → 15" in done.measured("TG-SCHED-CHECKPOINT")


def test_a_checkpoint_with_another_number_of_schedulers_is_an_error(tmp_path):
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1)
    train(Model(cosine_over(15)), callbacks=[saver], enable_checkpointing=True, max_epochs=1)

    done = train(Model(lambda m, o: o), ckpt_path=saver.best_model_path, max_epochs=3)

    assert done.errors == ["TG-SCHED-CHECKPOINT"]


def several(number: int) -> Any:
    """So many schedulers of one optimizer."""
    return lambda m, o: ([o], [by_step(ExponentialLR(o, 0.9)) for _ in range(number)])


@pytest.mark.parametrize(("saved", "now"), [(2, 1), (1, 2), (3, 2)])
def test_a_checkpoint_with_more_or_fewer_schedulers_is_an_error(tmp_path, saved, now):
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1)
    train(several(saved), callbacks=[saver], enable_checkpointing=True, max_epochs=1)
    done = train(several(now), ckpt_path=saver.best_model_path, max_epochs=3)
    assert "TG-SCHED-CHECKPOINT" in done.errors


@pytest.mark.parametrize("number", [1, 2])
def test_a_checkpoint_with_as_many_schedulers_is_silent(tmp_path, number):
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1)
    train(several(number), callbacks=[saver], enable_checkpointing=True, max_epochs=1)
    done = train(several(number), ckpt_path=saver.best_model_path, max_epochs=3)
    assert "TG-SCHED-CHECKPOINT" not in done.ids


# ---- Lightning#20436: "interval step does not work", and it does ---------------------------------


def test_a_healthy_run_has_the_rates_to_show_for_it():
    model = Model(cosine_over(10))
    rates, done = rates_used(model)
    forecast = done.guard.forecasts[0]
    assert [forecast.rates_at(update)[0] for update in range(1, 11)] == rates
    assert forecast.describe() == f"LR 0.1 → {rates[-1]:.6g} (update 10)"


# ---- Lightning#21491: accumulation that changes during training ----------------------------------


def test_accumulation_that_changes_by_epoch_is_counted():
    done = train(
        cosine_over(11),
        callbacks=[GradientAccumulationScheduler({0: 1, 1: 2})],
        max_epochs=3,
    )
    assert done.ids == []
    assert "ticked 11 times, 11 were due" in done.guard.describe()


def test_nothing_to_judge_is_no_pass():
    done = train(lambda m, o: o)
    assert done.guard.verdict == "inconclusive"
    assert done.guard.describe() == "inconclusive: there is no scheduler"


def test_torch_s_own_generator_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    train(cosine_over(10))
    plain = torch.get_rng_state()
    torch.set_rng_state(before)
    model = Model(cosine_over(10))
    make_trainer([]).fit(model, loader(5))
    assert torch.equal(plain, torch.get_rng_state())

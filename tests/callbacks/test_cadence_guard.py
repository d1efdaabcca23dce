"""What the guard sees while a training runs, and how it ends one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import (
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    ReduceLROnPlateau,
    StepLR,
)

from tests.callbacks.guarded import RATE, Manual, Model, by_step, loader, train
from tests.callbacks.small import make_trainer
from traingen import CadenceGuard, StepRecorder
from traingen.errors import CadenceViolation, ConfigError
from traingen.observe import listening

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def exponential(module: Model, optimizer: Any) -> Any:
    return {"optimizer": optimizer, "lr_scheduler": by_step(ExponentialLR(optimizer, 0.9))}


def bare(module: Model, optimizer: Any) -> Any:
    return optimizer


# ---- ticks and updates ---------------------------------------------------------------------------


class TicksTwice(Model):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            self.lr_schedulers().step()


class NeverTicks(Model):
    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        pass


class CountsWithoutStepping(Model):
    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        closure()
        if batch_idx != 1:
            optimizer.step()


class TicksByHandInstead(NeverTicks):
    def on_train_batch_end(self, *args: Any) -> None:
        self.lr_schedulers().step()


@pytest.mark.parametrize(
    ("model", "id"),
    [
        (TicksTwice, "TG-SCHED-TICK-WITHOUT-UPDATE"),
    ],
)
def test_ticks_and_updates_that_part_are_an_error(model, id):
    done = train(model(exponential))
    assert done.errors == [id]
    assert done.guard.verdict == "fail"


def test_a_pace_of_the_module_s_own_is_a_warning_until_something_is_expected():
    class TicksLate(Model):
        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
            if self.trainer.global_step > 5:
                scheduler.step()

    unasked = train(TicksLate(exponential))
    asked = train(TicksLate(exponential), guard=CadenceGuard(expected="step", on_violation="warn"))
    assert (unasked.ids, unasked.errors) == (["TG-SCHED-UPDATE-WITHOUT-TICK"], [])
    assert asked.errors == ["TG-SCHED-UPDATE-WITHOUT-TICK"]


def test_a_scheduler_whose_ticks_are_all_held_back_is_an_error():
    done = train(NeverTicks(exponential))
    assert done.errors == ["TG-SCHED-NEVER-STEPPED"]
    assert done.guard.verdict == "fail"


def test_ticks_on_counted_steps_that_apply_nothing_are_summed_up():
    done = train(CountsWithoutStepping(exponential))
    assert (done.ids, done.errors) == (["TG-SCHED-SKIPPED"], [])
    assert "2 of 10 ticks came on steps that applied nothing" in done.measured("TG-SCHED-SKIPPED")


@pytest.mark.parametrize("model", [Model, TicksByHandInstead])
def test_one_tick_for_each_update_is_silent(model):
    done = train(model(exponential))
    assert done.ids == []
    assert done.guard.verdict == "pass"


def test_the_violation_stops_training_before_the_next_update():
    guard = CadenceGuard(expected="step")
    trainer = make_trainer([guard])

    with pytest.raises(CadenceViolation, match=r"TG-SCHED-UPDATE-WITHOUT-TICK(.|\n)*Fix: "):
        trainer.fit(NeverTicks(exponential), loader(5))

    assert trainer.global_step == 1
    assert listening._listeners == {}


def test_a_scheduler_of_an_earlier_fit_is_counted_from_zero():
    optimizers: list[Any] = []

    class Kept(Model):  # the same objects at every fit, as LightningCLI does
        def configure_optimizers(self) -> Any:
            if not optimizers:
                optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
                optimizers.append(exponential(self, optimizer))
            return optimizers[0]

    model = Kept(bare)
    guard = CadenceGuard()
    trainer = make_trainer([guard], max_epochs=2)
    trainer.fit(model, loader(5))
    first = guard.describe()
    trainer.fit_loop.max_epochs = 3
    trainer.fit(model, loader(5))

    assert "ticked 10 times, 10 were due" in first
    assert "ticked 5 times, 5 were due" in guard.describe()
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 15


class LeavesEpochs(Model):
    """Leaves every epoch at its fourth batch."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == 3 else None


def test_a_tick_where_an_epoch_is_left_is_a_warning():
    done = train(LeavesEpochs(exponential))
    assert (done.ids, done.errors) == (["TG-SCHED-TICK-WITHOUT-UPDATE"], [])
    assert "on_train_batch_start left the epoch" in done.messages[0]


def test_a_schedule_by_epoch_ticks_for_an_epoch_that_was_left_at_once():
    class LeavesOne(Model):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if self.current_epoch == 1 else None

    done = train(
        LeavesOne(lambda m, o: ([o], [CosineAnnealingLR(o, 3)])),
        max_epochs=3,
    )
    assert done.ids == []


def test_a_second_tick_in_an_epoch_is_an_error():
    class TicksBesides(Model):
        def on_train_epoch_end(self) -> None:
            self.lr_schedulers().step()

    done = train(TicksBesides(lambda m, o: ([o], [CosineAnnealingLR(o, 3)])), max_epochs=3)
    assert done.errors == ["TG-SCHED-TICK-WITHOUT-UPDATE"]


# ---- manual optimization -------------------------------------------------------------------------


def two_optimizers(module: Model, optimizer: Any) -> Any:
    other = torch.optim.SGD(module.parameters(), lr=RATE)
    return [optimizer, other], [StepLR(optimizer, 4), StepLR(other, 4)]


class Alternating(Manual):
    """Two optimizers that take turns; `late` schedulers tick only every other time."""

    late = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer, scheduler in zip(self.optimizers(), self.lr_schedulers(), strict=True):
            self.manual_backward(self.loss(batch))
            optimizer.step()
            optimizer.zero_grad()
            if not self.late or batch_idx % 2:
                scheduler.step()


class AlternatingLate(Alternating):
    late = True


def test_a_manual_scheduler_that_nobody_steps_is_an_error_at_the_end():
    guard = CadenceGuard()
    trainer = make_trainer([guard])

    with pytest.raises(CadenceViolation, match="0 ticks in 10 updates"):
        trainer.fit(Manual(exponential), loader(5))

    assert guard.verdict == "fail"


def test_nothing_is_lost_by_an_error_that_shows_at_the_end(tmp_path):
    saver = ModelCheckpoint(dirpath=tmp_path, save_last=True)
    trainer = make_trainer([CadenceGuard(), saver], enable_checkpointing=True)

    with pytest.raises(CadenceViolation):
        trainer.fit(Manual(exponential), loader(5))

    assert (tmp_path / "last.ckpt").exists()


def test_two_optimizers_are_counted_each_by_itself():
    guard = CadenceGuard(expected="step", on_violation="warn")
    done = train(Alternating(two_optimizers), guard=guard)
    assert done.ids == []
    assert "StepLR (scheduler 1) ticked 10 times, 10 were due" in guard.describe()


def test_two_optimizers_whose_schedulers_lag_are_errors():
    guard = CadenceGuard(expected="step", on_violation="warn")
    done = train(AlternatingLate(two_optimizers), guard=guard)
    assert done.errors == ["TG-SCHED-UPDATE-WITHOUT-TICK"] * 2


def test_without_an_expectation_manual_ticks_are_counted_and_not_judged():
    done = train(AlternatingLate(two_optimizers))
    assert done.ids == []
    assert done.guard.verdict == "inconclusive"


def test_a_manual_schedule_that_is_not_over_at_the_end_is_warned_of():
    configure = lambda m, o: ([o], [CosineAnnealingLR(o, 10)])  # noqa: E731
    over = train(Manual(configure, after=lambda m, updated: m.lr_schedulers().step()))
    short = train(Manual(configure, epoch_end=lambda m: m.lr_schedulers().step()))
    assert over.ids == []
    assert short.ids == ["TG-SCHED-HORIZON"]
    assert "T_max=10, and it has ticked 2 times" in short.measured("TG-SCHED-HORIZON")


def tick_at_epoch_end(module: Manual) -> None:
    module.lr_schedulers().step()


def test_manual_ticks_by_epoch_are_held_to_it():
    guard = CadenceGuard(expected="epoch", on_violation="warn")
    done = train(Manual(exponential, epoch_end=tick_at_epoch_end), guard=guard)
    assert done.ids == []
    assert done.guard.verdict == "pass"


def test_a_manual_epoch_that_training_ends_within_owes_no_tick():
    def at_the_last_batch(module: Manual, updated: bool) -> None:
        if module.trainer.is_last_batch:
            module.lr_schedulers().step()

    guard = CadenceGuard(expected="epoch", on_violation="warn")
    model = Manual(exponential, after=at_the_last_batch)
    done = train(model, guard=guard, max_epochs=3, max_steps=12)
    assert done.trainer.global_step == 12
    assert done.ids == []


def test_a_plateau_ticked_by_hand_is_not_held_to_updates():
    def at_epoch_end(module: Manual) -> None:
        module.lr_schedulers().step(1.0)

    guard = CadenceGuard(expected="step", on_violation="warn")
    model = Manual(lambda m, o: ([o], [ReduceLROnPlateau(o)]), epoch_end=at_epoch_end)
    assert train(model, guard=guard).ids == []


def test_a_tick_per_micro_batch_by_hand_is_no_step_that_a_scaler_skipped():
    model = Manual(exponential, accumulate=2, after=lambda m, updated: m.lr_schedulers().step())
    done = train(model, batches=6, plugins=[scaling()])
    assert done.errors == ["TG-SCHED-TICK-WITHOUT-UPDATE"]


def test_a_manual_epoch_without_its_tick_is_an_error():
    def only_first(module: Manual) -> None:
        if module.current_epoch == 0:
            module.lr_schedulers().step()

    guard = CadenceGuard(expected="epoch", on_violation="warn")
    done = train(Manual(exponential, epoch_end=only_first), guard=guard, max_epochs=3)
    assert done.errors == ["TG-SCHED-UPDATE-WITHOUT-TICK"]


# ---- rates ---------------------------------------------------------------------------------------


class Warmup(Model):
    """The old recipe: the rate is written by hand in optimizer_step."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        optimizer.param_groups[0]["lr"] = RATE * (self.trainer.global_step + 1) / 20
        optimizer.step(closure)


def test_a_rate_that_moves_by_itself_is_warned_of_once():
    done = train(Warmup(bare))
    assert done.ids == ["TG-SCHED-RATE-MOVED"]
    assert "before update 1" in done.measured("TG-SCHED-RATE-MOVED")


class WarmupAfterwards(Model):
    """The same, written after the update and before the scheduler's tick."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        optimizer.step(closure)
        optimizer.param_groups[0]["lr"] = RATE * (self.trainer.global_step + 1) / 20


def test_a_rate_written_between_an_update_and_its_tick_is_warned_of():
    done = train(WarmupAfterwards(exponential))
    assert done.ids == ["TG-SCHED-RATE-MOVED"]
    assert "after update 1" in done.measured("TG-SCHED-RATE-MOVED")


def test_a_scheduler_that_only_the_module_knows_moves_the_rate_by_right():
    class KeepsItsOwn(Model):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
            self.own = ExponentialLR(optimizer, 0.9)
            return optimizer

        def on_train_batch_end(self, *args: Any) -> None:
            self.own.step()

    done = train(KeepsItsOwn(bare))
    assert done.ids == []
    assert done.guard.verdict == "inconclusive"


def test_a_rate_set_before_the_first_batch_is_where_training_begins():
    class Sets(Model):
        def on_train_start(self) -> None:
            self.optimizers().param_groups[0]["lr"] = 0.5

    assert train(Sets(bare)).ids == []


class Rewinds(Model):
    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == 3:
            self.lr_schedulers().last_epoch -= 2


def test_a_scheduler_set_back_is_warned_of():
    done = train(Rewinds(exponential))
    assert done.ids == ["TG-SCHED-REWOUND"]
    assert "from 3 back to 2" in done.measured("TG-SCHED-REWOUND")


# ---- a reference of rates ------------------------------------------------------------------------


def reference(path: Path, rates: list[float]) -> str:
    path.write_text("update,lr\n" + "".join(f"{i},{r!r}\n" for i, r in enumerate(rates, start=1)))
    return str(path)


def test_rates_of_the_original_are_compared_one_by_one(tmp_path):
    original = reference(tmp_path / "lr.csv", [RATE * 0.9**n for n in range(10)])
    guard = CadenceGuard(expected=original, on_violation="warn", reference_updates=10)
    done = train(exponential, guard=guard)
    assert done.ids == []
    assert "10 rates of optimizer 0 compared with the reference" in guard.describe()


def test_a_rate_that_is_not_the_original_s_is_an_error_at_its_update(tmp_path):
    rates = [RATE * 0.9**n for n in range(10)]
    rates[6] *= 1.001
    guard = CadenceGuard(expected=reference(tmp_path / "lr.csv", rates), reference_updates=10)
    trainer = make_trainer([guard])

    with pytest.raises(CadenceViolation, match="optimizer 0, update 7"):
        trainer.fit(Model(exponential), loader(5))

    assert trainer.global_step == 7


def test_a_recording_is_a_reference_and_excuses_what_it_shows(tmp_path):
    recording = str(tmp_path / "original")
    train(NeverTicks(exponential), callbacks=[StepRecorder(recording)])

    guard = CadenceGuard(expected=recording, on_violation="warn", reference_updates=10)
    done = train(NeverTicks(exponential), guard=guard)

    assert done.ids == []
    assert done.guard.verdict == "pass"


def test_a_reference_that_never_ticked_refuses_one_that_does(tmp_path):
    recording = str(tmp_path / "original")
    train(NeverTicks(exponential), callbacks=[StepRecorder(recording)])

    guard = CadenceGuard(expected=recording, on_violation="warn", reference_updates=10)
    assert train(exponential, guard=guard).errors == ["TG-SCHED-REFERENCE"]


def test_a_reference_shorter_than_asked_for_is_said(tmp_path):
    original = reference(tmp_path / "lr.csv", [RATE * 0.9**n for n in range(4)])
    guard = CadenceGuard(expected=original, on_violation="warn")
    done = train(exponential, guard=guard)
    assert done.ids == ["TG-SCHED-REFERENCE-SHORT"]
    assert "4 of 300 rates compared" in done.measured("TG-SCHED-REFERENCE-SHORT")


def test_a_resumed_run_is_compared_from_where_it_was(tmp_path):
    original = reference(tmp_path / "lr.csv", [RATE * 0.9**n for n in range(10)])
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1)
    train(exponential, callbacks=[saver], enable_checkpointing=True, max_epochs=1)

    guard = CadenceGuard(expected=original, on_violation="warn", reference_updates=10)
    done = train(exponential, guard=guard, ckpt_path=saver.best_model_path)

    assert done.errors == []
    assert guard._run.rates.compared == {0: 5}


def test_one_series_for_two_optimizers_is_refused(tmp_path):
    original = reference(tmp_path / "lr.csv", [RATE] * 10)
    with pytest.raises(ConfigError, match="say whose"):
        train(Alternating(two_optimizers), guard=CadenceGuard(expected=original))


def test_resumed_with_two_optimizers_nothing_is_compared_and_that_is_said(tmp_path):
    original = reference(tmp_path / "lr.csv", [RATE * 0.1 ** (n // 4) for n in range(10)])
    saver = ModelCheckpoint(dirpath=tmp_path, every_n_epochs=1)
    train(Alternating(two_optimizers), callbacks=[saver], enable_checkpointing=True, max_epochs=1)
    guard = CadenceGuard(expected={"0": original, "1": original}, on_violation="warn")
    done = train(Alternating(two_optimizers), guard=guard, ckpt_path=saver.best_model_path)
    assert done.ids == ["TG-SCHED-REFERENCE-SHORT"]
    assert "resumed with 2 optimizers" in done.messages[0]


def test_each_of_two_optimizers_has_a_reference_of_its_own(tmp_path):
    rates = [RATE * 0.1 ** (n // 4) for n in range(10)]
    original = reference(tmp_path / "lr.csv", rates)
    wrong = reference(tmp_path / "wrong.csv", [RATE] * 10)
    guard = CadenceGuard(
        expected={"0": original, "1": wrong}, on_violation="warn", reference_updates=10
    )
    done = train(Alternating(two_optimizers), guard=guard)
    assert done.errors == ["TG-SCHED-REFERENCE"]
    assert "optimizer 1, update 5" in done.measured("TG-SCHED-REFERENCE")


# ---- gradient scaling ----------------------------------------------------------------------------


class Overflows(Model):
    """Its loss is infinite at one batch of each epoch, so the scaler skips that update."""

    fused = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch) * (float("inf") if batch_idx == 1 else 1.0)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=RATE, fused=self.fused)
        return {"optimizer": optimizer, "lr_scheduler": by_step(CosineAnnealingLR(optimizer, 10))}


class OverflowsFused(Overflows):
    fused = True


def scaling() -> MixedPrecision:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    return MixedPrecision("16-mixed", device="cpu", scaler=scaler)


@pytest.mark.parametrize("model", [Overflows, OverflowsFused])
def test_ticks_on_skipped_steps_are_summed_up(model):
    done = train(model(bare), plugins=[scaling()])
    assert done.ids == ["TG-SCHED-SKIPPED"]
    assert "2 of 10 ticks came on steps" in done.measured("TG-SCHED-SKIPPED")
    assert "8 updates were applied" in done.measured("TG-SCHED-SKIPPED")


def test_a_second_tick_is_told_from_a_skipped_step():
    class TicksBesides(Overflows):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step:
                self.lr_schedulers().step()
            return self.loss(batch)

    done = train(TicksBesides(bare), plugins=[scaling()])
    assert "TG-SCHED-TICK-WITHOUT-UPDATE" in done.errors


def test_a_schedule_by_epoch_is_not_counted_on_skipped_steps():
    class ByEpoch(Overflows):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch) * (float("inf") if batch_idx == 4 else 1.0)

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=RATE)
            return [optimizer], [CosineAnnealingLR(optimizer, 2)]

    assert train(ByEpoch(bare), plugins=[scaling()]).ids == []


def test_scaling_that_skips_nothing_is_silent():
    class Fits(Overflows):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch)

    assert train(Fits(bare), plugins=[scaling()]).ids == []


@pytest.mark.parametrize("expected", ["step", {"0": "epoch"}])
def test_an_expectation_without_any_scheduler_is_refused(expected):
    if isinstance(expected, dict):
        with pytest.raises(ConfigError, match="found none"):
            train(bare, guard=CadenceGuard(expected=expected))
    else:
        done = train(bare, guard=CadenceGuard(expected=expected, on_violation="warn"))
        assert done.errors == ["TG-SCHED-NONE"]


def test_of_two_guards_the_first_does_the_work():
    second = CadenceGuard(expected="step", on_violation="warn")
    done = train(exponential, callbacks=[second])
    assert done.guard.verdict == "pass"
    assert (second.findings, second.verdict) == ([], "inconclusive")


# ---- other callbacks that meddle with schedulers -------------------------------------------------


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("configure", [exponential, bare])
def test_weight_averaging_that_takes_over_is_announced(norm, configure):
    model = Model(configure)
    if norm:
        model.net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1))
    averaging = StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=2)
    done = train(model, callbacks=[averaging], max_epochs=4)
    assert done.ids == ["TG-SCHED-SWAPPED"]
    assert done.errors == []


def test_a_scheduler_exchanged_by_somebody_else_is_an_error():
    class Exchange(pl.Callback):
        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            if trainer.current_epoch == 1:
                config = trainer.lr_scheduler_configs[0]
                config.scheduler = StepLR(trainer.optimizers[0], 3)

    done = train(exponential, callbacks=[Exchange()])
    assert done.errors == ["TG-SCHED-REPLACED"]


def test_the_rate_finder_is_not_mistaken_for_the_training(tmp_path):
    class Tunable(Model):
        def __init__(self) -> None:
            super().__init__(bare)
            self.lr = RATE

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
            return exponential(self, optimizer)

    finder = LearningRateFinder(num_training_steps=4, update_attr=False)
    done = train(Tunable(), callbacks=[finder], default_root_dir=tmp_path, max_epochs=1)
    assert done.ids == []
    assert "ticked 5 times, 5 were due" in done.guard.describe()


def test_a_copy_of_the_module_made_at_setup_is_no_trouble():
    done = train(exponential, callbacks=[WeightAveraging()])
    assert done.ids == []


def test_the_module_is_left_as_it_was():
    model = Model(exponential)
    train(model)
    assert "configure_optimizers" not in vars(model)


# ---- parameters ----------------------------------------------------------------------------------


class Late(Model):
    """Makes a layer after its optimizer."""

    frozen = False

    def on_fit_start(self) -> None:
        self.extra = nn.Linear(3, 2).requires_grad_(not self.frozen)


class LateFrozen(Late):
    frozen = True


def test_parameters_that_no_optimizer_holds_are_named():
    done = train(Late(bare))
    assert done.ids == ["TG-OPT-PARAMETERS-LEFT"]
    assert "2 of the module's tensors, 8 elements: extra.weight, extra.bias" in done.messages[0]


def test_frozen_parameters_need_no_optimizer():
    assert train(LateFrozen(bare)).ids == []


# ---- a scheduler that is not torch's -------------------------------------------------------------


class Foreign:
    """A scheduler of another library: state, an optimizer, and a step of its own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass

    def step(self) -> None:
        self.optimizer.param_groups[0]["lr"] *= 0.5


class UsesForeign(Model):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=RATE)
        return {"optimizer": optimizer, "lr_scheduler": by_step(Foreign(optimizer))}

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        scheduler.step()


def test_a_scheduler_that_is_not_torch_s_is_said_not_to_be_judged():
    done = train(UsesForeign(bare))
    assert done.ids == ["TG-SCHED-NOT-HEARD"]
    assert done.errors == []
    assert done.guard.verdict == "inconclusive"


class Wrapped(torch.optim.Optimizer):
    """Wraps an optimizer without torch's constructor, so that its own step is not heard."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups, self.state = inner.param_groups, inner.state
        self.defaults = inner.defaults

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none)


class Silent(Wrapped):
    """Does its steps by hand, unheard."""

    def step(self, closure: Any = None) -> Any:
        loss = closure()
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad, alpha=self.param_groups[0]["lr"])
        return loss


def test_an_optimizer_that_wraps_another_is_heard_through_it():
    done = train(lambda m, o: exponential(m, Wrapped(o)))
    assert done.ids == []
    assert done.guard.verdict == "pass"


def test_an_optimizer_that_is_not_heard_is_not_judged():
    done = train(lambda m, o: exponential(m, Silent(o)))
    assert done.ids == ["TG-SCHED-NOT-HEARD"]


def test_ticks_before_the_first_update_are_an_error_once_it_comes():
    class Early(Model):
        def on_train_start(self) -> None:
            self.lr_schedulers().step()

    done = train(Early(exponential))
    assert done.errors == ["TG-SCHED-TICK-WITHOUT-UPDATE"]


# ---- what is announced ---------------------------------------------------------------------------


def test_the_rates_of_the_run_are_announced_before_it(caplog):
    caplog.set_level("INFO")
    train(lambda m, o: ([o], [{"scheduler": StepLR(o, 9), "interval": "epoch"}]), batches=3)
    (line,) = [message for message in caplog.messages if "ticks in" in message]
    assert line == (
        "CadenceGuard: StepLR (scheduler 0): interval epoch, frequency 1, 2 ticks in 6 updates; "
        "LR will be constant at 0.1"
    )


def test_a_schedule_of_the_user_s_own_code_is_not_run_to_predict_it(caplog):
    calls: list[int] = []

    def counted(ticks: int) -> float:
        calls.append(ticks)
        return 1.0

    caplog.set_level("INFO")
    train(lambda m, o: {"optimizer": o, "lr_scheduler": by_step(LambdaLR(o, counted))})

    assert calls == list(range(11))
    assert any("calls a function that may do more" in message for message in caplog.messages)


def test_a_trial_run_says_nothing_about_the_horizon():
    done = train(lambda m, o: ([o], [CosineAnnealingLR(o, 100)]), fast_dev_run=2)
    assert "TG-SCHED-EPOCH" not in done.ids
    assert done.errors == []


# ---- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"expected": "stpe"}, "expected must be auto, step, epoch"),
        ({"expected": ""}, "expected must be"),
        ({"expected": {"0": "often"}}, "got 'often'"),
        ({"on_violation": "ignore"}, "on_violation must be raise or warn"),
        ({"reference_updates": 0}, "reference_updates must be 1 or more"),
        ({"reference_updates": "x"}, "reference_updates must be 1 or more, got 'x'"),
    ],
)
def test_a_bad_argument_is_refused_at_once(arguments, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        CadenceGuard(**arguments)


def test_an_unreadable_reference_is_refused_at_once(tmp_path):
    (tmp_path / "lr.csv").write_bytes(b"\x00\xff\x00")
    with pytest.raises(ConfigError, match=r"lr\.csv"):
        CadenceGuard(expected=str(tmp_path / "lr.csv"))


def test_an_expectation_of_an_unknown_scheduler_is_refused_before_training():
    guard = CadenceGuard(expected={"CosineAnnealingLR": "step"})
    trainer = make_trainer([guard])
    with pytest.raises(ConfigError, match=r"ExponentialLR \(scheduler 0\)"):
        trainer.fit(Model(exponential), loader(5))
    assert trainer.global_step == 0


@pytest.mark.parametrize("key", ["0", 0, "ExponentialLR", "mine"])
def test_an_expectation_may_name_index_class_or_name(key):
    guard = CadenceGuard(expected={key: "epoch"}, on_violation="warn")
    done = train(
        lambda m, o: {"optimizer": o, "lr_scheduler": by_step(ExponentialLR(o, 0.9), name="mine")},
        guard=guard,
    )
    assert done.errors == ["TG-SCHED-STEP"]


def test_warnings_do_not_stop_and_errors_may_be_made_warnings():
    done = train(lambda m, o: ([o], [CosineAnnealingLR(o, 10)]))
    assert done.trainer.global_step == 10
    assert done.messages[0].startswith("TG-SCHED-EPOCH: ")


def test_validation_alone_is_none_of_its_business():
    guard = CadenceGuard()
    trainer = make_trainer([guard])
    trainer.validate(Model(bare), loader(2), verbose=False)
    assert guard.findings == []


def test_a_plateau_alone_cannot_be_forecast():
    done = train(
        lambda m, o: {
            "optimizer": o,
            "lr_scheduler": {"scheduler": ReduceLROnPlateau(o), "monitor": "val_loss"},
        },
        validation=1,
    )
    assert done.guard.forecasts[0] == (
        "ReduceLROnPlateau (scheduler 0) follows a metric, so no rate is predicted"
    )
    assert done.guard.verdict == "pass"

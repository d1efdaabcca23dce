"""The mirror sends what is recorded to the trainer's loggers, and nothing of the training moves."""

import csv
import traceback
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, Logger

from tests import first_law
from tests.callbacks.small import BATCHES, Small, fit, make_loader, make_trainer
from traingen import StepRecorder
from traingen.callbacks.mirror import Mirror, metrics_of
from traingen.records import MemorySink, Recording, UpdateRecord, read_recording

SCALARS = ("loss", "objective", "grad_norm", "grad_norm_clipped")


class Keeps(Logger):
    """A logger that keeps what it is given, and from where it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: list[tuple[int | None, dict[str, float]]] = []
        self.stacks: list[set[str]] = []

    name = version = "keeps"

    def log_hyperparams(self, params: Any, *rest: Any, **options: Any) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged.append((step, dict(metrics)))
        self.stacks.append({frame.name for frame in traceback.extract_stack()})

    def mirrored(self) -> list[tuple[int | None, dict[str, float]]]:
        """Those of its entries that the mirror sent."""
        return [entry for entry in self.logged if any(n.startswith("traingen/") for n in entry[1])]


class Logs(Small):
    """Logs its own loss as well, the way Lightning means it."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("own", loss)
        return loss


class TwoGroups(Small):
    def configure_optimizers(self) -> Any:
        groups = [{"params": self.net[0].parameters()}, {"params": self.net[3].parameters()}]
        groups[1]["lr"] = 0.25
        return torch.optim.SGD(groups, lr=0.5)


def mirror(
    path: Path, logger: Any, *, model: pl.LightningModule | None = None, **options: Any
) -> Recording:
    fit([StepRecorder(str(path), mirror=True)], model=model, logger=logger, **options)
    return read_recording(path)


def test_training_with_the_mirror_ends_in_the_same_bits(tmp_path):
    logger = Keeps()
    trained = first_law.train([StepRecorder(str(tmp_path), mirror=True)], logger=logger)
    first_law.assert_same_training(first_law.trained_without(), trained)
    assert len(logger.mirrored()) == first_law.UPDATES


@pytest.mark.parametrize("accumulate", [1, 2])
def test_csv_holds_what_is_recorded_at_the_step_of_lightnings_own_metrics(tmp_path, accumulate):
    logger = CSVLogger(tmp_path, name="log")
    recording = mirror(
        tmp_path / "run",
        logger,
        model=Logs(),
        accumulate_grad_batches=accumulate,
        gradient_clip_val=1.5,
        log_every_n_steps=1,
    )
    rows = list(csv.DictReader((Path(logger.log_dir) / "metrics.csv").read_text().splitlines()))
    own = [int(row["step"]) for row in rows if row["own"]]
    mirrored = [row for row in rows if row["traingen/loss"]]
    assert [int(row["step"]) for row in mirrored] == own == list(range(len(recording.updates)))
    for row, update in zip(mirrored, recording.updates, strict=True):
        for name in SCALARS:
            assert float(row[f"traingen/{name}"]) == getattr(update, name)
        assert float(row["traingen/lr"]) == update.lr[0]
    assert any(u.clipped for u in recording.updates)  # else two of the columns are one


def test_every_update_is_sent_whatever_log_every_n_steps_says(tmp_path):
    logger = Keeps()
    recording = mirror(tmp_path, logger, model=Logs(), log_every_n_steps=4)
    assert [step for step, _ in logger.mirrored()] == list(range(2 * BATCHES))
    assert len(recording.updates) == 2 * BATCHES
    assert [step for step, metrics in logger.logged if "own" in metrics] == [3, 7]


def test_it_is_sent_at_the_end_of_the_batch_and_not_inside_the_optimizers_step(tmp_path):
    logger = Keeps()
    mirror(tmp_path, logger, accumulate_grad_batches=2)
    assert len(logger.stacks) == 6
    for stack in logger.stacks:
        assert "on_train_batch_end" in stack
        assert not {"optimizer_step", "step_applied"} & stack


def test_several_loggers_are_all_given_it(tmp_path):
    loggers = [Keeps(), Keeps()]
    mirror(tmp_path, loggers)
    assert loggers[0].logged == loggers[1].logged != []


def test_rates_of_several_groups_have_their_numbers(tmp_path):
    logger = Keeps()
    mirror(tmp_path, logger, model=TwoGroups(), max_epochs=1)
    _, first = logger.logged[0]
    assert set(first) == {*(f"traingen/{n}" for n in SCALARS), "traingen/lr-0", "traingen/lr-1"}
    assert (first["traingen/lr-0"], first["traingen/lr-1"]) == (0.5, 0.25)


def test_the_axis_goes_on_where_a_resumed_run_goes_on(tmp_path):
    checkpoint = tmp_path / "half.ckpt"
    fit([], max_epochs=1).save_checkpoint(checkpoint)
    logger = Keeps()
    trainer = make_trainer(
        [StepRecorder(str(tmp_path / "rest"), mirror=True)], logger=logger, log_every_n_steps=1
    )
    trainer.fit(Logs(), make_loader(), ckpt_path=checkpoint, weights_only=True)
    own = [step for step, metrics in logger.logged if "own" in metrics]
    assert [step for step, _ in logger.mirrored()] == own
    assert len(own) == BATCHES


class WithoutLoss(Small):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor | None:
        return None if batch_idx == 1 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`:UserWarning")
def test_a_null_is_left_out(tmp_path):
    logger = Keeps()
    recording = mirror(tmp_path, logger, model=WithoutLoss(), max_epochs=1)
    assert recording.updates[1].loss is None
    assert {name for name in logger.logged[0][1] if "loss" in name} == {"traingen/loss"}
    assert not {name for name in logger.logged[1][1] if "loss" in name or "objective" in name}
    assert set(logger.logged[1][1]) == {"traingen/lr"}  # no backward, thus no gradient either


class Two(Small):
    """Steps two optimizers at every batch, the second one `again` times more."""

    automatic_optimization = False

    def __init__(self, *, again: int = 0) -> None:
        super().__init__(interval=None)
        self.other, self.again = torch.nn.Linear(3, 1), again

    def training_step(self, batch: Any, batch_idx: int) -> None:
        first, second = self.optimizers()
        for optimizer, loss in ((first, self.loss(batch)), (second, self.other(batch[0]).sum())):
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        for _ in range(self.again):
            second.step()

    def configure_optimizers(self) -> Any:
        return (
            torch.optim.SGD(self.net.parameters(), lr=0.1),
            torch.optim.SGD(self.other.parameters(), lr=0.01),
        )


@pytest.mark.parametrize("again", [0, 2])
def test_each_of_several_optimizers_has_names_of_its_own(tmp_path, again):
    logger = Keeps()
    recording = mirror(tmp_path, logger, model=Two(again=again), max_epochs=1)
    assert len(recording.updates) == BATCHES * (2 + again)
    assert [step for step, _ in logger.logged] == list(range(BATCHES))
    first = [update for update in recording.updates if update.optimizer == 0]
    second = [update for update in recording.updates if update.optimizer == 1][again :: again + 1]
    for (_, metrics), one, other in zip(logger.logged, first, second, strict=True):
        assert metrics["traingen/grad_norm"] == one.grad_norm
        assert metrics["traingen/optimizer-1/grad_norm"] == other.grad_norm
        assert metrics["traingen/lr"] == 0.1
        assert metrics["traingen/optimizer-1/lr"] == 0.01
        assert ("traingen/optimizer-1/loss" in metrics) == (again == 0)  # it had no backward
        assert metrics["traingen/loss"] == one.loss


def test_without_a_logger_nothing_happens(tmp_path):
    assert len(mirror(tmp_path, False).updates) == 2 * BATCHES


def test_without_the_flag_no_logger_hears_of_it(tmp_path):
    logger = Keeps()
    fit([StepRecorder(str(tmp_path))], logger=logger)
    assert logger.logged == []


def test_a_recorder_with_a_given_sink_mirrors_too():
    sink, logger = MemorySink(), Keeps()
    fit([StepRecorder.to_sink(sink, mirror=True)], logger=logger)
    losses = [one.loss for one in sink.records if isinstance(one, UpdateRecord)]
    assert [metrics["traingen/loss"] for _, metrics in logger.logged] == losses


class Stops(pl.Callback):
    def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        raise RuntimeError("enough")


def test_an_update_cut_off_by_an_exception_is_in_the_recording_only(tmp_path):
    logger, recorder = Keeps(), StepRecorder(str(tmp_path), mirror=True)
    with pytest.raises(RuntimeError, match="enough"):
        fit([Stops(), recorder], logger=logger)
    assert (len(read_recording(tmp_path).updates), logger.logged) == (1, [])


# The helper ---------------------------------------------------------------------------------


def an_update(**facts: Any) -> UpdateRecord:
    """The first update of a small training, with `facts` instead of its own."""
    sink = MemorySink()
    fit([StepRecorder.to_sink(sink)], max_epochs=1, limit_train_batches=1)
    update = next(one for one in sink.records if isinstance(one, UpdateRecord))
    return type(update)(**{n: getattr(update, n) for n in update.__struct_fields__} | facts)


def test_loss_terms_are_sent_under_their_names():
    metrics = metrics_of(an_update(loss_terms={"mask": 0.5, "class": 0.25}))
    assert metrics["traingen/loss_terms/mask"] == 0.5
    assert metrics["traingen/loss_terms/class"] == 0.25


def test_an_update_is_sent_once():
    kept, logger = Mirror(MemorySink()), Keeps()
    kept.send([logger], step=0)
    kept.write(an_update())
    kept.send([logger], step=1)
    kept.send([logger], step=2)
    assert [step for step, _ in logger.logged] == [1]

"""Code that is unusual and right is recorded rightly, and never harmed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from tests.callbacks.small import BATCH, BATCHES, Small, make_loader, make_trainer, record
from traingen import StepRecorder
from traingen.observe.digests import digest_batch
from traingen.records import Recording, read_recording


def losses_of(model: Small) -> list[float]:
    """What the model returned as its loss, batch by batch."""
    return model.seen


class Watched(Small):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seen: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = self.loss(batch)
        self.seen.append(loss.item())
        return loss


# The loss is what the loop calls its loss; the objective is what was differentiated ----------


class Penalized(Watched):
    def on_after_backward(self) -> None:
        (0.1 * sum(p.square().sum() for p in self.parameters())).backward()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_penalty_that_is_differentiated_apart_is_no_part_of_the_loss(tmp_path, accumulate):
    model = Penalized()
    recording = record(tmp_path, model=model, max_epochs=1, accumulate_grad_batches=accumulate)
    told = [one for update in recording.updates for one in update.micro_losses]
    assert told == pytest.approx(losses_of(model), rel=1e-6)
    for update in recording.updates:
        assert update.loss == pytest.approx(np.mean(update.micro_losses))
        assert update.objective > update.loss * update.micro_batches / accumulate


class OwnBackward(Watched):
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        parameters = list(self.parameters())
        for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = gradient


def test_the_loss_is_known_where_no_backward_is_heard(tmp_path):
    model = OwnBackward()
    recording = record(tmp_path, model=model, max_epochs=1)
    assert [u.loss for u in recording.updates] == pytest.approx(losses_of(model), rel=1e-6)
    assert [u.objective for u in recording.updates] == [None] * BATCHES
    assert all(u.grad_norm > 0 for u in recording.updates)


class Evaluates(Watched):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=3)


def test_of_several_evaluations_the_loss_is_the_last(tmp_path):
    model = Evaluates()
    recording = record(tmp_path, model=model, max_epochs=1, accumulate_grad_batches=BATCHES)
    (update,) = recording.updates
    first, last = model.seen[: BATCHES - 1], model.seen[-1]  # the last batch is evaluated again
    assert update.micro_losses == pytest.approx([*first, last], rel=1e-6)


# Terms ---------------------------------------------------------------------------------------


class LogsLate(Watched):
    automatic_optimization = False

    def __init__(self, *, late: bool) -> None:
        super().__init__(interval=None)
        self.late = late

    def training_step(self, batch: Any, batch_idx: int) -> None:
        loss = self.loss(batch)
        self.seen.append(loss.item())
        self.manual_backward(loss / 2)
        if not self.late:
            self.log("fit", loss)
        if batch_idx % 2:
            self.optimizers().step()
            self.optimizers().zero_grad()
        if self.late:
            self.log("fit", loss)


def test_a_term_that_is_logged_after_the_step_is_in_no_mean(tmp_path):
    in_time, late = LogsLate(late=False), LogsLate(late=True)
    told = record(tmp_path / "a", model=in_time, max_epochs=1).updates
    means = [np.mean(in_time.seen[i : i + 2]) for i in (0, 2)]
    assert [u.loss_terms["fit"] for u in told] == pytest.approx(means, rel=1e-6)
    assert [u.loss_terms for u in record(tmp_path / "b", model=late, max_epochs=1).updates] == [
        None,
        None,
    ]


# Batches -------------------------------------------------------------------------------------


class Fetches(Watched):
    def training_step(self, dataloader_iter: Iterator[Any]) -> Tensor:  # type: ignore[override]
        batch, _, _ = next(dataloader_iter)
        return super().training_step(batch, 0)


@pytest.mark.filterwarnings("ignore:.*`dataloader_iter`")
def test_a_step_that_fetches_itself_shows_no_batch(tmp_path):
    model = Fetches()
    recording = record(tmp_path, model=model, max_epochs=1)
    assert [u.loss for u in recording.updates] == pytest.approx(losses_of(model), rel=1e-6)
    assert {(u.batch, u.batch_idx) for u in recording.updates} == {(None, None)}


class Unreadable:
    """What a library of its own may put into a batch."""


LAYOUTS = {
    "coo": (lambda x: x.to_sparse(), True),
    "csr": (lambda x: x.to_sparse_csr(), True),
    "nested": (lambda x: torch.nested.nested_tensor(list(x)), False),
    "own kind": (lambda x: {"adjacency": Unreadable()}, False),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse CSR")
@pytest.mark.parametrize(("make", "digested"), LAYOUTS.values(), ids=LAYOUTS)
def test_no_tensor_in_a_batch_ends_the_training(tmp_path, make, digested):
    def collate(samples: list[Any]) -> Any:
        x, y = (torch.stack(parts) for parts in zip(*samples, strict=True))
        return x, y, make(torch.eye(4))

    trained = []
    for path in (None, tmp_path):
        model = Watched()
        trainer = make_trainer([StepRecorder(str(path))] if path else [], max_epochs=1)
        trainer.fit(model, DataLoader(make_loader().dataset, BATCH, collate_fn=collate))
        trained.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*trained, strict=True))
    recording = read_recording(tmp_path)
    events = [event.event for event in recording.events]
    assert events == ([] if digested else ["batch_not_digested"])
    assert {u.batch is None for u in recording.updates} == {not digested}


def test_a_sparse_tensor_has_a_digest_of_its_content():
    eye = torch.eye(3).to_sparse()
    assert digest_batch(eye) == digest_batch(torch.eye(3).to_sparse())
    assert digest_batch(eye) != digest_batch((2 * torch.eye(3)).to_sparse())
    assert digest_batch(eye) != digest_batch(torch.eye(3))


class ReturnsOdd(Watched):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {
            "loss": super().training_step(batch, batch_idx),
            "odd": torch.ones((), device="meta"),
        }


def test_an_output_that_cannot_be_read_is_no_term(tmp_path):
    recording = record(tmp_path, model=ReturnsOdd(), max_epochs=1)
    assert [u.loss_terms for u in recording.updates] == [None] * BATCHES


# Schedulers ----------------------------------------------------------------------------------


class SteppedBy(Small):
    """Steps a stock scheduler by an argument of some type."""

    def __init__(self, number: Any) -> None:
        super().__init__()
        self.number = number
        self.calls = 0

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        self.calls += 1
        scheduler.step(self.number(self.calls))


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (lambda k: k / 10, [0, 0.1, 0.2, 0.3, 0.4]),
        (np.int64, [0, 1, 2, 3, 4]),
        (torch.tensor, [0, 1, 2, 3, 4]),
    ],
    ids=["fractions", "numpy", "tensor"],
)
def test_a_counter_of_any_kind_of_number_is_recorded(tmp_path, number, expected):
    recording = record(tmp_path, model=SteppedBy(number), max_epochs=1)
    assert [u.scheduler[0].last_epoch for u in recording.updates] == expected
    assert [u.scheduler[0].ticks for u in recording.updates] == [0, 1, 2, 3, 4]


class OwnScheduler:
    """Anybody's class: an optimizer, a step, and a counter that nobody may read."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def last_epoch(self) -> int:
        raise RuntimeError("not yours")

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] *= 0.5

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state == {}


class WithOwnScheduler(Small):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [{"scheduler": OwnScheduler(optimizer), "interval": "step"}]

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        scheduler.step()


def test_ticks_of_a_scheduler_that_is_none_of_torchs_are_counted(tmp_path):
    step = OwnScheduler.step
    recording = record(tmp_path, model=WithOwnScheduler(), max_epochs=1)
    states = [u.scheduler[0] for u in recording.updates]
    assert [(s.ticks, s.last_epoch) for s in states] == [(k, None) for k in range(BATCHES)]
    assert OwnScheduler.step is step


# The run line and the options ----------------------------------------------------------------


def exclude_biases(parameter: Tensor) -> bool:
    return parameter.ndim == 1


class WithFunctions(Small):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        optimizer.param_groups[0] |= {"filter": exclude_biases, "of": object(), "kinds": {"b", "a"}}
        return optimizer


def test_options_that_are_objects_are_recorded_without_their_address(tmp_path):
    options = record(tmp_path, model=WithFunctions(), max_epochs=1).updates[0].hyper_parameters[0]
    assert options["filter"] == f"{__name__}.exclude_biases"
    assert (options["of"], options["kinds"]) == ("builtins.object", ["a", "b"])


@pytest.mark.parametrize(
    ("limits", "batches"),
    [({}, BATCHES), ({"limit_train_batches": 3}, 3), ({"overfit_batches": 2}, 2)],
    ids=["all", "limit", "overfit"],
)
def test_the_loader_is_described_as_the_trainer_uses_it(tmp_path, limits, batches):
    assert record(tmp_path, max_epochs=1, **limits).run.loader["batches"] == batches


def test_every_loader_that_is_combined_is_described(tmp_path: Path) -> None:
    class Two(Small):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.loss(batch["a"]) + self.loss(batch["b"])

    shuffled = DataLoader(make_loader().dataset, BATCH, shuffle=True)
    make_trainer([StepRecorder(str(tmp_path))], max_epochs=1).fit(
        Two(), {"a": make_loader(), "b": shuffled}
    )
    recording: Recording = read_recording(tmp_path)
    samplers = [recording.run.loader, *recording.run.loader["others"]]
    assert [one["sampler"].rpartition(".")[2] for one in samplers] == [
        "SequentialSampler",
        "RandomSampler",
    ]


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_windows_whose_steps_were_left_out_leave_nothing_behind(tmp_path):
    class Leaves(Watched):
        def __init__(self) -> None:
            super().__init__(interval=None)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:
            return None if batch_idx in (0, 1) else super().training_step(batch, batch_idx)

    scaled = {"plugins": [scaler_plugin()], "accumulate_grad_batches": 2}
    recording = record(tmp_path, model=Leaves(), max_epochs=1, **scaled)
    assert [u.micro_batches for u in recording.updates][:1] == [2]
    assert recording.updates[0].batch_idx == 3


def scaler_plugin() -> Any:
    from lightning.pytorch.plugins.precision import MixedPrecision

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    return MixedPrecision("16-mixed", device="cpu", scaler=scaler)

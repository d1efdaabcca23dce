"""An unmodified loop is recorded as what it did, and does the same as unrecorded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from tests.observe.listeners import hear, hooks_on_torch
from tests.observe.training import UPDATES, train
from traingen.errors import SystemFailed
from traingen.loops.batches import Fetch
from traingen.loops.recorder import OBSERVES, LoopRecorder
from traingen.observe.digests import digest_batch
from traingen.observe.listening import listening
from traingen.observe.rng import GENERATORS, digest_rng
from traingen.records import (
    EndRecord,
    EventRecord,
    MemorySink,
    RunRecord,
    SchedulerState,
    UpdateRecord,
    decode_line,
    encode_line,
)

SAMPLES, BATCH = 12, 4
PER_EPOCH = SAMPLES // BATCH


@contextmanager
def recording(**options: Any) -> Iterator[tuple[LoopRecorder, MemorySink]]:
    """Record what happens in the block; every record must survive being written."""
    sink = MemorySink()
    recorder = LoopRecorder(sink, **options)
    with listening(recorder):
        yield recorder, sink
    recorder.close("finished")
    for record in sink.records:
        assert decode_line(encode_line(record), where="here") == record


def updates_of(sink: MemorySink) -> list[UpdateRecord]:
    return [record for record in sink.records if isinstance(record, UpdateRecord)]


def make_loader(samples: int = SAMPLES, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, 3, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1)), batch_size=BATCH, **options)


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))


def loss_of(model: nn.Module, batch: list[torch.Tensor]) -> torch.Tensor:
    return (model(batch[0]).squeeze(1) - batch[1]).square().mean()


@dataclass
class Seen:
    """What the loop itself saw of each update, by other means than the recorder's."""

    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    clipped_norms: list[float] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


def exact_norm(model: nn.Module) -> float:
    return float(torch.cat([p.grad.flatten().double() for p in model.parameters()]).norm())


def plain_loop(epochs: int = 2, max_norm: float | None = 1.0) -> Seen:
    """A training loop as people write it: clipping, and OneCycleLR per batch."""
    seen, model, loader = Seen(), make_model(), make_loader(shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    total = epochs * PER_EPOCH
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=total + 1)
    for epoch in range(epochs):
        for batch_idx, batch in enumerate(loader):
            seen.digests.append(digest_batch(batch))
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            seen.norms.append(exact_norm(model))
            if max_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            seen.clipped_norms.append(exact_norm(model))
            seen.rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
            seen.losses.append(loss.item())
            seen.places.append((epoch, batch_idx))
    return seen


# A plain loop


@pytest.mark.parametrize("max_norm", [1.0, None], ids=["clipped", "unclipped"])
def test_a_plain_loop_is_recorded_as_it_was(max_norm):
    with recording() as (_, sink):
        seen = plain_loop(max_norm=max_norm)
    records = updates_of(sink)
    assert [r.update for r in records] == list(range(1, 2 * PER_EPOCH + 1))
    assert [r.loss for r in records] == [r.objective for r in records] == seen.losses
    assert [r.lr for r in records] == [[rate] for rate in seen.rates]
    assert [(r.epoch, r.batch_idx) for r in records] == seen.places
    assert [r.grad_norm for r in records] == pytest.approx(seen.norms, rel=1e-6)
    assert [r.grad_norm_clipped for r in records] == pytest.approx(seen.clipped_norms, rel=1e-6)
    assert {r.grad_norm_source for r in records} == {"clip" if max_norm else "measured"}
    assert any(r.clipped for r in records) == (max_norm is not None)
    assert [r.batch.digest for r in records] == seen.digests
    assert len(set(seen.rates)) == len(records), "an update is not told with its neighbour's rate"


def test_ticks_are_told_as_of_the_next_batch_and_at_the_end():
    with recording() as (recorder, sink):
        plain_loop(epochs=1)
    assert [r.scheduler for r in updates_of(sink)] == [
        [SchedulerState(id=0, last_epoch=n, ticks=n)] for n in range(PER_EPOCH)
    ]
    (end,) = [record for record in sink.records if isinstance(record, EndRecord)]
    assert end.scheduler == [SchedulerState(id=0, last_epoch=PER_EPOCH, ticks=PER_EPOCH)]
    assert (end.reason, end.updates) == ("finished", PER_EPOCH)
    assert len(recorder.schedulers) == 1


def test_the_run_line_names_optimizer_and_scheduler():
    with recording() as (_, sink):
        plain_loop(epochs=1)
    run = sink.records[0]
    assert isinstance(run, RunRecord)
    assert run.observes == OBSERVES
    (optimizer,), (scheduler,) = run.optimizers, run.schedulers
    assert (optimizer.class_path, optimizer.parameters) == ("torch.optim.adamw.AdamW", 41)
    assert scheduler.class_path == "torch.optim.lr_scheduler.OneCycleLR"


def test_fields_that_are_not_observed_are_null():
    with recording() as (_, sink):
        plain_loop(epochs=1)
    unseen = set(UpdateRecord.__struct_fields__) - set(OBSERVES) - {"unknown"}
    found = {getattr(record, name) for record in updates_of(sink) for name in unseen}
    assert found == {None}


def test_generators_are_told_around_the_update():
    moments: list[dict[str, str]] = []
    ear = hear(
        batch_fetched=lambda *_: moments.append(digest_rng()),
        step_applied=lambda *_: moments.append(digest_rng()),
    )
    with listening(ear), recording() as (_, sink):
        plain_loop(epochs=1)
    records = updates_of(sink)
    assert [m for r in records for m in (r.rng, r.rng_after)] == moments
    assert [r.rng_forward for r in records] == [r.rng for r in records]
    assert all(r.rng_after != r.rng for r in records), "dropout draws in between"


def test_only_the_wanted_generators_are_told():
    with recording(rng=("torch",)) as (_, sink):
        plain_loop(epochs=1)
    assert set(updates_of(sink)[0].rng) == {"torch"} < set(GENERATORS)


# Other loops


def simple_loop(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Any) -> list[float]:
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make_sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


@pytest.mark.parametrize("divide", [True, False], ids=["divided", "undivided"])
def test_two_micro_batches_make_one_update(divide):
    roots = []
    with recording() as (_, sink):
        model, loader = make_model(), make_loader(16)
        optimizer = make_sgd(model)
        for index, batch in enumerate(loader):
            loss = loss_of(model, batch) / (2 if divide else 1)
            loss.backward()
            roots.append(loss.item())
            if index % 2:
                optimizer.step()
                optimizer.zero_grad()
    records = updates_of(sink)
    sums = [roots[0] + roots[1], roots[2] + roots[3]]
    assert [r.objective for r in records] == sums
    assert [r.loss for r in records] == [None, None]  # nobody knows whether the loop divides
    assert [(r.micro_batches, r.batch_idx, r.divisor) for r in records] == [
        (2, 1, None), (2, 3, None),
    ]  # fmt: skip


def test_a_loss_of_several_backwards_is_their_sum():
    with recording() as (_, sink):
        model = make_model()
        optimizer = make_sgd(model)
        batch = next(iter(make_loader()))
        output = model(batch[0])
        torch.autograd.backward([output.sum(), output.square().sum()])
        optimizer.step()
    (record,) = updates_of(sink)
    expected = float(output.detach().sum() + output.detach().square().sum())
    assert record.objective == record.loss == pytest.approx(expected, rel=1e-6)


def test_a_closure_evaluated_inside_the_step_is_recorded():
    losses = []
    with recording() as (_, sink):
        model = make_model()
        optimizer = make_sgd(model)
        for batch in make_loader():

            def closure(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                return loss

            losses.append(optimizer.step(closure).item())
    assert [r.loss for r in updates_of(sink)] == losses


def test_a_closure_that_is_evaluated_several_times_is_recorded_as_one_update():
    losses: list[list[float]] = []
    norms: list[float] = []
    with recording() as (_, sink):
        model = make_model()
        model[1].p = 0.0  # of dropout: what is evaluated again is the same function
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.05, max_iter=3)
        for batch in make_loader():
            losses.append([])

            def closure(batch: Any = batch) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, batch)
                loss.backward()
                losses[-1].append(loss.item())
                return loss

            optimizer.step(closure)
            norms.append(exact_norm(model))
    records = updates_of(sink)
    assert [len(several) for several in losses] == [3] * PER_EPOCH
    assert [r.objective for r in records] == [r.loss for r in records] == [s[-1] for s in losses]
    told = [(r.closure.evaluations, r.closure.first_objective) for r in records]
    assert told == [(3, several[0]) for several in losses]
    assert [r.grad_norm for r in records] == pytest.approx(norms, rel=1e-6)
    assert [(r.micro_batches, r.batch_idx) for r in records] == [(1, n) for n in range(PER_EPOCH)]


@pytest.mark.parametrize("overflows", [[], [1]])
def test_a_loop_under_a_scaler_is_recorded_without_its_scale(overflows):
    losses, norms = [], []
    with recording() as (_, sink):
        model, scaler = make_model(), torch.amp.GradScaler("cpu", init_scale=8.0)
        optimizer = make_sgd(model)
        for number, batch in enumerate(make_loader()):
            optimizer.zero_grad()
            loss = loss_of(model, batch) * (float("inf") if number in overflows else 1.0)
            scaler.scale(loss).backward()
            if number not in overflows:
                losses.append(loss.item())
                norms.append(exact_norm(model) / scaler.get_scale())
            scaler.step(optimizer)
            scaler.update()
    records = updates_of(sink)
    assert [r.objective for r in records] == [r.loss for r in records] == losses
    assert [r.grad_norm for r in records] == pytest.approx(norms, rel=1e-6)
    assert [r.amp_scale for r in records] == ([8.0, 4.0] if overflows else [8.0] * PER_EPOCH)
    events = [record.event for record in sink.records if isinstance(record, EventRecord)]
    assert events == ["skipped_step"] * len(overflows)


def test_validation_batches_and_calls_belong_to_no_update():
    with recording() as (_, sink):
        model, training, validation = make_model(), make_loader(), make_loader(8)
        optimizer, losses = make_sgd(model), []
        for _epoch in range(2):
            model.eval()
            with torch.no_grad():
                for batch in validation:
                    model(batch[0])
            model.train()
            losses += simple_loop(model, optimizer, training)
    records = updates_of(sink)
    assert [r.loss for r in records] == losses
    assert [(r.epoch, r.batch_idx, r.micro_batches) for r in records] == [
        (epoch, index, 1) for epoch in range(2) for index in range(PER_EPOCH)
    ]


def test_a_call_in_train_mode_without_gradients_is_not_the_start():
    starts = []
    with recording(on_start=starts.append) as (recorder, sink):
        model, loader = make_model(), make_loader()
        optimizer = make_sgd(model)
        with torch.no_grad():
            for batch in make_loader(8):
                model(batch[0])
        assert (starts, recorder.module, sink.records) == ([], None, [])
        simple_loop(model, optimizer, loader)
    assert starts == [model]
    assert [r.micro_batches for r in updates_of(sink)] == [1] * PER_EPOCH


def test_a_call_in_evaluation_mode_is_not_the_start():
    starts = []
    with recording(on_start=starts.append):
        model = make_model()
        optimizer = make_sgd(model)
        model.eval()
        model(torch.ones(1, 3))
        assert starts == []
        model.train()
        simple_loop(model, optimizer, make_loader())
    assert starts == [model]


def test_a_peek_at_the_loader_is_neither_a_micro_batch_nor_an_epoch():
    with recording() as (_, sink):
        model, loader = make_model(), make_loader()
        next(iter(loader))
        simple_loop(model, make_sgd(model), loader)
    assert [(r.epoch, r.batch_idx, r.micro_batches) for r in updates_of(sink)] == [
        (0, index, 1) for index in range(PER_EPOCH)
    ]


def test_a_call_before_the_first_batch_does_not_lose_the_batches():
    fetched: list[Fetch] = []
    with recording(on_fetch=fetched.append) as (_, sink):
        model, loader = make_model(), make_loader()
        optimizer = make_sgd(model)
        model(torch.ones(1, 3))  # to see its output's shape, or to make lazy parameters
        digests = [digest_batch(batch) for batch in make_loader()]
        losses = simple_loop(model, optimizer, loader)
    records = updates_of(sink)
    assert [r.loss for r in records] == losses
    assert [r.batch and r.batch.digest for r in records] == digests
    assert [f.index for f in fetched] == list(range(PER_EPOCH))


def test_a_loop_that_keeps_its_batches_is_recorded_without_those_it_repeats():
    with recording() as (_, sink):
        model = make_model()
        batches = [next(iter(make_loader()))] * 2  # only the first was seen to be fetched
        losses = simple_loop(model, make_sgd(model), batches)
    records = updates_of(sink)
    assert [r.loss for r in records] == losses
    assert [(r.micro_batches, r.batch_idx) for r in records] == [(1, 0), (0, 0)]


def test_the_model_is_the_outermost_module_that_owns_the_parameters():
    with recording() as (recorder, _):
        body = make_model()
        wrapped = nn.Sequential(nn.Identity(), body)
        simple_loop(wrapped, make_sgd(body), make_loader())
    assert recorder.module is wrapped


def test_a_scheduler_built_after_the_start_is_listed():
    with recording() as (_, sink):
        model, loader = make_model(), make_loader(4)
        optimizer = make_sgd(model)
        simple_loop(model, optimizer, loader)
        scheduler = lr_scheduler.StepLR(optimizer, 1)
        simple_loop(model, optimizer, loader)
        scheduler.step()
        simple_loop(model, optimizer, loader)
    assert [record.scheduler for record in updates_of(sink)] == [
        None,
        [SchedulerState(id=0, last_epoch=0, ticks=0)],
        [SchedulerState(id=0, last_epoch=1, ticks=1)],
    ]


def test_ticks_before_the_first_batch_count():
    with recording() as (_, sink):
        model = make_model()
        optimizer = make_sgd(model)
        scheduler = lr_scheduler.StepLR(optimizer, 5)
        optimizer._opt_called = True  # torch warns of a tick before the first step
        scheduler.step()
        simple_loop(model, optimizer, make_loader())
    assert updates_of(sink)[0].scheduler == [SchedulerState(id=0, last_epoch=1, ticks=1)]


def test_the_scheduler_of_another_optimizer_is_not_ours():
    with recording() as (recorder, sink):
        model, other = make_model(), make_model()
        lr_scheduler.StepLR(make_sgd(other), 1)
        simple_loop(model, make_sgd(model), make_loader())
    assert recorder.schedulers == []
    assert {record.scheduler for record in updates_of(sink)} == {None}


# What is called, and when


def test_the_start_is_told_before_the_first_forward_and_batches_before_the_loop_has_them():
    order: list[Any] = []
    with recording(
        on_start=lambda module: order.append("start"),
        on_fetch=lambda fetch: order.append(("fetch", fetch.index)),
    ):
        model = make_model()
        optimizer = make_sgd(model)
        model.register_forward_pre_hook(lambda *_: order.append("forward"))
        for _batch in make_loader(8):
            order.append("loop")
            loss_of(model, _batch).backward()
            optimizer.step()
    assert order == [
        "loop", ("fetch", 0), "start", "forward", ("fetch", 1), "loop", "forward",
    ]  # fmt: skip


def test_nothing_is_written_for_a_loop_that_never_trained():
    with recording() as (_, sink):
        model = make_model().eval()
        make_sgd(model)
        model(torch.ones(1, 3))
    assert sink.records == []


def test_the_end_is_written_once():
    with recording() as (recorder, sink):
        plain_loop(epochs=1)
        recorder.close("exception", message="first")
    ends = [record for record in sink.records if isinstance(record, EndRecord)]
    assert [(end.reason, end.message) for end in ends] == [("exception", "first")]


# Loops that cannot be recorded


def test_a_second_optimizer_that_steps_is_refused():
    with listening(LoopRecorder(MemorySink())):
        model, other = make_model(), nn.Linear(3, 1)
        optimizer, second = make_sgd(model), torch.optim.Adam(other.parameters())
        simple_loop(model, optimizer, make_loader())
        with pytest.raises(SystemFailed, match=r"a second optimizer, torch\.optim\.adam\.Adam"):
            simple_loop(other, second, make_loader())


def test_a_second_optimizer_that_never_steps_is_no_matter():
    with recording() as (_, sink):
        model, other = make_model(), nn.Linear(3, 1)
        torch.optim.Adam(other.parameters())
        simple_loop(model, make_sgd(model), make_loader())
    assert len(updates_of(sink)) == PER_EPOCH


def step_without_a_module() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    (parameter * 2).sum().backward()
    optimizer.step()


def step_a_part_of_the_model() -> None:
    model, extra = make_model(), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([*model.parameters(), extra], lr=0.1)
    simple_loop(model, optimizer, make_loader())


@pytest.mark.parametrize("loop", [step_without_a_module, step_a_part_of_the_model])
def test_a_step_of_parameters_that_no_called_module_owns_is_refused(loop: Callable[[], None]):
    before = hooks_on_torch()
    message = r"torch\.optim\.sgd\.SGD\.step\(\) ran before any module that owns all"
    with pytest.raises(SystemFailed, match=message), listening(LoopRecorder(MemorySink())):
        loop()
    assert hooks_on_torch() == before


def test_after_a_step_that_raised_the_next_loop_is_recorded_whole():
    model = make_model()
    optimizer = make_sgd(model)

    def closure() -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), listening(LoopRecorder(MemorySink())):
        optimizer.step(closure)
    with recording() as (_, sink):
        seen = plain_loop(epochs=1)
    assert [r.loss for r in updates_of(sink)] == seen.losses


def test_a_step_that_raised_and_was_caught_does_not_hide_the_next():
    with recording() as (_, sink):
        model, loader = make_model(), make_loader()
        optimizer = make_sgd(model)

        def closure() -> torch.Tensor:
            raise ZeroDivisionError

        for batch in loader:
            with pytest.raises(ZeroDivisionError):
                optimizer.step(closure)
            batch[0] += 0
        losses = simple_loop(model, optimizer, loader)
    assert [r.loss for r in updates_of(sink)][-PER_EPOCH:] == losses


# Training is not changed


def test_recorded_training_ends_in_the_same_bits():
    sink = MemorySink()
    assert train([LoopRecorder(sink)]) == train()
    assert len(updates_of(sink)) == UPDATES


@pytest.mark.parametrize("moment", ["on_start", "on_fetch"])
def test_a_recorder_that_draws_is_caught(moment):
    careless = LoopRecorder(MemorySink(), **{moment: lambda _: torch.rand(1)})
    watched, alone = train([careless]), train()
    assert watched["rng.torch"] != alone["rng.torch"]
    assert watched["model.layers.0.weight"] != alone["model.layers.0.weight"]


def test_recording_the_same_loop_twice_gives_the_same_updates():
    runs = []
    for _ in range(2):
        with recording() as (_, sink):
            train()
        runs.append(updates_of(sink))
    assert runs[0] == runs[1]
    assert len(runs[0]) == UPDATES

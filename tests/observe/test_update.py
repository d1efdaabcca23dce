"""The record of an update states what the optimizer step really used, at the right moment."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from torch.optim import lr_scheduler

from tests.observe.listeners import hear
from tests.observe.watched import norm_of, watching
from traingen.observe import gradients
from traingen.observe.build import Options
from traingen.observe.digests import combine_digests, digest_batch
from traingen.observe.events import Listener
from traingen.observe.listening import listening
from traingen.observe.norms import measure_norm
from traingen.observe.rng import digest_rng
from traingen.observe.schedulers import SchedulerBook
from traingen.observe.update import UpdateObserver
from traingen.records import (
    BatchFacts,
    EndRecord,
    EventRecord,
    MemorySink,
    Record,
    SchedulerState,
    UpdateRecord,
    decode_line,
    encode_line,
)


def hear_clips(observer: UpdateObserver) -> Listener:
    """A listener of nothing but clips."""
    return hear(clip_entered=observer.before_clip, clip_left=observer.after_clip)


class Loop:
    """A loop by hand: the gradient of each parameter is whatever it is told to be."""

    def __init__(self, lr: float = 0.5, **options: Any) -> None:
        self.parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
        self.optimizer = torch.optim.SGD(self.parameters, lr=lr)
        self.optimizer._opt_called = True  # torch warns of a tick before the first step
        self.schedulers = SchedulerBook()
        self.records: list[Record] = []
        self.observer = UpdateObserver(
            [self.optimizer],
            emit=self.records.append,
            schedulers=self.schedulers,
            options=Options(**options),
        )

    def begin(self, batch: Any = 1, *, epoch: int = 0, batch_idx: int = 0) -> None:
        self.observer.begin(batch, epoch=epoch, batch_idx=batch_idx)

    def backward(
        self, loss: float = 1.0, *, gradient: tuple[float, ...] = (3, 4, 12), divisor: Any = None
    ) -> None:
        """Enter a backward at `loss` that adds `gradient`."""
        self.observer.root(torch.tensor(loss), divisor=divisor)
        for parameter, part in zip(
            self.parameters, torch.tensor(gradient).split([2, 1]), strict=True
        ):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad += part

    def clip(self, max_norm: float, *, which: Any = None, **options: Any) -> None:
        with listening(hear_clips(self.observer)):
            clip_grad_norm_(self.parameters if which is None else which, max_norm, **options)

    def step(self, *, global_step: int | None = None) -> UpdateRecord:
        self.optimizer.step()
        self.observer.applied(global_step=global_step)
        self.optimizer.zero_grad()
        record = self.records[-1]
        assert isinstance(record, UpdateRecord)
        assert decode_line(encode_line(record), where="here") == record
        return record

    def update(self, **root: Any) -> UpdateRecord:
        self.begin()
        self.backward(**root)
        return self.step()


# Loss and objective


def test_an_update_is_told_with_its_place():
    loop = Loop()
    loop.begin(epoch=2, batch_idx=5)
    loop.backward(2.5)
    record = loop.step(global_step=6)
    assert (record.update, record.optimizer, record.global_step) == (1, 0, 6)
    assert (record.epoch, record.batch_idx, record.micro_batches) == (2, 5, 1)
    assert (record.loss, record.objective, record.divisor) == (2.5, 2.5, None)


def test_updates_are_counted_and_each_starts_anew():
    loop = Loop()
    first = loop.update(loss=1.0)
    second = loop.update(loss=2.0)
    assert (first.update, second.update, loop.observer.updates) == (1, 2, 2)
    assert (first.objective, second.objective) == (1.0, 2.0)
    assert (first.grad_norm, second.grad_norm) == (13.0, 13.0)


@pytest.mark.parametrize(
    ("divisor", "loss", "objective"), [(2, 4.0, 4.0), (None, None, 4.0), (1, 2.0, 4.0)]
)
def test_the_loss_is_the_mean_of_the_undivided_micro_batches(divisor, loss, objective):
    loop = Loop()
    for index, root in enumerate((1.0, 3.0)):
        loop.begin(batch_idx=index)
        loop.backward(root, divisor=divisor)
    record = loop.step()
    assert (record.loss, record.objective, record.divisor) == (loss, objective, divisor)
    assert (record.micro_batches, record.batch_idx) == (2, 1)


@given(raw=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=5), divided=st.booleans())
def test_loss_and_objective_agree_up_to_the_divisor(raw, divided):
    loop, n = Loop(), len(raw)
    for value in raw:
        loop.begin()
        loop.backward(value / n if divided else value, divisor=n if divided else 1)
    record = loop.step()
    assert record.loss == pytest.approx(sum(raw) / n, rel=1e-5, abs=1e-5)
    assert record.objective == pytest.approx(record.loss if divided else sum(raw), abs=1e-4)


def test_two_backwards_of_one_micro_batch_are_parts_of_its_loss():
    loop = Loop()
    loop.begin()
    loop.backward(1.0)
    loop.backward(3.0)
    record = loop.step()
    assert (record.loss, record.objective) == (4.0, 4.0)


def test_a_micro_batch_without_a_loss_does_not_lower_the_mean():
    loop = Loop()
    loop.begin()
    loop.begin()
    loop.backward(1.0, divisor=2)
    record = loop.step()
    assert (record.loss, record.objective, record.micro_batches) == (2.0, 1.0, 2)


def test_a_root_is_kept_as_it_was_when_backward_was_entered():
    loop, root, term = Loop(), torch.tensor(2.0), torch.tensor(1.5)
    loop.begin()
    loop.observer.term("fit", term)
    loop.observer.root(root, divisor=None)
    root += 100  # a running sum, kept in the first loss
    term += 100
    loop.parameters[0].grad = torch.ones(2)
    record = loop.step()
    assert (record.objective, record.loss) == (2.0, 2.0)
    assert record.loss_terms == {"fit": 1.5}


def test_terms_are_means_over_the_micro_batches_that_had_them():
    loop = Loop()
    for fit, penalty in [(1.0, 5.0), (2.0, None)]:
        loop.begin()
        loop.observer.term("fit", torch.tensor(fit, requires_grad=True))
        if penalty is not None:
            loop.observer.term("penalty", torch.tensor(penalty))
        loop.backward()
    assert loop.step().loss_terms == {"fit": 1.5, "penalty": 5.0}
    assert loop.update().loss_terms is None


# Gradient norms


def test_without_a_clip_the_norm_is_measured():
    loop = Loop()
    record = loop.update(gradient=(3, 4, 12))
    assert (record.grad_norm, record.grad_norm_clipped, record.clipped) == (13.0, 13.0, False)
    assert record.grad_norm_source == "measured"
    assert loop.observer.clip_coefficient == 1.0


@pytest.mark.parametrize(("max_norm", "clipped"), [(6.5, True), (13.5, False)])
def test_a_clip_of_just_these_parameters_tells_the_norm(max_norm, clipped):
    loop = Loop()
    loop.begin()
    loop.backward()
    loop.clip(max_norm)
    used = torch.cat([p.grad for p in loop.parameters]).double().norm()
    record = loop.step()
    assert (record.grad_norm, record.grad_norm_source) == (13.0, "clip")
    assert record.clipped is clipped
    assert record.grad_norm_clipped == pytest.approx(float(used), rel=1e-6)
    assert loop.observer.clip_coefficient == pytest.approx(min(1.0, max_norm / 13), rel=1e-6)


MEASURED = {
    "a subset": lambda loop: loop.clip(2.5, which=[loop.parameters[0]]),
    "infinity norm": lambda loop: loop.clip(6.0, norm_type=math.inf),
    "1-norm": lambda loop: loop.clip(1.0, norm_type=1),
    "a superset": lambda loop: loop.clip(2.5, which=[*loop.parameters, with_gradient()]),
    "two parts": lambda loop: [loop.clip(1.0, which=[p]) for p in loop.parameters],
    "by value": lambda loop: clip_by_value(loop, 2.0),
}


def with_gradient() -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([84.0])
    return parameter


def clip_by_value(loop: Loop, value: float) -> None:
    with listening(hear_clips(loop.observer)):
        clip_grad_value_(loop.parameters, value)


@pytest.mark.parametrize("name", MEASURED)
def test_any_other_clip_has_both_norms_measured(name):
    loop = Loop()
    loop.begin()
    loop.backward()
    MEASURED[name](loop)
    used = torch.cat([p.grad for p in loop.parameters]).double().norm()
    record = loop.step()
    assert (record.grad_norm, record.grad_norm_source) == (13.0, "measured")
    assert record.grad_norm_clipped == pytest.approx(float(used), rel=1e-9)
    assert record.grad_norm_clipped < 13.0
    assert record.clipped is True
    assert record.clip_coefficient == loop.observer.clip_coefficient
    factors = {"infinity norm": 6 / 12, "1-norm": 1 / 19, "a superset": 2.5 / 85}
    if name in factors:
        assert record.clip_coefficient == pytest.approx(factors[name], rel=1e-6)
    else:
        assert record.clip_coefficient is None


@pytest.mark.parametrize("which", ["both", "first"])
def test_a_clip_in_two_calls_has_both_norms_measured(which):
    loop = Loop()
    own = loop.parameters if which == "both" else loop.parameters[:1]
    loop.begin()
    loop.backward()
    with listening(hear_clips(loop.observer)):
        clip_grads_with_norm_(own, 1.0, get_total_norm([p.grad for p in own]))
    used = norm_of(loop.parameters)
    record = loop.step()
    assert (record.grad_norm, record.grad_norm_source) == (13.0, "measured")
    assert record.grad_norm_clipped == pytest.approx(used, rel=1e-9)
    assert record.clipped is True


def test_a_clip_that_is_heard_by_its_inner_function_tells_the_norm_it_was_given():
    loop = Loop()
    loop.begin()
    loop.backward()
    with listening(hear_clips(loop.observer)):
        clip_grads_with_norm_(loop.parameters, 100.0, torch.tensor(13.0))
    record = loop.step()
    assert (record.grad_norm, record.clipped) == (13.0, False)
    assert record.grad_norm_clipped == 13.0


def test_after_two_clips_the_norm_is_that_before_the_first():
    loop = Loop()
    loop.begin()
    loop.backward()
    loop.clip(6.5)
    loop.clip(1.3)
    record = loop.step()
    assert (record.grad_norm, record.grad_norm_source) == (13.0, "clip")
    assert record.grad_norm_clipped == pytest.approx(1.3, rel=1e-6)
    assert loop.observer.clip_coefficient == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("which", ["all", "large"])
def test_a_clip_that_left_small_gradients_out_was_not_one_factor(which):
    loop = Loop()
    loop.begin()
    loop.backward(gradient=(3, 4, 0.001))
    loop.clip(1.0, which=loop.parameters if which == "all" else loop.parameters[:1])
    record = loop.step()
    assert record.grad_norm_clipped == pytest.approx(1.0, rel=1e-5)
    if which == "all":
        assert record.clip_coefficient == pytest.approx(0.2, rel=1e-5)
    else:
        assert record.clip_coefficient is None


def test_a_clip_of_other_gradients_is_not_ours():
    loop = Loop()
    loop.begin()
    loop.clip(1.0, which=[with_gradient()])
    loop.backward()
    record = loop.step()
    assert (record.grad_norm, record.grad_norm_clipped, record.clipped) == (13.0, 13.0, False)
    assert loop.observer.clip_coefficient == 1.0


@pytest.mark.parametrize("clip_value", [2.0, 100.0])
def test_a_clip_by_value_of_one_optimizers_gradients_is_only_its_own(clip_value):
    mine, others = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in (mine, others)]
    with watching(*optimizers) as watched:
        watched.begin()
        ((mine + others) * torch.tensor([3.0, 4.0])).sum().backward()
        clip_grad_value_([mine], clip_value)
        used = norm_of([mine])
        for optimizer in optimizers:
            optimizer.step()
    first, second = watched.updates()
    assert (first.grad_norm, first.grad_norm_clipped) == (5.0, pytest.approx(used, rel=1e-9))
    assert first.clipped is (clip_value == 2.0)
    assert (second.grad_norm, second.grad_norm_clipped, second.clipped) == (5.0, 5.0, False)
    assert second.clip_coefficient == 1.0
    assert watched.events == []


EARLY = {
    "by norm": (lambda p: clip_grad_norm_(p, 1.0), 1.0),
    "by norm of an iterator": (lambda p: clip_grad_norm_(iter(p), 2.0), 2.0),
    "in two calls": (lambda p: torch.nn.utils.clip_grad._clip_grads_with_norm_(p, 3.0, ONE), 3.0),
}
ONE = torch.ones(())


@pytest.mark.parametrize(("clip", "limit"), EARLY.values(), ids=EARLY)
def test_a_clip_before_any_backward_is_an_event_and_clips_nothing(clip, limit):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        for _ in watched.over(range(3)):
            clip([parameter])
            (parameter * torch.tensor([3.0, 4.0])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert watched.events == [("clip_without_gradients", {"optimizer": 0, "max_norm": limit})] * 3
    assert [(u.grad_norm, u.grad_norm_clipped) for u in watched.updates()] == [(5.0, 5.0)] * 3
    assert [u.clipped for u in watched.updates()] == [False] * 3


def test_a_clip_by_value_of_nothing_is_told_and_refused_by_torch_as_ever():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        watched.begin()
        with pytest.raises(RuntimeError, match="empty"):
            clip_grad_value_([parameter], 1.0)
    with pytest.raises(RuntimeError, match="empty"):
        clip_grad_value_([parameter], 1.0)
    assert watched.events == [("clip_without_gradients", {"optimizer": None, "max_norm": None})]


def test_a_clip_of_what_the_update_before_has_left_is_too_early():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        for number in watched.over(range(2)):
            if number:
                clip_grad_norm_([parameter], 1.0)  # the gradients of the last update still stand
                optimizer.zero_grad()
            (parameter * torch.tensor([3.0, 4.0])).sum().backward()
            optimizer.step()
    assert watched.events == [("clip_without_gradients", {"optimizer": 0, "max_norm": 1.0})]
    assert [u.clipped for u in watched.updates()] == [False, False]


def test_a_clip_between_two_backwards_of_an_update_is_an_event_and_the_sum_is_measured():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        for number in watched.over(range(4)):
            (parameter * torch.tensor([3.0, 4.0])).sum().backward()
            clip_grad_norm_([parameter], 1.0)
            norm = norm_of([parameter])
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    within = ("clip_within_window", {"optimizer": 0, "max_norm": 1.0})
    assert watched.events == [within] * 2
    for update in watched.updates():
        assert update.grad_norm == pytest.approx(6.0, rel=1e-5)  # 1 that was clipped, and 5
        assert update.grad_norm_clipped == pytest.approx(norm, rel=1e-5)
        assert (update.clipped, update.micro_batches) == (True, 2)


def test_a_clip_once_an_update_after_its_last_backward_is_no_event():
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        for number in watched.over(range(4)):
            (parameter * torch.tensor([3.0, 4.0])).sum().backward()
            if number % 2:
                clip_grad_norm_([parameter], 1.0)
                optimizer.step()
                optimizer.zero_grad()
    assert watched.events == []
    assert [(u.grad_norm, u.clipped) for u in watched.updates()] == [(10.0, True)] * 2


def test_a_clip_covers_parameters_without_gradients_too():
    loop = Loop()
    loop.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    loop.begin()
    loop.backward()
    loop.clip(6.5)
    assert loop.step().grad_norm_source == "clip"


def test_the_coefficient_is_that_of_the_last_update():
    loop = Loop()
    loop.begin()
    loop.backward()
    loop.clip(6.5)
    loop.step()
    assert loop.observer.clip_coefficient < 1.0
    assert loop.update().clipped is False
    assert loop.observer.clip_coefficient == 1.0


def test_without_any_gradient_there_is_no_norm():
    loop = Loop()
    loop.begin()
    record = loop.step()
    assert (record.grad_norm, record.grad_norm_source, record.clipped) == (None, None, False)
    assert (record.loss, record.objective) == (None, None)


def test_nan_gradients_without_a_clip_are_not_clipped():
    loop = Loop()
    loop.begin()
    loop.backward(math.nan, gradient=(math.nan, 0, 0))
    loop.optimizer.step()
    loop.observer.applied(global_step=None)
    (record,) = loop.records
    assert math.isnan(record.grad_norm)
    assert record.clipped is False
    again = decode_line(encode_line(record), where="here")
    assert math.isnan(again.grad_norm)
    assert math.isnan(again.loss)


# Rates, schedulers and generators


def test_the_rate_is_the_one_this_update_used():
    loop = Loop(lr=0.5)
    scheduler = lr_scheduler.ExponentialLR(loop.optimizer, 0.5)
    loop.schedulers.add(scheduler)
    records = []
    for _ in range(3):
        before = loop.parameters[1].detach().clone()
        records.append(loop.update(gradient=(0, 0, 1)))
        moved = float(before - loop.parameters[1].detach())
        scheduler.step()
        loop.schedulers.tick(scheduler)
        assert records[-1].lr == [pytest.approx(moved)]
    assert [record.lr for record in records] == [[0.5], [0.25], [0.125]]


def test_options_are_those_the_update_used():
    loop = Loop()
    first = loop.update()
    loop.optimizer.param_groups[0]["weight_decay"] = 0.1
    second = loop.update()
    decays = [r.hyper_parameters[0]["weight_decay"] for r in (first, second)]
    assert decays == [0, 0.1]


def test_schedulers_are_told_as_of_begin():
    loop = Loop()
    scheduler = lr_scheduler.StepLR(loop.optimizer, 1)
    loop.schedulers.add(scheduler)
    loop.begin()
    scheduler.step()
    loop.schedulers.tick(scheduler)
    loop.begin()
    assert loop.step().scheduler == [SchedulerState(id=0, last_epoch=0, ticks=0)]
    loop.begin()
    assert loop.step().scheduler == [SchedulerState(id=0, last_epoch=1, ticks=1)]


def test_a_loop_without_schedulers_has_none():
    assert Loop().update().scheduler is None


def test_generators_are_told_at_begin_at_the_forward_and_after():
    loop = Loop(generators=("torch", "python"))
    moments = [digest_rng(("torch", "python"))]
    loop.begin()
    for moment in (loop.observer.forward, loop.begin, loop.observer.forward):
        torch.rand(1)
        moments.append(digest_rng(("torch", "python")))
        moment()
    torch.rand(1)
    record = loop.step()
    assert (record.rng, record.rng_forward) == (moments[0], moments[1])
    assert record.rng_after == digest_rng(("torch", "python"))
    assert len({m["torch"] for m in [*moments, record.rng_after]}) == 5


def test_a_forward_before_the_batch_belongs_to_nothing():
    loop = Loop()
    loop.observer.forward()
    loop.begin()
    assert loop.step().rng_forward is None


def test_no_generators_are_told_if_none_are_wanted():
    loop = Loop(generators=())
    loop.begin()
    loop.observer.forward()
    record = loop.step()
    assert (record.rng, record.rng_forward, record.rng_after) == (None, None, None)


# Batches


def test_the_batch_is_told_by_its_content():
    loop, batch = Loop(), {"x": torch.arange(3)}
    loop.begin(batch)
    record = loop.step()
    assert record.batch == BatchFacts(digest=digest_batch(batch), ids=None)


def test_micro_batches_are_told_together_as_they_came():
    loop, batches = Loop(), [torch.zeros(2), torch.ones(2)]
    for batch in batches:
        loop.begin(batch)
        batch += 1  # a loop that changes its batch does not change what it was given
    record = loop.step()
    given_ones = [digest_batch(torch.zeros(2)), digest_batch(torch.ones(2))]
    assert record.batch.digest == combine_digests(given_ones)
    assert record.batch.digest != combine_digests(given_ones[::-1])


def test_batches_are_left_alone_if_their_digest_is_not_wanted():
    loop = Loop(digest_batches=False)
    loop.begin(object())
    assert loop.step().batch is None


def test_a_loop_that_shows_no_batches_is_still_recorded():
    loop = Loop()
    loop.backward(1.0)
    loop.backward(3.0)
    record = loop.step()
    assert (record.micro_batches, record.epoch, record.batch_idx) == (0, None, None)
    assert (record.rng, record.batch, record.scheduler) == (None, None, None)
    assert (record.loss, record.objective, record.grad_norm) == (2.0, 4.0, 26.0)
    assert record.rng_after is not None


def test_a_dropped_window_is_in_no_update():
    loop = Loop()
    loop.begin("dropped")
    loop.backward(100.0)
    loop.optimizer.zero_grad()
    loop.observer.drop_window()
    assert loop.update(loss=1.0) == Loop().update(loss=1.0)


# The end


def test_the_end_tells_the_tail_of_the_last_update_once():
    loop = Loop()
    scheduler = lr_scheduler.StepLR(loop.optimizer, 1)
    loop.schedulers.add(scheduler)
    loop.update()
    scheduler.step()
    loop.schedulers.tick(scheduler)
    torch.rand(1)
    loop.observer.close("stopped", message="enough")
    loop.observer.close("finished")
    assert loop.records[1:] == [
        EndRecord(
            reason="stopped",
            updates=1,
            scheduler=[SchedulerState(id=0, last_epoch=1, ticks=1)],
            rng=digest_rng(("torch",)),
            message="enough",
        )
    ]
    assert decode_line(encode_line(loop.records[1]), where="here") == loop.records[1]


def test_watching_an_update_draws_nothing_and_leaves_gradients_alone():
    loop = Loop()
    state = digest_rng()
    loop.begin(torch.ones(2))
    loop.observer.forward()
    loop.backward()
    versions = [p.grad._version for p in loop.parameters]
    loop.optimizer.step()
    loop.observer.applied(global_step=None)
    loop.observer.close("finished")
    assert digest_rng() == state
    assert [p.grad._version for p in loop.parameters] == versions


def test_a_batch_without_content_is_said_once_and_training_goes_on():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sink = MemorySink()
    observer = UpdateObserver([optimizer], emit=sink.write, schedulers=SchedulerBook())
    with listening(_Applied(observer)):
        for _ in range(2):
            observer.begin([torch.ones(2), object()], epoch=0, batch_idx=0)
            model(torch.ones(2)).sum().backward()
            optimizer.step()
    events = [record for record in sink.records if isinstance(record, EventRecord)]
    updates = [record for record in sink.records if isinstance(record, UpdateRecord)]
    assert [event.event for event in events] == ["batch_not_digested"]
    assert "holds a object" in events[0].details["message"]
    assert [update.batch for update in updates] == [None, None]


class _Applied(Listener):
    def __init__(self, observer):
        self.observer = observer

    def step_applied(self, optimizer):
        self.observer.applied(global_step=None)


# Gradients that change after the clip


def clipped(parameter: nn.Parameter, limit: float = 1.0) -> None:
    (parameter * torch.tensor([3.0, 4.0])).sum().backward()
    clip_grad_norm_([parameter], limit)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that the norm of gradients is measured."""
    seen: list[int] = []

    def measure(tensors: Any) -> float:
        several = list(tensors)
        seen.append(len(several))
        return measure_norm(several)

    monkeypatch.setattr(gradients, "measure_norm", measure)
    return seen


@pytest.mark.parametrize(
    "options",
    [{}, {"foreach": True}, {"fused": True}, {"foreach": False, "momentum": 0.9, "nesterov": True}],
    ids=["default", "foreach", "fused", "nesterov"],
)
@pytest.mark.parametrize("limit", [1.0, 2.5, 10.0])
def test_a_clip_that_is_the_last_change_costs_no_pass_over_the_gradients(passes, limit, options):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, **options)
    with watching(optimizer) as watched:
        for _ in watched.over(range(3)):
            clipped(parameter, limit)
            optimizer.step()
            optimizer.zero_grad()
    assert passes == []
    assert [u.grad_norm for u in watched.updates()] == [5.0] * 3
    assert [u.grad_norm_clipped for u in watched.updates()] == pytest.approx(
        [min(limit, 5.0)] * 3, rel=1e-6
    )


def test_an_infinite_clip_after_the_clip_costs_no_pass_either(passes):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        watched.begin()
        clipped(parameter)
        clip_grad_norm_([parameter], math.inf)
        optimizer.step()
    (update,) = watched.updates()
    assert passes == []
    assert update.grad_norm_clipped == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("factor", [3.0, 0.25])
def test_an_infinite_clip_does_not_hide_what_changed_between_it_and_the_clip(passes, factor):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        watched.begin()
        clipped(parameter)
        parameter.grad *= factor
        clip_grad_norm_([parameter], math.inf)
        optimizer.step()
    (update,) = watched.updates()
    assert passes == [1]
    assert update.grad_norm_clipped == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize(("factor", "norm"), [(1.0, 1.0), (4.0, 4.0)])
def test_a_clip_whose_end_is_not_heard_is_measured(passes, factor, norm):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        watched.begin()
        (parameter * torch.tensor([3.0, 4.0])).sum().backward()
        clip_grads_with_norm_([parameter], 1.0, torch.tensor(5.0))  # imported before
        parameter.grad *= factor
        optimizer.step()
    (update,) = watched.updates()
    assert len(passes) == 2
    assert (update.grad_norm, update.clipped) == (5.0, True)
    assert update.grad_norm_clipped == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("own_step", [False, True], ids=["SGD", "subclass"])
@pytest.mark.parametrize("limit", [1.0, 2.5, None])
@pytest.mark.parametrize("by_closure", [False, True])
def test_an_optimizer_that_rewrites_its_gradients_is_read_before_it_does(
    limit, by_closure, own_step
):
    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    parameter = nn.Parameter(torch.zeros(2))
    make = Own if own_step else torch.optim.SGD
    optimizer = make([parameter], lr=0.1, momentum=0.9, nesterov=True, foreach=True)

    def evaluate() -> float:
        optimizer.zero_grad()
        (parameter * torch.tensor([3.0, 4.0])).sum().backward()
        if limit is not None:
            clip_grad_norm_([parameter], limit)
        return 0.0

    with watching(optimizer) as watched:
        for _ in watched.over(range(3)):
            if by_closure:
                optimizer.step(evaluate)
            else:
                evaluate()
                optimizer.step()
            assert norm_of([parameter]) > (limit or 5.0) * 1.5  # what it has left in them
    assert [u.grad_norm for u in watched.updates()] == [5.0] * 3
    assert [u.grad_norm_clipped for u in watched.updates()] == pytest.approx(
        [limit or 5.0] * 3, rel=1e-6
    )
    assert [u.clipped for u in watched.updates()] == [limit is not None] * 3


def test_a_group_that_is_added_after_the_clip_is_measured_along():
    parameter, late = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    late.grad = torch.tensor([12.0])
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer) as watched:
        watched.begin()
        (parameter * torch.tensor([3.0, 4.0])).sum().backward()
        clip_grad_norm_([parameter], 50.0)
        optimizer.add_param_group({"params": [late]})
        optimizer.step()
    (update,) = watched.updates()
    assert (update.grad_norm, update.grad_norm_clipped) == (None, pytest.approx(13.0, rel=1e-9))


@pytest.mark.parametrize("scale", [2.0, 8.0])
def test_a_scale_that_is_divided_out_after_the_clip_is_in_neither_norm(scale):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    with watching(optimizer) as watched:
        watched.begin()
        scaler.scale((parameter * torch.tensor([3.0, 4.0])).sum()).backward()
        clip_grad_norm_([parameter], 1.0)  # before it is divided out
        scaler.step(optimizer)
        scaler.update()
    (update,) = watched.updates()
    assert update.grad_norm == pytest.approx(5.0, rel=1e-6)
    assert update.grad_norm_clipped == pytest.approx(1.0 / scale, rel=1e-6)
    assert update.clip_coefficient == pytest.approx(1.0 / (5.0 * scale), rel=1e-6)


@pytest.mark.parametrize("replaces", [False, True])
def test_a_share_of_gradients_whose_place_others_have_taken_is_not_told(replaces):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with watching(optimizer, flat_shards=True, layer_norms=True) as watched:
        watched.begin()
        clipped(parameter)
        if replaces:
            parameter.grad = parameter.grad * 2
        optimizer.step()
    (update,) = watched.updates()
    if replaces:
        assert (update.shard, update.grad_norm_source, update.layer_norms) == (None, None, None)
    else:
        assert update.layer_norms == {"0": 5.0}
        assert update.shard.grad_norm_squared == pytest.approx(25.0, rel=1e-9)
        assert update.shard.grad_norm_clipped_squared == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("overflows", [False, True])
def test_a_term_before_a_step_that_was_left_out_is_not_the_next_optimizers(overflows):
    mine, others = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in (mine, others)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    with watching(*optimizers) as watched:
        watched.begin()
        for parameter, optimizer, name in zip((mine, others), optimizers, "ab", strict=True):
            factor = torch.inf if overflows and name == "a" else 1.0
            watched.observer.term(name, torch.tensor(1.0))
            scaler.scale((parameter * factor).sum()).backward()
            scaler.step(optimizer)
        scaler.update()
    told = {u.optimizer: u.loss_terms for u in watched.updates()}
    assert told == ({} if overflows else {0: {"a": 1.0}}) | {1: {"b": 1.0}}


@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "heard"])
def test_a_clip_of_gradients_that_no_heard_backward_made_comes_too_early(heard):
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    parameter.grad = torch.tensor([3.0, 4.0])  # from before anybody listened
    with watching(optimizer) as watched:
        watched.begin()
        if heard:
            parameter.sum().backward()
        clip_grad_norm_([parameter], 1.0)
        parameter.sum().backward()
        optimizer.step()
    name = "clip_within_window" if heard else "clip_without_gradients"
    assert watched.events == [(name, {"optimizer": 0, "max_norm": 1.0})]

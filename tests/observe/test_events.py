"""Each event is heard exactly when it happens, by its own thread, and leaves torch as it was."""

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset

from tests.observe.listeners import EVENTS, Log, hear, hooks_on_torch
from tests.observe.training import EPOCHS, UPDATES, loop_with_everything, train
from traingen.observe.events import Listener
from traingen.observe.listening import listening, start_listening


def make_sgd(lr: float = 0.1, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD([nn.Parameter(torch.tensor([3.0, 4.0]))], lr=lr, **options)


def step_once(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def train_one_batch(loader: DataLoader[Any]) -> list[Any]:
    """One epoch over `loader`, each batch stepped under a scaler and once more with a closure.

    Returns optimizer, scheduler, model and scaler.
    """
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for batch in loader:
        optimizer.zero_grad()
        scaler.scale(model(batch).sum()).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.step(lambda: 0.0)
        scheduler.step()
    return [optimizer, scheduler, model, scaler]


# what `train_one_batch` is heard as, and whom each event names first
HEARD = [
    ("optimizer_built", "optimizer"),
    ("scheduler_built", "scheduler"),
    ("loader_entered", "loader"),
    ("fetch_entered", "loader"),
    ("batch_fetched", "loader"),
    ("gradients_cleared", "optimizer"),
    ("module_entered", "model"),
    ("module_left", "model"),
    ("loss_scaled", "scaler"),
    ("backward_entered", None),
    ("backward_left", None),
    ("gradients_unscaled", "scaler"),
    ("clip_entered", None),
    ("clip_left", None),
    ("scaler_step_entered", "scaler"),
    ("step_entered", "optimizer"),
    ("step_applied", "optimizer"),
    ("scaler_step_left", "scaler"),
    ("scaler_updated", "scaler"),
    ("step_entered", "optimizer"),
    ("closure_entered", "optimizer"),
    ("closure_left", "optimizer"),
    ("step_applied", "optimizer"),
    ("tick_entered", "scheduler"),
    ("scheduler_ticked", "scheduler"),
    ("fetch_entered", "loader"),
    ("loader_exhausted", "loader"),
]


def make_loader(batches: int = 1) -> DataLoader[Any]:
    return DataLoader([torch.ones(1) for _ in range(batches)], batch_size=1)


# What is heard, and by whom


def test_a_loop_is_heard_in_the_order_in_which_it_happens():
    loader, log = make_loader(), Log()
    with listening(log):
        optimizer, scheduler, model, scaler = train_one_batch(loader)
    assert log.names == [name for name, _ in HEARD]
    named = {"optimizer": optimizer, "scheduler": scheduler, "model": model, "scaler": scaler}
    named["loader"] = loader
    told = zip(log.heard, HEARD, strict=True)
    assert all(event[1] is named[who] for event, (_, who) in told if who is not None)


def test_every_event_has_a_place_in_that_loop():
    log = Log()
    with listening(log):
        train_one_batch(make_loader())
    assert set(log.names) == set(EVENTS)


def test_nothing_is_heard_before_and_after_listening():
    log = Log()
    train_one_batch(make_loader())
    with listening(log):
        pass
    train_one_batch(make_loader())
    assert log.heard == []


def test_two_threads_hear_only_themselves():
    both_listen, both_done = threading.Barrier(2, timeout=30), threading.Barrier(2, timeout=30)
    logs, own = [Log(), Log()], [[], []]

    def work(mine: int) -> None:
        with listening(logs[mine]):
            both_listen.wait()
            own[mine] = train_one_batch(make_loader())
            both_done.wait()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    for log, (optimizer, *_) in zip(logs, own, strict=True):
        assert log.of("step_applied") == [optimizer] * 2
        assert len(log.heard) == len(HEARD)


def test_a_thread_without_a_listener_is_not_heard():
    log = Log()
    with listening(log):
        thread = threading.Thread(target=train_one_batch, args=(make_loader(),))
        thread.start()
        thread.join(30)
    assert log.heard == []


def test_all_listeners_of_a_thread_hear_in_order_of_arrival():
    heard: list[int] = []
    first = hear(step_applied=lambda _: heard.append(1))
    second = hear(step_applied=lambda _: heard.append(2))
    with listening(first), listening(second):
        step_once(make_sgd())
    assert heard == [1, 2]


# The hooks go with the last listener


def test_hooks_are_gone_after_the_last_listener():
    before = hooks_on_torch()
    with listening(Log()):
        with listening(Log()):
            train_one_batch(make_loader())
        assert all(a != b for a, b in zip(hooks_on_torch(), before, strict=True))
    assert hooks_on_torch() == before


def test_hooks_are_gone_after_an_error():
    before, log = hooks_on_torch(), Log()

    def fail() -> None:
        train_one_batch(make_loader())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), listening(log):
        fail()
    assert hooks_on_torch() == before
    assert len(log.heard) == len(HEARD)


def test_hooks_are_gone_after_a_listener_raised():
    before = hooks_on_torch()

    def refuse(optimizer: torch.optim.Optimizer) -> None:
        raise RuntimeError("not this one")

    with pytest.raises(RuntimeError, match="not this one"), listening(hear(step_applied=refuse)):
        step_once(make_sgd())
    assert hooks_on_torch() == before


def test_only_what_is_listened_for_is_hooked():
    before = hooks_on_torch()
    with listening(hear(backward_entered=lambda roots: None)):
        changed = [a != b for a, b in zip(hooks_on_torch(), before, strict=True)]
    assert changed == [True] + [False] * (len(before) - 1)


def test_a_listener_that_overrides_nothing_hooks_nothing():
    before = hooks_on_torch()
    with listening(Listener()):
        assert hooks_on_torch() == before


def test_listening_without_a_block_ends_once_and_may_be_ended_twice():
    before, log = hooks_on_torch(), Log()
    stop = start_listening(log)
    step_once(make_sgd())
    stop()
    stop()
    step_once(make_sgd())
    assert log.names == ["optimizer_built", "step_entered", "step_applied"]
    assert hooks_on_torch() == before


# Training is not changed


def test_training_with_every_hook_ends_in_the_same_bits():
    log = Log()
    assert train([log]) == train()
    assert log.names.count("step_applied") == UPDATES


def test_training_with_amp_closures_and_two_optimizers_ends_in_the_same_bits():
    log = Log()
    assert train([log], loop=loop_with_everything) == train(loop=loop_with_everything)
    assert set(log.names) == set(EVENTS)
    assert log.names.count("scaler_step_left") == UPDATES
    left_out = 1
    assert len(set(map(id, log.of("step_applied")))) == 2
    assert log.names.count("step_applied") == UPDATES - left_out + EPOCHS


@pytest.mark.parametrize("event", EVENTS)
def test_a_listener_that_draws_is_caught(event):
    careless = hear(**{event: lambda *_: torch.rand(1)})
    watched, alone = (train(those, loop=loop_with_everything) for those in ([careless], []))
    assert watched.keys() == alone.keys()
    assert watched["rng.torch"] != alone["rng.torch"]


# Optimizers


class SteppingTwice(torch.optim.SGD):
    """Its `step` is the parent's, called through `super()`."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Sharpness(torch.optim.Optimizer):
    """A wrapper like SAM: an optimizer that owns another and steps it."""

    def __init__(self, parameters: Any, base: type[torch.optim.Optimizer], **options: Any) -> None:
        super().__init__(parameters, {})
        self.base = base(self.param_groups, **options)

    def step(self, closure: Any = None) -> None:
        self.base.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SteppingTwice(p, lr=0.1),
        lambda p: Sharpness(p, torch.optim.SGD, lr=0.1),
        lambda p: Sharpness(p, SteppingTwice, lr=0.1),
    ],
    ids=["super", "wrapper", "wrapper of super"],
)
def test_an_outermost_step_is_heard_once(make):
    optimizer, log, hooks = make([nn.Parameter(torch.ones(2))]), Log(), []
    raw = register_optimizer_step_post_hook(lambda *_: hooks.append(1))
    with listening(log):
        step_once(optimizer)
        step_once(optimizer)
    raw.remove()
    assert log.heard == [("step_entered", optimizer), ("step_applied", optimizer)] * 2
    assert len(hooks) >= 4, "torch's own hook fires for every nested step"


def test_a_step_is_heard_after_it_changed_the_parameters():
    optimizer, seen = make_sgd(lr=0.5), []
    (parameter,) = optimizer.param_groups[0]["params"]
    listener = hear(step_applied=lambda _: seen.append(parameter.tolist()))
    with listening(listener):
        step_once(optimizer)
    assert seen == [[2.5, 3.5]]


def descend(optimizer: Any, *, by_name: bool = False) -> float:
    """One step with a closure on the square of the parameters; returns what `step` does."""
    (parameter,) = optimizer.param_groups[0]["params"]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = parameter.square().sum()
        loss.backward()
        return loss

    return (optimizer.step(closure=closure) if by_name else optimizer.step(closure)).item()


EVALUATION = [
    "closure_entered", "gradients_cleared", "backward_entered", "backward_left", "closure_left",
]  # fmt: skip


def test_every_evaluation_of_a_closure_is_heard_within_one_step():
    log = Log()
    optimizer = torch.optim.LBFGS([nn.Parameter(torch.tensor([3.0]))], max_iter=3, lr=0.1)
    with listening(log):
        descend(optimizer)
    assert log.names == ["step_entered", *EVALUATION * 3, "step_applied"]
    assert log.of("closure_entered") == [optimizer] * 3


@pytest.mark.parametrize("by_name", [False, True], ids=["positional", "keyword"])
@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.LBFGS(p, max_iter=3, lr=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.1),
        lambda p: SteppingTwice(p, lr=0.1),
    ],
    ids=["LBFGS", "AdamW", "super"],
)
def test_a_closure_is_evaluated_as_without_hooks_and_the_result_passes(make, by_name):
    ends, log = [], Log()
    for ear in (log, Listener()):
        parameter = nn.Parameter(torch.tensor([3.0, -4.0]))
        optimizer = make([parameter])
        with listening(ear):
            losses = [descend(optimizer, by_name=by_name) for _ in range(3)]
        ends.append((parameter.tolist(), losses))
    assert ends[0] == ends[1]
    assert ends[0][1][0] == 25.0
    assert log.names.count("step_applied") == 3
    assert log.names.count("closure_entered") >= 3


def test_a_step_without_a_closure_is_given_none():
    optimizer, log = make_sgd(), Log()
    with listening(log):
        optimizer.step(None)
        optimizer.step(closure=None)
    assert log.names == ["step_entered", "step_applied"] * 2


def test_a_step_that_is_not_listened_for_keeps_its_own_closure():
    seen: list[Any] = []

    class Keeping(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            seen.append(closure)

    def closure() -> float:
        return 0.0

    optimizer = Keeping([nn.Parameter(torch.ones(1))], lr=0.1)
    optimizer.step(closure)
    with listening(hear(closure_entered=lambda _: None)):
        optimizer.step(closure)
    assert seen[0] is closure
    assert seen[1] is not closure
    assert (seen[1](), seen[1].__name__) == (0.0, "closure")


def test_after_a_step_that_raised_a_new_listener_hears_the_next():
    optimizer, log = make_sgd(), Log()

    def closure() -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), listening(Log()):
        optimizer.step(closure)
    with listening(log):
        step_once(optimizer)
    assert log.heard == [("step_entered", optimizer), ("step_applied", optimizer)]


def test_an_optimizer_is_built_when_its_base_constructor_returned():
    groups, log = [], Log()
    with listening(hear(optimizer_built=lambda o: groups.append(len(o.param_groups)))):
        optimizer = make_sgd()
    with listening(log), pytest.raises(ValueError, match="empty parameter list"):
        torch.optim.SGD([], lr=0.1)
    assert groups == [len(optimizer.param_groups)]
    assert log.heard == []


# Schedulers


class Halving(lr_scheduler.LRScheduler):
    """A user's scheduler with a `step` and a constructor of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.extra = "set after the base constructor"

    def get_lr(self) -> list[Any]:
        return [group["lr"] / 2 for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, halve),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=9),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], milestones=[2]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)]
    ),
    "nested SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o,
        [
            lr_scheduler.SequentialLR(
                o, [lr_scheduler.ConstantLR(o), lr_scheduler.LinearLR(o)], milestones=[1]
            ),
            lr_scheduler.ExponentialLR(o, 0.5),
        ],
        milestones=[2],
    ),
    "Halving": Halving,
}


def halve(epoch: int) -> float:
    return 0.5**epoch


def make_scheduler(name: str) -> tuple[torch.optim.Optimizer, Any]:
    optimizer = make_sgd(momentum=0.9)
    return optimizer, SCHEDULERS[name](optimizer)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_outermost_ticks_are_heard_once_and_the_constructors_own_is_not(name):
    log = Log()
    with listening(log):
        optimizer, scheduler = make_scheduler(name)
        assert "scheduler_ticked" not in log.names
        step_once(optimizer)
        for _ in range(3):
            scheduler.step()
    assert log.of("scheduler_ticked") == [scheduler] * 3
    assert log.of("scheduler_built")[-1] is scheduler
    assert log.of("scheduler_built").count(scheduler) == 1


def test_ticks_of_a_plateau_scheduler_are_heard():
    optimizer, log = make_sgd(), Log()
    with listening(log):
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        scheduler.step(1.0)
        scheduler.step(metrics=2.0)
    tick = [("tick_entered", scheduler), ("scheduler_ticked", scheduler)]
    assert log.heard == [("scheduler_built", scheduler), *tick, *tick]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_part_that_is_ticked_by_the_loop_itself_is_heard():
    optimizer, log = make_sgd(), Log()
    with listening(log):
        part = lr_scheduler.ConstantLR(optimizer)
        lr_scheduler.ChainedScheduler([part])
        step_once(optimizer)
        part.step()
    assert log.of("scheduler_ticked") == log.of("tick_entered") == [part]


def test_a_tick_is_heard_after_the_rate_changed():
    rates = []
    optimizer = make_sgd()
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    with listening(hear(scheduler_ticked=lambda s: rates.append(s.get_last_lr()[0]))):
        step_once(optimizer)
        scheduler.step()
    assert rates == [pytest.approx(0.01)]


def test_a_tick_that_raises_is_not_heard_and_the_next_one_is():
    optimizer, log = make_sgd(), Log()
    scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=2, cycle_momentum=False)
    other = lr_scheduler.StepLR(optimizer, 1)
    step_once(optimizer)
    scheduler.step()
    scheduler.step()
    with listening(log):
        with pytest.raises(ValueError, match="total steps"):
            scheduler.step()
        other.step()
    assert log.of("scheduler_ticked") == [other]


def make_late_class(base: type = lr_scheduler.LRScheduler) -> type:
    """A scheduler class as a training script defines it, after the hooks are there."""

    class Late(base):  # type: ignore[misc, valid-type]
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            super().__init__(optimizer)
            self.factor = 0.5
            self.step()  # some step once more to begin with a warm rate

        def get_lr(self) -> list[Any]:
            return [group["lr"] / 2 for group in self.optimizer.param_groups]

        def step(self, epoch: int | None = None) -> None:
            super().step(epoch)

    return Late


def make_ticked_sgd() -> torch.optim.SGD:
    """An optimizer that torch believes has stepped, so that any tick is in order."""
    optimizer = make_sgd()
    optimizer._opt_called = True
    return optimizer


def test_a_class_defined_while_listening_is_heard_like_any_other():
    log, complete = Log(), []
    note = hear(scheduler_built=lambda s: complete.append(s.factor))
    with listening(log), listening(note):
        scheduler = make_late_class()(make_ticked_sgd())
        scheduler.step()
    assert log.names == ["optimizer_built", "scheduler_built", "tick_entered", "scheduler_ticked"]
    assert complete == [0.5]


def test_a_class_derived_from_one_of_torchs_while_listening_is_heard_too():
    log = Log()
    with listening(log):

        class Later(lr_scheduler.StepLR):
            def __init__(self, optimizer: torch.optim.Optimizer) -> None:
                super().__init__(optimizer, step_size=1)
                self.step()

        Later(make_ticked_sgd()).step()
    assert log.names == ["optimizer_built", "scheduler_built", "tick_entered", "scheduler_ticked"]


def test_a_class_defined_while_listening_has_its_own_functions_again_afterwards():
    before = hooks_on_torch()
    with listening(Log()):
        late = make_late_class()
        during = vars(late)["step"], vars(late)["__init__"]
        late(make_ticked_sgd())
    assert [function.__wrapped__ for function in during] == [late.step, late.__init__]
    assert hooks_on_torch()[:5] == before[:5]
    assert not hasattr(late.step, "__wrapped__")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_state_copies_and_pickles_are_as_without_hooks(name):
    plain_optimizer, plain = make_scheduler(name)
    with listening(Log()):
        optimizer, hooked = make_scheduler(name)
        step_once(optimizer)
        hooked.step()
        state = hooked.state_dict()
        again = copy.deepcopy(hooked)
        pickled = pickle.dumps(hooked)
        loaded = pickle.loads(pickled)
    step_once(plain_optimizer)
    plain.step()
    assert strip(state) == strip(plain.state_dict())
    assert pickled == pickle.dumps(hooked)
    assert strip(again.state_dict()) == strip(loaded.state_dict()) == strip(plain.state_dict())


def strip(state: dict[str, Any]) -> dict[str, Any]:
    """`state` with the parts of a composed scheduler as dictionaries too."""
    return {
        key: [strip(getattr(part, "__dict__", part)) for part in value]
        if key == "_schedulers"
        else value
        for key, value in state.items()
        if key != "optimizer" and not callable(value)
    }


def test_a_copy_of_a_scheduler_is_heard_as_itself():
    log = Log()
    with listening(log):
        optimizer, scheduler = make_scheduler("StepLR")
        step_once(optimizer)
        scheduler.step()
        loaded = pickle.loads(pickle.dumps(scheduler))
        step_once(loaded.optimizer)
        loaded.step()
    assert log.of("scheduler_ticked") == [scheduler, loaded]
    assert log.of("step_applied") == [optimizer, loaded.optimizer]


def test_optimizer_copies_and_pickles_are_as_without_hooks():
    log = Log()
    with listening(log):
        optimizer = make_sgd(momentum=0.9)
        step_once(optimizer)
        pickled, again = pickle.dumps(optimizer), copy.deepcopy(optimizer)
    assert pickled == pickle.dumps(optimizer)
    assert repr(again.state_dict()) == repr(optimizer.state_dict())
    assert log.names == ["optimizer_built", "step_entered", "step_applied"]


# Loaders


def test_iterations_over_each_loader_are_numbered_from_0():
    first, second, log = make_loader(2), make_loader(1), Log()
    with listening(log):
        for _ in range(2):
            list(first)
        list(second)
    fetched = [event[1:3] for event in log.heard if event[0] == "batch_fetched"]
    assert fetched == [(first, 0), (first, 0), (first, 1), (first, 1), (second, 0)]
    exhausted = [event[1:] for event in log.heard if event[0] == "loader_exhausted"]
    assert exhausted == [(first, 0), (first, 1), (second, 0)]


def test_a_loop_that_leaves_early_does_not_exhaust_its_loader():
    log = Log()
    with listening(log):
        for _ in make_loader(3):
            break
    assert log.names == ["loader_entered", "fetch_entered", "batch_fetched"]


def test_the_batch_that_is_heard_is_the_loops_own_object():
    log = Log()
    with listening(log):
        batches = list(make_loader(2))
    heard = [event[3] for event in log.heard if event[0] == "batch_fetched"]
    assert all(a is b for a, b in zip(heard, batches, strict=True))
    assert len(heard) == 2


def test_a_watched_iterator_is_as_long_as_torchs():
    loader = make_loader(3)
    with listening(Log()):
        watched = iter(loader)
        next(watched)
    assert len(watched) == len(iter(loader)) == 3
    assert iter(watched) is watched
    assert watched._num_yielded == 1


def test_entering_a_loader_and_a_fetch_are_heard_before_anything_is_drawn():
    loader = DataLoader(list(range(4)), batch_size=2, shuffle=True)
    states: list[torch.Tensor] = []

    def note(_loader: DataLoader[Any]) -> None:
        states.append(torch.get_rng_state())

    with listening(hear(loader_entered=note, fetch_entered=note)):
        before = torch.get_rng_state()
        iterator = iter(loader)
        entered = torch.get_rng_state()
        next(iterator)
    assert torch.equal(states[0], before)
    assert torch.equal(states[1], entered)
    assert not torch.equal(entered, torch.get_rng_state()), "the sampler draws in the first fetch"


class Probing(Dataset[int]):
    """Says how many events a module call in its own process is heard as."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        before = len(self.log.heard)
        train_one_batch(make_loader())
        return len(self.log.heard) - before


@pytest.mark.parametrize(("workers", "expected"), [(0, len(HEARD)), (1, 0)])
def test_a_forked_worker_hears_nothing(workers, expected):
    log = Log()
    context = "fork" if workers else None
    loader = DataLoader(Probing(log), num_workers=workers, multiprocessing_context=context)
    with listening(log):
        heard = [int(batch) for batch in loader]
    assert heard == [expected]
    assert log.of("batch_fetched").count(loader) == 1


# Modules


def test_a_module_is_left_with_its_output():
    model, log = nn.Sequential(nn.Linear(1, 1), nn.ReLU()), Log()
    with listening(log):
        output = model(torch.ones(1))
    assert [event[:2] for event in log.heard] == [
        ("module_entered", model),
        ("module_entered", model[0]),
        ("module_left", model[0]),
        ("module_entered", model[1]),
        ("module_left", model[1]),
        ("module_left", model),
    ]
    assert log.heard[-1][2] is output


def test_a_tick_is_heard_before_it_moves_the_rate():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.step()
    rates: list[float] = []
    ear = hear(tick_entered=lambda s: rates.append(s.optimizer.param_groups[0]["lr"]))
    with listening(ear):
        scheduler.step()
    assert (rates, optimizer.param_groups[0]["lr"]) == ([1.0], 0.5)

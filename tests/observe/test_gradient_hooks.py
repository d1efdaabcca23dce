"""Whatever changes gradients is heard once, at its own moment, with what it is about."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from torch.utils.checkpoint import checkpoint

from tests.observe.listeners import Log, hear, hooks_on_torch
from traingen.observe.events import Clip
from traingen.observe.listening import listening

# Backward


def test_roots_are_heard_before_any_gradient_exists():
    parameter, seen = nn.Parameter(torch.tensor([2.0])), []

    def note(roots: tuple[torch.Tensor, ...]) -> None:
        seen.append(([float(root.detach()) for root in roots], parameter.grad))

    with listening(hear(backward_entered=note)):
        (parameter * 3).sum().backward()
    assert seen == [([6.0], None)]
    assert parameter.grad.tolist() == [3.0]


@pytest.mark.parametrize("container", [list, tuple, iter], ids=["list", "tuple", "iterator"])
def test_several_roots_are_heard_together_and_all_differentiated(container):
    parameter, log = nn.Parameter(torch.tensor(2.0)), Log()
    roots = [parameter * 3, parameter * 4]
    with listening(log):
        torch.autograd.backward(container(roots))
    assert log.heard == [("backward_entered", tuple(roots)), ("backward_left",)]
    assert float(parameter.grad) == 7.0


def test_a_gradient_edge_has_no_value_to_be_heard():
    parameter, log = nn.Parameter(torch.tensor(2.0)), Log()
    edge = torch.autograd.graph.get_gradient_edge(parameter * 3)
    with listening(log):
        torch.autograd.backward(edge, torch.tensor(1.0))
    assert log.heard == [("backward_entered", ()), ("backward_left",)]
    assert float(parameter.grad) == 3.0


def test_gradients_by_grad_are_no_backward():
    parameter, log = nn.Parameter(torch.tensor(2.0)), Log()
    with listening(log):
        torch.autograd.grad(parameter * 3, parameter)
    assert log.heard == []


def test_gradients_are_whole_when_a_backward_is_left():
    parameter, seen = nn.Parameter(torch.tensor([2.0])), []
    with listening(hear(backward_left=lambda: seen.append(parameter.grad.tolist()))):
        (parameter * 3).sum().backward()
        (parameter * 3).sum().backward()
    assert seen == [[3.0], [6.0]]


def heard_roots(differentiate: Callable[[torch.Tensor], Any]) -> tuple[list[float], list[float]]:
    """The roots that are heard, and the gradient at (2, 5)."""
    parameter, log = nn.Parameter(torch.tensor([2.0, 5.0])), Log()
    with listening(log):
        differentiate(parameter)
    (roots,) = log.of("backward_entered")
    return [root.item() for root in roots], parameter.grad.tolist()


def test_a_root_that_is_given_a_gradient_is_the_sum_it_weighs():
    weights = torch.tensor([1.0, 10.0])
    assert heard_roots(lambda p: (p * 3).backward(gradient=weights)) == ([156.0], [3.0, 30.0])


def test_each_of_several_roots_is_weighed_by_its_own_gradient():
    roots, gradient = heard_roots(
        lambda p: torch.autograd.backward(
            [p * 3, p.sum() * 4, p[:1]], [torch.tensor([1.0, 10.0]), None, torch.tensor([100.0])]
        )
    )
    assert (roots, gradient) == ([156.0, 28.0, 200.0], [107.0, 34.0])


def test_a_gradient_given_by_an_iterator_still_reaches_the_backward():
    roots, gradient = heard_roots(
        lambda p: torch.autograd.backward(iter([p * 3]), iter([torch.tensor([1.0, 10.0])]))
    )
    assert (roots, gradient) == ([156.0], [3.0, 30.0])


def test_weighing_a_root_keeps_what_it_was_computed_from_and_changes_nothing():
    weight = torch.tensor([1.0, 10.0], requires_grad=True)
    parameter, log = nn.Parameter(torch.ones(2)), Log()
    with listening(log):
        tripled = parameter * 3
        with torch.no_grad():
            tripled.backward(gradient=weight)
    ((root,),) = log.of("backward_entered")
    assert tripled.grad_fn in [node for node, _ in root.grad_fn.next_functions[0][0].next_functions]
    assert (weight.grad, parameter.grad.tolist()) == (None, [3.0, 30.0])


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_backward_within_a_backward_is_a_part_of_it(reentrant):
    model, log = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), Log()
    inputs, calls = torch.ones(1, 2, requires_grad=True), []
    original = torch.autograd.backward
    with listening(log):
        hooked = torch.autograd.backward
        torch.autograd.backward = lambda *a, **k: (calls.append(1), hooked(*a, **k))[1]
        loss = checkpoint(model, inputs, use_reentrant=reentrant).sum()
        loss.backward()
        torch.autograd.backward = hooked
    assert torch.autograd.backward is original
    assert [e for e in log.names if e.startswith("backward")] == [
        "backward_entered", "backward_left",
    ]  # fmt: skip
    assert log.of("backward_entered") == [(loss,)]
    assert len(calls) == (2 if reentrant else 1), "torch itself calls backward again"


def test_a_backward_that_raised_is_not_left_and_the_next_is_heard():
    parameter, log = nn.Parameter(torch.tensor(2.0)), Log()
    loss = parameter * 3
    with listening(log):
        with pytest.raises(RuntimeError, match="does not require grad"):
            torch.tensor(1.0).backward()
        loss.backward()
    assert log.names == ["backward_entered", "backward_entered", "backward_left"]


def test_a_wrong_gradient_is_refused_as_without_hooks():
    parameter = nn.Parameter(torch.ones(2))
    messages = []
    for ear in (Log(), hear()):
        with listening(ear), pytest.raises(RuntimeError, match="Mismatch in shape") as raised:
            (parameter * 3).backward(gradient=torch.ones(3))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


# Clearing


class Clearing(torch.optim.SGD):
    """An optimizer with a `zero_grad` of its own, on top of the parent's."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)


class ClearingModel(nn.Linear):
    """A module that clears a part of itself, then all."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        nn.Module.zero_grad(nn.ModuleList([self]), set_to_none)
        super().zero_grad(set_to_none)


def make_model(cls: type[nn.Linear] = nn.Linear) -> nn.Linear:
    model = cls(2, 1)
    model(torch.ones(2)).sum().backward()
    return model


OWNERS: dict[str, Callable[[], tuple[Any, nn.Module]]] = {
    "optimizer": lambda: owned_by(torch.optim.SGD),
    "an optimizer's own zero_grad": lambda: owned_by(Clearing),
    "module": lambda: (lambda model: (model, model))(make_model()),
    "a module's own zero_grad": lambda: (lambda model: (model, model))(make_model(ClearingModel)),
}


def owned_by(cls: type[torch.optim.Optimizer]) -> tuple[torch.optim.Optimizer, nn.Module]:
    model = make_model()
    return cls(model.parameters(), lr=0.1), model


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("make", OWNERS.values(), ids=OWNERS)
def test_clearing_is_heard_once_when_it_is_done(make, set_to_none):
    owner, model = make()
    seen, log = [], Log()
    note = hear(gradients_cleared=lambda _: seen.append([p.grad for p in model.parameters()]))
    with listening(log), listening(note):
        owner.zero_grad(set_to_none=set_to_none)
    assert log.heard == [("gradients_cleared", owner)]
    ((weight, bias),) = seen
    assert (weight is None and bias is None) if set_to_none else not weight.any()


def test_clearing_by_hand_is_not_heard():
    model, log = make_model(), Log()
    with listening(log):
        for parameter in model.parameters():
            parameter.grad = None
    assert log.heard == []


def test_only_clearing_is_hooked_for_who_listens_only_for_it():
    before = hooks_on_torch()
    with listening(hear(gradients_cleared=lambda _: None)):
        during = hooks_on_torch()
    changed = [a != b for a, b in zip(during, before, strict=True)]
    assert sum(changed) == 2  # those of optimizers and of modules
    assert hooks_on_torch() == before


# Clipping


def hear_clip(do_clip: Callable[[list[nn.Parameter]], Any]) -> tuple[Clip, list[nn.Parameter]]:
    """The one clip that `do_clip` causes on gradients (3, 4) and 12."""
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])
    log = Log()
    with listening(log):
        do_clip(parameters)
    (clip,) = log.of("clip_entered")
    return clip, parameters


def test_a_clip_imported_by_name_is_heard_with_its_norm():
    clip, parameters = hear_clip(lambda own: clip_grad_norm_(own, 2.0))
    assert (float(clip.total_norm), clip.max_norm, clip.norm_type) == (13.0, 2.0, 2.0)
    assert [id(p) for p in clip.parameters] == [id(p) for p in parameters]


@pytest.mark.parametrize(
    ("norm_type", "total"), [(2, 13.0), (1.0, 19.0), (float("inf"), 12.0), ("inf", 12.0)]
)
def test_the_type_of_norm_is_heard(norm_type, total):
    clip, _ = hear_clip(lambda own: clip_grad_norm_(own, 2.0, norm_type=norm_type))
    assert float(clip.total_norm) == total
    assert clip.norm_type == norm_type


@pytest.mark.parametrize("max_norm", [2.0, 13.0, 14.0, 0.0])
def test_the_coefficient_is_what_torch_multiplies_by(max_norm):
    clip, (first, second) = hear_clip(lambda own: clip_grad_norm_(own, max_norm))
    assert torch.equal(second.grad, torch.tensor([12.0]) * clip.coefficient())
    assert torch.equal(first.grad, torch.tensor([3.0, 4.0]) * clip.coefficient())
    assert (clip.coefficient() == 1.0) == (max_norm == 14.0)


def test_a_clip_is_heard_before_gradients_change():
    parameter, seen = nn.Parameter(torch.zeros(1)), []
    parameter.grad = torch.tensor([4.0])
    with listening(hear(clip_entered=lambda clip: seen.append(clip.parameters[0].grad.tolist()))):
        clip_grad_norm_(iter([parameter]), 1.0)
    assert seen == [[4.0]]
    assert float(parameter.grad) < 1.0


def test_a_clip_of_one_tensor_is_heard():
    clip, (first, _) = hear_clip(lambda own: clip_grad_norm_(own[0], 1.0))
    assert len(clip.parameters) == 1
    assert clip.parameters[0] is first


def test_a_clip_covers_exactly_the_gradients_it_scales():
    clip, (first, second) = hear_clip(lambda own: clip_grad_norm_(own, 1.0))
    without_gradient = nn.Parameter(torch.zeros(1))
    assert clip.covers([second, first, without_gradient])
    assert not clip.covers([first])
    assert not clip.covers([first, second, hear_clip(lambda own: clip_grad_norm_(own, 1.0))[1][0]])


def test_a_clip_by_value_is_heard_without_a_norm():
    clip, (first, _) = hear_clip(lambda own: clip_grad_value_(own, 3.5))
    assert clip.norm_type is None
    assert not clip.covers([first])
    assert first.grad.tolist() == [3.0, 3.5]


@pytest.mark.parametrize("foreach", [None, True, False])
def test_a_clip_in_two_calls_is_heard_without_its_type(foreach):
    def clip_in_two(own: list[nn.Parameter]) -> None:
        norm = get_total_norm([p.grad for p in own], norm_type=2.0, foreach=foreach)
        clip_grads_with_norm_(own, 6.5, norm, foreach=foreach)

    clip, (_, second) = hear_clip(clip_in_two)
    assert (float(clip.total_norm), clip.max_norm, clip.norm_type) == (13.0, 6.5, None)
    assert torch.equal(second.grad, torch.tensor([12.0]) * clip.coefficient())


def test_a_clip_by_torchs_present_name_is_heard_once():
    clip, _ = hear_clip(
        lambda own: torch.nn.utils.clip_grad._clip_grads_with_norm_(own, 2.0, torch.tensor(13.0))
    )
    assert (float(clip.total_norm), clip.max_norm) == (13.0, 2.0)
    assert len(clip.parameters) == 2


def test_a_norm_alone_is_no_clip():
    parameter, log = nn.Parameter(torch.zeros(1)), Log()
    parameter.grad = torch.tensor([4.0])
    with listening(log):
        assert float(get_total_norm([parameter.grad])) == 4.0
        torch.optim.SGD([parameter], lr=0.1, foreach=True).step()
    assert "clip_entered" not in log.names


def test_a_function_of_the_users_own_with_the_same_arguments_is_no_clip():
    def measure(grads: list[torch.Tensor], max_norm: float) -> None:
        torch.nn.utils.clip_grad._group_tensors_by_device_and_dtype([grads])

    log = Log()
    with listening(log):
        measure([torch.ones(2)], 1.0)
    assert log.heard == []


def test_a_clip_of_nothing_is_heard_with_what_it_was_called_for():
    parameter, log = nn.Parameter(torch.zeros(1)), Log()
    with listening(log):
        clip_grad_norm_([parameter], 1.0)
    (clip,) = log.of("clip_entered")
    assert clip.gradients == []
    assert clip.parameters[0] is parameter
    assert clip.touches([parameter])


def test_a_clip_touches_what_it_changes_or_was_called_for():
    clip, (first, _) = hear_clip(lambda own: clip_grad_norm_(own, 1.0))
    by_value, (valued, _) = hear_clip(lambda own: clip_grad_value_(own, 1.0))
    other = nn.Parameter(torch.zeros(2))
    other.grad = torch.tensor([3.0, 4.0])
    assert clip.touches([other, first])
    assert by_value.touches([valued])
    assert not clip.touches([other])
    assert not by_value.touches([other])


def test_a_clip_by_value_has_neither_norm_nor_limit():
    clip, _ = hear_clip(lambda own: clip_grad_value_(own, 3.5))
    assert math.isnan(float(clip.total_norm))
    assert (clip.max_norm, clip.parameters) == (None, [])


# Scaling


class Cautious(torch.amp.GradScaler):
    """A scaler as projects derive it: every method is the parent's and a little more."""

    def scale(self, outputs: Any) -> Any:
        return super().scale(outputs)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        super().unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        super().update(new_scale)


def scaled_step(
    scaler: torch.amp.GradScaler,
    *,
    factor: float = 1.0,
    unscale: bool = False,
    fused: bool = False,
    ear: Any = None,
) -> tuple[Log, torch.optim.Optimizer]:
    """One step on 3p at p = 2 under `scaler`; `factor` makes it overflow."""
    log, parameter = Log(), nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.AdamW([parameter], lr=0.1, fused=fused)
    with listening(log), listening(ear or hear()):
        scaler.scale((parameter * 3).sum() * factor).backward()
        if unscale:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    return log, optimizer


def scaling_of(log: Log) -> list[str]:
    return [name for name in log.names if not name.startswith("backward")]


STEP = ["step_entered", "step_applied"]


@pytest.mark.parametrize("scaler", [torch.amp.GradScaler, Cautious])
@pytest.mark.parametrize(
    ("options", "between"),
    [
        ({}, ["scaler_step_entered", "gradients_unscaled", *STEP]),
        ({"unscale": True}, ["gradients_unscaled", "scaler_step_entered", *STEP]),
        ({"fused": True}, ["scaler_step_entered", *STEP]),
        ({"factor": math.inf}, ["scaler_step_entered", "gradients_unscaled"]),
        ({"factor": math.inf, "fused": True}, ["scaler_step_entered", *STEP]),
    ],
    ids=["plain", "unscaled before", "fused", "left out", "fused and left out"],
)
def test_a_step_under_a_scaler_is_heard_in_its_order(scaler, options, between):
    made = scaler("cpu", init_scale=4.0)
    log, optimizer = scaled_step(made, **options)
    assert scaling_of(log) == ["loss_scaled", *between, "scaler_step_left", "scaler_updated"]
    heard = [event for event in log.heard if event[0] == "scaler_step_left"]
    assert heard == [("scaler_step_left", made, optimizer)]


def test_what_is_scaled_is_heard_as_the_loop_has_it():
    scaler, log = torch.amp.GradScaler("cpu", init_scale=4.0), Log()
    with listening(log):
        one = scaler.scale(torch.tensor(2.0))
        several = scaler.scale([torch.tensor(2.0), torch.tensor(3.0)])
    assert log.heard == [("loss_scaled", scaler, one), ("loss_scaled", scaler, several)]
    assert [one.item(), [s.item() for s in several]] == [8.0, [8.0, 12.0]]


def test_gradients_are_divided_when_it_is_heard_and_the_scale_is_the_next_when_it_is_updated():
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    seen: list[float] = []
    ear = hear(
        backward_left=lambda: seen.append(scaler.get_scale()),
        gradients_unscaled=lambda _, o: seen.append(o.param_groups[0]["params"][0].grad.item()),
        scaler_updated=lambda s: seen.append(s.get_scale()),
    )
    scaled_step(scaler, factor=1.0, ear=ear)
    scaled_step(scaler, factor=math.inf, ear=ear)
    assert seen == [4.0, 3.0, 4.0, 4.0, math.inf, 2.0]


def test_a_disabled_scaler_is_not_heard():
    log, optimizer = scaled_step(torch.amp.GradScaler("cpu", enabled=False))
    assert scaling_of(log) == STEP
    assert log.of("step_applied") == [optimizer]


@pytest.mark.parametrize("factor", [1.0, math.inf])
def test_a_scaled_training_ends_in_the_same_bits(factor):
    ends = []
    for hook in (True, False):
        scaler, parameter = torch.amp.GradScaler("cpu"), nn.Parameter(torch.tensor([2.0, -1.0]))
        optimizer = torch.optim.AdamW([parameter], lr=0.1)
        with listening(Log() if hook else hear()):
            for _ in range(3):
                optimizer.zero_grad()
                scaler.scale((parameter.square() * factor).sum()).backward()
                returned = scaler.step(optimizer)
                scaler.update()
        ends.append((parameter.tolist(), scaler.state_dict(), returned))
    assert ends[0] == ends[1]
    assert (ends[0][0] == [2.0, -1.0]) == (factor == math.inf)


@pytest.mark.parametrize("max_norm", [2.0, 100.0, math.inf])
def test_a_clip_by_norm_is_heard_again_when_it_has_returned(max_norm):
    log, parameter = Log(), nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([4.0])
    with listening(log):
        clip_grad_norm_([parameter], max_norm)
    assert log.names == ["clip_entered", "clip_left"]
    (entered,), (left,) = log.of("clip_entered"), log.of("clip_left")
    assert entered is left
    assert entered.only_measures == (max_norm == math.inf)


def test_a_clip_that_raises_has_not_returned():
    log, parameter = Log(), nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([4.0])
    with listening(log), pytest.raises(TypeError):
        torch.nn.utils.clip_grad._clip_grads_with_norm_([parameter], 1.0, "no norm")
    assert log.names == ["clip_entered"]


def test_a_clip_by_value_does_not_only_measure():
    clip, _ = hear_clip(lambda own: clip_grad_value_(own, 3.5))
    assert not clip.only_measures
    assert clip.coefficient() is None

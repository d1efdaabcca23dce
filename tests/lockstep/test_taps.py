"""Named values out of an unmodified training, and functions put back as they were."""

import inspect
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from traingen.errors import ConfigError, SystemFailed
from traingen.lockstep.taps import Tap, tap_functions, tap_modules

HERE = __name__


def module_loss(value: float) -> Tensor:
    return torch.tensor(value)


class Losses:
    scale = 10.0

    def method(self, value: float) -> Tensor:
        return torch.tensor(value)

    @staticmethod
    def static(value: float) -> Tensor:
        return torch.tensor(value)

    @classmethod
    def of_class(cls, value: float) -> Tensor:
        return torch.tensor(value * cls.scale)

    def pair(self, value: float) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.ones(2), {"loss": torch.tensor([value])}

    def text(self) -> str:
        return "no tensor"


class Inherited(Losses):
    scale = 100.0


class Heard:
    """Takes what is delivered."""

    def __init__(self) -> None:
        self.values: list[tuple[str, float]] = []

    def __call__(self, name: str, value: Tensor) -> None:
        assert value.shape == ()
        self.values.append((name, float(value)))


def in_thread(action: Callable[[], Any]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()


def statics(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if callable(value) or name in
            ("static", "of_class")}  # fmt: skip


# ---- functions ----------------------------------------------------------------------------------

CALLS: dict[str, tuple[Callable[[], Any], float]] = {
    "module_loss": (lambda: module_loss(2.0), 2.0),
    "Losses.method": (lambda: Losses().method(2.0), 2.0),
    "Losses.static": (lambda: Losses.static(2.0), 2.0),
    "Losses.static ": (lambda: Losses().static(2.0), 2.0),
    "Losses.of_class": (lambda: Losses.of_class(2.0), 20.0),
    "Losses.of_class ": (lambda: Losses().of_class(2.0), 20.0),
    "Losses.of_class  ": (lambda: Inherited.of_class(2.0), 200.0),
    "Inherited.method": (lambda: Inherited().method(2.0), 2.0),
    "Inherited.static": (lambda: Inherited().static(2.0), 2.0),
    "Inherited.of_class": (lambda: Inherited().of_class(2.0), 200.0),
}


@pytest.mark.parametrize("path", CALLS)
def test_what_a_function_returns_is_heard_and_still_returned(path):
    call, expected = CALLS[path]
    heard = Heard()
    with tap_functions([Tap(name="ce", function=f"{HERE}.{path.strip()}")], heard):
        result = call()
    assert float(result) == expected
    assert heard.values == [("ce", expected)]


@pytest.mark.parametrize("path", CALLS)
@pytest.mark.parametrize("error", [False, True])
def test_a_function_is_put_back(path, error):
    owners = (sys.modules[HERE], Losses, Inherited)
    before, heard = [statics(owner) for owner in owners], Heard()
    try:
        with tap_functions([Tap(name="ce", function=f"{HERE}.{path.strip()}")], heard):
            assert [statics(owner) for owner in owners] != before
            if error:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert [statics(owner) for owner in owners] == before
    assert float(CALLS[path][0]()) == CALLS[path][1]
    assert heard.values == []


def test_a_function_that_is_not_the_tapped_one_is_not_heard():
    heard = Heard()
    with tap_functions([Tap(name="ce", function=f"{HERE}.Inherited.method")], heard):
        Losses().method(2.0)
    assert heard.values == []


def test_functions_tapped_before_an_unknown_one_are_put_back():
    taps = [Tap(name="a", function=f"{HERE}.module_loss"), Tap(name="b", function=f"{HERE}.none")]
    before = module_loss
    with pytest.raises(ConfigError, match=r"taps\.b"), tap_functions(taps, Heard()):
        pass
    assert module_loss is before


@pytest.mark.parametrize(
    "path",
    [
        f"{HERE}.none",
        f"{HERE}.Losses.none",
        f"{HERE}.None.method",
        "no_such_package.f",
        "module_loss",
        "traingen.errors.no.such",
    ],
)
def test_an_unknown_function_is_refused(path):
    with (
        pytest.raises(ConfigError, match=r"taps\.ce"),
        tap_functions([Tap(name="ce", function=path)], Heard()),
    ):
        pass


def test_a_tapped_function_looks_like_itself():
    with tap_functions([Tap(name="ce", function=f"{HERE}.module_loss")], Heard()):
        assert module_loss.__name__ == "module_loss"
        assert inspect.signature(module_loss).parameters.keys() == {"value"}


def test_only_the_thread_that_registered_is_heard():
    heard = Heard()
    with tap_functions([Tap(name="ce", function=f"{HERE}.module_loss")], heard):
        in_thread(lambda: module_loss(1.0))
        module_loss(2.0)
    assert heard.values == [("ce", 2.0)]


def test_nothing_is_heard_without_gradients():
    heard = Heard()
    with tap_functions([Tap(name="ce", function=f"{HERE}.module_loss")], heard):
        with torch.no_grad():
            module_loss(1.0)
        module_loss(2.0)
    assert heard.values == [("ce", 2.0)]


def test_several_outputs_of_one_function_are_heard():
    taps = [Tap(name=name, function=f"{HERE}.Losses.method") for name in "ab"]
    before, heard = Losses.method, Heard()
    with tap_functions(taps, heard):
        Losses().method(2.0)
    assert sorted(heard.values) == [("a", 2.0), ("b", 2.0)]
    assert Losses.method is before


@pytest.mark.parametrize("first_out", ["mine", "theirs"])
def test_two_threads_tap_one_function_and_leave_in_any_order(first_out):
    """Both systems of a lockstep may use the same function; neither thread ends first for sure."""
    tap, before = Tap(name="ce", function=f"{HERE}.module_loss"), module_loss
    mine, theirs = Heard(), Heard()
    ready, leave, out = threading.Event(), threading.Event(), threading.Event()

    def other_system() -> None:
        with tap_functions([tap], theirs):
            module_loss(1.0)
            ready.set()
            assert leave.wait(5)
            module_loss(2.0)
        out.set()

    thread = threading.Thread(target=other_system)
    with tap_functions([tap], mine):
        thread.start()
        assert ready.wait(5)
        module_loss(3.0)
        if first_out == "theirs":
            leave.set()
            assert out.wait(5)
            module_loss(4.0)
    leave.set()
    thread.join(5)

    assert module_loss is before
    assert theirs.values == [("ce", 1.0), ("ce", 2.0)]
    assert mine.values == [("ce", 3.0), *([("ce", 4.0)] if first_out == "theirs" else [])]


# ---- modules ------------------------------------------------------------------------------------


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * self.weight, (self.weight * 2).reshape(1)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)[0]


def test_an_output_of_a_module_is_heard_by_its_index():
    network, heard = Network(), Heard()
    tap_modules([Tap(name="sparsity", module="encoder", output=1)], network, heard)
    network(torch.ones(2))
    network(torch.ones(2))
    assert heard.values == [("sparsity", 6.0), ("sparsity", 6.0)]


def test_what_is_heard_is_detached_and_the_training_goes_on():
    network, values = Network(), []
    tap_modules([Tap(name="s", module="encoder", output=1)], network, lambda n, v: values.append(v))
    network(torch.ones(2)).sum().backward()
    assert not values[0].requires_grad
    assert network.encoder.weight.grad == 2.0


@pytest.mark.parametrize("how", ["eval", "no_grad"])
def test_a_module_is_heard_in_training_steps_only(how):
    network, heard = Network(), Heard()
    tap_modules([Tap(name="s", module="encoder", output=1)], network, heard)
    if how == "eval":
        network.eval()(torch.ones(2))
        network.train()
    else:
        with torch.no_grad():
            network(torch.ones(2))
    assert heard.values == []
    network(torch.ones(2))
    assert len(heard.values) == 1


def test_the_model_itself_can_be_tapped():
    network, heard = Network(), Heard()
    tap_modules([Tap(name="all", module="")], network, heard)
    network(torch.ones(1))
    assert heard.values == [("all", 3.0)]


def test_an_unknown_module_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="Network has no module 'decoder'; its children are enc"):
        tap_modules([Tap(name="s", module="decoder")], Network(), Heard())


def test_each_kind_takes_its_own_taps():
    taps = [
        Tap(name="f", function=f"{HERE}.module_loss"),
        Tap(name="m", module="encoder", output=1),
    ]
    network, heard = Network(), Heard()
    tap_modules(taps, network, heard)
    with tap_functions(taps, heard):
        module_loss(1.0)
    network(torch.ones(1))
    assert heard.values == [("f", 1.0), ("m", 6.0)]


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [None, 0, 1])
def test_what_is_no_single_number_is_refused(output):
    tap = Tap(name="ce", function=f"{HERE}.Losses.pair", output=output)
    with tap_functions([tap], Heard()), pytest.raises(SystemFailed, match=r"taps\.ce: expected a"):
        Losses().pair(1.0)


def test_what_is_no_tensor_is_refused_by_its_kind():
    with (
        tap_functions([Tap(name="ce", function=f"{HERE}.Losses.text")], Heard()),
        pytest.raises(SystemFailed, match="got a str: choose one with 'output'"),
    ):
        Losses().text()


@pytest.mark.parametrize("where", [{}, {"module": "a", "function": "b"}], ids=["neither", "both"])
def test_a_tap_names_either_module_or_function(where):
    with pytest.raises(ConfigError, match=r"taps\.ce: expected either"):
        Tap(name="ce", **where)
    assert Tap(name="ce", module="") != Tap(name="ce", function="b")

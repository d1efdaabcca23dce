"""Probes put state of the user's own into the record, and never a draw into the training."""

from __future__ import annotations

import json
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from traingen.errors import ConfigError
from traingen.observe.probes import ProbeReader, StateProbe, check_probes, read_probes
from traingen.observe.rng import capture_rng

MODULE = nn.Linear(2, 1)


@dataclass
class Probe:
    """Gives what `give` returns, and counts how often it was asked."""

    give: Callable[[nn.Module], Any]
    name: str = "mine"
    reads: int = field(default=0, init=False)

    def read(self, module: nn.Module) -> Any:
        self.reads += 1
        return self.give(module)


def value_of(value: Any) -> Any:
    """`value` as the record has it."""
    sampler, user = read_probes([Probe(lambda _: value)], MODULE)
    assert sampler is None and user is not None
    return user["mine"]


def test_the_sampler_has_its_own_field_and_all_others_go_under_user():
    probes = [Probe(lambda _: 1, "a"), Probe(lambda _: {"b": 2}, "sampler"), Probe(id, "c")]
    assert read_probes(probes, MODULE) == ({"b": 2}, {"a": 1, "c": id(MODULE)})


def test_without_probes_both_fields_are_null():
    assert read_probes([], MODULE) == (None, None)
    assert read_probes([Probe(lambda _: {}, "sampler")], MODULE) == ({}, None)
    assert read_probes([Probe(lambda _: None, "sampler")], MODULE) == (None, None)


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        (torch.tensor(3), 3),
        (torch.tensor([1.5, 2.5], requires_grad=True), [1.5, 2.5]),
        (torch.tensor([True, False]), [True, False]),
        (torch.ones(2, dtype=torch.bfloat16), [1.0, 1.0]),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.array([1, 2]), [1, 2]),
        (np.array(["a", "b"]), ["a", "b"]),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        (OrderedDict(b=torch.tensor(1.0), a=None), {"b": 1.0, "a": None}),
        ([], []),
        ("text", "text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_what_json_has(given: Any, recorded: Any):
    found = value_of(given)
    assert found == recorded
    assert json.loads(json.dumps(found)) == found
    assert json.dumps(found) == json.dumps(recorded), "the types are plain, the order is kept"


def test_a_recorded_list_does_not_follow_the_training():
    tensor = torch.zeros(2)
    found = value_of(tensor)
    tensor += 1
    assert found == [0.0, 0.0]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "probe 'mine': expected numbers, .* got a object: convert it in 'read'"),
        ({"a": [1, {2}]}, r"probe 'mine'.a\[1\]: expected .* got a set"),
        ({"a": {1: 2}}, "probe 'mine'.a: keys must be text, got 1, a int: use str"),
        (torch.zeros(2, 3), r"probe 'mine': got a Tensor of shape \(2, 3\), expected at most one"),
        ([np.zeros((1, 1))], r"probe 'mine'\[0\]: got a ndarray of shape \(1, 1\)"),
        (torch.zeros(1, dtype=torch.complex64), "a Tensor of torch.complex64 holds no numbers"),
        (np.array([object()]), "a ndarray of object holds no numbers"),
        (1j, "got a complex"),
        (b"a", "got a bytes"),
    ],
)
def test_what_is_no_json_is_refused_by_name_place_and_type(value: Any, says: str):
    with pytest.raises(ConfigError, match=says):
        value_of(value)


@pytest.mark.parametrize("value", [1, [1], "uniform"])
def test_the_sampler_must_be_a_dict(value: Any):
    with pytest.raises(ConfigError, match="probe 'sampler' must give a dict, got a "):
        read_probes([Probe(lambda _: value, "sampler")], MODULE)


DRAWS = {
    "torch": lambda _: torch.rand(1),
    "numpy": lambda _: np.random.rand(),
    "python": lambda _: random.random(),
}


@pytest.mark.parametrize("source", DRAWS)
def test_a_probe_that_draws_is_refused_and_the_generators_are_put_back(source: str):
    before = capture_rng()
    says = rf"probe 'mine' \(Probe\) drew random numbers from {source}, which changes the training"
    with pytest.raises(ConfigError, match=says):
        read_probes([Probe(DRAWS[source])], MODULE)
    assert capture_rng().equals(before)


def test_a_probe_that_draws_from_several_generators_is_told_all_of_them():
    with pytest.raises(ConfigError, match="from python and numpy and torch, which"):
        read_probes([Probe(lambda m: [draw(m) for draw in DRAWS.values()])], MODULE)


def test_a_probe_that_draws_nothing_leaves_the_generators_where_they_are():
    before = capture_rng()
    own = torch.Generator().manual_seed(1)
    assert value_of(torch.rand(1, generator=own)) is not None
    assert capture_rng().equals(before)


def test_a_probe_that_fails_is_named_and_what_it_drew_is_put_back():
    def fail(_: nn.Module) -> None:
        torch.rand(1)
        raise KeyError("history")

    before = capture_rng()
    with pytest.raises(KeyError) as caught:
        read_probes([Probe(fail)], MODULE)
    assert caught.value.__notes__ == ["raised by probe 'mine' (Probe)"]
    assert capture_rng().equals(before)


def test_a_probe_reads_without_a_graph():
    assert read_probes([Probe(lambda _: torch.is_grad_enabled())], MODULE) == (
        None,
        {"mine": False},
    )
    assert torch.is_grad_enabled()


def test_the_reader_sees_a_probe_that_begins_to_draw_later():
    probe = Probe(lambda m: torch.rand(1) if probe.reads > 50 else 0)
    reader = ProbeReader([probe])
    for _ in range(50):
        reader.read(MODULE)
    stood = torch.get_rng_state()
    with pytest.raises(ConfigError, match="drew random numbers from torch"):
        reader.read(MODULE)
    assert torch.equal(stood, torch.get_rng_state())
    assert probe.reads == 51


def test_draws_from_numpy_that_begin_later_are_seen_now_and_then():
    probe = Probe(lambda m: float(np.random.rand()) if probe.reads > 50 else 0)
    reader = ProbeReader([probe])
    for _ in range(63):
        reader.read(MODULE)
    with pytest.raises(ConfigError, match="drew random numbers from numpy"):
        reader.read(MODULE)


def test_the_reader_gives_what_read_probes_gives():
    probes = [Probe(lambda _: {"n": 1}, "sampler"), Probe(lambda _: 2)]
    reader = ProbeReader(probes)
    found = [reader.read(MODULE) for _ in range(3)]
    assert found == [read_probes(probes, MODULE)] * 3


class NoRead:
    name = "half"


@pytest.mark.parametrize(
    ("probes", "says"),
    [
        ([object()], r"expected objects with 'name' and 'read\(module\)', got a object"),
        ([NoRead()], "got a NoRead"),
        ([Probe], "got the class Probe"),
        ([Probe(id, "")], "the name of a Probe must be text, got ''"),
        ([Probe(id, 3)], "the name of a Probe must be text, got 3"),
        ([Probe(id, "a"), Probe(len, "a")], "two are called 'a'"),
    ],
)
def test_probes_that_cannot_be_read_are_refused_at_once(probes: Any, says: str):
    with pytest.raises(ConfigError, match=says):
        ProbeReader(probes)


def test_any_object_with_a_name_and_a_read_is_a_probe():
    class Constant:
        name = "constant"

        def read(self, module: nn.Module) -> int:
            return 1

    probe: StateProbe = Constant()
    check_probes([probe, Probe(id)])
    assert read_probes([probe], MODULE) == (None, {"constant": 1})

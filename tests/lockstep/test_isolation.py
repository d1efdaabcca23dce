"""The process-wide state of a system: all of it is taken, and all of it is put back."""

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from traingen.lockstep.isolation import (
    capture_process_state,
    fresh_process_state,
    restore_process_state,
)
from traingen.observe.rng import digest_rng, digest_rng_state, seeded_rng


@pytest.fixture(autouse=True)
def small_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Start with two variables of Lightning's and filters of our own; put warnings back."""
    monkeypatch.setenv("PL_KEPT", "1")
    monkeypatch.setenv("PL_GONE", "2")
    monkeypatch.setenv("OTHER", "3")
    with warnings.catch_warnings():
        yield tmp_path


def look() -> dict[str, Any]:
    cudnn = torch.backends.cudnn
    return {
        "rng": digest_rng(),
        "dtype": torch.get_default_dtype(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "cudnn": (cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        "environment": {k: v for k, v in os.environ.items() if k.startswith("PL_")},
        "cwd": os.getcwd(),
        "argv": list(sys.argv),
        "path": list(sys.path),
        "filters": list(warnings.filters),
        "show": warnings.showwarning,
    }


def change_cudnn(name: str) -> Callable[[Path], Any]:
    return lambda _: setattr(torch.backends.cudnn, name, not getattr(torch.backends.cudnn, name))


def show_nothing(*args: Any, **kwargs: Any) -> None:
    """A training that silences warnings."""


CHANGES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "python draws": ("rng", lambda _: random.random()),
    "numpy draws": ("rng", lambda _: np.random.rand()),
    "torch draws": ("rng", lambda _: torch.rand(1)),
    "torch is seeded": ("rng", lambda _: torch.manual_seed(99)),
    "dtype": ("dtype", lambda _: torch.set_default_dtype(torch.float64)),
    "deterministic": ("deterministic", lambda _: torch.use_deterministic_algorithms(True)),
    "warn only": (
        "deterministic",
        lambda _: torch.use_deterministic_algorithms(True, warn_only=True),
    ),
    "cudnn enabled": ("cudnn", change_cudnn("enabled")),
    "cudnn benchmark": ("cudnn", change_cudnn("benchmark")),
    "cudnn deterministic": ("cudnn", change_cudnn("deterministic")),
    "variable added": ("environment", lambda _: os.environ.update(PL_NEW="4")),
    "variable removed": ("environment", lambda _: os.environ.pop("PL_GONE")),
    "variable changed": ("environment", lambda _: os.environ.update(PL_KEPT="5")),
    "cwd": ("cwd", os.chdir),
    "argv appended": ("argv", lambda _: sys.argv.append("--more")),
    "argv replaced": ("argv", lambda _: setattr(sys, "argv", ["other"])),
    "path inserted": ("path", lambda _: sys.path.insert(0, "nowhere")),
    "path replaced": ("path", lambda _: setattr(sys, "path", ["nowhere", *sys.path])),
    "filter added": ("filters", lambda _: warnings.filterwarnings("ignore", message="mine")),
    "filters reset": ("filters", lambda _: warnings.simplefilter("always")),
    "showwarning": ("show", lambda _: setattr(warnings, "showwarning", show_nothing)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_system_changes_is_put_back_and_kept_for_its_next_turn(name, tmp_path):
    item, change = CHANGES[name]
    before = look()
    outside, inside = capture_process_state(), fresh_process_state(seeded_rng(1))
    restore_process_state(inside)
    at_start = look()
    change(tmp_path)
    at_park = look()
    assert at_park[item] != at_start[item]

    inside = capture_process_state()
    restore_process_state(outside)
    assert look() == before

    restore_process_state(inside)
    assert look() == at_park
    restore_process_state(outside)
    assert look() == before


def test_there_is_a_change_for_every_item():
    assert {item for item, _ in CHANGES.values()} == set(look())


def test_capturing_changes_nothing():
    before = look()
    capture_process_state()
    fresh_process_state(seeded_rng(3))
    assert look() == before


def test_a_fresh_state_is_as_outside_but_for_its_generators():
    before = look()
    state = fresh_process_state(seeded_rng(7))
    restore_process_state(state)
    after = look()
    assert after.pop("rng") == digest_rng_state(seeded_rng(7))
    before.pop("rng")
    assert after == before


def test_other_variables_are_nobodys_own():
    outside = capture_process_state()
    os.environ["OTHER"] = "changed"
    restore_process_state(outside)
    assert os.environ["OTHER"] == "changed"


def test_lists_that_others_hold_stay_the_same_lists():
    argv, path = sys.argv, sys.path
    outside = capture_process_state()
    sys.argv.append("--more")
    restore_process_state(outside)
    assert sys.argv is argv
    assert sys.path is path


def test_filters_take_effect_at_once():
    outside, inside = capture_process_state(), fresh_process_state(seeded_rng(0))
    warnings.simplefilter("error")
    with pytest.raises(UserWarning):
        warnings.warn("outside", UserWarning, stacklevel=1)
    outside = capture_process_state()
    restore_process_state(inside)
    warnings.simplefilter("ignore")
    warnings.warn("inside", UserWarning, stacklevel=1)
    restore_process_state(outside)
    with pytest.raises(UserWarning):
        warnings.warn("outside", UserWarning, stacklevel=1)

"""The fixture in conftest.py, seen from outside: the second test of each pair finds no trace."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).with_name("conftest.py")
BREAK_AND_LOOK = """
import os, random, sys
import numpy as np
import torch

START = {}

def look():
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
        "torch": torch.get_rng_state().tolist(),
        "flags": (torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "paths": (os.getcwd(), list(sys.path), list(sys.argv)),
    }

def test_first_breaks_everything(tmp_path):
    START.update(look())
    random.random(), np.random.rand(), torch.rand(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    os.environ["TRAINGEN_TEST"] = "1"
    os.environ.pop("PATH")
    os.chdir(tmp_path)
    sys.path.insert(0, "nowhere")
    sys.argv.append("--more")
    assert all(look()[name] != value for name, value in START.items())

def test_second_finds_nothing_changed():
    assert look() == START
"""


def test_state_a_test_leaves_behind_is_put_back(pytester: pytest.Pytester):
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile(BREAK_AND_LOOK)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)

"""What holds for every test: it leaves the process as it found it."""

import logging
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import hypothesis
import pytest

# Deadlines measure the machine; two busy cores are slow for reasons that are no bug.
hypothesis.settings.register_profile(
    "traingen",
    deadline=None,
    derandomize="CI"
    in os.environ,  # a landing must not depend on luck; developers try new examples
    suppress_health_check=[hypothesis.HealthCheck.too_slow],  # a busy machine is no finding
)
hypothesis.settings.load_profile("traingen")

# LightningCLI calls jsonargparse by a name that is deprecated; a test can do nothing about it.
os.environ["JSONARGPARSE_DEPRECATION_WARNINGS"] = "off"

# A shell ignores Ctrl-C for what it starts in the background; tests send it to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Restore = Callable[[], None]


@pytest.fixture(autouse=True)
def restored_process_state() -> Iterator[None]:
    """Put RNG streams, torch's global switches, environment and paths back after each test.

    numpy and torch are touched only if something else has imported them: light tests stay light.
    """
    restores = [snapshot_process(), snapshot_numpy(), snapshot_torch()]
    yield
    for restore in restores:
        restore()


def snapshot_process() -> Restore:
    stream, cwd = random.getstate(), os.getcwd()
    path, argv, environment = sys.path[:], sys.argv[:], dict(os.environ)

    def restore() -> None:
        random.setstate(stream)
        os.chdir(cwd)
        sys.path[:] = path
        sys.argv[:] = argv
        restore_environment(environment)
        if "lightning.pytorch" in sys.modules:  # a command quietens it; it starts talkative
            logging.getLogger("lightning.pytorch").setLevel(logging.INFO)

    return restore


def restore_environment(saved: dict[str, str]) -> None:
    # PYTEST_CURRENT_TEST belongs to pytest, which changes it between set-up and teardown.
    for name in set(os.environ) - set(saved) - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update({k: v for k, v in saved.items() if k != "PYTEST_CURRENT_TEST"})


def snapshot_numpy() -> Restore:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return lambda: None
    stream = numpy.random.get_state()
    return lambda: numpy.random.set_state(stream)


def snapshot_torch() -> Restore:
    torch = sys.modules.get("torch")
    if torch is None:
        return restore_torch_defaults
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)  # the workers share the cores
    state = capture_torch(torch)
    return lambda: restore_torch(torch, state)


def capture_torch(torch: ModuleType) -> dict[str, Any]:
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "threads": torch.get_num_threads(),
        "cudnn": capture_cudnn(torch.backends.cudnn),
        "stream": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
    }


def restore_torch(torch: ModuleType, state: dict[str, Any]) -> None:
    torch.use_deterministic_algorithms(state["deterministic"], warn_only=state["warn_only"])
    torch.set_float32_matmul_precision(state["matmul"])
    torch.set_default_dtype(state["dtype"])
    torch.set_grad_enabled(state["grad"])
    torch.autograd.set_detect_anomaly(state["anomaly"])
    torch.set_num_threads(state["threads"])
    for name, value in state["cudnn"].items():
        setattr(torch.backends.cudnn, name, value)
    torch.set_rng_state(state["stream"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state_all(state["cuda"])


def capture_cudnn(cudnn: Any) -> dict[str, bool]:
    return {name: getattr(cudnn, name) for name in ("enabled", "benchmark", "deterministic")}


def restore_torch_defaults() -> None:
    """After the test that first imported torch: the switches as torch starts with them."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    switches = {"deterministic": False, "warn_only": False, "matmul": "highest"}
    switches |= {"dtype": torch.float32, "grad": True, "anomaly": False}
    switches["cudnn"] = {"enabled": True, "benchmark": False, "deterministic": False}
    restore_torch(torch, capture_torch(torch) | switches)

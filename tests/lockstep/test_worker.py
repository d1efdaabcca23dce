"""One system's thread: turns, values, ends, stops and stalls, and no trace of it outside."""

import os
import random
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from traingen.lockstep.interrupt import deferred_interrupts, raise_if_interrupted
from traingen.lockstep.worker import Ended, Raised, StalledError, StopSystem, Worker
from traingen.observe.rng import digest_rng, digest_rng_state, seeded_rng

PATIENCE = 10.0  # seconds; far longer than any turn here takes

Body = Callable[[Worker], None]


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    """Make workers whose body knows its worker; every thread has ended after the test."""
    made: list[Worker] = []

    def start(body: Body, *, seed: int = 0, stall_seconds: float = PATIENCE) -> Worker:
        worker = Worker("package", lambda: body(worker), seed=seed, stall_seconds=stall_seconds)
        made.append(worker)
        return worker

    yield start
    for worker in made:
        worker.stop()
        assert not worker.alive


def park_thrice(worker: Worker) -> None:
    for number in range(3):
        worker.park(number)


# ---- turns --------------------------------------------------------------------------------------


def test_a_turn_ends_where_the_body_parks_and_last_where_it_ends(start):
    worker = start(park_thrice)
    assert [worker.resume() for _ in range(5)] == [0, 1, 2, Ended(), Ended()]
    assert not worker.alive


def test_exactly_one_of_the_threads_runs_at_any_moment(start):
    log: list[str] = []

    def body(worker: Worker) -> None:
        for step in range(3):
            log.append(f"system {step}")
            worker.park(step)
        log.append("system ends")

    worker = start(body)
    assert log == []
    for step in range(4):
        log.append(f"conductor {step}")
        worker.resume()
    assert log == [
        "conductor 0", "system 0", "conductor 1", "system 1", "conductor 2", "system 2",
        "conductor 3", "system ends",
    ]  # fmt: skip


def test_two_systems_take_turns(start):
    log: list[str] = []

    def body(name: str) -> Body:
        def run(worker: Worker) -> None:
            for step in range(2):
                log.append(f"{name}{step}")
                worker.park(step)

        return run

    first, second = start(body("a")), start(body("b"))
    for _ in range(3):
        first.resume()
        second.resume()
    assert log == ["a0", "b0", "a1", "b1"]


def test_the_body_runs_in_a_thread_of_its_own_name(start):
    seen: list[str] = []
    worker = start(lambda w: seen.append(threading.current_thread().name))
    worker.resume()
    assert seen == ["traingen-package"]
    assert threading.current_thread().name not in seen


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_what_the_body_raises_is_its_last_report(start, error):
    def body(worker: Worker) -> None:
        worker.park("once")
        raise error

    worker = start(body)
    assert worker.resume() == "once"
    assert worker.resume() == Raised(error)
    assert worker.resume() == Ended()
    assert not worker.alive


# ---- stop ---------------------------------------------------------------------------------------


def test_stop_raises_inside_and_waits_for_the_thread(start):
    seen: list[str] = []

    def body(worker: Worker) -> None:
        try:
            worker.park("parked")
            seen.append("went on")
        except StopSystem:
            seen.append("stopped")
            raise
        finally:
            seen.append("cleaned up")

    worker = start(body)
    worker.resume()
    assert worker.alive
    assert worker.stop() == Ended()
    assert seen == ["stopped", "cleaned up"]
    assert not worker.alive


def test_a_body_that_swallows_exceptions_is_stopped_all_the_same(start):
    swallowed: list[Exception] = []

    def body(worker: Worker) -> None:
        while True:
            try:
                worker.park("again")
                raise ValueError
            except Exception as error:
                swallowed.append(error)

    worker = start(body)
    assert [worker.resume() for _ in range(3)] == ["again"] * 3
    assert worker.stop() == Ended()
    assert [type(error) for error in swallowed] == [ValueError] * 2
    assert not worker.alive


def test_a_body_that_parks_again_while_it_is_stopped_is_stopped_again(start):
    parks: list[str] = []

    def body(worker: Worker) -> None:
        for name in ("first", "second"):
            try:
                worker.park(name)
            except StopSystem:
                parks.append(name)

    worker = start(body)
    worker.resume()
    assert worker.stop() == Ended()
    assert parks == ["first", "second"]


def test_what_is_raised_while_it_is_stopped_is_reported(start):
    error = ValueError("while closing")

    def body(worker: Worker) -> None:
        try:
            worker.park("parked")
        finally:
            raise error

    worker = start(body)
    worker.resume()
    assert worker.stop() == Raised(error)
    assert not worker.alive


@pytest.mark.parametrize("turns", [0, 5])
def test_stopping_what_does_not_run_does_nothing(start, turns):
    worker = start(park_thrice)
    for _ in range(turns):
        worker.resume()
    assert worker.stop() == worker.stop() == Ended()
    assert worker.resume() == Ended()


# ---- stall and interrupt ------------------------------------------------------------------------


def test_a_turn_that_takes_too_long_is_given_up_with_the_stacks(start, capfd):
    go_on = threading.Event()
    worker = start(lambda w: go_on.wait(PATIENCE), stall_seconds=0.01)
    try:
        with pytest.raises(StalledError, match=r"package: no update for 0\.01 s"):
            worker.resume()
        assert worker.alive
        assert "Thread 0x" in capfd.readouterr().err
    finally:
        go_on.set()
    worker._thread.join(PATIENCE)
    assert worker.resume() == Ended()


def test_outside_state_is_put_back_after_a_stall(start, capfd):
    go_on = threading.Event()

    def body(worker: Worker) -> None:
        torch.manual_seed(99)
        go_on.wait(PATIENCE)

    worker = start(body, stall_seconds=0.05)
    before = digest_rng()
    try:
        with pytest.raises(StalledError):
            worker.resume()
        assert digest_rng() == before
    finally:
        go_on.set()
    worker._thread.join(PATIENCE)
    assert capfd.readouterr().err != ""


def raise_sigint(count: int) -> None:
    for _ in range(count):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("turns", [0, 1])
def test_ctrl_c_during_a_turn_ends_the_system_at_its_next_park(start, turns, capsys):
    worker = start(park_thrice)
    before = digest_rng()
    with deferred_interrupts():
        for _ in range(turns):
            worker.resume()
        raise_sigint(1)  # handled in this thread, between two turns
        worker.resume()
        with pytest.raises(KeyboardInterrupt):
            raise_if_interrupted()
        assert worker.stop() == Ended()
    assert digest_rng() == before
    assert not worker.alive
    assert "Ctrl-C again to leave at once" in capsys.readouterr().err


def test_a_second_ctrl_c_leaves_a_system_behind_that_does_not_park(start, capsys):
    go_on = threading.Event()
    worker = start(lambda park: go_on.wait(PATIENCE))
    try:
        with deferred_interrupts():
            raise_sigint(2)
            with pytest.raises(KeyboardInterrupt):
                worker.resume()
            assert worker.stop() == Ended()
    finally:
        go_on.set()
    worker._thread.join(PATIENCE)
    assert capsys.readouterr().err != ""


def test_ctrl_c_is_itself_again_after_a_run():
    with deferred_interrupts():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        raise_sigint(1)


# ---- process state ------------------------------------------------------------------------------


def change_everything() -> None:
    random.random()
    np.random.rand()
    torch.rand(1)
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    os.environ["PL_TEST"] = "1"
    warnings.simplefilter("ignore")


def look() -> dict[str, Any]:
    return {
        "rng": digest_rng(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "environment": os.environ.get("PL_TEST"),
        "filters": list(warnings.filters),
    }


@pytest.mark.parametrize("end", ["park", "return", "raise"])
def test_what_a_body_changes_is_not_seen_outside_and_found_again_inside(start, end):
    inside: list[dict[str, Any]] = []

    def body(worker: Worker) -> None:
        change_everything()
        inside.append(look())
        worker.park("parked")
        inside.append(look())
        if end == "raise":
            raise ValueError
        if end == "park":
            worker.park("again")

    before = look()
    worker = start(body, seed=4)
    assert look() == before
    worker.resume()
    assert look() == before
    worker.resume()
    assert look() == before
    assert inside[0] == inside[1]
    assert all(inside[0][item] != before[item] for item in before)


def test_what_changes_outside_is_not_seen_by_the_body(start):
    inside: list[dict[str, Any]] = []

    def body(worker: Worker) -> None:
        for _ in range(2):
            inside.append(look())
            worker.park("parked")

    worker = start(body)
    worker.resume()
    with warnings.catch_warnings():
        change_everything()
        worker.resume()
    assert inside[0] == inside[1]


def test_the_body_finds_generators_of_its_seed(start):
    found: list[dict[str, str]] = []
    worker = start(lambda w: found.append(digest_rng()), seed=11)
    worker.resume()
    assert found == [digest_rng_state(seeded_rng(11))]


def test_generators_can_be_set_between_turns(start):
    found: list[dict[str, str]] = []

    def body(worker: Worker) -> None:
        worker.park("parked")
        found.append(digest_rng())

    worker = start(body)
    worker.resume()
    worker.state.rng = seeded_rng(12)
    worker.resume()
    assert found == [digest_rng_state(seeded_rng(12))]


def test_the_default_device_reaches_the_body(start):
    found: list[str] = []
    with torch.device("meta"):
        worker = start(lambda w: found.append(torch.empty(1).device.type))
    worker.resume()
    assert found == ["meta"]
    assert torch.empty(1).device.type == "cpu"

"""Trainings in processes of their own that cost no imports: forked from one that has them all.

`Nursery` starts a process that imports everything and trains nothing, and then forks a child for
every training it is asked for. A child tells the updates it has done through a named pipe, so that
what it had said is known, however it dies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BEGUN = -1  # told before the first batch


@dataclass(slots=True)
class Child:
    """A training that runs in a process of its own."""

    pid: int
    told: Any  # its named pipe, to be read

    def hear(self) -> int | None:
        """The next thing it tells: `BEGUN`, or how many steps it has done; None at its end."""
        line = self.told.readline()
        return int(line) if line.endswith("\n") else None

    def rest(self) -> list[int]:
        """All that it tells from now on, until it has ended."""
        heard = []
        while (one := self.hear()) is not None:
            heard.append(one)
        self.told.close()
        return heard


class Nursery:
    """The process that forks trainings."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.callbacks.nursery import serve; serve()"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._living: Child | None = None
        assert self._hear() == "ready"

    def train(self, folder: Path, **order: Any) -> Child:
        """Begin a training; `order` is what `train_as_told` takes."""
        self._end()
        pipe = folder / "told.fifo"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        self._tell(order | {"pipe": str(pipe)})
        told = pipe.open()  # the nursery opens it too, before it forks
        self._living = Child(int(self._hear()), told)
        return self._living

    def status(self) -> int:
        """How the last child has ended: its exit code, or minus the signal that ended it."""
        self._living = None
        return int(self._hear())

    def close(self) -> None:
        """End the process, and a child that a failed test has left."""
        self._end()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def _end(self) -> None:
        if self._living is not None:
            os.kill(self._living.pid, signal.SIGKILL)  # not reaped yet: the number is still its own
            self.status()

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith("\n"), "the nursery has died"
        return line.strip()


def serve() -> None:
    """Fork a child for every order on stdin; tell its number, and how it ended."""
    warm_up()
    assert threading.active_count() == 1  # a fork keeps no other thread, but their locks
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        to = os.open(order.pop("pipe"), os.O_WRONLY)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                train_as_told(to, **order)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(to)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)  # torch takes seconds to leave


def warm_up() -> None:
    """Import what a training imports late. No backward: torch refuses one in a fork after it."""
    import torch

    from tests.callbacks.lasting import GoesOn
    from tests.callbacks.small import Small, make_trainer

    model = Small()
    optimizer = model.configure_optimizers()["optimizer"]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    make_trainer([])
    next(iter(GoesOn()))


def train_as_told(
    to: int, *, path: str, checkpoint: str, resume: bool, every: int, max_steps: int
) -> None:
    """Train with a recorder on `path`, save at the first step and every so many after it.

    What is told of a step, to the pipe `to`, comes after the checkpoint of it.
    """
    import logging
    import warnings

    import lightning.pytorch as pl
    import torch

    from tests.callbacks.lasting import GoesOn, recorder
    from tests.callbacks.small import Small, make_trainer

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)

    class Tells(pl.Callback):
        def on_train_start(self, *rest: Any) -> None:
            os.write(to, f"{BEGUN}\n".encode())

        def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
            if (trainer.global_step - 1) % every == 0:
                trainer.save_checkpoint(checkpoint)
            os.write(to, f"{trainer.global_step}\n".encode())

    trainer = make_trainer([recorder(Path(path)), Tells()], max_epochs=-1, max_steps=max_steps)
    trainer.fit(Small(), GoesOn(), ckpt_path=checkpoint if resume else None, weights_only=True)

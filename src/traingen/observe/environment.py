"""The facts of a run that its `run` line states: versions, source commit, devices, arguments."""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import torch

from traingen.observe.rng import cuda_is_initialized
from traingen.records import (
    DIGEST_ALGORITHM,
    FORMAT,
    OptimizerIdentity,
    RunRecord,
    SchedulerIdentity,
    new_run_id,
)

PACKAGES = ("traingen", "torch", "lightning", "numpy", "torchmetrics", "jsonargparse")
GIT_SECONDS = 10  # a repository on a slow disk must not hold a training up


def describe_run(
    *,
    observes: list[str],
    optimizers: list[OptimizerIdentity],
    schedulers: list[SchedulerIdentity],
    **facts: Any,
) -> RunRecord:
    """Return the `run` line of a new run; `facts` are fields the caller's loop knows."""
    known: dict[str, Any] = {
        "run_id": new_run_id(), "attempt": 1, "attempt_id": new_run_id(), "resumed": None,
        "system": None, "config": None, "seed": None, "seed_source": None, "clipping": None,
        "accumulation": None, "precision": None, "world_size": 1, "rank": 0, "callbacks": None,
        "loader": None, "training_path": None,
    }  # fmt: skip
    return RunRecord(
        format=FORMAT,
        argv=list(sys.argv),
        git=describe_git(),
        versions=describe_versions(),
        devices=describe_devices(),
        optimizers=optimizers,
        schedulers=schedulers,
        digest_algorithm=DIGEST_ALGORITHM,
        observes=observes,
        **(known | facts),
    )


def describe_versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide what training computes."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue  # not installed here, so it decides nothing
    return versions


def describe_devices() -> list[str]:
    """The processor, and each visible accelerator by name (none is initialized by asking)."""
    devices = [f"cpu: {platform.machine()}, {torch.get_num_threads()} threads"]
    if cuda_is_initialized():
        devices += [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return devices


def describe_git() -> dict[str, Any] | None:
    """Commit and a digest of uncommitted changes of the current directory; None outside of git."""
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return None
    difference = _git("diff", "HEAD") or ""
    return {
        "commit": commit.strip(),
        "dirty": hashlib.sha256(difference.encode()).hexdigest() if difference else None,
    }


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # no git, or it did not answer: the line says null
    return done.stdout if done.returncode == 0 else None

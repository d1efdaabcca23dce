"""The process-wide state that each system of a lockstep must find as it left it.

Two trainings in one process share the global generators, flags, paths and warning filters. Each
has its own copy of all of them; they are swapped in at its turn and out again after it.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch

from traingen.observe.rng import RngState, capture_rng, restore_rng

PREFIX = "PL_"  # Lightning keeps seeds and flags in the environment


@dataclass(slots=True, kw_only=True)
class ProcessState:
    """One moment of the process-wide state; `rng` may be replaced to seed a system."""

    rng: RngState
    dtype: torch.dtype
    deterministic: tuple[bool, bool]  # use_deterministic_algorithms, warn_only
    cudnn: tuple[bool, bool, bool]  # enabled, benchmark, deterministic
    environment: dict[str, str] = field(default_factory=dict)
    cwd: str
    argv: list[str]
    path: list[str]
    filters: Any  # `warnings.filters`, the list itself
    show: tuple[Any, Any]  # `warnings.showwarning` and its implementation


def capture_process_state() -> ProcessState:
    """Return the state now; lists are copies, except the warning filters."""
    cudnn = torch.backends.cudnn
    return ProcessState(
        rng=capture_rng(),
        dtype=torch.get_default_dtype(),
        deterministic=(
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        cudnn=(cudnn.enabled, cudnn.benchmark, cudnn.deterministic),
        environment={k: v for k, v in os.environ.items() if k.startswith(PREFIX)},
        cwd=os.getcwd(),
        argv=list(sys.argv),
        path=list(sys.path),
        filters=warnings.filters,
        show=(warnings.showwarning, warnings._showwarnmsg_impl),  # type: ignore[attr-defined]
    )


def restore_process_state(state: ProcessState) -> None:
    """Make the process be as it was at `state`."""
    restore_rng(state.rng)
    if torch.get_default_dtype() is not state.dtype:
        torch.set_default_dtype(state.dtype)
    enabled, warn_only = state.deterministic
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    cudnn = torch.backends.cudnn
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = state.cudnn
    _restore_environment(state.environment)
    if os.getcwd() != state.cwd:
        os.chdir(state.cwd)
    sys.argv[:] = state.argv
    sys.path[:] = state.path
    warnings.filters = state.filters
    warnings.showwarning, warnings._showwarnmsg_impl = state.show  # type: ignore[attr-defined]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def fresh_process_state(rng: RngState) -> ProcessState:
    """The state with which a system starts: as outside now, with its own lists and generators."""
    state = capture_process_state()
    state.rng = rng
    state.filters = list(warnings.filters)
    return state


def _restore_environment(wanted: dict[str, str]) -> None:
    for name in [n for n in os.environ if n.startswith(PREFIX) and n not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value

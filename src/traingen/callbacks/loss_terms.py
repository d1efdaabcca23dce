"""Hear the parts of a loss that a training step returns or logs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch

from traingen.observe.hooking import Remove, all_of, overlay

Deliver = Callable[[str, torch.Tensor], None]


def hear_terms(trainer: pl.Trainer, deliver: Deliver) -> Remove:
    """Hand every scalar that `training_step` logs or returns beside its loss to `deliver`.

    What is logged is handed on at once; what is returned when the step returns, unless the step
    has logged the same name. Logged by `self.log` and `self.log_dict`; metric objects are left out.

    Nothing is put on the module, which others copy: Lightning calls the step through its strategy
    (`Strategy.training_step`), and logs into the results of its loop (`_ResultCollection.log`).
    """
    logged: set[str] = set()

    def watch_step(call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            logged.clear()
            output = call(*args, **kwargs)
            for name, value in _returned(output).items():
                if name not in logged:
                    deliver(name, value)
            return output

        return wrapper

    def watch_log(log: Callable[..., Any]) -> Callable[..., Any]:
        def heard(fx: str, name: str, value: Any, *args: Any, **kwargs: Any) -> None:
            term = _scalar(value)
            if fx == "training_step" and term is not None:
                logged.add(name)
                deliver(name, term)
            log(fx, name, value, *args, **kwargs)

        return heard

    results = trainer.fit_loop.epoch_loop._results
    return all_of(
        [
            overlay(trainer.strategy, "training_step", watch_step),
            overlay(results, "log", watch_log),
        ]
    )


def _returned(output: Any) -> dict[str, torch.Tensor]:
    if not isinstance(output, Mapping):
        return {}
    terms = {name: _scalar(value) for name, value in output.items() if name != "loss"}
    return {str(name): term for name, term in terms.items() if term is not None}


def _scalar(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value.detach().reshape(()) if _is_scalar(value) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return torch.tensor(float(value), dtype=torch.float64)
    return None


def _is_scalar(value: torch.Tensor) -> bool:
    """Whether it holds one real number that can be read."""
    plain = value.layout is torch.strided and not value.is_nested and not value.is_meta
    return plain and value.numel() == 1 and not value.is_complex()

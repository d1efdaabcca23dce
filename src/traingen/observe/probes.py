"""Let users put state of their own into the record of every update, without touching the training.

A probe is anything with a name and a `read(module)`. The one called "sampler" fills the record's
`sampler` field (the timestep or importance sampler); all others go under `user`, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from traingen.errors import ConfigError
from traingen.observe.rng import capture_rng, digest_rng_state, restore_rng

SAMPLER = "sampler"
Read = tuple[dict[str, Any] | None, dict[str, Any] | None]  # fields `sampler` and `user`


@runtime_checkable
class StateProbe(Protocol):
    """Reads one piece of a training's state at the beginning of every update."""

    @property
    def name(self) -> str:
        """Under which the value is recorded."""

    def read(self, module: nn.Module) -> Any:
        """The value now: numbers, text, None, and lists and dicts of them.

        Tensors and arrays of no or one dimension become numbers and lists. `module` is the one
        that is trained; it must be left as it is, and no random number may be drawn.
        """


class ProbeReader:
    """Reads the same probes again and again, and now and then watches that they draw nothing.

    Torch's generator is watched at every read; all of them at the first, the second, the fourth
    and so on, because reading NumPy's costs more than the rest of a read. Raises ConfigError for
    `probes` that cannot be read.
    """

    def __init__(self, probes: Sequence[StateProbe]) -> None:
        check_probes(probes)
        self._probes = tuple(probes)
        self._reads = 0

    def read(self, module: nn.Module) -> Read:
        """As `read_probes`."""
        self._reads += 1
        watch = self._reads & (self._reads - 1) == 0
        return read_probes(self._probes, module, watch_draws=watch)


def check_probes(probes: Sequence[StateProbe]) -> None:
    """Raise ConfigError unless each has a `read` and a name of its own."""
    names: set[str] = set()
    for probe in probes:
        kind = type(probe).__name__
        if not isinstance(probe, StateProbe) or isinstance(probe, type):
            found = f"the class {probe.__name__}" if isinstance(probe, type) else f"a {kind}"
            raise ConfigError(
                f"probes: expected objects with 'name' and 'read(module)', got {found}."
            )
        if not isinstance(probe.name, str) or not probe.name:
            raise ConfigError(f"probes: the name of a {kind} must be text, got {probe.name!r}.")
        if probe.name in names:
            raise ConfigError(
                f"probes: two are called {probe.name!r}, and only one value can be recorded "
                "under it: rename one."
            )
        names.add(probe.name)


def read_probes(
    probes: Sequence[StateProbe], module: nn.Module, *, watch_draws: bool = True
) -> Read:
    """The values of the probe "sampler" and of all others by name; None where there is none.

    Args:
        probes: each with a name of its own.
        module: the one that is trained.
        watch_draws: compare the global random generators before and after (about 0.3 ms).

    Raises:
        ConfigError: a value is no JSON, the sampler's is no dict, or a probe drew random numbers;
            the generators are put back before that.
    """
    values = {probe.name: _read(probe, module, watch=watch_draws) for probe in probes}
    sampler = values.pop(SAMPLER, None)
    if sampler is not None and not isinstance(sampler, dict):
        raise ConfigError(
            f"probe 'sampler' must give a dict, got a {type(sampler).__name__}: "
            "name what it tells, as in {'branch': 'uniform'}."
        )
    return sampler, values or None


def _read(probe: StateProbe, module: nn.Module, *, watch: bool) -> Any:
    before = capture_rng() if watch else None
    stood = torch.get_rng_state()
    try:
        with torch.no_grad():
            value = probe.read(module)
    except Exception as error:
        error.add_note(f"raised by probe {probe.name!r} ({type(probe).__name__})")
        raise
    finally:
        drawn = [] if before is None else _put_back(before)
        if not torch.equal(stood, torch.get_rng_state()):
            torch.set_rng_state(stood)
            drawn = ["torch"]
    if drawn:
        raise ConfigError(
            f"probe {probe.name!r} ({type(probe).__name__}) drew random numbers from "
            f"{' and '.join(drawn)}, which changes the training: read what is there instead."
        )
    return _plain(value, where=f"probe {probe.name!r}")


def _put_back(before: Any) -> list[str]:
    """Put the generators back to `before`; the names of those that had moved."""
    stood, stand = digest_rng_state(before), digest_rng_state(capture_rng())
    moved = [name for name in stood if stood[name] != stand[name]]
    if moved:
        restore_rng(before)
    return moved


def _plain(value: Any, *, where: str) -> Any:
    """`value` as JSON has it; `where` names it in the error."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return _numbers(value, where=where)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is not None:
            raise ConfigError(
                f"{where}: keys must be text, got {odd!r}, a {type(odd).__name__}: use str(key)."
            )
        return {key: _plain(one, where=f"{where}.{key}") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, where=f"{where}[{place}]") for place, one in enumerate(value)]
    raise ConfigError(
        f"{where}: expected numbers, text, None, or lists and dicts of them, got a "
        f"{type(value).__name__}: convert it in 'read'."
    )


def _numbers(value: torch.Tensor | np.ndarray | np.generic, *, where: str) -> Any:
    """A tensor or array as a number or a list of numbers."""
    kind = type(value).__name__
    if value.ndim > 1:
        raise ConfigError(
            f"{where}: got a {kind} of shape {tuple(value.shape)}, expected at most one dimension: "
            "give its norm, its digest or the row that matters."
        )
    found = value.tolist()
    flat = found if isinstance(found, list) else [found]
    if not all(isinstance(one, str | bool | int | float) for one in flat):
        raise ConfigError(f"{where}: a {kind} of {value.dtype} holds no numbers that JSON has.")
    return found

"""The state of the global random generators: read it, put it back, seed it, name it by a digest."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

GENERATORS = ("python", "numpy", "torch")


def cuda_is_initialized() -> bool:
    """Whether this process uses CUDA already; asking does not initialize it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RngState:
    """All global generators at one moment; an independent copy."""

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch: Tensor  # uint8, the CPU generator
    cuda: tuple[Tensor, ...] = ()  # one per visible device, empty before CUDA is initialized

    def equals(self, other: RngState) -> bool:
        """Whether every later draw from both would be the same."""
        return digest_rng_state(self) == digest_rng_state(other)


def capture_rng() -> RngState:
    """Return a copy of the generators' states; nothing is drawn."""
    cuda: tuple[Tensor, ...] = ()
    if cuda_is_initialized():
        cuda = tuple(torch.cuda.get_rng_state_all())
    return RngState(
        python=random.getstate(),
        numpy=np.random.get_state(legacy=False),
        torch=torch.get_rng_state(),
        cuda=cuda,
    )


def restore_rng(state: RngState) -> None:
    """Put the generators back to `state`."""
    random.setstate(state.python)
    np.random.set_state(state.numpy)
    torch.set_rng_state(state.torch)
    if state.cuda:
        torch.cuda.set_rng_state_all(list(state.cuda))


def replay_draws(before: RngState, after: RngState) -> None:
    """Advance each generator that stands at `before` to `after`; leave the others alone."""
    here = capture_rng()
    found, expected = digest_rng_state(here), digest_rng_state(before)
    stand = {name: found[name] == expected[name] for name in GENERATORS}
    restore_rng(
        RngState(
            python=after.python if stand["python"] else here.python,
            numpy=after.numpy if stand["numpy"] else here.numpy,
            torch=after.torch if stand["torch"] else here.torch,
            cuda=after.cuda if stand["torch"] else here.cuda,
        )
    )


def seed_rng(seed: int) -> None:
    """Seed python, numpy and torch (CPU, and CUDA once initialized).

    `torch.default_generator` gives the stream of `torch.manual_seed` without its cost of
    formatting the Python stack for device generators that do not exist yet.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if cuda_is_initialized():
        torch.cuda.manual_seed_all(seed)


def seeded_rng(seed: int) -> RngState:
    """Return the state that `seed_rng(seed)` sets; the outside streams stay where they are."""
    outside = capture_rng()
    seed_rng(seed)
    state = capture_rng()
    restore_rng(outside)
    return state


def digest_rng(generators: Sequence[str] = GENERATORS) -> dict[str, str]:
    """SHA-256 of each named generator's state, hex; `torch` covers CUDA generators as well."""
    return {name: _DIGESTS[name](None) for name in generators}


def digest_rng_state(state: RngState) -> dict[str, str]:
    """The same of a captured state."""
    return {name: _DIGESTS[name](state) for name in GENERATORS}


def _digest_python(state: RngState | None) -> str:
    value = random.getstate() if state is None else state.python
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _digest_numpy(state: RngState | None) -> str:
    value: Any = np.random.get_state(legacy=False) if state is None else state.numpy
    inner = value["state"]
    tail = (inner["pos"], value["has_gauss"], value["gauss"])
    return hashlib.sha256(inner["key"].tobytes() + repr(tail).encode()).hexdigest()


def _digest_torch(state: RngState | None) -> str:
    if state is None:
        tensors = [torch.get_rng_state()]
        if cuda_is_initialized():
            tensors += torch.cuda.get_rng_state_all()
    else:
        tensors = [state.torch, *state.cuda]
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


_DIGESTS = {"python": _digest_python, "numpy": _digest_numpy, "torch": _digest_torch}

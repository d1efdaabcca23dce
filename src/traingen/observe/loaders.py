"""What a data loader is set to, where its sampler stands, and which samples a batch holds.

Nothing is iterated, and no length is asked for that a sampler of its own kind works out: both may
draw random numbers. Attributes are read as they lie in the object: no property is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from traingen.observe.optimizers import class_path

ID_KEYS = (
    "sample_id", "sample_ids", "id", "ids", "index", "indices", "idx",
)  # fmt: skip


def describe_loader(loader: Any) -> dict[str, Any]:
    """Workers, batch size and sampler of `loader`, for the `run` line; null where it has none.

    `batches` is the number of batches of an epoch on this rank, where torch's own samplers tell it.
    """
    sampler = _sampler_of(loader)
    batches = _attribute(loader, "batch_sampler")
    sizes = batches if _attribute(loader, "batch_size") is None else loader
    return {
        "num_workers": _int(_attribute(loader, "num_workers")),
        "batch_size": _int(_attribute(sizes, "batch_size")),
        "drop_last": _bool(_attribute(sizes, "drop_last")),
        "sampler": None if sampler is None else class_path(sampler),
        "sampler_seed": _seed_of(sampler),
        "batches": _count_batches(loader),
    }


def describe_sampler(loader: Any) -> dict[str, Any] | None:
    """The sampler of `loader` as it stands: class, seed and epoch; None if it has no sampler.

    `seed` is a distributed sampler's own, or what a random sampler's own generator was seeded with;
    a sampler without either draws from torch's global generator, and the record's `rng` tells.
    """
    sampler = _sampler_of(loader)
    if sampler is None:
        return None
    return {
        "class_path": class_path(sampler),
        "seed": _seed_of(sampler),
        "epoch": _int(_attribute(sampler, "epoch")),
    }


def sample_ids(batch: Any) -> list[int | str] | None:
    """The ids of the samples in `batch`, in its order; None if it does not say.

    They are looked for under `ID_KEYS`, in a mapping or in the fields of an object, and taken if
    they are integers or texts, one for each sample: as many as the first dimension of something
    else in the batch. On an accelerator this waits for the device.
    """
    parts = _parts(batch)
    for key in ID_KEYS:
        value = parts.get(key)
        size = _size(value)
        others = [_size(part) for name, part in parts.items() if name not in ID_KEYS]
        known = [one for one in others if one is not None]
        if size is not None and (size in known or not known):
            ids = _ids(value)
            if ids is not None:
                return ids
    return None


def _attribute(owner: Any, name: str) -> Any:
    """What `owner` itself holds under `name`; None if nothing."""
    return getattr(owner, "__dict__", {}).get(name)


def _sampler_of(loader: Any) -> Any:
    """What decides the order: the sampler in a BatchSampler, or a batch sampler of its own kind."""
    batches = _attribute(loader, "batch_sampler")
    if batches is None:
        return _attribute(loader, "sampler")
    inner = _attribute(batches, "sampler")
    return batches if inner is None else inner


def _seed_of(sampler: Any) -> int | None:
    if sampler is None:
        return None
    seed = _int(_attribute(sampler, "seed"))
    generator = _attribute(sampler, "generator")
    if seed is None and isinstance(generator, torch.Generator):
        return int(generator.initial_seed())
    return seed


def _count_batches(loader: Any) -> int | None:
    """Batches of an epoch; torch remembers who asks for the length of an iterable dataset."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    steps = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    parts = [loader, steps]
    if isinstance(steps, BatchSampler):
        parts.append(steps.sampler)
    return len(loader) if all(map(_has_plain_length, parts)) else None


def _has_plain_length(sized: Any) -> bool:
    """Whether its `__len__` is torch's own, which only computes."""
    module = getattr(getattr(type(sized), "__len__", None), "__module__", None) or ""
    return module.startswith("torch.utils.data.")


def _parts(batch: Any) -> dict[str, Any]:
    """The named parts of a batch: items of a mapping or what acts like one, fields of an object."""
    if isinstance(batch, torch.Tensor | np.ndarray | str | bytes):
        return {}
    if isinstance(batch, Mapping):
        return {key: value for key, value in batch.items() if isinstance(key, str)}
    names = getattr(batch, "_fields", None)  # of a named tuple
    if isinstance(batch, tuple) and isinstance(names, tuple):
        return dict(zip(names, batch, strict=False))
    if callable(getattr(type(batch), "keys", None)) and hasattr(type(batch), "__getitem__"):
        return {key: batch[key] for key in batch.keys() if isinstance(key, str)}  # noqa: SIM118
    slots = getattr(type(batch), "__slots__", ())
    slots = (slots,) if isinstance(slots, str) else slots
    held = {name: getattr(batch, name) for name in slots if hasattr(batch, name)}
    return held | dict(getattr(batch, "__dict__", {}))


def _size(value: Any) -> int | None:
    """The first dimension; None for what has none."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return int(value.shape[0]) if value.ndim else None
    return len(value) if isinstance(value, list | tuple) else None


def _ids(value: Any) -> list[int | str] | None:
    """`value` as ids; None if it is no row of integers or texts."""
    if isinstance(value, torch.Tensor):
        whole = not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)
        return value.tolist() if value.ndim == 1 and whole else None
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim == 1 and value.dtype.kind in "iuU" else None
    if isinstance(value, Sequence) and all(type(one) in (int, str) for one in value):
        return list(value)
    return None


def _int(value: Any) -> int | None:
    return value if type(value) is int else None


def _bool(value: Any) -> bool | None:
    return value if type(value) is bool else None

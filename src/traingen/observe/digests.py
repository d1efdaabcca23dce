"""Digests of tensors and of nested batches, the same for equal content wherever it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch


def digest_batch(batch: Any) -> str:
    """SHA-256, hex, of structure, dtypes, shapes and bytes of `batch`.

    Lists and tuples count as the same sequence, because collate functions differ in the choice;
    mappings are taken in sorted key order. Tensors are read on the CPU: on an accelerator this
    waits for the device.

    Raises:
        TypeError: something in `batch` has no content that could be digested.
    """
    digest = hashlib.sha256()
    for piece in _pieces(batch):
        digest.update(piece)
    return digest.hexdigest()


def combine_digests(digests: Iterable[str]) -> str:
    """One digest for the micro-batches of an update; that of a single one is its own."""
    several = list(digests)
    if len(several) == 1:
        return several[0]
    return hashlib.sha256("".join(several).encode()).hexdigest()


def _pieces(value: Any) -> Iterable[bytes]:
    if isinstance(value, torch.Tensor):
        yield from _tensor_pieces(value.detach().cpu())
    elif isinstance(value, np.ndarray):
        yield from _array_pieces(torch.from_numpy(np.array(value, order="C")))
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)};".encode()
        for key in sorted(value, key=repr):
            yield f"{key!r}:".encode()
            yield from _pieces(value[key])
    elif isinstance(value, list | tuple):
        yield f"sequence {len(value)};".encode()
        for item in value:
            yield from _pieces(item)
    elif value is None or isinstance(value, str | bytes | bool | int | float | np.generic):
        yield f"{type(value).__name__} {value!r};".encode()
    else:
        raise TypeError(
            f"batch holds a {type(value).__name__}, expected tensors, arrays, numbers or text in "
            "lists, tuples and mappings: convert it in collate_fn."
        )


def _tensor_pieces(tensor: torch.Tensor) -> Iterable[bytes]:
    """Of a sparse tensor its parts as they are stored, because reading must not coalesce it."""
    if tensor.layout is torch.sparse_coo:
        yield f"sparse {tuple(tensor.shape)};".encode()
        yield from _array_pieces(tensor._indices())
        yield from _array_pieces(tensor._values())
    elif tensor.layout in (torch.sparse_csr, torch.sparse_csc):
        rows = tensor.layout is torch.sparse_csr
        yield f"{tensor.layout} {tuple(tensor.shape)};".encode()
        yield from _array_pieces(tensor.crow_indices() if rows else tensor.ccol_indices())
        yield from _array_pieces(tensor.col_indices() if rows else tensor.row_indices())
        yield from _array_pieces(tensor.values())
    elif tensor.layout is torch.strided and not tensor.is_nested:
        yield from _array_pieces(tensor)
    else:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise TypeError(
            f"batch holds a tensor that is {kind}, expected one that is dense or sparse"
        )


def _array_pieces(tensor: torch.Tensor) -> Iterable[bytes]:
    yield f"tensor {tensor.dtype} {tuple(tensor.shape)};".encode()
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.numel():
        yield flat.view(torch.uint8).numpy().tobytes()

"""What an update was made of, as far as an attempt that makes it again should do so alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from traingen.records import UpdateRecord

RATES = ("lr", "hyper_parameters")
_VALUES = (
    "epoch",
    "batch_idx",
    "batch",
    "loss",
    "objective",
    "grad_norm",
    "parameters",
    "averages",
    "distance",
)
QUANTITIES = (*RATES, *_VALUES, "rng")  # the most telling first
RATE_RTOL = 1e-9  # a schedule that is computed another way may round otherwise
SHOWN = 24  # characters of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What is kept of an update until it may be made again; None and empty are not known."""

    lr: list[float]
    hyper_parameters: list[dict[str, Any]]
    epoch: int | None
    batch_idx: int | None
    batch: str | None  # digest
    loss: float | None
    objective: float | None
    grad_norm: float | None
    grad_norm_source: str | None
    parameters: str | None  # digest
    averages: int | None  # how often weights were averaged
    distance: float | None  # between the averaged weights and those that train
    rng: dict[str, str] | None
    micro_batches: int
    samples: int | None  # hash of the sample ids
    swapped: bool  # another scheduler had come in this attempt
    told: dict[str, str] | None = None  # which rates and batches were not those first made

    @property
    def first_batch(self) -> int | None:
        """Index of its first micro-batch in the epoch, negative if that lies in the one before."""
        return None if self.batch_idx is None else self.batch_idx + 1 - self.micro_batches


def keep_made(record: UpdateRecord, *, swapped: bool) -> Made:
    """Of `record` what is compared, and no more: it may hold norms of every parameter."""
    ids = record.batch.ids if record.batch else None
    return Made(
        lr=record.lr,
        hyper_parameters=record.hyper_parameters,
        epoch=record.epoch,
        batch_idx=record.batch_idx,
        batch=record.batch.digest if record.batch else None,
        loss=record.loss,
        objective=record.objective,
        grad_norm=record.grad_norm,
        grad_norm_source=record.grad_norm_source,
        parameters=record.parameters,
        averages=(record.ema or {}).get("updates"),
        distance=(record.ema or {}).get("distance"),
        rng=record.rng,
        micro_batches=record.micro_batches,
        samples=None if ids is None else hash(tuple(ids)),
        swapped=swapped,
    )


def tell_differences(before: Made, now: Made) -> dict[str, str]:
    """What of `now` is not as `before`, by quantity and the most telling first."""
    told = {"lr": _tell_rates(before.lr, now.lr)}
    told["hyper_parameters"] = _tell_options(before.hyper_parameters, now.hyper_parameters)
    for name in _VALUES:
        told[name] = _tell_value(name, getattr(before, name), getattr(now, name))
    if before.grad_norm_source != now.grad_norm_source:  # a clip's own norm is of float32
        told["grad_norm"] = ""
    told["rng"] = _tell_streams(before.rng or {}, now.rng or {})
    return {name: text for name, text in told.items() if text}


def has_other_data(before: Made, now: Made) -> bool:
    """Whether it may be of other samples; where they are known to be the same, they look other."""
    same = before.samples is not None and before.samples == now.samples
    return not same and tell_batches(before, now) != ""


def tell_batches(before: Made, now: Made) -> str:
    """Both digests, where they differ."""
    return _tell_value("batch", before.batch, now.batch)


def _tell_rates(before: list[float], now: list[float]) -> str:
    if not before or not now:
        return ""
    if len(before) != len(now):
        return f"lr of {len(before)} groups, then of {len(now)}"
    for group, (one, other) in enumerate(zip(before, now, strict=True)):
        if not _alike(one, other):
            return f"lr{_of_group(group, now)} {_pair(one, other)}"
    return ""


def _tell_options(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> str:
    """The first that moved; one that only one of the attempts has tells of another library."""
    for group, (one, other) in enumerate(zip(before, now, strict=False)):
        for name in [name for name in one if name in other]:
            if not _alike(one[name], other[name]):
                return f"{name}{_of_group(group, now)} {_pair(one[name], other[name])}"
    return ""


def _tell_value(name: str, before: Any, now: Any) -> str:
    if before is None or now is None or before == now or repr(before) == repr(now):
        return ""
    return f"{name} {_pair(before, now)}"


def _tell_streams(before: dict[str, str], now: dict[str, str]) -> str:
    moved = [name for name in now if name in before and now[name] != before[name]]
    return f"rng of {', '.join(moved)}" if moved else ""


def _of_group(group: int, groups: Sequence[object]) -> str:
    return f" of group {group}" if len(groups) > 1 else ""


def _alike(one: Any, other: Any) -> bool:
    """Equal, numbers but for rounding."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=RATE_RTOL) or repr(one) == repr(other)
    return bool(one == other)


def _pair(before: Any, now: Any) -> str:
    """Both values in few digits, or in all of them where they look the same otherwise."""
    if isinstance(before, float) and isinstance(now, float) and f"{before:.6g}" != f"{now:.6g}":
        return f"{before:.6g}, then {now:.6g}"
    return f"{_shown(before)}, then {_shown(now)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}…"

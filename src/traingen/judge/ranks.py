"""Whether the ranks of a run train one model."""

from __future__ import annotations

from collections.abc import Iterable

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.reading.opening import by_rank
from traingen.records import RankDisagreement

ONE_MODEL = (
    "lr",
    "hyper_parameters",
    "ticks",
    "grad_norm_clipped",
    "parameters",
)  # the most telling first


def judge_ranks(disagreements: Iterable[RankDisagreement]) -> list[Finding]:
    """What `disagreements` between ranks, as `RankMerger` has them, show of the model.

    That ranks are not equally long is none: one of them may have been killed.
    """
    found = [one for one in disagreements if one.field in ONE_MODEL and _is_known(one)]
    if not found:
        return []
    found.sort(key=lambda one: (ONE_MODEL.index(one.field), one.optimizer))
    return [kinds.RANKS.found("; ".join(map(_tell, found)))]


def _is_known(one: RankDisagreement) -> bool:
    """Whether two ranks have different values; of what a rank did not record nothing follows."""
    return len({repr(value) for value in one.values if value is not None}) > 1


def _tell(one: RankDisagreement) -> str:
    of_optimizer = f" of optimizer {one.optimizer}" if one.optimizer else ""
    updates = f"{one.count} updates" if one.count > 1 else "1 update"
    return (
        f"{one.field}{of_optimizer} differs in {updates}, first {one.update}: {by_rank(one.values)}"
    )

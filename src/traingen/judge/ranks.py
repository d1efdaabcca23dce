"""Whether the ranks of a run train one model."""

from __future__ import annotations

from collections.abc import Iterable

from traingen.compare.findings import Finding
from traingen.judge import kinds
from traingen.reading.opening import by_rank
from traingen.records import RankDisagreement

# the most telling first
ONE_MODEL = ("lr", "hyper_parameters", "ticks", "grad_norm_clipped", "parameters")


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
    return f"{one.field}{of_optimizer} differs in {updates}, first {one.update}: {_by_rank(one)}"


def _by_rank(one: RankDisagreement) -> str:
    """Each value with its ranks; of all hyper-parameters the first that they do not share."""
    known = [value for value in one.values if value is not None]
    if one.field != "hyper_parameters" or len(known) < len(one.values):
        return by_rank(one.values)
    for group, options in enumerate(zip(*known, strict=False)):
        for name in dict.fromkeys(name for each in options for name in each):
            values = [each.get(name, "none") for each in options]
            if len(set(map(repr, values))) > 1:
                return f"{name} of group {group} {by_rank(values)}"
    return by_rank(one.values)

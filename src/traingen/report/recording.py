"""One recording as plain text of at most 80 columns: as a whole, an update, a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch
from typing import Any

from traingen.compare.findings import Finding
from traingen.reading.opening import by_rank
from traingen.reading.overview import OptimizerOverview, Overview, Series
from traingen.reading.pace import Pace
from traingen.records import (
    EndRecord,
    EventRecord,
    LossSpread,
    Record,
    ResumeFacts,
    RunRecord,
    SchedulerIdentity,
    UpdateRecord,
)
from traingen.records.attempts import find_lineage
from traingen.report.layout import render_finding, shorten, wrap, wrap_each

NO_END = "no end line: still running or killed"
SHOWN_VERSIONS = ("torch", "lightning", "pytorch-lightning", "traingen")


# ---- as a whole ---------------------------------------------------------------------------------


def render_overview(overview: Overview, findings: Iterable[Finding], pace: Pace | None) -> str:
    """What ran, how it went, and what was found about it."""
    several = len(overview.optimizers) > 1
    lines = [*wrap("RECORDING  ", _headline(overview)), "", *_run(overview)]
    for index, optimizer in sorted(overview.optimizers.items()):
        if several:
            lines += ["", *wrap(f"optimizer {index}: ", f"{optimizer.updates} updates")]
        spread = None if overview.fit is None else overview.fit.merger.spreads.get(index)
        lines += [*([] if several else [""]), *_optimizer(optimizer, spread)]
    lines += [*_besides(overview), *_pace(pace)]
    for finding in findings:
        lines += ["", *render_finding(finding)]
    return "\n".join(lines)


def _headline(overview: Overview) -> str:
    end = overview.ledger.end
    merged = "" if overview.fit is None else f", {overview.fit.ranks} ranks merged"
    text = f"{overview.outline.file}{merged}: {overview.updates} updates, "
    if overview.fit is not None:
        if overview.fit.merger.unequal:
            text = text.removesuffix(", ") + " that all ranks have, "
        if len(set(overview.fit.ends)) > 1:
            return text + by_rank(overview.fit.ends)
    if end is None:
        return text + NO_END
    return text + end.reason + (f" ({end.message})" if end.message else "")


def _run(overview: Overview) -> Iterator[str]:
    run = overview.outline.run
    if run.system is not None:
        yield from wrap("system          ", run.system)
    yield from wrap_each("optimizer       ", _optimizers(run))
    schedulers = [_scheduler(identity, overview) for identity in run.schedulers]
    yield from wrap_each("scheduler       ", schedulers or ["none"])
    earlier = find_lineage(overview.outline.runs)[:-1]
    yield from wrap_each("before          ", _otherwise(earlier, run))
    yield from wrap_each("further fits    ", [_fit(event, run) for event in overview.fits])
    seed = "not known" if run.seed is None else f"{run.seed} ({run.seed_source or 'of the loop'})"
    yield from wrap("seed            ", seed)
    yield from wrap("setting         ", ", ".join(_setting(run, alone=overview.fit is None)))
    if run.git is not None:
        yield from wrap("git             ", _git(run.git))
    versions = [f"{name} {run.versions[name]}" for name in SHOWN_VERSIONS if name in run.versions]
    if versions:
        yield from wrap("versions        ", ", ".join(versions))
    yield from wrap_each("attempts        ", _attempts(overview))


def _optimizers(run: RunRecord) -> Iterator[str]:
    for one in run.optimizers:
        groups = "1 group" if one.groups == 1 else f"{one.groups} groups"
        yield f"{one.class_path}, {groups}, {one.parameters:,} parameters"


def _scheduler(identity: SchedulerIdentity, overview: Overview) -> str:
    """Which, and how often it was seen to tick."""
    text = identity.class_path + _cadence(identity)
    seen = overview.schedulers.get(identity.id)
    if seen is None or not seen.updates:
        return f"{text}: ticks not seen"
    return f"{text}: {seen.ticks} ticks over {seen.updates} updates"


def _otherwise(earlier: Iterable[RunRecord], last: RunRecord) -> Iterator[str]:
    """What attempts that the last one goes on from were trained with, and it is not."""
    now = {*_trained_with(last)}
    for run in earlier:
        others = [one for one in _trained_with(run) if one not in now]
        if others:
            yield f"attempt {run.attempt}: {'; '.join(others)}"


def _trained_with(run: RunRecord) -> Iterator[str]:
    yield from _optimizers(run)
    kinds = ((one.class_path, _cadence(one)) for one in run.schedulers)
    yield ", ".join(f"{path}{every}" for path, every in kinds) or "no scheduler"
    yield from _setting(run, alone=False)


def _fit(event: EventRecord, run: RunRecord) -> str:
    """Where another fit of the same trainer began, and what it trained with if with others."""
    details = event.details or {}
    text = f"fit {details.get('fit')} from update {event.update + 1} on"
    with_others = []
    for name, before in (("optimizers", run.optimizers), ("schedulers", run.schedulers)):
        now = details.get(name)
        if isinstance(now, list) and now != [one.class_path for one in before]:
            with_others.append(", ".join(map(str, now)) or f"no {name.removesuffix('s')}")
    return f"{text}: {'; '.join(with_others)}" if with_others else text


def _cadence(identity: SchedulerIdentity) -> str:
    if identity.interval is None:
        return ""
    every = "" if identity.frequency in (None, 1) else f"{identity.frequency} times "
    return f", every {every}{identity.interval}"


def _setting(run: RunRecord, *, alone: bool) -> Iterator[str]:
    yield f"precision {run.precision or 'not known'}"
    if run.accumulation is not None:
        yield f"accumulation {run.accumulation}"
    if run.clipping is None:
        yield "no clipping"
    else:
        value, kind = run.clipping.get("value"), run.clipping.get("algorithm", "norm")
        yield f"clipping to {value} by {kind}"
    if run.world_size > 1:
        yield f"rank {run.rank} of {run.world_size}" if alone else f"{run.world_size} ranks"
    yield ", ".join(dict.fromkeys(run.devices))


def _git(git: Mapping[str, Any]) -> str:
    commit = str(git.get("commit"))[:12]
    return f"{commit} with uncommitted changes" if git.get("diff") else commit


def _attempts(overview: Overview) -> Iterator[str]:
    outline, ledger = overview.outline, overview.ledger
    yield ", ".join(str(run.attempt) for run in outline.runs)
    for run in outline.runs:
        if run.resumed is not None:
            yield f"attempt {run.attempt} was {_resumed(run.resumed)}"
    for old in ledger.superseded:
        yield (
            f"superseded: updates {old.first} to {old.last} of optimizer {old.optimizer}, "
            f"attempt {old.attempt}"
        )
    for gap in ledger.missing:
        yield f"missing: updates {gap.first} to {gap.last} of optimizer {gap.optimizer}"
    if outline.fragments:
        yield f"torn lines within, each followed by a resume: {outline.fragments}"
    if outline.torn:
        yield f"a torn last line of {outline.torn} bytes: killed, or being written right now"


def _resumed(facts: ResumeFacts) -> str:
    """From which checkpoint: by updates, or by the loop's counter where it was not recorded."""
    done = ", ".join(
        f"{count} of optimizer {index}" if len(facts.updates) > 1 else str(count)
        for index, count in enumerate(facts.updates)
    )
    if not done:
        at = "" if facts.global_step is None else f" at global_step {facts.global_step}"
        return f"resumed{at}; updates before it were not recorded and are not counted"
    of_attempt = "" if facts.attempt is None else f", attempt {facts.attempt}"
    return f"resumed after update {done}{of_attempt}"


def _optimizer(seen: OptimizerOverview, spread: LossSpread | None) -> Iterator[str]:
    """The numbers of one optimizer's updates."""
    for name, series in (("loss", seen.loss), ("objective", seen.objective)):
        yield from wrap(f"{name:<16}", _series(series, of=seen.updates))
    yield from _spread(spread)
    yield from wrap("gradient norm   ", _series(seen.grad_norm, of=seen.updates))
    if seen.clip_known:
        share = seen.clipped / seen.clip_known
        yield from wrap(
            "clipped         ", f"{seen.clipped} of {seen.clip_known} updates ({share:.0%})"
        )
    yield from wrap("rate            ", f"first {_list(seen.lr_first)}, last {_list(seen.lr_last)}")
    batches = ", ".join(
        f"{count} in {times} updates" for count, times in sorted(seen.micro_batches.items())
    )
    yield from wrap("micro-batches   ", batches)
    if seen.amp_scale.known:
        yield from wrap("scaler          ", _series(seen.amp_scale, of=seen.updates))
    if seen.ema is not None:
        told = ", ".join(f"{key} {_shown(value)}" for key, value in seen.ema.items())
        yield from wrap("averaged        ", told)


def _spread(spread: LossSpread | None) -> Iterator[str]:
    """The loss of each rank on its own data, beside the mean that is shown."""
    if spread is None or not spread.nonfinite:
        return
    parts = []
    if spread.widest_at is not None:
        apart = max(spread.widest) - min(spread.widest)
        if apart == 0 and spread.updates > 1:
            parts.append("losses are equal at every update: have all ranks the same data?")
        else:
            parts.append(f"mean loss {by_rank(list(map(_shown, spread.means)))}")
            parts.append(f"{_shown(apart)} apart at most, at {spread.widest_at}")
    if any(spread.nonfinite):
        parts.append(f"updates with a loss that is NOT FINITE: {by_rank(spread.nonfinite)}")
    yield from wrap("by rank         ", "; ".join(parts))


def _series(series: Series, *, of: int) -> str:
    if not series.known:
        return "not recorded"
    parts = [f"first {_shown(series.first)}, last {_shown(series.last)}"]
    if series.least is not None:
        parts.append(f"least {_shown(series.least)} at {series.least_at}")
        parts.append(f"most {_shown(series.most)} at {series.most_at}")
    if series.nonfinite:
        parts.append(f"NOT FINITE in {series.nonfinite}, first at {series.nonfinite_at}")
    if series.known < of:
        parts.append(f"in {series.known} of {of} updates")
    return "; ".join(parts)


def _besides(overview: Overview) -> Iterator[str]:
    events = [f"{name} {count}" for name, count in sorted(overview.events.items())]
    yield from wrap("events          ", ", ".join(events) or "none")
    if overview.fit is not None:
        yield from wrap_each("ranks           ", overview.fit.tell())


def _pace(pace: Pace | None) -> Iterator[str]:
    if pace is None:
        return
    text = f"median {pace.median_seconds:.4g} s per update, {pace.total_seconds:.4g} s in all"
    if pace.wait_share is not None:
        text += f", {pace.wait_share:.0%} of it waiting for data"
    yield from wrap("time            ", text)


# ---- one update ---------------------------------------------------------------------------------


def render_fields(fields: Mapping[str, Any]) -> str:
    """One field on each line; a long value is cut."""
    width = min(max(map(len, fields), default=0), 40)
    return "\n".join(shorten(f"{name:<{width}}  {value}") for name, value in fields.items())


# ---- one line -----------------------------------------------------------------------------------


@singledispatch
def render_record(record: Record) -> str:
    """What one record says, on one line."""
    raise TypeError(f"no record: {type(record).__name__}")


@render_record.register
def _(record: UpdateRecord) -> str:
    parts = [f"update {record.update:>6}"]
    if record.optimizer:
        parts.append(f"optimizer {record.optimizer}")
    if record.epoch is not None:
        parts.append(f"epoch {record.epoch}")
    loss = record.objective if record.loss is None else record.loss
    if loss is not None:
        parts.append(f"{'objective' if record.loss is None else 'loss'} {_shown(loss)}")
    if record.grad_norm is not None:
        parts.append(f"norm {_shown(record.grad_norm)}" + _clip(record))
    parts.append(f"lr {_list(record.lr)}")
    return shorten("  ".join(parts))


@render_record.register
def _(record: RunRecord) -> str:
    began = "begins" if record.resumed is None else _resumed(record.resumed)
    system = f" of the {record.system}" if record.system else ""
    return shorten(f"run {record.run_id[:8]}{system}, attempt {record.attempt}: {began}")


@render_record.register
def _(record: EventRecord) -> str:
    details = ", ".join(f"{key} {_shown(value)}" for key, value in (record.details or {}).items())
    return shorten(f"event {record.event} after {record.update} updates: {details or 'no details'}")


@render_record.register
def _(record: EndRecord) -> str:
    message = f": {record.message}" if record.message else ""
    return shorten(f"end after {record.updates} updates: {record.reason}{message}")


def _clip(record: UpdateRecord) -> str:
    if not record.clipped:
        return ""
    norm = record.grad_norm_clipped
    return " clipped" if norm is None else f" clipped to {_shown(norm)}"


def _list(values: list[float]) -> str:
    return ", ".join(map(_shown, values)) or "none"


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""Format 1 as its JSON Schema states it is what the reader enforces, field by field."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from scripts.make_schemas import SCHEMAS, render_schema
from tests.records.samples import full_records, golden_records, resumed_records
from tests.schemas import schema_errors
from traingen.errors import RecordingError
from traingen.records import (
    EndRecord,
    EventRecord,
    Record,
    RunRecord,
    UpdateRecord,
    decode_line,
    encode_line,
)

ROOT = Path(__file__).parents[2]
SCHEMA_FILE = "docs/reference/recording.schema.json"
PAGE = (ROOT / "docs" / "reference" / "recording.md").read_text(encoding="utf-8")
SCHEMA = SCHEMAS[SCHEMA_FILE]()
KINDS = (RunRecord, UpdateRecord, EventRecord, EndRecord)
WRONG = [None, True, 0.5, -1, 7, "x", "NaN", [], {}, [["x"]], [None], {"x": {"y": 1}}, [{"x": 0}]]
TAKES_ANYTHING = {  # what stands in these is the loop's own
    "config", "git", "clipping", "loader", "hyper_parameters", "sampler", "data_sampler", "ema",
    "details", "user",
}  # fmt: skip

At = tuple[str | int, ...]  # the way to a value in a line


def fields_of(record: Record) -> dict[str, Any]:
    """The line of `record` as JSON, without its crc."""
    fields: dict[str, Any] = json.loads(encode_line(record))
    del fields["crc"]
    return fields


def sign(fields: dict[str, Any]) -> bytes:
    """A line with a right crc, made without the codec."""
    body = msgspec.json.encode(fields)[:-1]
    return body + f',"crc":"{zlib.crc32(body):08x}"}}\n'.encode()


def iter_typed(kind: inspect.Type, value: Any, at: At = ()) -> Iterator[tuple[At, bool]]:
    """The way to every value below `value` whose type the format states, and if it is required."""
    if isinstance(kind, inspect.UnionType):
        for member in kind.types:
            if not isinstance(member, inspect.NoneType):
                yield from iter_typed(member, value, at)
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        for field in kind.fields:
            if field.name in value:
                yield (*at, field.name), field.required
                yield from iter_typed(field.type, value[field.name], (*at, field.name))
    elif isinstance(kind, inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield (*at, index), False
            yield from iter_typed(kind.item_type, item, (*at, index))
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict):
        for name, item in value.items():
            yield (*at, name), False
            yield from iter_typed(kind.value_type, item, (*at, name))


def change(fields: dict[str, Any], at: At, *value: Any) -> dict[str, Any]:
    """A copy of `fields` with the value at `at` replaced, or without it if none is given."""
    copy: Any = json.loads(json.dumps(fields))
    holder = copy
    for step in at[:-1]:
        holder = holder[step]
    if value:
        holder[at[-1]] = value[0]
    else:
        del holder[at[-1]]
    return copy  # type: ignore[no-any-return]


def reader_refuses(fields: dict[str, Any]) -> bool:
    try:
        decode_line(sign(fields), where="x:1")
    except RecordingError:
        return True
    return False


def schema_refuses(fields: dict[str, Any]) -> bool:
    return bool(schema_errors(json.loads(sign(fields)), SCHEMA))


PLACES = [
    pytest.param(fields_of(record), at, required, id=f"{kind.__name__}.{'.'.join(map(str, at))}")
    for record in full_records()
    for kind in [type(record)]
    for at, required in iter_typed(inspect.type_info(kind), fields_of(record))
]
REQUIRED = [pytest.param(p.values[0], p.values[1], id=p.id) for p in PLACES if p.values[2]]


def test_the_committed_schema_is_that_of_the_records() -> None:
    assert (ROOT / SCHEMA_FILE).read_text(encoding="utf-8") == render_schema(SCHEMA_FILE)


@pytest.mark.parametrize("records", [full_records(), golden_records(), *resumed_records()], ids=len)
def test_what_is_written_fits_the_schema(records: list[Record]) -> None:
    for record in records:
        assert schema_errors(json.loads(encode_line(record)), SCHEMA) == []


def test_the_lines_that_are_changed_below_hold_every_field_of_the_format() -> None:
    """Otherwise what follows would leave fields out: nothing is null, no list is empty."""
    names = {part["title"] for part in SCHEMA["$defs"].values()}
    reached = set()
    for param in PLACES:
        at = [step for step in param.values[1] if isinstance(step, str)]
        reached.add((param.id.split(".")[0], *at))
    for kind in KINDS:
        for field in msgspec.structs.fields(kind):
            assert field.name == "unknown" or (kind.__name__, field.name) in reached
    inner = {
        ("RunRecord", "resumed", "updates"), ("RunRecord", "optimizers", "index"),
        ("RunRecord", "schedulers", "interval"), ("UpdateRecord", "batch", "ids"),
        ("UpdateRecord", "closure", "evaluations"), ("UpdateRecord", "scheduler", "ticks"),
        ("UpdateRecord", "shard", "grad_norm_squared"), ("EndRecord", "scheduler", "ticks"),
    }  # fmt: skip
    assert inner <= reached
    assert names == {kind.__name__ for kind in KINDS} | {
        "BatchFacts", "ClosureFacts", "OptimizerIdentity", "ResumeFacts", "SchedulerIdentity",
        "SchedulerState", "ShardFacts",
    }  # fmt: skip


@pytest.mark.parametrize(("fields", "at"), REQUIRED)
def test_a_line_without_one_required_field_is_refused(fields: dict[str, Any], at: At) -> None:
    assert not reader_refuses(fields) and not schema_refuses(fields)
    less = change(fields, at)
    assert reader_refuses(less) and schema_refuses(less)


@pytest.mark.parametrize(("fields", "at", "required"), PLACES)
def test_a_retyped_value_is_refused_by_reader_and_schema_alike(
    fields: dict[str, Any], at: At, required: bool
) -> None:
    refused = 0
    for wrong in WRONG:
        other = change(fields, at, wrong)
        assert reader_refuses(other) == schema_refuses(other), wrong
        refused += reader_refuses(other)
    assert refused or (at[0] in TAKES_ANYTHING and len(at) > 1)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.just(0.5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.sampled_from(PLACES), anything)
def test_reader_and_schema_agree_on_any_value_anywhere(place: Any, value: Any) -> None:
    other = change(place.values[0], place.values[1], value)
    assert reader_refuses(other) == schema_refuses(other)


def test_reader_and_schema_both_let_unknown_fields_pass() -> None:
    for record in full_records():
        more = fields_of(record) | {"temperature": [61.5]}
        assert not reader_refuses(more) and not schema_refuses(more)


# ---- the page -----------------------------------------------------------------------------------


def section(title: str) -> str:
    """The part of the page under the heading `title`."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", sorted(SCHEMA["$defs"]))
def test_the_page_names_every_field_with_its_meaning(name: str) -> None:
    part = SCHEMA["$defs"][name]
    heading = part["properties"].get("kind", {}).get("enum", [name])[0]
    table = section(f"`{heading}`").partition("| --- | --- |\n")[2].partition("\n\n")[0]
    rows = dict(row.strip("| ").split(" | ", 1) for row in table.splitlines())
    fields = [field for field in part["properties"] if field not in ("kind", "crc", "user")]
    assert [name.strip("`") for name in rows] == fields
    assert all(len(meaning.strip()) > 3 for meaning in rows.values())


@pytest.mark.parametrize(
    "event",
    [
        "skipped_step", "counted_without_update", "uncounted_update", "optimizer_found",
        "clip_without_gradients", "clip_within_window", "clip_on_scaled_gradients",
        "scheduler_swapped", "averaging", "validation", "checkpoint", "segment",
        "batch_not_digested", "batch_norm_epoch", "batch_norm_epoch_end",
    ],
)  # fmt: skip
def test_the_page_names_every_event(event: str) -> None:
    assert f"\n| `{event}` | " in section("`event`")

"""A record and its line: what is written comes back, and damage never passes."""

import json
import math
import re
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from tests.records.samples import golden_records, make_end, make_event, make_run, make_update
from traingen.errors import RecordingError
from traingen.records import (
    FORMAT,
    EndRecord,
    EventRecord,
    Record,
    RunRecord,
    SchedulerState,
    UpdateRecord,
    decode_line,
    encode_line,
)

KINDS: list[type[Record]] = [RunRecord, UpdateRecord, EventRecord, EndRecord]
REQUIRED = [
    (make(), field.name)
    for make in (make_run, make_update, make_event, make_end)
    for field in msgspec.structs.fields(type(make()))
    if field.required
]
NAMES = [f"{type(record).__name__}.{name}" for record, name in REQUIRED]
NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def sign(fields: dict[str, Any]) -> bytes:
    """A line with a right crc, made without the codec."""
    body = msgspec.json.encode(fields)[:-1]
    return body + f',"crc":"{zlib.crc32(body):08x}"}}\n'.encode()


def open_line(line: bytes) -> dict[str, Any]:
    fields = json.loads(line)
    del fields["crc"]
    return fields


# ---- what hypothesis writes ---------------------------------------------------------------------

text = st.text(max_size=8).filter(lambda word: word not in NONFINITE)
integers = st.integers(-(2**70), 2**70)


def json_values(floats: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | integers | floats | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=5,
    )


def values_of(kind: inspect.Type, floats: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    """Values of a schema type; `floats` for Any, every float for a number-typed field."""
    if isinstance(kind, inspect.IntType):
        return st.integers(min_value=kind.ge, max_value=2**70)
    if isinstance(kind, inspect.UnionType):
        return st.one_of([values_of(member, floats) for member in kind.types])
    if isinstance(kind, inspect.LiteralType):
        return st.sampled_from(kind.values)
    if isinstance(kind, inspect.ListType):
        return st.lists(values_of(kind.item_type, floats), max_size=3)
    if isinstance(kind, inspect.DictType):
        return st.dictionaries(text, values_of(kind.value_type, floats), max_size=3)
    if isinstance(kind, inspect.StructType):
        return structs(kind.cls, floats)
    return {
        inspect.FloatType: st.floats(),
        inspect.StrType: text,
        inspect.BoolType: st.booleans(),
        inspect.NoneType: st.none(),
        inspect.AnyType: json_values(floats),
    }[type(kind)]


def structs(struct: type, floats: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    taken = {field.name for field in info.fields} | {"kind", "crc"}
    fields = {f.name: values_of(f.type, floats) for f in info.fields if f.name != "unknown"}
    names = text.filter(lambda name: name not in taken) | st.just("unknown")
    fields["unknown"] = st.dictionaries(names, json_values(floats), max_size=2)
    if "format" in fields:
        fields["format"] = st.just(FORMAT)
    return st.builds(struct, **fields)


def any_record(floats: st.SearchStrategy[float]) -> st.SearchStrategy[Record]:
    return st.one_of([structs(kind, floats) for kind in KINDS])


finite = st.floats(allow_nan=False, allow_infinity=False)


# ---- round trips --------------------------------------------------------------------------------


@given(any_record(finite))
def test_every_record_comes_back_equal(record: Record) -> None:
    # repr, because NaN in a number field must come back as NaN
    assert repr(decode_line(encode_line(record), where="x:1")) == repr(record)


@given(any_record(st.floats()))
def test_every_line_is_strict_json_and_encodes_the_same_again(record: Record) -> None:
    line = encode_line(record)
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert line.count(b"\n") == 1
    assert encode_line(decode_line(line, where="x:1")) == line


@given(any_record(st.floats()))
def test_the_crc_is_last_and_of_the_bytes_before_it(record: Record) -> None:
    line = encode_line(record)
    body, crc = line[:-19], line[-19:]
    assert re.fullmatch(rb',"crc":"[0-9a-f]{8}"}\n', crc)
    assert int(crc[8:16], 16) == zlib.crc32(body)


@pytest.mark.parametrize("record", golden_records())
def test_fields_stand_in_schema_order_between_kind_and_crc(record: Record) -> None:
    names = list(json.loads(encode_line(record)))
    schema = [n for n in record.__struct_fields__ if n not in ("user", "unknown")]
    assert [n for n in names if n != "user"] == ["kind", *schema, "crc"]


@pytest.mark.parametrize("name", NONFINITE)
def test_nonfinite_numbers_are_named_in_every_number_field(name: str) -> None:
    x = NONFINITE[name]
    record = make_update(
        loss=x,
        loss_terms={"a": x},
        objective=x,
        divisor=x,
        grad_norm=x,
        grad_norm_clipped=x,
        lr=[x, 0.5],
        amp_scale=x,
        hyper_parameters=[{"eps": x, "betas": [x, 0.5]}],
        ema={"class_path": "Ema", "distance": x},
    )
    line = encode_line(record)
    assert line.count(f'"{name}"'.encode()) == 11
    assert repr(decode_line(line, where="x:1")) == repr(record)


@pytest.mark.parametrize("name", NONFINITE)
def test_counters_of_schedulers_may_be_no_finite_number(name: str) -> None:
    states = [SchedulerState(id=0, last_epoch=NONFINITE[name], ticks=1)]
    for record in (make_update(scheduler=states), make_end(scheduler=states)):
        assert repr(decode_line(encode_line(record), where="x:1")) == repr(record)


def test_an_optimizer_is_counted_from_0() -> None:
    with pytest.raises(RecordingError, match="'optimizer' must be an integer of at least 0"):
        decode_line(encode_line(make_update(optimizer=-1)), where="x:1")


def test_names_of_numbers_stay_text_where_text_stands() -> None:
    record = make_update(
        user={"a": math.nan}, sampler={"weights": [math.inf]}, rng={"torch": "NaN"}
    )
    back = decode_line(encode_line(record), where="x:1")
    assert isinstance(back, UpdateRecord)
    assert (back.user, back.sampler) == ({"a": "NaN"}, {"weights": ["Infinity"]})
    assert back.rng == {"torch": "NaN"}


def test_a_nonfinite_number_hidden_in_another_object_is_named_too() -> None:
    class Weird(float):
        pass

    class Options(msgspec.Struct):
        limit: float

    line = encode_line(make_run(config={"a": Weird("nan"), "b": Options(limit=-math.inf), 3: (1,)}))
    assert b'"config":{"a":"NaN","b":{"limit":"-Infinity"},"3":[1]}' in line


def test_undecodable_arguments_are_escaped_instead_of_ending_the_run() -> None:
    back = decode_line(encode_line(make_run(argv=["a\udc80b", "ü"])), where="x:1")
    assert isinstance(back, RunRecord)
    assert back.argv == ["a\\udc80b", "ü"]


def test_a_value_without_json_form_is_refused() -> None:
    with pytest.raises(RecordingError, match="RunRecord cannot be written as JSON"):
        encode_line(make_run(config={"model": object()}))


def test_a_value_nested_too_deep_is_refused_on_both_ways() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(RecordingError, match="RunRecord cannot be written as JSON: it is nested"):
        encode_line(make_run(config=deep))
    for depth in (600, 900, 5000):
        body = encode_line(make_update())[:-19].replace(
            b'"lr":[0.001]', b'"lr":["NaN",' + b"[" * depth + b"]" * depth + b"]"
        )
        with pytest.raises(RecordingError, match="x:1: "):
            decode_line(body + b',"crc":"%08x"}\n' % zlib.crc32(body), where="x:1")


# ---- unknown fields -----------------------------------------------------------------------------


def test_unknown_fields_are_kept_and_written_again_byte_for_byte() -> None:
    fields = open_line(encode_line(make_update(user={"probe": 1})))
    fields["scheduler"][0]["phase"] = "warm"
    line = sign(fields | {"unknown": [1], "gpu": {"temperature": 61.5}, "a": None})
    record = decode_line(line, where="x:1")
    assert record.unknown == {"unknown": [1], "gpu": {"temperature": 61.5}, "a": None}
    assert encode_line(record) == line


def test_unknown_may_not_stand_in_for_a_known_field() -> None:
    with pytest.raises(RecordingError, match="'loss'"):
        encode_line(make_update(unknown={"loss": 1.0}))


# ---- damage -------------------------------------------------------------------------------------


@given(st.sampled_from(golden_records()), st.data())
def test_one_flipped_bit_is_always_found(record: Record, data: st.DataObject) -> None:
    line = bytearray(encode_line(record))
    position = data.draw(st.integers(0, len(line) - 1))
    line[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordingError, match=r"^updates\.jsonl:4: "):
        decode_line(bytes(line), where="updates.jsonl:4")


@pytest.mark.parametrize("line", [b"", b"\n", b"{}\n", b"hello\n", b'[1],"crc":"00000000"}\n'])
def test_a_line_without_crc_is_refused(line: bytes) -> None:
    with pytest.raises(RecordingError, match="crc"):
        decode_line(line, where="x:1")


@pytest.mark.parametrize(
    "body", [b'{"kind"', b'{"kind":NaN', b'{"a":"\xff"', b'{"a":' + b"[" * 9999]
)
def test_a_line_that_is_signed_but_no_json_is_refused(body: bytes) -> None:
    line = body + b',"crc":"%08x"}\n' % zlib.crc32(body)
    with pytest.raises(RecordingError, match="x:1: a line must be one strict JSON object"):
        decode_line(line, where="x:1")


@pytest.mark.parametrize(("record", "name"), REQUIRED, ids=NAMES)
def test_a_missing_field_is_refused(record: Record, name: str) -> None:
    fields = open_line(encode_line(record))
    del fields[name]
    with pytest.raises(RecordingError, match=f"x:1: '{name}' is missing"):
        decode_line(sign(fields), where="x:1")


@pytest.mark.parametrize("wrong", [[[["x"]]], {"x": {"x": [{}]}}, 0.5, True, "x", None])
@pytest.mark.parametrize(("record", "name"), REQUIRED, ids=NAMES)
def test_a_retyped_field_is_refused(record: Record, name: str, wrong: object) -> None:
    fields = open_line(encode_line(record)) | {name: wrong}
    try:
        msgspec.convert(wrong, {f.name: f.type for f in msgspec.structs.fields(record)}[name])
    except msgspec.ValidationError:
        with pytest.raises(RecordingError, match=f"x:1: '{name}' must be .*, got "):
            decode_line(sign(fields), where="x:1")
    else:
        assert wrong != [[["x"]]], "no field takes this one"
        decode_line(sign(fields), where="x:1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": "0.1"}, "'lr' must be a list of numbers, got \"0.1\"."),
        ({"lr": ["nan"]}, "'lr' must be a list of numbers, got [\"nan\"]."),
        ({"update": 0}, "'update' must be an integer of at least 1, got 0."),
        ({"divisor": "x"}, "'divisor' must be a number or null, got \"x\"."),
        ({"user": 1}, "'user' must be an object or null, got 1."),
        (
            {"scheduler": [{"id": 0}]},
            "'scheduler' must be a list of objects with id, last_epoch, ticks or null, "
            'got [{"id":0}].',
        ),
        (
            {"grad_norm_source": "guess"},
            '\'grad_norm_source\' must be "clip" or "measured" or null, got "guess".',
        ),
    ],
)
def test_an_error_says_where_expected_and_found(changes: dict[str, Any], message: str) -> None:
    line = sign(open_line(encode_line(make_update())) | changes)
    with pytest.raises(RecordingError) as caught:
        decode_line(line, where="updates.jsonl:418")
    assert str(caught.value) == f"updates.jsonl:418: {message}"


def test_a_long_found_value_is_cut() -> None:
    line = sign(open_line(encode_line(make_update())) | {"lr": ["x" * 999]})
    with pytest.raises(RecordingError) as caught:
        decode_line(line, where="updates.jsonl:418")
    assert len(str(caught.value)) <= 160


@pytest.mark.parametrize("kind", ["checkpoint", None, 3, "", ["run"]])
def test_an_unknown_kind_is_refused(kind: object) -> None:
    line = sign(open_line(encode_line(make_event())) | {"kind": kind})
    with pytest.raises(RecordingError, match="x:1: 'kind' must be run, update, event or end"):
        decode_line(line, where="x:1")


def test_a_higher_format_is_refused_before_its_fields_are_read() -> None:
    line = sign({"kind": "run", "format": 2, "attempts": []})
    with pytest.raises(RecordingError, match="'format' must be at most 1, got 2"):
        decode_line(line, where="x:1")


def test_parts_may_be_null_where_the_schema_says_so() -> None:
    record = make_update(scheduler=[SchedulerState(id=0, last_epoch=None, ticks=2)], batch=None)
    assert decode_line(encode_line(record), where="x:1") == record

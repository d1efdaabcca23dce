"""One record to one line of strict JSON and back.

A line is `{"kind":…,<known fields>,<user>,<unknown fields>,"crc":"<8 hex digits>"}` and a newline.
The crc is zlib.crc32 over the bytes before `,"crc"`.
"""

import math
import re
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec

from traingen.errors import RecordingError
from traingen.records._describe import describe_type, render_found
from traingen.records.schema import (
    FORMAT,
    BatchFacts,
    ClosureFacts,
    EndRecord,
    EventRecord,
    OptimizerIdentity,
    Record,
    ResumeFacts,
    RunRecord,
    SchedulerIdentity,
    SchedulerState,
    ShardFacts,
    UpdateRecord,
)

_LINE = re.compile(rb'(\{.*),"crc":"([0-9a-f]{8})"\}\n?', re.DOTALL)
_END = re.compile(rb',"crc":"[0-9a-f]{8}"\}\n?\Z')
_END_LENGTH = len(b',"crc":"01234567"}\n')
_KINDS: dict[str, type[Record]] = {
    "run": RunRecord,
    "update": UpdateRecord,
    "event": EventRecord,
    "end": EndRecord,
}
_FIELDS: dict[type[msgspec.Struct], frozenset[str]] = {
    struct: frozenset(struct.__struct_fields__) - {"unknown"}
    for struct in (
        *_KINDS.values(),
        SchedulerState,
        SchedulerIdentity,
        OptimizerIdentity,
        BatchFacts,
        ResumeFacts,
        ClosureFacts,
        ShardFacts,
    )
}
_KNOWN = {
    struct: fields | {"kind"} if struct in _KINDS.values() else fields
    for struct, fields in _FIELDS.items()
}
_PARTS: dict[type[Record], dict[str, type[msgspec.Struct]]] = {
    RunRecord: {
        "optimizers": OptimizerIdentity,
        "schedulers": SchedulerIdentity,
        "resumed": ResumeFacts,
    },
    UpdateRecord: {
        "scheduler": SchedulerState,
        "batch": BatchFacts,
        "closure": ClosureFacts,
        "shard": ShardFacts,
    },
    EventRecord: {},
    EndRecord: {"scheduler": SchedulerState},
}
_NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBERS = (
    "loss", "objective", "divisor", "grad_norm", "grad_norm_clipped", "clip_coefficient",
    "amp_scale",
)  # fmt: skip
_NUMBERS_INSIDE = (
    "micro_losses", "loss_terms", "closure", "shard", "lr", "hyper_parameters", "ema",
    "layer_norms", "update_ratios", "moment_norms",
)  # fmt: skip
_OBJECT: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])
_SAFE = frozenset({str, int, bool, type(None)})


def encode_line(record: Record) -> bytes:
    """The line of `record`, newline included.

    Non-finite floats become "NaN", "Infinity" or "-Infinity" wherever they stand; lone surrogates
    (undecodable bytes in argv), which JSON text cannot hold, become backslash escapes. `user` is
    left out when None. Raises RecordingError for a value that JSON has no form for.
    """
    body = _encode_body(record)[:-1]
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def decode_line(line: bytes, *, where: str) -> Record:
    """The record on `line`, whose final newline may be missing; `where` opens every error.

    The crc is checked first, on the bytes as they are. Names of non-finite numbers turn back into
    floats only where numbers stand; elsewhere they stay text, and tuples come back as lists.
    Raises RecordingError for a damaged line, an unknown kind, a higher format, and a required
    field that is missing or of another type.
    """
    try:
        return _decode(line, where=where)
    except RecursionError as error:
        raise RecordingError(f"{where}: a line must not be nested this deep.") from error


def ends_like_line(line: bytes) -> bool:
    """Whether `line` has the end of a whole line, right or damaged; its newline may be missing."""
    return _END.search(line, max(len(line) - _END_LENGTH, 0)) is not None


def _decode(line: bytes, *, where: str) -> Record:
    raw = _parse(_check_crc(line, where=where), where=where)
    kind = raw.get("kind")
    struct = _KINDS.get(kind) if isinstance(kind, str) else None
    if struct is None:
        raise RecordingError(
            f"{where}: 'kind' must be run, update, event or end, got {render_found(kind)}: "
            f"written by a newer traingen? Upgrade to read it."
        )
    if struct is RunRecord:
        _check_format(raw.get("format"), where=where)
    if b'"NaN"' in line or b'Infinity"' in line:
        if struct is UpdateRecord:
            _revive_numbers(raw)
        if struct in (UpdateRecord, EndRecord):
            _revive_epochs(raw.get("scheduler"))
    return _convert(raw, struct, where=where)


def _encode_body(record: Record) -> bytes:
    try:
        if _is_plain((record,)):
            return msgspec.json.encode(record)
    except (UnicodeEncodeError, RecursionError):  # a lone surrogate is escaped by the careful way
        pass
    try:
        return msgspec.json.encode(plain_json(record))
    except TypeError as error:
        name = type(record).__name__
        raise RecordingError(
            f"{name} cannot be written as JSON: {error}. Use numbers, text, lists, dicts or None."
        ) from error
    except RecursionError as error:
        name = type(record).__name__
        raise RecordingError(f"{name} cannot be written as JSON: it is nested too deep.") from error


def _is_plain(values: Iterable[Any]) -> bool:
    """Whether msgspec writes all of `values` as format 1 wants them, which is the usual case."""
    for value in values:
        kind = type(value)
        if kind in _SAFE:
            continue
        if kind is float:
            plain = math.isfinite(value)
        elif kind is dict:
            plain = set(map(type, value)) <= {str} and _is_plain(value.values())
        elif kind is list or kind is tuple:
            plain = set(map(type, value)) <= _SAFE or _is_plain(value)
        elif kind in _FIELDS:
            plain = not value.unknown and _is_plain(msgspec.structs.astuple(value))
        else:
            plain = False
        if not plain:
            return False
    return True


def plain_json(value: Any) -> Any:
    """A copy of `value` of exact JSON types, non-finite floats named, `unknown` laid open."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _name_nonfinite(value)
    if isinstance(value, dict):
        return {_to_key(key): plain_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item) for item in value]
    if type(value) in _FIELDS:
        return _lay_open(value)
    return plain_json(msgspec.to_builtins(value))


def _to_key(key: Any) -> str:
    if isinstance(key, (str, int, float)) and not isinstance(key, bool):
        return str(plain_json(key))
    raise TypeError(f"a key is of type {type(key).__name__}")


def _name_nonfinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _lay_open(struct: Any) -> dict[str, Any]:
    """The fields of `struct` in file order, then its unknown ones."""
    tag = type(struct).__struct_config__.tag
    plain: dict[str, Any] = {} if tag is None else {"kind": tag}
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if name != "unknown" and not (name == "user" and value is None):
            plain[name] = plain_json(value)
    unknown: dict[str, Any] = plain_json(struct.unknown)
    taken = _FIELDS[type(struct)] | (frozenset() if tag is None else {"kind", "crc"})
    clash = [name for name in unknown if name in taken]
    if clash:
        raise RecordingError(
            f"{type(struct).__name__}.unknown holds {clash[0]!r}, a field of format {FORMAT}: "
            f"set the field itself."
        )
    return plain | unknown


def _check_crc(line: bytes, *, where: str) -> bytes:
    """The JSON object of `line` without its crc."""
    match = _LINE.fullmatch(line)
    if match is None:
        raise RecordingError(
            f'{where}: a line must end in "crc":"<8 hex digits>"}}, got '
            f"{render_found(line[-24:].decode('utf-8', 'replace'))}: damaged, or not a recording."
        )
    body, expected = match[1], match[2].decode()
    found = f"{zlib.crc32(body):08x}"
    if found != expected:
        raise RecordingError(
            f"{where}: 'crc' must be {found} for these bytes, got {expected}: the line was damaged "
            f"or edited after it was written."
        )
    return body + b"}"


def _parse(text: bytes, *, where: str) -> dict[str, Any]:
    try:
        return _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordingError(f"{where}: a line must be one strict JSON object: {error}.") from error


def _check_format(found: Any, *, where: str) -> None:
    if type(found) is int and found > FORMAT:
        raise RecordingError(
            f"{where}: 'format' must be at most {FORMAT}, got {found}: written by a newer "
            f"traingen? Upgrade to read it."
        )


def _revive_numbers(raw: dict[str, Any]) -> None:
    """Turn names of non-finite numbers back into floats, in number-typed fields only."""
    for name in _NUMBERS:
        if name in raw:
            raw[name] = _revive(raw[name])
    for name in _NUMBERS_INSIDE:
        if name in raw:
            raw[name] = _revive_inside(raw[name])


def _revive_epochs(states: Any) -> None:
    """Turn the counters of schedulers, which may be stepped by fractions, back into floats."""
    for state in states if isinstance(states, list) else ():
        if isinstance(state, dict) and "last_epoch" in state:
            state["last_epoch"] = _revive(state["last_epoch"])


def _revive(value: Any) -> Any:
    return _NONFINITE.get(value, value) if isinstance(value, str) else value


def _revive_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _revive_item(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_revive_item(item) for item in value]
    return value


def _revive_item(value: Any) -> Any:
    return _revive_inside(value) if isinstance(value, (dict, list)) else _revive(value)


def _convert(raw: dict[str, Any], struct: type[Record], *, where: str) -> Record:
    fields = _split(raw, struct)
    for name, part in _PARTS[struct].items():
        value = raw.get(name)
        if _has_unknown(value, part):
            fields = fields | {name: _split_parts(value, part)}
    try:
        return msgspec.convert(fields, struct)
    except msgspec.ValidationError as error:
        raise _explain(raw, fields, struct, error=error, where=where) from error


def _has_unknown(value: Any, struct: type[msgspec.Struct]) -> bool:
    """Whether `value`, or any in the list that it is, has fields that `struct` does not know."""
    if isinstance(value, dict):
        return not value.keys() <= _KNOWN[struct]
    return isinstance(value, list) and any(_has_unknown(item, struct) for item in value)


def _split(raw: dict[str, Any], struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The known fields of `raw`, and under `unknown` all others in their order.

    Where there are no others, which is the usual case, `raw` itself.
    """
    if not _has_unknown(raw, struct):
        return raw
    known = _KNOWN[struct]
    fields = {name: value for name, value in raw.items() if name in known}
    fields["unknown"] = {name: value for name, value in raw.items() if name not in known}
    return fields


def _split_parts(value: Any, part: type[msgspec.Struct]) -> Any:
    if isinstance(value, list):
        return [_split(item, part) if isinstance(item, dict) else item for item in value]
    return _split(value, part) if isinstance(value, dict) else value


def _explain(
    raw: dict[str, Any],
    fields: dict[str, Any],
    struct: type[Record],
    *,
    error: msgspec.ValidationError,
    where: str,
) -> RecordingError:
    """Which field msgspec refused, said for a person: the first in file order."""
    for field in msgspec.structs.fields(struct):
        expected = describe_type(field.type)
        if field.required and field.name not in raw:
            return RecordingError(
                f"{where}: '{field.name}' is missing, expected {expected}: format {FORMAT} writes "
                f"every field, null where there is none."
            )
        try:
            msgspec.convert(fields.get(field.name), field.type)
        except msgspec.ValidationError:
            found = render_found(raw[field.name])
            return RecordingError(f"{where}: '{field.name}' must be {expected}, got {found}.")
    return RecordingError(f"{where}: {error}.")

"""Say in an error what a field's type wants and what was found instead."""

from typing import Any

import msgspec
from msgspec import inspect

_LONGEST_FOUND = 60  # characters of a found value shown in an error
_NAMES: dict[type[inspect.Type], tuple[str, str]] = {
    inspect.IntType: ("an integer", "integers"),
    inspect.FloatType: ("a number", "numbers"),
    inspect.StrType: ("a string", "strings"),
    inspect.BoolType: ("true or false", "true or false"),
    inspect.NoneType: ("null", "null"),
    inspect.AnyType: ("any value", "any values"),
}


def describe_type(annotation: Any) -> str:
    """What a value of this type is called in a recording.

    >>> describe_type(list[float]), describe_type(dict[str, str] | None)
    ('a list of numbers', 'an object of strings or null')
    """
    return _describe(inspect.type_info(annotation), plural=False)


def render_found(value: Any) -> str:
    """`value` as JSON, cut to a length that fits an error."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, UnicodeEncodeError):
        text = repr(value)
    return text if len(text) <= _LONGEST_FOUND else text[: _LONGEST_FOUND - 1] + "…"


def _describe(kind: inspect.Type, *, plural: bool) -> str:
    if isinstance(kind, inspect.IntType) and kind.ge is not None and not plural:
        return f"an integer of at least {kind.ge}"
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.UnionType):
        return _describe_union(kind, plural=plural)
    if isinstance(kind, inspect.ListType):
        return ("lists of " if plural else "a list of ") + _describe(kind.item_type, plural=True)
    if isinstance(kind, inspect.DictType):
        values = _describe(kind.value_type, plural=True)
        of_values = "" if isinstance(kind.value_type, inspect.AnyType) else f" of {values}"
        return ("objects" if plural else "an object") + of_values
    if isinstance(kind, inspect.StructType):
        names = ", ".join(field.name for field in kind.fields if field.required)
        return ("objects" if plural else "an object") + f" with {names}"
    return _NAMES[type(kind)][plural]


def _describe_union(kind: inspect.UnionType, *, plural: bool) -> str:
    """All members; an integer beside a number goes without saying, null stands last."""
    floats = any(isinstance(member, inspect.FloatType) for member in kind.types)
    members = [m for m in kind.types if not (floats and isinstance(m, inspect.IntType))]
    members.sort(key=lambda member: isinstance(member, inspect.NoneType))
    return " or ".join(_describe(member, plural=plural) for member in members)

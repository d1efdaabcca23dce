"""As much of JSON Schema as our own schemas use, to test documents against them."""

from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_SAYS_NOTHING = {"title", "description", "default", "discriminator", "$defs", "$schema"}
_KNOWN = _SAYS_NOTHING | {
    "$ref", "anyOf", "const", "enum", "type", "required", "properties", "additionalProperties",
    "items", "prefixItems", "minItems", "maxItems", "minimum", "pattern",
}  # fmt: skip


def schema_errors(value: Any, schema: dict[str, Any], root: Any = None, at: str = "$") -> list[str]:
    """Where `value` does not fit `schema`; a keyword that is not known here is an error too."""
    root = schema if root is None else root
    errors = [f"{at}: keyword {key} is not known" for key in schema if key not in _KNOWN]
    if "$ref" in schema:
        errors += schema_errors(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, at)
    if "anyOf" in schema and all(schema_errors(value, s, root, at) for s in schema["anyOf"]):
        errors.append(f"{at}: fits none of its kinds")
    if "enum" in schema and value not in schema["enum"]:
        errors.append(f"{at}: {value!r} is none of {schema['enum']}")
    if "const" in schema and value != schema["const"]:
        errors.append(f"{at}: {value!r} is not {schema['const']!r}")
    if "type" in schema and not _is(value, schema["type"]):
        return [*errors, f"{at}: {value!r} is no {schema['type']}"]
    if "minimum" in schema and value < schema["minimum"]:
        errors.append(f"{at}: {value!r} is below {schema['minimum']}")
    if isinstance(value, dict):
        errors += _object_errors(value, schema, root, at)
    if isinstance(value, list | tuple):
        errors += _array_errors(value, schema, root, at)
    return errors


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


def _object_errors(value: dict[str, Any], schema: dict[str, Any], root: Any, at: str) -> list[str]:
    errors = [
        f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value
    ]
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        inner = properties.get(name, more)
        if inner is False:
            errors.append(f"{at}: {name} is not known")
        elif inner is not True:
            errors += schema_errors(item, inner, root, f"{at}.{name}")
    return errors


def _array_errors(value: Any, schema: dict[str, Any], root: Any, at: str) -> list[str]:
    errors = []
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        errors.append(f"{at}: has {len(value)} items")
    inner = schema.get("prefixItems", [])
    rest = schema.get("items", {}) or {}
    for index, item in enumerate(value):
        part = inner[index] if index < len(inner) else rest
        errors += schema_errors(item, part, root, f"{at}[{index}]")
    return errors

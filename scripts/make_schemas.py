"""Write the JSON Schemas of our documents: `python scripts/make_schemas.py`.

They are made from the values that the readers use; tests hold the committed files to them.
"""

import json
from pathlib import Path
from typing import Any

import msgspec

from traingen.lockstep.pair import pair_schema
from traingen.records import FORMAT, EndRecord, EventRecord, RunRecord, UpdateRecord

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NONFINITE = {"enum": ["NaN", "Infinity", "-Infinity"]}
CRC = {"type": "string", "pattern": "^[0-9a-f]{8}$", "description": "zlib.crc32, always last"}


def recording_schema() -> dict[str, Any]:
    """The JSON Schema of one line of a recording, format 1."""
    (_,), parts = msgspec.json.schema_components(
        [RunRecord | UpdateRecord | EventRecord | EndRecord], ref_template="#/$defs/{name}"
    )
    kinds = [kind.__name__ for kind in (RunRecord, UpdateRecord, EventRecord, EndRecord)]
    for name, part in parts.items():
        del part["properties"]["unknown"]  # holds a newer writer's fields and is not written itself
        if name in kinds:
            part["properties"]["crc"] = CRC
            part["required"].append("crc")
    parts["RunRecord"]["properties"]["format"] = {"type": "integer", "enum": [FORMAT]}
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in kinds], "$defs": _admit_names(parts)}


def _admit_names(part: Any) -> Any:
    """Numbers that are not finite are written by name."""
    if isinstance(part, list):
        return [_admit_names(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        return {"anyOf": [part, NONFINITE]}
    return {key: _admit_names(value) for key, value in part.items()}


SCHEMAS = {
    "docs/reference/pair.schema.json": pair_schema,
    "docs/reference/recording.schema.json": recording_schema,
}


def render_schema(path: str) -> str:
    """The text of the schema that is committed at `path`."""
    return json.dumps({"$schema": DIALECT} | SCHEMAS[path](), indent=2) + "\n"


def main() -> None:
    for path in SCHEMAS:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(render_schema(path), encoding="utf-8")


if __name__ == "__main__":
    main()

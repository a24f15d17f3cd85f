"""What the values of a writer are to a reader, by the Avro schemas of both: Avro's rules of resolution, with meanings.

`resolved` is a schema in the reader's shape, for `avro_columns.rows_builder`: each part has the type that the writer
stored, and says where it is found. Fields are found by name, then by the reader's aliases; one that the writer did not
know has the reader's default. A value means what its writer's schema says (a moment in nanoseconds, a decimal of four
places); where that says nothing, what the reader's does. What the reader's schema has no place for is refused when it
comes: a type that is none of its promotions, another record, a symbol that it does not know, or a meaning that is not
its own, such as a time of day for a moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakeseal.ingest.sources.avro_schema import MOMENTS, meaning

STORED_AS = "stored as"
"""The name that the writer has for a field."""
CONSTANT = "constant"
"""The value of a field that the writer does not have."""
KNOWN = "known"
"""The symbols of the reader, and what all others are, if it says so."""
REFUSED = "refused"
"""Why none of the values can be read."""

Named = Mapping[str, Mapping[str, Any]]

_PROMOTED = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "bytes": ("bytes", "string"),
    "string": ("string", "bytes"),
}
_ABSENT = object()


def resolved(writer: Any, reader: Any, named: Named) -> Any:
    """`named` are the types that the writer's schema refers to; the reader's refers to none by name."""
    if isinstance(writer, str):
        writer = named.get(writer, {"type": writer})
    if isinstance(writer, list):
        return [resolved(one, reader, named) for one in writer]
    if isinstance(writer["type"], list | dict):
        return resolved(writer["type"], reader, named)
    kind = writer["type"]
    if kind == "null":
        return "null"
    reader = _member(reader)
    if (reason := _unfit(writer, reader)) is not None:
        return {"type": kind, REFUSED: reason}
    match kind:
        case "record":
            fields = [_field(writer["fields"], field, reader["fields"], named) for field in reader["fields"]]
            return {"type": "record", "name": writer["name"], "fields": fields}
        case "array":
            return {"type": "array", "items": resolved(writer["items"], reader["items"], named)}
        case "map":
            return {"type": "map", "values": resolved(writer["values"], reader["values"], named)}
        case "enum":
            return {"type": "enum", KNOWN: (reader["symbols"], reader.get("default"))}
        case _ if kind in named:
            return resolved(named[kind], reader, named)
        case _:
            return _simple(writer, reader)


def _member(reader: Any) -> Mapping[str, Any]:
    """A reader's type without null."""
    if isinstance(reader, str):
        return {"type": reader}
    if isinstance(reader, list):
        return _member(next(one for one in reader if one != "null"))
    return _member(reader["type"]) if isinstance(reader["type"], list | dict) else reader


def _unfit(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> str | None:
    theirs, ours = str(writer["type"]), str(reader["type"])
    if ours not in _PROMOTED.get(theirs, (theirs,)):
        return f"Its writer has {theirs}, which is no {ours}"
    if theirs in ("record", "enum", "fixed"):
        name = str(writer["name"])
        short = name.rpartition(".")[2]
        if short != str(reader["name"]).rpartition(".")[2] and not {name, short} & {*reader.get("aliases", ())}:
            return f"Its writer has {theirs} {name}, which is no {reader['name']}"
        if writer.get("size") != reader.get("size"):
            return f"Its writer has {writer['size']} bytes, which are no {reader['size']}"
    stored, wanted = meaning(writer), meaning(reader)
    if stored is None or wanted is None or stored == wanted or {stored, wanted} <= {*MOMENTS}:
        return None
    return f"Its writer has {theirs} ({stored}), which is no {wanted}"


def _simple(writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Any:
    # An integer is a long of the same value; any other promotion may change it, and is left to who makes columns.
    kind = "long" if (writer["type"], reader["type"]) == ("int", "long") else writer["type"]
    meant = reader if meaning(writer) is None else writer
    if meaning(meant) is None:
        return kind
    return {"type": kind, **{part: meant[part] for part in ("logicalType", "precision", "scale") if part in meant}}


def _field(
    fields: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], others: Sequence[Mapping[str, Any]], named: Named
) -> dict[str, Any]:
    name = wanted["name"]
    taken = {other["name"] for other in others}
    aliases = [alias for alias in wanted.get("aliases", ()) if alias not in taken]
    found = next((field for one in (name, *aliases) for field in fields if field["name"] == one), None)
    if found is not None:
        return {"name": name, STORED_AS: found["name"], "type": resolved(found["type"], wanted["type"], named)}
    default = wanted.get("default", _ABSENT)
    if default is _ABSENT:
        reason = f"Its writer has no field {name}, and the reader's schema no default for it"
        return {"name": name, CONSTANT: False, "type": {"type": "boolean", REFUSED: reason}}
    return {"name": name, CONSTANT: _stored(default, wanted["type"]), "type": wanted["type"]}


def _stored(default: Any, kind: Any) -> Any:
    """A default as a value would be stored: JSON has bytes as a text of the first 256 characters."""
    if default is None:
        return None
    kind = _member(kind)
    match kind["type"]:
        case "bytes" | "fixed":
            return str(default).encode("latin-1", "replace")
        case "array":
            return [_stored(one, kind["items"]) for one in default]
        case "map":
            return {key: _stored(one, kind["values"]) for key, one in default.items()}
        case "record":
            return {
                field["name"]: _stored(default.get(field["name"], field.get("default")), field["type"])
                for field in kind["fields"]
            }
        case _:
            return default

"""Reading values of Avro as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO


def stored_reader(schema: Any, named: Mapping[str, Any]) -> Callable[[BinaryIO], Any]:
    """Of a schema that fastavro has parsed; `named` are the types of others that it refers to.

    Values of a type that is inside itself are as deep as their writer likes. Compiled code does not count how deep it
    is, and a few thousand levels end the process; Python's own raises `RecursionError`.
    """
    if is_recursive(schema, named):
        from fastavro._read_py import schemaless_reader  # an extra
    else:
        from fastavro import schemaless_reader  # an extra

    def read(stream: BinaryIO) -> Any:
        return schemaless_reader(stream, schema, None)

    return read


def is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    inside: set[str] = set()
    done: set[str] = set()

    def found(part: Any) -> bool:
        if isinstance(part, list):
            return any(map(found, part))
        if isinstance(part, str):
            return part in inside or (part in named and part not in done and found(named[part]))
        if not isinstance(part, Mapping):
            return False
        inner = [part.get(name) for name in ("type", "items", "values")]
        if "fields" not in part:
            return any(map(found, inner))
        name = str(part.get("name"))
        inside.add(name)
        is_found = any(found(field["type"]) for field in part["fields"])
        inside.discard(name)
        done.add(name)
        return is_found

    return found(schema)

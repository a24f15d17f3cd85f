"""Messages whose writers' schemas are registered: a row says what was encoded, to its reader, or there is none."""

from __future__ import annotations

import base64
import copy
import io
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from oracles.messages import FLOATS, LEAVES, NUMBERS, WORDS, Leaf, Schemas, framed, read, registry
from oracles.rows import plain
from oracles.seeds import case, cases


@pytest.fixture(scope="module")
def schemas() -> Iterator[Schemas]:
    with registry() as told:
        yield told


class _Field:
    """Of a record: how it is written, how it is read, and what a value of it is to the reader."""

    def __init__(self, chance: random.Random, name: str, number: int) -> None:
        self.name = self.old = name
        self.writer = self.reader = chance.choice(LEAVES)
        if chance.random() < 0.5:
            self.reader = chance.choice(LEAVES)
        self.shape = chance.choice(("plain", "plain", "null", "array", "map", "record"))
        self.is_null = self.shape == "null"
        self.number = number
        if chance.random() < 0.15:
            self.old = f"old_{name}"

    def schemas(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """As it is stored, as it is written, as it is read."""
        stored, writer, reader = self.writer.stored(), self.writer.schema(), self.reader.schema()
        made = []
        for leaf, name in ((stored, self.old), (writer, self.old), (reader, self.name)):
            one = copy.deepcopy(leaf)
            match self.shape:
                case "null":
                    one = ["null", one]
                case "array":
                    one = {"type": "array", "items": ["null", one]}
                case "map":
                    one = {"type": "map", "values": one}
                case "record":
                    one = {"type": "record", "name": f"r{self.number}", "fields": [{"name": "f", "type": one}]}
            made.append({"name": name, "type": one})
        if self.old != self.name:
            made[2]["aliases"] = [self.old]
        return made[0], made[1], made[2]

    def datum(self, chance: random.Random) -> Any:
        value = self.writer.value(chance)
        match self.shape:
            case "null":
                return None if chance.random() < 0.3 else value
            case "array":
                return [
                    None if chance.random() < 0.2 else self.writer.value(chance) for _ in range(chance.randint(0, 3))
                ]
            case "map":
                return {key: self.writer.value(chance) for key in chance.sample(("a", "ü", ""), chance.randint(0, 3))}
            case "record":
                return {"f": value}
            case _:
                return value

    def mapped(self, value: Any, say: Callable[[Any], Any]) -> Any:
        match self.shape:
            case "array":
                return [say(one) for one in value]
            case "map":
                return {key: say(one) for key, one in value.items()}
            case "record":
                return {"f": say(value["f"])}
            case _:
                return say(value)


def in_terms_of(writer: Leaf, reader: Leaf, stored: Any) -> Any:
    """A written value in the reader's terms; to one without a meaning it is a number. A moment is cut to what a column
    of moments holds."""
    if reader.base == "enum" and stored is not None and stored not in reader.more["symbols"]:
        return reader.more.get("default", "no symbol")
    if writer.base == "string" and reader.base == "bytes" and stored is not None:
        stored = stored.encode()
    if writer.base == "bytes" and reader.base == "string" and stored is not None:
        stored = stored.decode(errors="replace")
    said = stored if reader.meaning is None else writer.says(stored, reader)
    if isinstance(said, tuple) and said[0] == "timestamp" and reader.meaning and not reader.meaning.endswith("nanos"):
        return said[0], said[1] // 1000 * 1000
    return said


def compared(value: Any) -> Any:
    """A zero's sign counts for no number here, NaN is itself."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else plain(value)


def test_avro_messages_are_rows_of_another_schema_as_both_schemas_say_or_set_aside(schemas: Schemas) -> None:
    rows_seen = 0
    for seed in cases(60, 1000):
        with case(seed) as chance:
            fields = [_Field(chance, f"c{n}", n) for n in range(chance.randint(1, 3))]
            made = [field.schemas() for field in fields]
            stored, writer, reader = (
                {"type": "record", "name": "row", "fields": _once_each([one[n] for one in made])} for n in range(3)
            )
            if chance.random() < 0.3:
                for one in (stored, writer):
                    one["fields"].insert(0, {"name": "unread", "type": {"type": "array", "items": "long"}})
            if chance.random() < 0.3:
                reader["fields"].append({"name": "later", "type": ["long", "null"], "default": 7})
            chance.shuffle(reader["fields"])
            data = [
                {"unread": [1, -1]} | {field.old: field.datum(chance) for field in fields}
                for _ in range(chance.randint(1, 12))
            ]
            number = schemas.add(writer)
            parsed = fastavro.parse_schema(stored)
            values = []
            for datum in data:
                fastavro.schemaless_writer(out := io.BytesIO(), parsed, datum)
                values.append(framed(number, out.getvalue()))
            rows, bad = read("avro", values, schemas.url, avro_schema=reader)
            assert sorted([*rows, *bad]) == [*range(len(values))]
            for n, row in rows.items():
                rows_seen += 1
                assert row.pop("later", 7) == 7
                for field in fields:
                    right = field.mapped(data[n][field.old], lambda v, f=field: in_terms_of(f.writer, f.reader, v))
                    found = field.mapped(row[field.name], field.reader.column)
                    same = compared(found) == compared(right)
                    assert same, f"{writer} read as {reader}: {found!r}, not {right!r} ({data[n]})"
            if all(field.reader is field.writer for field in fields):
                beyond = [n for n, one in enumerate(data) if any(_is_beyond(f, one[f.old]) for f in fields)]
                assert bad == beyond, f"{writer}: {bad} were set aside"
    assert rows_seen > 40


def _once_each(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each type with a name has one of its own."""
    for n, field in enumerate(fields):
        _rename(field["type"], n)
    return fields


def _rename(kind: Any, n: int) -> None:
    if isinstance(kind, list):
        for one in kind:
            _rename(one, n)
    elif isinstance(kind, dict):
        if kind.get("type") in ("fixed", "enum"):
            kind["name"] = f"{kind['name']}{n}"
        for part in ("items", "values"):
            _rename(kind.get(part), n)
        for field in kind.get("fields", ()):
            _rename(field["type"], n)


def _is_beyond(field: _Field, value: Any) -> bool:
    """Whether it is no value of its own type, or of none that a column has: a decimal of more digits than its type
    says, a moment whose microseconds are no long."""
    leaf = field.writer
    found: list[Any] = []
    field.mapped(value, found.append)
    there = [one for one in found if one is not None]
    if leaf.meaning == "decimal":
        return any(abs(int.from_bytes(one, "big", signed=True)) >= 10 ** leaf.more["precision"] for one in there)
    return str(leaf.meaning).endswith("timestamp-millis") and any(not -(2**63) <= one * 1000 < 2**63 for one in there)


F = descriptor_pb2.FieldDescriptorProto
_INTS = {"int32": (-(2**31), 2**31), "int64": (-(2**63), 2**63), "uint32": (0, 2**32), "uint64": (0, 2**64),
         "sint32": (-(2**31), 2**31), "sint64": (-(2**63), 2**63), "fixed32": (0, 2**32), "fixed64": (0, 2**64),
         "sfixed32": (-(2**31), 2**31), "sfixed64": (-(2**63), 2**63)}  # fmt: skip
_WRAPPED = {"Int64Value": "int64", "UInt64Value": "uint64", "Int32Value": "int32", "DoubleValue": "double",
            "FloatValue": "float", "BoolValue": "bool", "StringValue": "string", "BytesValue": "bytes"}  # fmt: skip
_KINDS = (*_INTS, "float", "double", "bool", "string", "bytes", "enum", "Timestamp", *_WRAPPED)
_COLUMNS = ("byte", "short", "int", "long", "float", "double", "boolean", "string", "binary", "timestamp")
_OWN = {"int32": "int", "sint32": "int", "sfixed32": "int", "float": "float", "double": "double", "bool": "boolean",
        "string": "string", "bytes": "binary", "enum": "string", "Timestamp": "timestamp"}  # fmt: skip


class _ProtoField:
    def __init__(self, chance: random.Random, number: int) -> None:
        self.number = number
        self.name = f"{chance.choice(('f', 'F', 'some_'))}{number}"
        self.kind = chance.choice(_KINDS)
        self.shape = chance.choice(("plain", "plain", "optional", "repeated", "map", "nested"))
        plain = _WRAPPED.get(self.kind, self.kind)
        self.is_own = chance.random() < 0.6
        self.column = _OWN.get(plain, "long") if self.is_own else chance.choice(_COLUMNS)
        self.called = chance.choice((self.name, self.name, self.name.upper()))

    def ddl(self) -> str:
        kind = {
            "repeated": f"array<{self.column}>",
            "map": f"map<string, {self.column}>",
            "nested": f"struct<x: {self.column}>",
        }.get(self.shape, self.column)
        return f"{self.called} {kind}"

    def describe(self, message: Any) -> None:
        field = message.field.add(name=self.name, number=self.number + 1, label=F.LABEL_OPTIONAL)
        match self.shape:
            case "repeated":
                field.label = F.LABEL_REPEATED
                self._typed(field)
            case "map" | "nested":
                inner = message.nested_type.add(name=f"Entry{self.number}")
                field.type, field.type_name = F.TYPE_MESSAGE, f".t.Row.Entry{self.number}"
                if self.shape == "map":
                    # As protoc calls it: the field in the letters of types.
                    inner.name = "".join(part.capitalize() for part in self.name.split("_")) + "Entry"
                    field.type_name, field.label = f".t.Row.{inner.name}", F.LABEL_REPEATED
                    inner.options.map_entry = True
                    inner.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=F.TYPE_STRING)
                self._typed(
                    inner.field.add(name="value" if self.shape == "map" else "x", number=2, label=F.LABEL_OPTIONAL)
                )
            case "optional":
                self._typed(field)
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{self.name}")
            case _:
                self._typed(field)

    def _typed(self, field: Any) -> None:
        if self.kind in _WRAPPED or self.kind == "Timestamp":
            field.type, field.type_name = F.TYPE_MESSAGE, f".google.protobuf.{self.kind}"
        elif self.kind == "enum":
            field.type, field.type_name = F.TYPE_ENUM, ".t.Kind"
        else:
            field.type = getattr(F, f"TYPE_{self.kind.upper()}")

    def fill(self, chance: random.Random, message: Any) -> Any:
        """Sets it, and says what a column has then."""
        if self.shape in ("plain", "optional", "nested") and chance.random() < 0.2:
            is_null = self.shape != "plain" or self.kind in _WRAPPED or self.kind == "Timestamp"
            return None if is_null else _says(self.kind, _ZERO.get(self.kind, 0))
        values = [_value(chance, self.kind) for _ in range(chance.randint(0, 3))]
        match self.shape:
            case "repeated":
                for value in values:
                    if self.kind in _WRAPPED or self.kind == "Timestamp":
                        _set(getattr(message, self.name).add(), self.kind, value)
                    else:
                        getattr(message, self.name).append(value)
                return [_says(self.kind, value) for value in values]
            case "map":
                pairs = dict(zip(("a", "", "ü"), values, strict=False))
                for key, value in pairs.items():
                    if self.kind in _WRAPPED or self.kind == "Timestamp":
                        _set(getattr(message, self.name)[key], self.kind, value)
                    else:
                        getattr(message, self.name)[key] = value
                return {key: _says(self.kind, value) for key, value in pairs.items()}
        value = _value(chance, self.kind)
        place, name = (getattr(message, self.name), "x") if self.shape == "nested" else (message, self.name)
        if self.kind in _WRAPPED or self.kind == "Timestamp":
            getattr(place, name).SetInParent()
            _set(getattr(place, name), self.kind, value)
        else:
            setattr(place, name, value)
        if self.shape == "nested":
            place.SetInParent()
        said = _says(self.kind, value)
        return {"x": said} if self.shape == "nested" else said


_ZERO = {"float": 0.0, "double": 0.0, "bool": False, "string": "", "bytes": b"", "enum": 0}


def _value(chance: random.Random, kind: str) -> Any:
    kind = _WRAPPED.get(kind, kind)
    if kind in _INTS:
        low, high = _INTS[kind]
        return chance.choice([one for one in (*NUMBERS, high - 1) if low <= one < high])
    match kind:
        case "float":
            return chance.choice((0.5, -0.0, 16777216.0, float("inf"), 3.4028234663852886e38))
        case "double":
            return chance.choice(FLOATS)
        case "bool":
            return chance.random() < 0.5
        case "string":
            return chance.choice(WORDS)
        case "bytes":
            return chance.choice((b"", b"a", b"\xff", b"\xc3\xbc"))
        case "enum":
            return chance.choice((0, 1, 2, 77))
        case _:
            return chance.randint(-62_135_596_800, 253_402_300_799), chance.choice((0, 1, 999, 1000, 999_999_999))


def _set(message: Any, kind: str, value: Any) -> None:
    if kind == "Timestamp":
        message.seconds, message.nanos = value
    else:
        message.value = value


def _says(kind: str, value: Any) -> Any:
    if kind == "enum":
        return {0: "NONE", 1: "ONE", 2: "TWO"}.get(value, str(value)), value
    return value[0] * 1_000_000 + value[1] // 1000 if kind == "Timestamp" else value


def _is_what_was_set(found: Any, right: Any) -> bool:
    if isinstance(right, tuple):  # an enum: its name, or its number
        return found == right[0] or (not isinstance(found, str) and found == right[1])
    if isinstance(right, dict) and isinstance(found, dict):
        return found.keys() == right.keys() and all(_is_what_was_set(found[key], right[key]) for key in right)
    if isinstance(right, list) and isinstance(found, list):
        return len(found) == len(right) and all(map(_is_what_was_set, found, right))
    return isinstance(found, bool) == isinstance(right, bool) and found == right


def test_protobuf_messages_are_rows_of_what_was_set_or_set_aside(schemas: Schemas) -> None:
    rows_seen = 0
    for seed in cases(60, 1000):
        with case(seed) as chance:
            fields = [_ProtoField(chance, n) for n in range(chance.randint(1, 4))]
            file, make = _messages(fields)
            number = schemas.add(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")
            values, right, whole = [], [], []
            for _ in range(chance.randint(1, 12)):
                message = make()
                right.append({field.called: field.fill(chance, message) for field in fields})
                data = message.SerializeToString()
                is_torn = bool(data) and chance.random() < 0.1
                whole.append(not is_torn)
                values.append(framed(number, b"\0" + (data[:-1] + b"\xff" if is_torn else data)))
            ddl = ", ".join(field.ddl() for field in fields)
            rows, bad = read("protobuf", values, schemas.url, schema=ddl)
            assert sorted([*rows, *bad]) == [*range(len(values))]
            for n in filter(whole.__getitem__, rows):
                rows_seen += 1
                assert _is_what_was_set(rows[n], right[n]), f"{ddl} {file}: {rows[n]}, not {right[n]}"
            if all(field.is_own and "uint64" not in field.kind.lower() and field.kind != "fixed64" for field in fields):
                assert not [n for n in bad if whole[n]], f"{ddl} {file}: {bad} were set aside of {right}"
    assert rows_seen > 40


def _messages(fields: list[_ProtoField]) -> tuple[Any, Any]:
    """The writer's file, and what makes its messages."""
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", package="t", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NONE", "ONE", "TWO")):
        kind.value.add(name=name, number=number)
    row = file.message_type.add(name="Row")
    for field in fields:
        field.describe(row)
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return file, message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Row"))

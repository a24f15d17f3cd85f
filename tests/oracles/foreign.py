"""Tables as other writers may have left them: legal, in every spelling that the format lets them choose, and the rows
that they hold at each version.

Nothing here is made by Lakeseal. Data files come from pyarrow, in any physical form that stands for the column's type;
logs, checkpoints and deletion vectors are written by hand: fields in any order, nulls and unknown fields among them,
paths relative and absolute, statistics as text, as a struct or not at all, checkpoints classic, in parts and of the
second version, with what they may leave out left out.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

Row = dict[str, Any]
EPOCH = dt.datetime(1970, 1, 1)
_NAMES = ("a", "Bee", "größe", "x.y", "select", "日本", "sp ace", "q`t", "_u", "p%25", "it's", "n", "value", "key")
_PLAIN = ("a", "Bee", "größe", "x.y", "select", "日本", "_u", "n", "value", "key", "element", "item", "metadata")


class Form(Struct, frozen=True):
    """How a file stores a leaf: as this Arrow type, after this change of the value."""

    arrow: pa.DataType
    stored: Callable[[Any], Any] = lambda value: value
    kept: Callable[[Any], Any] = lambda value: value
    """What is left of the value."""
    int96: bool = False


def _micros(value: dt.datetime) -> int:
    return (value - EPOCH) // dt.timedelta(microseconds=1)


def _moment(micros: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=micros)


def _moment_forms(zone: str | None) -> list[Form]:
    zones = {None: [None, "UTC"], "UTC": ["UTC", None, "America/New_York", "+02:00", "Etc/GMT"]}[zone]
    forms = []
    for tz in zones:
        forms += [
            Form(pa.timestamp("us", tz), _micros),
            Form(pa.timestamp("us", tz), _micros, int96=True),
            Form(pa.timestamp("ns", tz), lambda v: _micros(v) * 1000 + _micros(v) % 7 * 100),
            Form(pa.timestamp("ms", tz), lambda v: _micros(v) // 1000, lambda v: _moment(_micros(v) // 1000 * 1000)),
        ]
    return forms


def _same(*types: pa.DataType) -> list[Form]:
    return [Form(t) for t in types]


def _decimal_forms(precision: int, scale: int) -> list[Form]:
    forms = _same(pa.decimal128(precision, scale), pa.decimal256(precision, scale))
    forms += _same(pa.decimal32(precision, scale)) if precision <= 9 else []
    return forms + (_same(pa.decimal64(precision, scale)) if precision <= 18 else [])


_TEXTS = (
    "",
    "a",
    "é",
    "日本",
    "it's",
    'q"',
    "x" * 40,
    "a/b=c%20",
    " ",
    "\n",
    "\U0010ffff",
    "__HIVE_DEFAULT_PARTITION__",
)
_MOMENTS = tuple(
    map(dt.datetime.fromisoformat, ("1900-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-03-10 02:30:00.123456",
                                    "2262-01-01 00:00:00", "1970-01-01 00:00:00", "2024-11-03 05:30:00.001"))
)  # fmt: skip
LEAVES: dict[str, tuple[Sequence[Any], list[Form]]] = {
    "byte": ((-128, 127, 0), _same(pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    "short": ((-(2**15), 2**15 - 1, 0), _same(pa.int16(), pa.int32(), pa.int64())),
    "integer": ((-(2**31), 2**31 - 1, 0, 7), _same(pa.int32(), pa.int64())),
    "long": ((-(2**63), 2**63 - 1, 0, 7), _same(pa.int64())),
    "float": ((0.5, -1.25, float("inf"), float("nan")), _same(pa.float32())),
    "double": ((0.1, -2.5, float("-inf"), float("nan")), _same(pa.float64())),
    "boolean": ((True, False), _same(pa.bool_())),
    "string": (_TEXTS, [*_same(pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())),
                        Form(pa.binary(), lambda v: v.encode())]),
    "binary": ((b"", b"\xff\x00", b"abcd", b"x" * 40), _same(pa.binary(), pa.large_binary())),
    "date": (tuple(map(dt.date.fromisoformat, ("1900-01-01", "1970-01-01", "2024-02-29", "9999-12-31"))),
             _same(pa.date32(), pa.date64())),
    "timestamp": (_MOMENTS, _moment_forms("UTC")),
    "timestamp_ntz": (_MOMENTS, _moment_forms(None)),
    "decimal(5,2)": (tuple(map(Decimal, ("-999.99", "0.01", "12.30"))), _decimal_forms(5, 2)),
    "decimal(18,0)": (tuple(map(Decimal, ("999999999999999999", "-1"))), _decimal_forms(18, 0)),
    "decimal(38,10)": (tuple(map(Decimal, ("1234567890123456789012345678.0123456789", "-0.5"))),
                       _decimal_forms(38, 10)),
}  # fmt: skip


class Field(Struct):
    """A column, or a field of a struct, whatever it is called by now."""

    name: str
    kind: Any
    """A leaf's name; `("array", kind)`, `("map", key, value)`; or a list of fields."""
    physical: str
    number: int


class Foreign:
    """A table that is being made."""

    def __init__(self, chance: random.Random, place: Path) -> None:
        self.chance, self.place = chance, place
        self.log = place / "_delta_log"
        self.log.mkdir(parents=True)
        self.mapping = chance.choice(("none", "none", "name", "id"))
        self.ids = iter(range(1, 100_000))
        self.fields = [self.column("id", "long"), *(self.new_column() for _ in range(chance.randint(1, 5)))]
        leaves = [f for f in self.fields[1:] if isinstance(f.kind, str)]
        self.partitions = chance.sample(leaves, k=min(len(leaves), chance.choice((0, 0, 1, 2))))
        self.has_vectors = chance.random() < 0.6
        self.files: dict[str, dict[str, Any]] = {}
        """Live, by path: the `add`, the file's rows by numbers of fields, the positions that are gone."""
        self.gone: dict[str, dict[str, Any]] = {}
        self.txns: dict[str, int] = {}
        self.domains: dict[str, str] = {}
        self.version = -1
        self.versions: dict[int, list[Row]] = {}
        self.states: dict[int, Any] = {}
        self.first = 0
        """The oldest version that can be read."""
        self.rows_made = 0
        self.features: set[str] = {"v2Checkpoint"} if chance.random() < 0.4 else set()
        self.configuration: dict[str, str] = {"delta.enableChangeDataFeed": "true"}
        self.changes: dict[int, list[tuple[str, Row]]] = {}
        """Per version, by numbers of fields."""
        self.changed: list[tuple[str, Row]] = []
        self.lines: dict[int, list[dict[str, Any]]] = {}
        """Per version, what is not only about the commit."""
        if self.mapping != "none":
            self.configuration["delta.columnMapping.mode"] = self.mapping
            self.configuration["delta.columnMapping.maxColumnId"] = "90000"
            self.features.add("columnMapping")
        if self.has_vectors:
            self.features.add("deletionVectors")
            self.configuration["delta.enableDeletionVectors"] = "true"

    # The schema

    def new_column(self) -> Field:
        taken = {f.name.lower() for f in self.fields} if hasattr(self, "fields") else self.taken
        pool = _PLAIN if self.mapping == "none" else _NAMES
        name = self.chance.choice([n for n in pool if n.lower() not in taken] or [f"c{next(self.ids)}"])
        taken.add(name.lower())
        return self.column(name, self.kind(2))

    @property
    def taken(self) -> set[str]:
        if not hasattr(self, "_taken"):
            self._taken = {"id"}
        return self._taken

    def kind(self, depth: int) -> Any:
        chance = self.chance
        roll = chance.random()
        if depth and roll < 0.12:
            return ("array", self.kind(depth - 1))
        if depth and roll < 0.2:
            return ("map", chance.choice(("string", "integer", "date")), self.kind(depth - 1))
        if depth and roll < 0.35:
            pool = ("a", "B", "element", "key", "value", "list", "x y" if self.mapping != "none" else "z")
            names = chance.sample(pool, k=chance.randint(1, 3))
            return [self.column(name, self.kind(depth - 1)) for name in names]
        return chance.choice(sorted(LEAVES))

    def column(self, name: str, kind: Any) -> Field:
        number = next(self.ids)
        physical = name if self.mapping == "none" or self.chance.random() < 0.3 else f"col-{number:04}"
        return Field(name=name, kind=kind, physical=physical, number=number)

    def schema_json(self) -> dict[str, Any]:
        return {"type": "struct", "fields": [self.field_json(f) for f in self.fields]}

    def field_json(self, field: Field) -> dict[str, Any]:
        metadata: dict[str, Any] = {"comment": "é"} if self.chance.random() < 0.2 else {}
        if self.mapping != "none":
            metadata |= {"delta.columnMapping.id": field.number, "delta.columnMapping.physicalName": field.physical}
        return {"name": field.name, "type": self.type_json(field.kind), "nullable": True, "metadata": metadata}

    def type_json(self, kind: Any) -> Any:
        match kind:
            case str():
                return kind
            case ("array", element):
                return {"type": "array", "elementType": self.type_json(element), "containsNull": True}
            case ("map", key, value):
                return {"type": "map", "keyType": key, "valueType": self.type_json(value), "valueContainsNull": True}
            case _:
                return {"type": "struct", "fields": [self.field_json(f) for f in kind]}

    # Values

    def value(self, kind: Any, nulls: float = 0.2) -> Any:
        chance = self.chance
        if chance.random() < nulls:
            return None
        match kind:
            case str():
                return chance.choice(LEAVES[kind][0])
            case ("array", element):
                return [self.value(element) for _ in range(chance.randint(0, 3))]
            case ("map", key, value):
                keys = {self.value(key, 0) for _ in range(chance.randint(0, 3))}
                return [(k, self.value(value)) for k in sorted(keys)]
            case _:
                return {f.number: self.value(f.kind) for f in kind}

    # Files

    def write_file(self) -> str:
        """A data file with some rows, and its `add`; the path."""
        chance = self.chance
        partition = {f.number: self.value(f.kind) for f in self.partitions}
        partition = {n: None if v in ("", b"") else v for n, v in partition.items()}
        count = chance.randint(1, 12)
        rows = []
        for _ in range(count):
            row = {f.number: self.value(f.kind) for f in self.fields} | partition
            row[self.fields[0].number] = self.rows_made
            self.rows_made += 1
            rows.append(row)
        int96 = chance.random() < 0.3
        stored = [f for f in self.fields if f not in self.partitions]
        lacking = [f for f in stored[1:] if chance.random() < 0.1]
        for f in lacking:
            for row in rows:
                row[f.number] = None
        columns = [self.stored_column(f, rows, int96) for f in stored if f not in lacking]
        if chance.random() < 0.2:
            columns.append((pa.field(f"extra{next(self.ids)}", pa.int32()), pa.array(range(count), pa.int32())))
        if chance.random() < 0.5:
            chance.shuffle(columns)
        if self.partitions and chance.random() < 0.2:
            # Some writers leave the partition's value in the file; the log's counts.
            columns.append((pa.field(self.partitions[0].physical, pa.string()), pa.array(["?"] * count)))
        directory = chance.choice(("", "", "sub dir/", "ä=%2F/", "a%25b/"))
        key = f"{directory}part-{uuid.UUID(int=chance.getrandbits(128))}.parquet"
        target = self.place / key
        target.parent.mkdir(parents=True, exist_ok=True)
        table = pa.Table.from_arrays([c[1] for c in columns], schema=pa.schema([c[0] for c in columns]))
        self.write_parquet(table, target, int96)
        path = quote(key, safe="/=") if chance.random() < 0.8 else "file://" + quote(str(target))
        if chance.random() < 0.1:
            path = str(quote(str(target)))
        texts = {
            (f.physical if self.mapping != "none" else f.name): _partition_text(chance, f.kind, partition[f.number])
            for f in self.partitions
        }
        add: dict[str, Any] = {
            "path": path,
            "partitionValues": texts,
            "size": target.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
        }
        if chance.random() < 0.7:
            ids = [row[self.fields[0].number] for row in rows]
            name = self.fields[0].physical if self.mapping != "none" else "id"
            add["stats"] = self.spelled({"numRecords": count, "minValues": {name: min(ids)},
                                         "maxValues": {name: max(ids)}, "nullCount": {name: 0}})  # fmt: skip
        self.files[path] = {"add": add, "rows": rows, "gone": set()}
        self.changed += [("insert", row) for row in rows]
        return path

    def stored_column(self, field: Field, rows: list[Row], int96: bool) -> tuple[pa.Field, pa.Array]:
        values = [row[field.number] for row in rows]
        arrow, to_stored, kept = self.form(field.kind, int96)
        for row, value in zip(rows, values, strict=True):
            row[field.number] = None if value is None else kept(value)
        array = pa.array([None if v is None else to_stored(v) for v in values], arrow)
        name = field.physical if self.mapping != "none" else field.name
        if self.mapping == "none" and self.chance.random() < 0.15:
            # Not all letters come back from their capitals.
            name = name.swapcase() if name.swapcase().lower() == name.lower() else name
        return self.arrow_field(name, arrow, field.number), array

    def arrow_field(self, name: str, arrow: pa.DataType, number: int) -> pa.Field:
        if self.mapping == "id" or (self.mapping == "name" and self.chance.random() < 0.7):
            if self.mapping == "id" and self.chance.random() < 0.3:
                name = f"other{number}"
            return pa.field(name, arrow, metadata={"PARQUET:field_id": str(number)})
        return pa.field(name, arrow)

    def form(self, kind: Any, int96: bool) -> tuple[pa.DataType, Callable[[Any], Any], Callable[[Any], Any]]:
        chance = self.chance
        match kind:
            case str():
                forms = [f for f in LEAVES[kind][1] if f.int96 == int96 or not kind.startswith("timestamp")]
                form = chance.choice(forms)
                return form.arrow, form.stored, form.kept
            case ("array", element):
                arrow, stored, kept = self.form(element, int96)
                listed = chance.choice((pa.list_, pa.list_, pa.large_list))
                name = chance.choice(("element", "item", "array", "bag", "list_element"))
                return (
                    listed(pa.field(name, arrow)),
                    lambda v: [None if e is None else stored(e) for e in v],
                    lambda v: [None if e is None else kept(e) for e in v],
                )
            case ("map", key, value):
                key_arrow, key_stored, key_kept = self.form(key, int96)
                value_arrow, value_stored, value_kept = self.form(value, int96)
                names = chance.choice((("key", "value"), ("k", "v"), ("keys", "values")))
                return (
                    pa.map_(pa.field(names[0], key_arrow, nullable=False), pa.field(names[1], value_arrow)),
                    lambda v: [(key_stored(k), None if e is None else value_stored(e)) for k, e in v],
                    lambda v: [(key_kept(k), None if e is None else value_kept(e)) for k, e in v],
                )
            case _:
                order = chance.sample(kind, k=len(kind))
                if len(order) > 1 and chance.random() < 0.15:
                    order = order[1:]
                inner = {f.number: self.form(f.kind, int96) for f in order}
                names = {f.number: f.physical if self.mapping != "none" else f.name for f in order}
                arrows = [self.arrow_field(names[f.number], inner[f.number][0], f.number) for f in order]
                called = {f.number: arrow.name for f, arrow in zip(order, arrows, strict=True)}
                return (
                    pa.struct(arrows),
                    lambda v: {called[n]: None if v[n] is None else inner[n][1](v[n]) for n in inner},
                    lambda v: {f.number: None if f.number not in inner or v[f.number] is None
                               else inner[f.number][2](v[f.number]) for f in kind},
                )  # fmt: skip

    def write_parquet(self, table: pa.Table, target: Path, int96: bool) -> None:
        chance = self.chance
        options: dict[str, Any] = {
            "compression": chance.choice(("snappy", "gzip", "zstd", "lz4", "brotli", "none")),
            "use_dictionary": chance.random() < 0.5,
            "data_page_version": chance.choice(("1.0", "2.0")),
            "use_compliant_nested_type": chance.random() < 0.5,
            "store_decimal_as_integer": chance.random() < 0.5,
            "store_schema": chance.random() < 0.5,
            "write_page_index": chance.random() < 0.3,
            "row_group_size": chance.choice((1, 3, 1000)),
            "data_page_size": 1 << 20,
            "version": chance.choice(("1.0", "2.4", "2.6")) if not int96 else "2.6",
        }
        if int96:
            options["use_deprecated_int96_timestamps"] = True
        if options["version"] != "2.6" and any(_has_nanos(f.type) for f in table.schema):
            options["version"] = "2.6"
        if not options["use_dictionary"] and chance.random() < 0.6:
            options["column_encoding"] = _encodings(chance, table.schema)
        try:
            pq.write_table(table, target, **options)
        except pa.ArrowIndexError:  # a mistake of Arrow with some of these options
            pq.write_table(table, target, use_deprecated_int96_timestamps=int96)

    # The log

    def spelled(self, value: Any) -> str:
        """JSON in any of its spellings."""
        chance = self.chance
        separators = chance.choice(((",", ":"), (", ", ": "), (" ,", " : ")))
        text = json.dumps(_shuffled(chance, value), ensure_ascii=chance.random() < 0.5, separators=separators)
        return text.replace("/", "\\/") if chance.random() < 0.2 else text

    def odd(self, action: dict[str, Any], optional: Sequence[str]) -> dict[str, Any]:
        """An action with more than it needs."""
        chance = self.chance
        action = dict(action)
        for name in optional:
            if name not in action and chance.random() < 0.15:
                action[name] = None
        if chance.random() < 0.2:
            action["fromTheFuture"] = chance.choice((1, "x", {"a": [1, None]}, [], None))
        return action

    def add_json(self, path: str, *, odd: bool = True) -> dict[str, Any]:
        optional = ("stats", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
        add = self.files[path]["add"]
        return {"add": self.odd(add, optional) if odd else add}

    def remove_json(self, path: str) -> dict[str, Any]:
        add, chance = self.files[path]["add"], self.chance
        remove: dict[str, Any] = {"path": path, "dataChange": True}
        if chance.random() < 0.8:
            remove["deletionTimestamp"] = 1_700_000_000_000 + chance.randint(0, 10)
        if chance.random() < 0.6:
            remove |= {"extendedFileMetadata": True, "partitionValues": add["partitionValues"], "size": add["size"]}
        if "deletionVector" in add:
            remove["deletionVector"] = add["deletionVector"]
        self.gone[json.dumps([path, remove.get("deletionVector")], sort_keys=True)] = remove
        return {"remove": self.odd(remove, ("stats", "tags", "size", "partitionValues", "extendedFileMetadata"))}

    def protocol_json(self) -> dict[str, Any]:
        readers = sorted(self.features & {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"})
        protocol: dict[str, Any] = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers,
                                    "writerFeatures": sorted(self.features | {"appendOnly", "invariants"})}  # fmt: skip
        if not readers or (readers == ["columnMapping"] and self.chance.random() < 0.5):
            protocol = {"minReaderVersion": 2 if readers else 1, "minWriterVersion": 5 if readers else 2}
        return {"protocol": self.odd(protocol, ("readerFeatures", "writerFeatures") if len(protocol) == 2 else ())}

    def metadata_json(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "id": "5c1d0f7e-0000-4000-8000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.spelled(self.schema_json()),
            "partitionColumns": [f.name for f in self.partitions],
            "configuration": self.configuration,
        }
        return {"metaData": self.odd(metadata, ("name", "description", "createdTime"))}

    def features_now(self) -> set[str]:
        found = set(self.features)
        if "timestamp_ntz" in json.dumps(self.schema_json()):
            found.add("timestampNtz")
        return found

    def commit(self, actions: list[dict[str, Any]]) -> None:
        chance = self.chance
        self.version += 1
        info = {
            "commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE", "operationParameters": {"x": None}}
        }
        lines: list[dict[str, Any] | None] = [*actions]
        if chance.random() < 0.7:
            lines.insert(chance.randint(0, len(lines)), info)
        if chance.random() < 0.2:
            lines.append({"actionOfTheFuture": {"any": ["thing", 1.5]}})
        if chance.random() < 0.3:
            app = chance.choice(("app", "é"))
            self.txns[app] = self.txns.get(app, 0) + chance.choice((1, 2**40))
            lines.append({"txn": self.odd({"appId": app, "version": self.txns[app]}, ("lastUpdated",))})
        if chance.random() < 0.2:
            domain = chance.choice(("d1", "d2"))
            removed = domain in self.domains and chance.random() < 0.5
            if removed:
                del self.domains[domain]
            else:
                self.domains[domain] = f'{{"v":{self.version}}}'
            lines.append({"domainMetadata": {"domain": domain, "configuration": self.domains.get(domain, ""),
                                             "removed": removed}})  # fmt: skip
        text = ""
        for line in lines:
            if chance.random() < 0.05:
                text += chance.choice(("\n", "  \n", "\r\n"))
            text += self.spelled(line) + chance.choice(("\n", "\n", "\n", "\r\n", " \n"))
        if chance.random() < 0.3:
            text = text.rstrip()
        (self.log / f"{self.version:020}.json").write_bytes(text.encode())
        self.versions[self.version] = self.rows()
        self.changes[self.version], self.changed = self.changed, []
        self.lines[self.version] = [line for line in lines if line is not None and "commitInfo" not in line]
        if chance.random() < 0.2 and self.version > 0:
            self.compact(chance.randint(0, self.version - 1))
        if chance.random() < 0.3:
            self.checkpoint()

    def rows(self) -> list[Row]:
        found = []
        for file in self.files.values():
            for n, row in enumerate(file["rows"]):
                if n not in file["gone"]:
                    found.append({f.name: _seen(row.get(f.number), f.kind) for f in self.fields})
        return found

    # Steps

    def make(self) -> Foreign:
        chance = self.chance
        paths = [self.write_file() for _ in range(chance.randint(0, 3))]
        self.features = self.features_now()
        first = [self.protocol_json(), self.metadata_json(), *(self.add_json(p) for p in paths)]
        chance.shuffle(first)
        self.commit(first)
        for _ in range(chance.randint(1, 7)):
            step = chance.choice((self.append, self.append, self.remove, self.delete_rows, self.add_column,
                                  self.drop_column, self.rename, self.again, self.replace,
                                  self.update_rows))  # fmt: skip
            actions = step()
            if actions:
                self.commit(actions)
        self.hint()
        self.clean_up()
        return self

    def append(self) -> list[dict[str, Any]]:
        return [self.add_json(self.write_file()) for _ in range(self.chance.randint(1, 3))]

    def remove(self) -> list[dict[str, Any]]:
        if not self.files:
            return []
        path = self.chance.choice(sorted(self.files))
        line = self.remove_json(path)
        file = self.files.pop(path)
        self.changed += [("delete", row) for n, row in enumerate(file["rows"]) if n not in file["gone"]]
        return [line]

    def replace(self) -> list[dict[str, Any]]:
        lines = self.remove() + self.append()
        self.chance.shuffle(lines)
        return lines

    def update_rows(self) -> list[dict[str, Any]]:
        """One file for another, and its changes in a file of their own."""
        if not self.files:
            return []
        lines = self.remove()
        gone = [row for _, row in self.changed]
        path = self.write_file()
        come = self.files[path]["rows"]
        kinds = ["update_preimage", "delete"]
        self.changed = [(self.chance.choice(kinds), row) for row in gone] + [("insert", row) for row in come]
        partitions = {json.dumps([str(row.get(f.number)) for f in self.partitions]): row for _, row in self.changed}
        for group, example in partitions.items():
            rows = [(k, r) for k, r in self.changed
                    if json.dumps([str(r.get(f.number)) for f in self.partitions]) == group]  # fmt: skip
            lines.append(self.change_file(rows, example))
        return [*lines, self.add_json(path)]

    def change_file(self, changed: list[tuple[str, Row]], example: Row) -> dict[str, Any]:
        # Forms may keep less of a value than the rows have: these are stored whole.
        columns = []
        for f in self.fields:
            if f not in self.partitions:
                arrow = self.whole(f.kind)
                values = [_unnumbered(row.get(f.number), f.kind, self.mapping) for _, row in changed]
                columns.append(
                    (
                        pa.field(
                            f.physical if self.mapping != "none" else f.name,
                            arrow,
                            metadata={"PARQUET:field_id": str(f.number)},
                        ),
                        pa.array(values, arrow),
                    )
                )
        columns.append((pa.field("_change_type", pa.string()), pa.array([kind for kind, _ in changed])))
        self.chance.shuffle(columns)
        key = f"_change_data/cdc-{uuid.UUID(int=self.chance.getrandbits(128))}.parquet"
        (self.place / "_change_data").mkdir(exist_ok=True)
        schema = pa.schema([c[0] for c in columns])
        pq.write_table(pa.Table.from_arrays([c[1] for c in columns], schema=schema), self.place / key)
        texts = {
            (f.physical if self.mapping != "none" else f.name): _partition_text(
                self.chance, f.kind, example.get(f.number)
            )
            for f in self.partitions
        }
        size = (self.place / key).stat().st_size
        return {"cdc": self.odd({"path": key, "partitionValues": texts, "size": size, "dataChange": False}, ("tags",))}

    def whole(self, kind: Any) -> pa.DataType:
        match kind:
            case str():
                return LEAVES[kind][1][0].arrow
            case ("array", element):
                return pa.list_(self.whole(element))
            case ("map", key, value):
                return pa.map_(self.whole(key), self.whole(value))
            case _:
                return pa.struct([pa.field(f.physical if self.mapping != "none" else f.name, self.whole(f.kind),
                                           metadata={"PARQUET:field_id": str(f.number)}) for f in kind])  # fmt: skip

    def feed(self, first: int) -> list[Row]:
        """The changes since a version, by the names of now."""
        return [
            {f.name: _seen(row.get(f.number), f.kind) for f in self.fields}
            | {"_change_type": kind, "_commit_version": version}
            for version, rows in self.changes.items()
            if version >= first
            for kind, row in rows
        ]

    def compact(self, first: int) -> None:
        """What the commits from `first` on come to, in one file beside them."""
        last: dict[str, dict[str, Any]] = {}
        for version in range(first, self.version + 1):
            for line in self.lines[version]:
                for key, action in line.items():
                    named = action if isinstance(action, dict) else {}
                    place = [key, named.get("appId"), named.get("domain")]
                    if key in ("add", "remove"):
                        place = ["file", named["path"], named.get("deletionVector")]
                    if key != "cdc":
                        last[json.dumps(place, sort_keys=True)] = {key: action}
        text = "".join(self.spelled(line) + "\n" for line in last.values())
        (self.log / f"{first:020}.{self.version:020}.compacted.json").write_text(text)

    def again(self) -> list[dict[str, Any]]:
        """The same file once more, with other statistics; no row changes."""
        if not self.files:
            return []
        path = self.chance.choice(sorted(self.files))
        add = self.files[path]["add"] = dict(self.files[path]["add"])
        if not add.get("deletionVector"):
            add.pop("stats", None)
        add["dataChange"] = False
        return [self.add_json(path)]

    def delete_rows(self) -> list[dict[str, Any]]:
        living = [p for p, f in self.files.items() if len(f["gone"]) < len(f["rows"])]
        if not living or not self.has_vectors:
            return []
        path = self.chance.choice(sorted(living))
        file = self.files[path]
        removed = self.remove_json(path)
        left = [n for n in range(len(file["rows"])) if n not in file["gone"]]
        gone = file["gone"] | set(self.chance.sample(left, k=self.chance.randint(1, len(left))))
        self.changed += [("delete", file["rows"][n]) for n in gone - file["gone"]]
        add = dict(file["add"])
        add["deletionVector"], add["dataChange"] = self.vector(sorted(gone)), True
        if "stats" not in add:
            add["stats"] = self.spelled({"numRecords": len(file["rows"])})
        self.files[path] = {"add": add, "rows": file["rows"], "gone": gone}
        lines = [removed, self.add_json(path)]
        self.chance.shuffle(lines)
        return lines

    def vector(self, gone: list[int]) -> dict[str, Any]:
        data = struct.pack("<IQI", 1681511377, 1, 0) + _roaring(self.chance, gone)
        how = self.chance.choice("uuip")
        described = {"storageType": how, "sizeInBytes": len(data), "cardinality": len(gone)}
        if how == "i":
            described["pathOrInlineDv"] = _z85(data + b"\0" * (-len(data) % 4))
            return described
        name = uuid.UUID(int=self.chance.getrandbits(128))
        prefix = self.chance.choice(("", "ab", "x9z")) if how == "u" else ""
        file = self.place / prefix / f"deletion_vector_{name}.bin"
        file.parent.mkdir(exist_ok=True)
        before = b"\x01" + b"junk" * self.chance.choice((0, 3))
        file.write_bytes(before + struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
        described["offset"] = len(before)
        described["pathOrInlineDv"] = prefix + _z85(name.bytes) if how == "u" else "file://" + quote(str(file))
        return described

    def add_column(self) -> list[dict[str, Any]]:
        self.fields.insert(self.chance.randint(1, len(self.fields)), self.new_column())
        self.features |= self.features_now()
        return [self.metadata_json(), self.protocol_json()]

    def drop_column(self) -> list[dict[str, Any]]:
        loose = [f for f in self.fields[1:] if f not in self.partitions]
        if self.mapping == "none" or not loose:
            return []
        self.fields.remove(self.chance.choice(loose))
        return [self.metadata_json()]

    def rename(self) -> list[dict[str, Any]]:
        if self.mapping == "none" or len(self.fields) < 2:
            return []
        field = self.chance.choice(self.fields[1:])
        taken = {f.name.lower() for f in self.fields}
        field.name = self.chance.choice([n for n in _NAMES if n.lower() not in taken])
        return [self.metadata_json(), *self.append()]

    # Upkeep

    def hint(self) -> None:
        chance = self.chance
        if chance.random() < 0.4:
            return
        checkpoints = sorted(self.states)
        right = {"version": checkpoints[-1], "size": 7} if checkpoints else {"version": 3, "size": 1}
        wrong = ({"version": 99, "size": 1}, {"version": 0, "size": 1, "parts": 4}, {"version": "x"}, [], None)
        text = json.dumps(right if chance.random() < 0.6 else chance.choice(wrong))
        (self.log / "_last_checkpoint").write_text(text if chance.random() < 0.8 else text[:-1])

    def clean_up(self) -> None:
        if self.states and self.chance.random() < 0.4:
            self.first = max(self.states)
            for version in range(self.first):
                (self.log / f"{version:020}.json").unlink()
            for old in self.log.glob("*.checkpoint*"):
                if int(old.name[:20]) < self.first:
                    old.unlink()
            for old in self.log.glob("*.compacted.json"):
                if int(old.name[:20]) < self.first:
                    old.unlink()

    def checkpoint(self) -> None:
        """The state of now, in one of the forms that a checkpoint may have."""
        chance = self.chance
        lines: list[dict[str, Any]] = [self.protocol_json(), self.metadata_json()]
        lines += [{"txn": {"appId": a, "version": v}} for a, v in self.txns.items()]
        lines += [{"domainMetadata": {"domain": d, "configuration": c, "removed": False}}
                  for d, c in self.domains.items()]  # fmt: skip
        files: list[dict[str, Any]] = [{"add": {**f["add"], "dataChange": False}} for f in self.files.values()]
        if chance.random() < 0.7:
            live = {json.dumps([p, f["add"].get("deletionVector")], sort_keys=True) for p, f in self.files.items()}
            files += [{"remove": {**r, "dataChange": False}} for key, r in self.gone.items() if key not in live]
        self.states[self.version] = True
        base = f"{self.version:020}.checkpoint"
        form = chance.choice(("classic", "classic", "parts", "json", "v2"))
        if form in ("json", "v2") and "v2Checkpoint" not in self.features:
            form = "classic"
        if form == "classic":
            mixed = [*lines, *files]
            chance.shuffle(mixed)
            self.checkpoint_file(self.log / f"{base}.parquet", mixed)
        elif form == "parts":
            mixed = [*lines, *files]
            chance.shuffle(mixed)
            parts = chance.randint(1, 3)
            for n in range(parts):
                self.checkpoint_file(self.log / f"{base}.{n + 1:010}.{parts:010}.parquet", mixed[n::parts])
        else:
            lines.append({"checkpointMetadata": {"version": self.version, "tags": {"a": "b"}}})
            sides = self.log / "_sidecars"
            sides.mkdir(exist_ok=True)
            for n in range(chance.randint(0, 2) if files else 0):
                some, files = files[::2], files[1::2]
                if some:
                    side = sides / f"{uuid.UUID(int=chance.getrandbits(128))}.parquet"
                    self.checkpoint_file(side, some)
                    path = side.name if chance.random() < 0.7 else "file://" + str(side)
                    lines.append({"sidecar": {"path": path, "sizeInBytes": side.stat().st_size,
                                              "modificationTime": n}})  # fmt: skip
            name = f"{base}.{uuid.UUID(int=chance.getrandbits(128))}"
            if form == "json":
                text = "\n".join(self.spelled(line) for line in [*lines, *files])
                (self.log / f"{name}.json").write_text(text)
            else:
                self.checkpoint_file(self.log / f"{name}.parquet", [*lines, *files])

    def checkpoint_file(self, target: Path, lines: list[dict[str, Any]]) -> None:
        chance = self.chance
        strings = pa.map_(pa.string(), pa.string())
        vector = [("storageType", pa.string()), ("pathOrInlineDv", pa.string()), ("offset", pa.int32()),
                  ("sizeInBytes", pa.int32()), ("cardinality", pa.int64())]  # fmt: skip
        has_vector = any("deletionVector" in a for line in lines for a in line.values())
        shared = [("path", pa.string()), ("partitionValues", strings), ("size", pa.int64()), ("dataChange", pa.bool_())]
        shared += (
            [("deletionVector", pa.struct(_some(chance, vector, 1)))] if has_vector or chance.random() < 0.5 else []
        )
        add = [*shared, ("modificationTime", pa.int64()), ("baseRowId", pa.int64()), ("tags", strings)]
        how = chance.choice(("text", "text", "struct", "none"))
        identifier = self.fields[0].physical if self.mapping != "none" else "id"
        bounds = pa.struct([(identifier, pa.int64())])
        vectors_need_count = has_vector
        if how == "text" or vectors_need_count:
            add.append(("stats", pa.string()))
        if how == "struct":
            add.append(("stats_parsed", pa.struct([("numRecords", pa.int64()), ("minValues", bounds),
                                                   ("maxValues", bounds), ("nullCount", bounds)])))  # fmt: skip
        rows = []
        for line in lines:
            [(key, action)] = line.items()
            action = dict(action)
            if key == "add" and how == "struct" and action.get("stats"):
                action["stats_parsed"] = json.loads(action["stats"])
            rows.append({key: action})
        kinds: dict[str, pa.DataType] = {
            "add": pa.struct(_some(chance, add, 0)),
            "remove": pa.struct(_some(chance, [*shared, ("deletionTimestamp", pa.int64()),
                                               ("extendedFileMetadata", pa.bool_())], 0)),
            "metaData": pa.struct([("id", pa.string()), ("name", pa.string()), ("description", pa.string()),
                                   ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
                                   ("schemaString", pa.string()), ("partitionColumns", pa.list_(pa.string())),
                                   ("configuration", strings), ("createdTime", pa.int64())]),
            "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
                                   ("readerFeatures", pa.list_(pa.string())),
                                   ("writerFeatures", pa.list_(pa.string()))]),
            "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
            "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()),
                                         ("removed", pa.bool_())]),
            "checkpointMetadata": pa.struct([("version", pa.int64()), ("tags", strings)]),
            "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()),
                                  ("modificationTime", pa.int64())]),
        }  # fmt: skip
        used = {key for row in rows for key in row}
        names = [k for k in kinds if k in used or chance.random() < 0.3]
        chance.shuffle(names)
        arrays = [pa.array([_as(row.get(name), kinds[name]) for row in rows], kinds[name]) for name in names]
        if chance.random() < 0.2:
            names.append("somethingElse")
            arrays.append(pa.nulls(len(rows), pa.struct([("x", pa.int32())])))
        pq.write_table(
            pa.Table.from_arrays(arrays, names=names), target,
            row_group_size=chance.choice((1, 2, 1000)), compression=chance.choice(("snappy", "zstd", "gzip", "none")),
            use_compliant_nested_type=chance.random() < 0.5, write_statistics=chance.random() < 0.6,
            use_dictionary=chance.random() < 0.5, store_schema=chance.random() < 0.5,
        )  # fmt: skip


def _some(chance: random.Random, fields: list[tuple[str, pa.DataType]], keep: int) -> list[tuple[str, pa.DataType]]:
    chance.shuffle(fields)
    return fields


def _as(action: Any, kind: pa.DataType) -> Any:
    """What a row of the checkpoint holds of an action: the fields that it has columns for."""
    if action is None or not pa.types.is_struct(kind):
        return list(action.items()) if isinstance(action, dict) and pa.types.is_map(kind) else action
    return {f.name: _as(action.get(f.name), f.type) for f in kind}


def _shuffled(chance: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _shuffled(chance, value[k]) for k in chance.sample(sorted(value), k=len(value))}
    return [_shuffled(chance, v) for v in value] if isinstance(value, list) else value


def _seen(value: Any, kind: Any) -> Any:
    """A value by the names that its fields have now, with zones where there are some."""
    if value is None:
        return None
    match kind:
        case "timestamp":
            return value.replace(tzinfo=dt.UTC)
        case "float":
            return struct.unpack("f", struct.pack("f", value))[0]
        case str():
            return value
        case ("array", element):
            return [_seen(v, element) for v in value]
        case ("map", _, inner):
            return {k: _seen(v, inner) for k, v in value}
        case _:
            return {f.name: _seen(value.get(f.number), f.kind) for f in kind}


def _unnumbered(value: Any, kind: Any, mapping: str) -> Any:
    """As Arrow takes it."""
    if value is None:
        return None
    match kind:
        case "timestamp" | "timestamp_ntz":
            return _micros(value)
        case str():
            return value
        case ("array", element):
            return [_unnumbered(v, element, mapping) for v in value]
        case ("map", key, inner):
            return [(_unnumbered(k, key, mapping), _unnumbered(v, inner, mapping)) for k, v in value]
        case _:
            return {(f.physical if mapping != "none" else f.name): _unnumbered(value.get(f.number), f.kind, mapping)
                    for f in kind}  # fmt: skip


def _has_nanos(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_nanos(kind.field(n).type) for n in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _encodings(chance: random.Random, schema: pa.Schema) -> dict[str, str]:
    found = {}
    for field in schema:
        kind = field.type
        if pa.types.is_integer(kind):
            found[field.name] = chance.choice(("DELTA_BINARY_PACKED", "PLAIN", "BYTE_STREAM_SPLIT"))
        elif pa.types.is_floating(kind):
            found[field.name] = chance.choice(("BYTE_STREAM_SPLIT", "PLAIN"))
        elif pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
            found[field.name] = chance.choice(("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"))
        elif pa.types.is_boolean(kind):
            found[field.name] = "RLE"
    return found


def _partition_text(chance: random.Random, kind: str, value: Any) -> str | None:
    match value:
        case None:
            return chance.choice((None, ""))
        case bool():
            return "true" if value else "false"
        case dt.datetime() if kind == "timestamp":
            utc = value.isoformat(sep=" ", timespec=chance.choice(("auto", "microseconds")))
            return chance.choice((utc, utc.replace(" ", "T") + "Z", utc.replace(" ", "T") + "+00:00"))
        case dt.datetime():
            return value.isoformat(sep=chance.choice(" T"), timespec=chance.choice(("auto", "microseconds")))
        case dt.date():
            return value.isoformat()
        case bytes():
            return "".join(f"\\u00{byte:02x}" for byte in value) if value == b"\xff\x00" else value.decode()
        case float():
            return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value), str(value))
        case Decimal():
            return format(value, "f")
        case _:
            return str(value)


def _z85(data: bytes) -> str:
    """Base85 with ZeroMQ's letters."""
    python = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    zero = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return base64.b85encode(data).decode().translate(str.maketrans(python, zero))


def _roaring(chance: random.Random, numbers: list[int]) -> bytes:
    """A 32-bit bitmap in Roaring's portable form, with one container: sorted numbers, bits, or runs."""
    how = chance.choice(("array", "bits", "runs")) if len(numbers) <= 4096 else "bits"
    if how == "runs":
        runs: list[list[int]] = []
        for n in numbers:
            if runs and runs[-1][0] + runs[-1][1] + 1 == n:
                runs[-1][1] += 1
            else:
                runs.append([n, 0])
        head = struct.pack("<HH", 12347, 0) + b"\x01" + struct.pack("<HH", 0, len(numbers) - 1)
        return head + struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *run) for run in runs)
    head = struct.pack("<IIHHI", 12346, 1, 0, len(numbers) - 1, 16)
    return head + b"".join(struct.pack("<H", n) for n in numbers)

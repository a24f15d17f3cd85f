"""Random histories of statements that make tables and say what they are: CREATE, ALTER, REPLACE, CLONE, RESTORE, REORG,
and the INSERT, UPDATE, MERGE, DELETE and TRUNCATE between them that show what the definitions do to rows.

Tables are `{a}`, `{b}` and `{c}` in a text, and `{v3}` is the version that the table had after the third step. The next
statement is made for the columns that the tables have at that moment, so most of them can be done; some cannot.
"""

from __future__ import annotations

import random
from typing import Any

from lakeseal import Table
from lakeseal.protocol.schema import StructType

TABLES = ("a", "b", "c")
VALUES: dict[str, tuple[str, ...]] = {
    "tinyint": ("1Y", "-128Y", "7Y"),
    "smallint": ("1S", "-32768S", "300S"),
    "int": ("1", "-2147483648", "77", "5"),
    "bigint": ("1L", "-9223372036854775807L", "42L", "9007199254740993L"),
    "float": ("CAST(0.5 AS FLOAT)", "CAST('NaN' AS FLOAT)", "CAST(16777217 AS FLOAT)"),
    "double": ("0.1D", "CAST('NaN' AS DOUBLE)", "-0.0D", "1e300D"),
    "decimal(9,2)": ("1.25BD", "-9999999.99BD"),
    "decimal(12,2)": ("1.25BD", "-9999999999.99BD"),
    "string": ("'a'", "'it''s'", "''", "'é/=% :'", "'x'"),
    "binary": ("X'6162'", "X''"),
    "boolean": ("true", "false"),
    "date": ("DATE'2024-02-29'", "DATE'0001-01-01'", "DATE'1582-10-04'"),
    "timestamp": ("TIMESTAMP'2024-03-10 02:30:00.123456Z'", "TIMESTAMP'1883-11-18 12:00:00Z'"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2024-03-10 02:30:00.123456'",),
    "struct<a:int,b:string>": ("named_struct('a', 1, 'b', 'x')", "named_struct('a', CAST(NULL AS INT), 'b', 'y')"),
    "array<int>": ("array(1, NULL, 3)", "array(5)"),
    "map<string,int>": ("map('k', 1)", "map('k', 1, 'l', CAST(NULL AS INT))"),
    "array<struct<a:int,b:string>>": ("array(named_struct('a', 1, 'b', 'x'))",),
}
ATOMIC = tuple(kind for kind in VALUES if "<" not in kind)
WIDER = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "tinyint", "decimal(9,2)"),
    "int": ("bigint", "double", "smallint", "string", "decimal(12,2)"),
    "bigint": ("int", "double"),
    "float": ("double",),
    "decimal(9,2)": ("decimal(12,2)",),
    "decimal(12,2)": ("decimal(9,2)",),
    "date": ("timestamp_ntz", "timestamp"),
}
_NAMES = ("id", "k", "v", "Data", "with space", "s", "ts", "d", "é", "x.y", "n", "V2")
_PROPERTIES = (
    "'delta.enableChangeDataFeed' = 'true'",
    "'delta.enableDeletionVectors' = 'true'",
    "'delta.enableTypeWidening' = 'true'",
    "'delta.feature.allowColumnDefaults' = 'supported'",
    "'delta.columnMapping.mode' = 'name'",
    "'my.note' = 'it''s'",
    "'delta.appendOnly' = 'false'",
    "'delta.checkpointInterval' = '3'",
    "'delta.dataSkippingNumIndexedCols' = '2'",
)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`" if not name.isidentifier() or not name.isascii() else name


class Definitions:
    """The statements of one history, one after the other; `found` are our tables by their names."""

    def __init__(self, chance: random.Random, found: dict[str, Table]) -> None:
        self.chance = chance
        self._found = found
        self._changed: dict[str, list[int]] = {name: [] for name in TABLES}
        self._names: list[str] = []
        """Which columns may get."""

    def changed(self, number: int, text: str) -> None:
        """The statement was carried out."""
        for name in TABLES:
            if self._found[name].exists() and ("{" + name + "}") in text.split("FROM")[0].split("CLONE")[0]:
                self._changed[name].append(number)

    def first(self) -> str:
        return self._creation("a", "CREATE TABLE")

    def next(self) -> str:
        chance = self.chance
        there = [name for name in TABLES if self._found[name].exists()]
        name = chance.choice(there)
        schema = self._found[name].snapshot().schema
        is_mapped = self._is_mapped(name)
        self._names = [one for one in _NAMES if is_mapped or not _needs_mapping(one)]
        makers = [
            (10, lambda: self._insert(name, schema)),
            (10, lambda: self._alter(name, schema)),
            (2, lambda: self._change(name, schema)),
            (1, lambda: self._merge(name, schema)),
            (1.5, lambda: self._created(chance.choice(TABLES))),
            (1.5, lambda: self._as_query(chance.choice(TABLES), name, schema)),
            (1, lambda: self._clone(chance.choice(TABLES), name)),
            (1, lambda: self._restore(name)),
            (0.7, lambda: f"OPTIMIZE {{{name}}}"),
            (0.7, lambda: f"REORG TABLE {{{name}}} APPLY (PURGE)"),
            (0.3, lambda: f"TRUNCATE TABLE {{{name}}}"),
        ]
        (maker,) = chance.choices([one for _, one in makers], [weight for weight, _ in makers])
        return maker()

    def _is_mapped(self, name: str) -> bool:
        """Tables that are made anew stay mapped here, and not in Delta Spark."""
        table = self._found[name]
        return table.exists() and table.snapshot().metadata.configuration.get("delta.columnMapping.mode") == "name"

    def _created(self, name: str) -> str:
        """By a path, Delta Spark makes no table anew but AS a query."""
        hows = _CREATIONS if not self._found[name].exists() else ("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
        return self._creation(name, self.chance.choice(hows))

    def _value(self, kind: str) -> str:
        return "NULL" if self.chance.random() < 0.15 else self._literal(kind)

    def _literal(self, kind: str) -> str:
        if kind in VALUES:
            return self.chance.choice(VALUES[kind])
        return "NULL"

    def _creation(self, name: str, how: str) -> str:
        chance = self.chance
        names = chance.sample(_NAMES, chance.randint(2, 5))
        kinds = {one: chance.choice(tuple(VALUES)) for one in names}
        properties = set(chance.sample(_PROPERTIES, chance.choice((0, 0, 1, 2))))
        columns = []
        for one, kind in kinds.items():
            text = f"{quoted(one)} {_written(chance, kind)}"
            if chance.random() < 0.12:
                text += " NOT NULL"
            if chance.random() < 0.2 and kind in ATOMIC:
                text += f" DEFAULT {self._literal(kind)}"
                if chance.random() < 0.9:
                    properties.add("'delta.feature.allowColumnDefaults' = 'supported'")
            if chance.random() < 0.2:
                text += " COMMENT 'it''s a column'"
            columns.append(text)
        whole = [one for one, kind in kinds.items() if kind == "int"]
        if whole and chance.random() < 0.3:
            columns.append(f"g BIGINT GENERATED ALWAYS AS (CAST({quoted(whole[0])} AS BIGINT) * 2)")
        if chance.random() < 0.1:
            columns.append(f"i BIGINT GENERATED {chance.choice(('ALWAYS', 'BY DEFAULT'))} AS IDENTITY")
        if any(map(_needs_mapping, names)) or self._is_mapped(name):
            properties.add("'delta.columnMapping.mode' = 'name'")
        atomic = [one for one, kind in kinds.items() if kind in ATOMIC]
        by = ""
        if atomic and chance.random() < 0.3:
            by = f" PARTITIONED BY ({quoted(chance.choice(atomic))})"
        elif atomic and chance.random() < 0.15:
            by = f" CLUSTER BY ({quoted(chance.choice(atomic))})"
        about = " COMMENT 'a table''s'" if chance.random() < 0.2 else ""
        given = f" TBLPROPERTIES ({', '.join(sorted(properties))})" if properties else ""
        return f"{how} {{{name}}} ({', '.join(columns)}) USING delta{by}{about}{given}"

    def _insert(self, name: str, schema: StructType) -> str:
        chance = self.chance
        own = [] if chance.random() < 0.3 else ["i"]
        fields = [field for field in schema.fields if field.name not in ("g", *own)]
        if not fields:
            return f"DELETE FROM {{{name}}}"
        if len(fields) < len(schema.fields) or chance.random() < 0.5:
            fields = chance.sample(fields, chance.randint(max(1, len(fields) - 2), len(fields)))
            columns = f" ({', '.join(quoted(field.name) for field in fields)})"
        else:
            columns = ""
        rows = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            cells = [self._value(str(field.type)) for field in fields]
            if chance.random() < 0.1:
                cells[chance.randrange(len(cells))] = "DEFAULT"
            if chance.random() < 0.05 and not rows:
                cells[chance.randrange(len(cells))] = chance.choice(("3000000000", "'text'", "1.5", "true"))
            rows.append(f"({', '.join(cells)})")
        values = f"VALUES {', '.join(rows)}"
        roll = chance.random()
        if roll < 0.1:
            return f"INSERT OVERWRITE {{{name}}}{columns} {values}"
        plain = [field for field in schema.fields if str(field.type) in ("int", "bigint", "string", "date")]
        if roll < 0.25 and plain and not columns:
            field = chance.choice(plain)
            one = quoted(field.name)
            where = f"{one} = {self._literal(str(field.type))}"
            shown = ", ".join(quoted(field.name) for field in fields)
            return f"INSERT INTO {{{name}}} REPLACE WHERE {where} SELECT * FROM ({values}) AS x({shown}) WHERE {where}"
        return f"INSERT INTO {{{name}}}{columns} {values}"

    def _change(self, name: str, schema: StructType) -> str:
        chance = self.chance
        field = chance.choice(schema.fields)
        where = ""
        plain = [one for one in schema.fields if str(one.type) in ATOMIC]
        if plain and chance.random() < 0.9:
            one = chance.choice(plain)
            said = [f"= {self._literal(str(one.type))}", "IS NULL", "IS NOT NULL"]
            where = f" WHERE {quoted(one.name)} {chance.choice(said)}"
        if chance.random() < 0.5:
            return f"DELETE FROM {{{name}}}{where}"
        return f"UPDATE {{{name}}} SET {quoted(field.name)} = {self._value(str(field.type))}{where}"

    def _merge(self, name: str, schema: StructType) -> str:
        """By one of the columns, with a source whose columns its alias names."""
        chance = self.chance
        fields = [field for field in schema.fields if field.name not in ("g", "i")]
        plain = [field for field in fields if str(field.type) in ATOMIC]
        if not plain:
            return f"DELETE FROM {{{name}}}"
        key, one = chance.choice(plain), chance.choice(fields)
        rows = [
            f"({', '.join(self._literal(str(field.type)) for field in fields)})" for _ in range(chance.choice((1, 2)))
        ]
        names = [quoted(field.name) for field in fields]
        clauses = [
            f"WHEN MATCHED THEN UPDATE SET t.{quoted(one.name)} = s.{quoted(one.name)}",
            "WHEN MATCHED THEN DELETE",
        ]
        inserts = f"WHEN NOT MATCHED THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{n}' for n in names)})"
        said = chance.sample((chance.choice(clauses), inserts), chance.choice((1, 2)))
        by = f"t.{quoted(key.name)} = s.{quoted(key.name)}"
        source = f"(VALUES {', '.join(rows)}) AS s({', '.join(names)})"
        return f"MERGE INTO {{{name}}} t USING {source} ON {by} {' '.join(sorted(said))}"

    def _as_query(self, name: str, source: str, schema: StructType) -> str:
        chance = self.chance
        how = chance.choice(_CREATIONS)
        fields = chance.sample(schema.fields, chance.randint(1, len(schema.fields)))
        names = [quoted(field.name) for field in fields]
        atomic = [quoted(field.name) for field in fields if str(field.type) in ATOMIC]
        by = f" PARTITIONED BY ({chance.choice(atomic)})" if len(atomic) > 1 and chance.random() < 0.3 else ""
        mapped = any(_needs_mapping(field.name) for field in fields) or self._is_mapped(name)
        given = " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')" if mapped else ""
        at = chance.choice(("", "", f" VERSION AS OF {self._version(source)}"))
        return f"{how} {{{name}}} USING delta{by}{given} AS SELECT {', '.join(names)} FROM {{{source}}}{at}"

    def _clone(self, name: str, source: str) -> str:
        how = self.chance.choice(_CREATIONS)
        at = self.chance.choice(("", f" VERSION AS OF {self._version(source)}"))
        given = f" TBLPROPERTIES ({self.chance.choice(_PROPERTIES)})" if self.chance.random() < 0.3 else ""
        return f"{how} {{{name}}} SHALLOW CLONE {{{source}}}{at}{given}"

    def _restore(self, name: str) -> str:
        return f"RESTORE TABLE {{{name}}} TO VERSION AS OF {self._version(name)}"

    def _version(self, name: str) -> str:
        known = self._changed[name]
        return f"{{v{self.chance.choice(known)}}}" if known else "0"

    def _alter(self, name: str, schema: StructType) -> str:
        chance = self.chance
        return f"ALTER TABLE {{{name}}} " + chance.choice(
            (
                self._added(schema),
                self._added(schema),
                f"DROP COLUMN {self._column(schema)}",
                f"RENAME COLUMN {self._column(schema)} TO {quoted(chance.choice(self._names))}",
                self._widened(schema),
                self._widened(schema),
                f"ALTER COLUMN {self._column(schema)} {chance.choice(('SET', 'DROP'))} NOT NULL",
                self._defaulted(schema),
                f"ALTER COLUMN {self._column(schema)} COMMENT 'c{chance.randint(0, 9)}'",
                self._moved(schema),
                self._as_in_hive(schema),
                self._constraint(schema),
                f"DROP CONSTRAINT {chance.choice(('', 'IF EXISTS '))}{chance.choice(('c1', 'c2'))}",
                f"SET TBLPROPERTIES ({chance.choice(_PROPERTIES)})",
                f"UNSET TBLPROPERTIES {chance.choice(('', 'IF EXISTS '))}('my.note')",
                f"CLUSTER BY ({self._top(schema)})",
            )
        )

    def _as_in_hive(self, schema: StructType) -> str:
        if schema.field("i") is not None and self.chance.random() < 0.5:
            return "ALTER COLUMN i SYNC IDENTITY"
        field = self.chance.choice(schema.fields)
        name = quoted(field.name)
        return f"CHANGE COLUMN {name} {name} {field.char_varchar or field.type} COMMENT 'h{self.chance.randint(0, 9)}'"

    def _moved(self, schema: StructType) -> str:
        name, other = self._column(schema), self._top(schema)
        return f"ALTER COLUMN {name} {'FIRST' if name == other or self.chance.random() < 0.5 else 'AFTER ' + other}"

    def _top(self, schema: StructType) -> str:
        return quoted(self.chance.choice(schema.fields).name)

    def _column(self, schema: StructType) -> str:
        field = self.chance.choice(schema.fields)
        if self.chance.random() < 0.5:
            if isinstance(field.type, StructType):
                return f"{quoted(field.name)}.{quoted(self.chance.choice(field.type.fields).name)}"
            if str(field.type).startswith("array<struct<a:"):
                return f"{quoted(field.name)}.element.a"
        return quoted(field.name)

    def _added(self, schema: StructType) -> str:
        chance = self.chance
        added = []
        for _ in range(chance.choice((1, 1, 2))):
            name = quoted(chance.choice(self._names))
            kind = chance.choice(tuple(VALUES))
            structs = [field for field in schema.fields if isinstance(field.type, StructType)]
            if structs and chance.random() < 0.4:
                name = f"{quoted(chance.choice(structs).name)}.{name}"
            text = f"{name} {_written(chance, kind)}"
            if chance.random() < 0.05:
                text += " NOT NULL"
            if chance.random() < 0.2:
                text += " COMMENT 'new'"
            if chance.random() < 0.3 and "." not in name:
                text += chance.choice((" FIRST", f" AFTER {self._top(schema)}"))
            added.append(text)
        return f"ADD COLUMNS ({', '.join(added)})"

    def _widened(self, schema: StructType) -> str:
        chance = self.chance
        fields = [field for field in schema.fields if str(field.type) in WIDER]
        if not fields or chance.random() < 0.1:
            return f"ALTER COLUMN {self._column(schema)} TYPE {chance.choice(ATOMIC)}"
        field = chance.choice(fields)
        return f"ALTER COLUMN {quoted(field.name)} TYPE {chance.choice(WIDER[str(field.type)])}"

    def _defaulted(self, schema: StructType) -> str:
        field = self.chance.choice(schema.fields)
        if self.chance.random() < 0.3:
            return f"ALTER COLUMN {quoted(field.name)} DROP DEFAULT"
        return f"ALTER COLUMN {quoted(field.name)} SET DEFAULT {self._value(str(field.type))}"

    def _constraint(self, schema: StructType) -> str:
        field = self.chance.choice(schema.fields)
        name = quoted(field.name)
        said = [f"{name} IS NOT NULL", f"{name} IS NULL OR true"]
        if str(field.type) in ("int", "bigint", "smallint", "tinyint"):
            said += [f"{name} > 0", f"{name} < 1000 OR {name} IS NULL"]
        if str(field.type) == "string":
            said += [f"{name} <> 'it''s'", f"length({name}) < 3"]
        return f"ADD CONSTRAINT {self.chance.choice(('c1', 'c2'))} CHECK ({self.chance.choice(said)})"


_CREATIONS = ("CREATE TABLE", "CREATE OR REPLACE TABLE", "CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS")


def _needs_mapping(name: str) -> bool:
    """Delta Spark has such names in mapped tables only."""
    return bool(set(name) & set(" ,;{}()\n\t="))


def _written(chance: random.Random, kind: str) -> str:
    if kind == "string" and chance.random() < 0.3:
        return chance.choice(("VARCHAR(6)", "CHAR(6)"))
    return kind.upper() if chance.random() < 0.5 and "struct" not in kind else kind


def told(table: Table, version: int | None = None) -> dict[str, Any]:
    """What a table says it is: its columns in their order, its partitions, constraints and properties."""
    snapshot = table.snapshot(version)
    configuration = {
        name: value
        for name, value in snapshot.metadata.configuration.items()
        if not name.startswith(("lakeseal.", "delta.columnMapping.max", "delta.rowTracking", "delta.materialized"))
    }
    return {
        "columns": [_plain_field(field) for field in snapshot.schema.fields],
        "partitioned": list(snapshot.partition_columns),
        "configuration": configuration,
        "comment": snapshot.metadata.description,
    }


def _plain_field(field: Any) -> Any:
    metadata = {name: value for name, value in field.metadata.items() if not name.startswith("delta.columnMapping")}
    metadata.pop("delta.identity.highWaterMark", None)
    return [field.name, _plain_type(field.type), field.nullable, metadata]


def _plain_type(kind: Any) -> Any:
    if isinstance(kind, StructType):
        return [_plain_field(field) for field in kind.fields]
    return str(kind)

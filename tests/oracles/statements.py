"""Random statements that change rows, said in three ways: by the Table API, with DataFrames, as SQL.

A case is a table (a few files of rows with nulls and repeated keys, structs, arrays and maps of structs), perhaps a
source, and one statement. Conditions are trees of three-valued logic. Nothing in a condition or a value can fail, but
where `fails` asks for one that does, so that engines need not agree on the order in which they evaluate.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from msgspec import Struct

from lakeseal import Table

PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("k", pa.string()),
        ("v", pa.int32()),
        ("s", PAIR),
        ("l", pa.list_(PAIR)),
        ("m", pa.map_(pa.string(), PAIR)),
    ]
)
_PAIR = "STRUCT<a: INT, b: STRING>"
DDL = f"id INT, k STRING, v INT, s {_PAIR}, l ARRAY<{_PAIR}>, m MAP<STRING, {_PAIR}>"
_TEXTS = ("x", "it's", "A", "WHEN MATCHED", "", None, "b\"'")
Row = dict[str, Any]


class Clause(Struct, frozen=True, kw_only=True):
    kind: str
    action: str
    condition: str | None = None
    values: dict[str, str] | None = None


class Statement(Struct, frozen=True, kw_only=True):
    kind: str
    """delete, update, merge, append, overwrite or replace."""
    where: str | None = None
    values: dict[str, str] = {}
    on: str = ""
    clauses: tuple[Clause, ...] = ()
    evolves: bool = False

    def sql(self, uri: str) -> str | None:
        match self.kind:
            case "delete":
                return f"DELETE FROM delta.`{uri}`" + _where(self.where)
            case "update":
                return f"UPDATE delta.`{uri}` SET {_set(self.values)}" + _where(self.where)
            case "merge":
                evolution = "WITH SCHEMA EVOLUTION " if self.evolves else ""
                clauses = " ".join(map(_when, self.clauses))
                return f"MERGE {evolution}INTO delta.`{uri}` t USING src q ON {self.on} {clauses}"
            case _:
                return None

    def run(self, table: Table, source: Any, spark: Any) -> Any:
        """By the Table API; `spark` is None for Arrow."""
        match self.kind:
            case "delete":
                return table.delete(self.where, spark=spark)
            case "update":
                return table.update(self.values, self.where, spark=spark)
            case "merge":
                merge = table.merge(source, self.on, merge_schema=self.evolves, target_alias="t", source_alias="q")
                for clause in self.clauses:
                    given = () if clause.action == "delete" else ("*" if clause.values is None else clause.values,)
                    merge = getattr(merge, f"when_{clause.kind}_{clause.action}")(*given, condition=clause.condition)
                return merge.execute()
            case "append":
                return table.write(source, merge_schema=self.evolves)
            case "overwrite":
                return table.write(source, mode="overwrite")
            case _:
                return table.write(source, mode="overwrite", replace_where=self.where)


class Case(Struct, frozen=True, kw_only=True):
    files: tuple[tuple[Row, ...], ...]
    source: str
    """A query."""
    statement: Statement
    feed: bool = False
    vectors: bool = False
    partitioned: bool = False

    @property
    def properties(self) -> dict[str, str]:
        return {
            "delta.enableChangeDataFeed": str(self.feed).lower(),
            "delta.enableDeletionVectors": str(self.vectors).lower(),
        }

    @property
    def rows(self) -> list[Row]:
        return [row for file in self.files for row in file]

    def table(self, uri: str) -> Table:
        table = Table(uri)
        by = ["k"] if self.partitioned else []
        table.write(SCHEMA.empty_table(), partition_by=by, properties=self.properties)
        for file in self.files:
            table.write(pa.Table.from_pylist([_for_arrow(row) for row in file], SCHEMA))
        return table

    def creation(self, uri: str) -> list[str]:
        """The same table by Delta Spark's SQL."""
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in self.properties.items())
        by = "PARTITIONED BY (k)" if self.partitioned else ""
        made = [f"CREATE TABLE delta.`{uri}` ({DDL}) USING delta {by} TBLPROPERTIES ({properties})"]
        return made + [f"INSERT INTO delta.`{uri}` {values_of(file)}" for file in self.files]


def values_of(rows: tuple[Row, ...] | list[Row]) -> str:
    shown = ", ".join(f"({', '.join(_literal(row[name], name) for name in SCHEMA.names)})" for row in rows)
    return f"SELECT * FROM VALUES {shown} AS x({', '.join(SCHEMA.names)})"


def some_case(
    chance: random.Random, *, kinds: tuple[str, ...] = ("delete", "update", "merge"), fails: float = 0
) -> Case:
    files = tuple(tuple(_row(chance) for _ in range(chance.randint(1, 4))) for _ in range(chance.randint(1, 3)))
    kind = chance.choice((*kinds, *(["merge"] * 2 if "merge" in kinds else [])))
    evolves = kind in ("merge", "append") and chance.random() < 0.35
    shape = _shape(chance, evolves) if kind in ("merge", "append") else {}
    source = _source(chance, shape)
    fresh = "n" in shape
    partitioned = chance.random() < 0.25
    match kind:
        case "delete":
            where = _condition(chance, [""]) if chance.random() < 0.95 else None
            statement = Statement(kind=kind, where=where)
        case "update":
            where = _condition(chance, [""]) if chance.random() < 0.9 else None
            statement = Statement(kind=kind, where=where, values=_values(chance, "", "", fails=fails))
        case "merge":
            statement = Statement(
                kind=kind, on=_on(chance), clauses=_clauses(chance, evolves, fresh, fails), evolves=evolves
            )
        case "replace":
            statement = Statement(kind=kind, where="id >= 0 OR id IS NULL OR id < 0")
            if chance.random() < 0.6:
                statement = Statement(kind=kind, where="id > 1")
                source = f"SELECT * FROM ({source}) WHERE id > 1"
        case _:
            statement = Statement(kind=kind, evolves=evolves)
    return Case(
        files=files,
        source=source,
        statement=statement,
        feed=chance.random() < 0.4,
        vectors=chance.random() < 0.3,
        partitioned=partitioned,
    )


def _shape(chance: random.Random, evolves: bool) -> dict[str, str]:
    """Columns of a source: the order of a struct's fields, and what it lacks or has more."""
    fields = ["ab", "ba"]
    if evolves:
        fields += ["b", "cba", "ca"]
    elif chance.random() < 0.1:
        fields = ["b", "abc"]
    shape = {name: chance.choice(fields) for name in ("s", "l", "m")}
    if evolves and chance.random() < 0.5:
        shape["n"] = "n"
    return shape


def _source(chance: random.Random, shape: dict[str, str]) -> str:
    rows = [_row(chance, ids=7) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.7:
        rows = list({row["id"]: row for row in rows}.values())
    columns = ["id", "k", "v"]
    columns += [_shaped(name, shape.get(name, "ab")) for name in ("s", "l", "m")]
    if "n" in shape:
        columns.append("concat('n', coalesce(k, '')) AS n")
    return f"SELECT {', '.join(columns)} FROM ({values_of(rows)})"


def _shaped(name: str, fields: str) -> str:
    def struct(value: str) -> str:
        parts = {"a": f"{value}.a", "b": f"{value}.b", "c": f"{value}.a + 100"}
        inside = ", ".join(f"'{field}', {parts[field]}" for field in fields)
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({inside}) END"

    match name:
        case "s":
            return f"{struct('s')} AS s"
        case "l":
            return f"transform(l, one -> {struct('one')}) AS l"
        case _:
            return f"transform_values(m, (key, one) -> {struct('one')}) AS m"


def _row(chance: random.Random, ids: int = 5) -> Row:
    def pair() -> Row | None:
        return None if chance.random() < 0.25 else {"a": _int(chance), "b": chance.choice(_TEXTS)}

    def several() -> list[Row | None] | None:
        return None if chance.random() < 0.25 else [pair() for _ in range(chance.randint(0, 2))]

    keys = [key for key in ("x", "y") if chance.random() < 0.5]
    return {
        "id": None if chance.random() < 0.12 else chance.randint(0, ids),
        "k": chance.choice(("x", "it's", "A", None, "z")),
        "v": _int(chance),
        "s": pair(),
        "l": several(),
        "m": None if chance.random() < 0.25 else {key: pair() for key in keys},
    }


def _int(chance: random.Random) -> int | None:
    return chance.choice((None, 0, 1, 2, 3, -1, 40))


def _condition(chance: random.Random, sides: list[str], depth: int = 0) -> str:
    if depth < 2 and chance.random() < 0.55:
        left, right = (_condition(chance, sides, depth + 1) for _ in range(2))
        return chance.choice((f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})", f"(({left}) IS NULL)"))
    one, other = (f"{chance.choice(sides)}" for _ in range(2))
    number = chance.choice((f"{one}v", f"{one}id", f"{one}s.a", f"({one}v + 1)", f"coalesce({one}v, {one}id)"))
    second = chance.choice(("0", "1", "2", "NULL", f"{other}v", f"{other}id", f"{other}s.a"))
    text = chance.choice((f"{one}k", f"{one}s.b", f"upper({one}k)", f"concat({one}k, 'it''s')"))
    return chance.choice(
        (
            f"{number} {chance.choice(('=', '<', '>=', '<>', '<=>'))} {second}",
            f"{number} {chance.choice(('=', '<', '>=', '<>', '<=>'))} {second}",
            f"{number} IN (1, {second}, 3)",
            f"{number} NOT IN (1, NULL)",
            f"{number} BETWEEN {second} AND 3",
            f"{text} = {chance.choice(('NULL', _quoted('it' + chr(39) + 's'), _quoted('x'), 'upper(' + text + ')'))}",
            f"{text} LIKE '%{chance.choice(('s', 'x', ''))}'",
            f"{text} <=> {other}k",
            f"{number} IS {chance.choice(('NULL', 'NOT NULL'))}",
            f"CASE WHEN {number} = 1 THEN {text} = 'x' ELSE {number} > 0 END",
            f"size({one}l) > 0",
            f"exists({one}l, one -> one.a > 0)",
        )
    )


def _on(chance: random.Random) -> str:
    key = chance.choice(("t.id = q.id",) * 5 + ("t.id <=> q.id", "t.k = q.k", "t.id = q.id AND t.k <=> q.k", "false"))
    return f"{key} AND {_condition(chance, ['t.', 'q.'], 1)}" if chance.random() < 0.25 else key


def _clauses(chance: random.Random, evolves: bool, fresh: bool, fails: float) -> tuple[Clause, ...]:
    found: list[Clause] = []
    sides = {"matched": ["t.", "q."], "not_matched": ["q."], "not_matched_by_source": ["t."]}
    for kind, likely in (("matched", 0.8), ("not_matched", 0.7), ("not_matched_by_source", 0.35)):
        if chance.random() > likely:
            continue
        count = chance.choice((1, 1, 2))
        for number in range(count):
            is_last = number == count - 1
            condition = None if is_last and chance.random() < 0.6 else _condition(chance, sides[kind], 1)
            found.append(_clause(chance, kind, condition, evolves, fresh, fails))
    return tuple(found) or (Clause(kind="matched", action="delete"),)


def _clause(
    chance: random.Random, kind: str, condition: str | None, evolves: bool, fresh: bool, fails: float
) -> Clause:
    if kind == "not_matched":
        values = None
        if chance.random() < 0.5:
            values = {"id": "q.id"} | _values(chance, "", "q.", see=["q."], nested=False)
        return Clause(kind=kind, action="insert", condition=condition, values=values)
    if chance.random() < 0.3:
        return Clause(kind=kind, action="delete", condition=condition)
    if kind == "matched" and chance.random() < 0.45:
        return Clause(kind=kind, action="update", condition=condition)
    see = ["t.", "q."] if kind == "matched" else ["t."]
    values = _values(chance, chance.choice(("t.", "")), "q." if kind == "matched" else "t.", see=see, fails=fails)
    if fresh and kind == "matched" and chance.random() < 0.3:
        values["n"] = "q.n"
    return Clause(kind=kind, action="update", condition=condition, values=values)


def _values(
    chance: random.Random, own: str, source: str, *, see: list[str] | None = None, nested: bool = True, fails: float = 0
) -> dict[str, str]:
    see = see or [""]
    one = chance.choice(see)
    pair = f"named_struct('b', {one}k, 'a', {one}v)"
    choices = {
        "v": [f"{one}v + 1", "NULL", "7", f"coalesce({one}s.a, -1)", f"CAST({one}id AS BIGINT)", f"{one}id * 2"],
        "k": [f"concat({one}k, '+it''s')", "'WHERE'", f"lower({one}k)", "'a\"b'", f"{one}v"],
        "s": [pair, f"{source}s", "NULL", f"CASE WHEN {one}v > 0 THEN {pair} END"],
        "l": [f"array({pair}, NULL)", f"{source}l", f"transform({one}l, one -> named_struct('b', 'q', 'a', one.a))"],
        "m": [f"map('k', {pair})", f"{source}m", "NULL"],
    }
    if nested:
        choices |= {"s.a": [f"{one}v", "9"], "s.b": [f"{one}k", "'deep'"]}
    if chance.random() < fails:
        choices["v"] = [f"2147483647 + {one}v", "CAST('x' AS INT)", f"1 / {one}v", "3000000000"]
    names = chance.sample(sorted(choices), chance.randint(1, 3))
    if any(name.startswith("s.") for name in names):
        names = [name for name in names if name != "s"]
    return {own + name: chance.choice(choices[name]) for name in names}


def _where(where: str | None) -> str:
    return "" if where is None else f" WHERE {where}"


def _set(values: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _when(clause: Clause) -> str:
    kind = {"matched": "MATCHED", "not_matched": "NOT MATCHED", "not_matched_by_source": "NOT MATCHED BY SOURCE"}
    head = f"WHEN {kind[clause.kind]}" + ("" if clause.condition is None else f" AND {clause.condition}") + " THEN"
    match clause.action, clause.values:
        case "delete", _:
            return f"{head} DELETE"
        case "update", None:
            return f"{head} UPDATE SET *"
        case "update", values:
            return f"{head} UPDATE SET {_set(values or {})}"
        case _, None:
            return f"{head} INSERT *"
        case _, values:
            given = values or {}
            return f"{head} INSERT ({', '.join(given)}) VALUES ({', '.join(given.values())})"


def _for_arrow(row: Row) -> Row:
    return {**row, "m": None if row["m"] is None else list(row["m"].items())}


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(value: Any, name: str) -> str:
    kinds = {"id": "INT", "k": "STRING", "v": "INT", "s": _PAIR, "l": f"ARRAY<{_PAIR}>", "m": f"MAP<STRING, {_PAIR}>"}
    return f"CAST({_plain(value)} AS {kinds[name]})"


def _plain(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return _quoted(value)
        case int():
            return str(value)
        case list():
            return f"array({', '.join(_pair(one) for one in value)})" if value else f"CAST(array() AS ARRAY<{_PAIR}>)"
        case dict() if set(value) == {"a", "b"}:
            return _pair(value)
        case _:
            pairs = ", ".join(f"{_quoted(key)}, {_pair(one)}" for key, one in value.items())
            return f"map({pairs})" if value else f"CAST(map() AS MAP<STRING, {_PAIR}>)"


def _pair(value: Row | None) -> str:
    if value is None:
        return f"CAST(NULL AS {_PAIR})"
    return f"named_struct('a', CAST({_plain(value['a'])} AS INT), 'b', CAST({_plain(value['b'])} AS STRING))"

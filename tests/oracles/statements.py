"""Random statements that change rows, said by the Table API, with DataFrames and as SQL; a history is ten on one table.

Conditions are trees of three-valued logic, over moments and names that mean something else in another session. Nothing
in a condition or a value can fail, but where `fails` asks for one that does, so that engines need not agree on the
order in which they evaluate.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec import Struct

from lakeseal import Table
from oracles.statement_rows import NESTED, Made, quoted, some_shape, some_source


class Clause(Struct, frozen=True, kw_only=True):
    kind: str
    action: str
    condition: str | None = None
    values: dict[str, str] | None = None


class Statement(Struct, frozen=True, kw_only=True):
    kind: str
    """delete, update, merge, append, overwrite, replace or dynamic."""
    source: str = ""
    """A query."""
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

    def insertion(self, chance: random.Random, names: tuple[str, ...]) -> str:
        """What a write is in SQL, of a view `src`, with `{t}` for the table; `names` are its columns."""
        evolution = "WITH SCHEMA EVOLUTION " if self.evolves else ""
        into = f"INSERT {evolution}INTO" if self.kind in ("append", "replace") else "INSERT OVERWRITE"
        if self.kind == "replace":
            return f"{into} {{t}} REPLACE WHERE {self.where} SELECT {', '.join(names)} FROM src"
        form = chance.choice(self._forms(names))
        if form == "name":
            return f"{into} {{t}} BY NAME SELECT * FROM src"
        listed = chance.sample(names, len(names)) if form == "list" else names
        columns = f" ({', '.join(listed)})" if form == "list" else ""
        return f"{into} {{t}}{columns} SELECT {', '.join(listed)} FROM src"

    def _forms(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Structs in another order Delta Spark takes by name or by position, as other columns have it, BY NAME, too."""
        if "named_struct('b'" not in self.source:
            return ("name", "list", "place")
        is_plain = all(f" {name} AS {name}" in self.source for name in names if name not in NESTED)
        is_plain = is_plain and not any(f" AS {name.upper()}" in self.source for name in NESTED)
        return ("name", "name", "place") if is_plain else ("place",)

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
            case "dynamic":
                return table.write(source, mode="overwrite", partition_overwrite="dynamic")
            case _:
                return table.write(source, mode="overwrite", replace_where=self.where)

    def __str__(self) -> str:
        said = self.sql("x") or f"{self.kind}{'' if self.where is None else f' where {self.where}'}"
        return said + (f"\nsource: {self.source}" if self.source else "")


class History(Struct, frozen=True, kw_only=True):
    made: Made
    statements: tuple[Statement, ...]


def some_history(
    chance: random.Random,
    session: str = "default",
    *,
    kinds: tuple[str, ...] = ("delete", "update", "merge", "append", "overwrite", "replace", "dynamic"),
    length: int = 10,
    fails: float = 0,
    foreign: float = 0,
    evolves: float = 0.05,
) -> History:
    """`fails` is how often a value cannot be had, `foreign` how often a source's column is not the table's."""
    made = Made.of(chance)
    texts = Texts(chance, session, fails=fails)
    found: list[Statement] = []
    weights = {"merge": 6, "delete": 2, "update": 4, "append": 2, "overwrite": 0.4, "replace": 2, "dynamic": 1}
    while len(found) < length:
        (kind,) = chance.choices(kinds, [weights[kind] for kind in kinds])
        if kind == "dynamic" and not made.partitioned:
            continue
        found.append(_statement(texts, kind, foreign, evolves=chance.random() < evolves))
    return History(made=made, statements=tuple(found))


def _statement(texts: Texts, kind: str, foreign: float, *, evolves: bool) -> Statement:
    chance = texts.chance
    evolves = evolves and kind in ("merge", "append")
    shape = some_shape(chance, evolves) if kind in ("merge", "append") else {}
    source = some_source(chance, shape, foreign=foreign) if kind not in ("delete", "update") else ""
    match kind:
        case "delete":
            where = texts.condition([""]) if chance.random() < 0.97 else None
            return Statement(kind=kind, where=where)
        case "update":
            where = texts.condition([""]) if chance.random() < 0.9 else None
            return Statement(kind=kind, where=where, values=texts.values("", ""))
        case "merge":
            clauses = texts.clauses("n" in shape)
            return Statement(kind=kind, source=source, on=texts.on(), clauses=clauses, evolves=evolves)
        case "replace":
            where = texts.condition([""])
            if chance.random() < 0.75:
                source = f"SELECT * FROM ({source}) WHERE {where}"
            return Statement(kind=kind, source=source, where=where)
        case _:
            return Statement(kind=kind, source=source, evolves=evolves)


class Texts:
    """Random SQL for a session."""

    def __init__(self, chance: random.Random, session: str, *, fails: float = 0) -> None:
        self.chance = chance
        self._session = session
        self._fails = fails

    def condition(self, sides: list[str], depth: int = 0) -> str:
        chance = self.chance
        if depth < 2 and chance.random() < 0.55:
            left, right = (self.condition(sides, depth + 1) for _ in range(2))
            return chance.choice(
                (f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})", f"(({left}) IS NULL)")
            )
        one, other = (chance.choice(sides) for _ in range(2))
        kind = chance.choice((self._numbers, self._numbers, self._texts, self._moments, self._others))
        return kind(one, other)

    def _op(self) -> str:
        return self.chance.choice(("=", "<", ">=", "<>", "<=>", ">"))

    def _name(self, side: str, name: str) -> str:
        """As it is written, in this session perhaps otherwise."""
        roll = self.chance.random()
        if self._session == "double-quotes" and roll < 0.4:
            return f'{side}"{name}"'
        if self._session == "case-sensitive" and roll < 0.03:
            return f"{side}{name.upper()}"
        return f"{side}{name.upper()}" if self._session != "case-sensitive" and roll < 0.08 else f"{side}{name}"

    def _numbers(self, one: str, other: str) -> str:
        chance = self.chance
        v, number = self._name(one, "v"), self._name(one, "id")
        first = chance.choice((v, number, f"{one}s.a", f"({v} + 1)", f"coalesce({v}, {number})", f"{one}x"))
        second = chance.choice(
            ("0", "1", "2", "NULL", f"{other}v", f"{other}id", f"{other}s.a", f"{other}x", "-0.0D", "'NaN'", "1.5")
        )
        if second == "'NaN'":
            first = f"{one}x"
        return chance.choice(
            (
                f"{first} {self._op()} {second}",
                f"{first} {self._op()} {second}",
                f"{first} IN (1, {second}, 3)",
                f"{first} NOT IN (1, NULL)",
                f"{first} NOT IN (0, 2)",
                f"{first} BETWEEN {second} AND 3",
                f"{first} IS {chance.choice(('NULL', 'NOT NULL'))}",
                f"isnan({one}x)",
            )
        )

    def _texts(self, one: str, other: str) -> str:
        chance = self.chance
        k = self._name(one, "k")
        text = chance.choice((k, k, f"{one}s.b", f"upper({k})", f"concat({k}, 'it''s')"))
        given = ["NULL", quoted("it's"), quoted("x"), f"upper({text})", "'back\\\\slash'", "'WHEN MATCHED'"]
        if self._session != "double-quotes":
            given += ['"x"', '"it\'s"', "'it\\'s'"]
        if self._session == "escaped-literals":
            given = [one for one in given if "\\'" not in one] + ["'back\\slash'"] * 3
        return chance.choice(
            (
                f"{text} {self._op()} {chance.choice(given)}",
                f"{text} LIKE '%{chance.choice(('s', 'x', '', 'slash'))}'",
                f"{text} <=> {other}k",
                f"{text} IN ('x', 'A')",
                f"{text} NOT IN ('x', {chance.choice(given)})",
            )
        )

    def _moments(self, one: str, other: str) -> str:
        chance = self.chance
        text = chance.choice(("2024-03-10 02:30:00", "2024-03-10", "2024-03-10 03:00:00", "2024-03-09 21:30:00Z"))
        ts = self._name(one, "ts")
        return chance.choice(
            (
                f"{ts} {self._op()} '{text}'",
                f"{ts} {self._op()} TIMESTAMP'{text}'",
                f"{one}d {self._op()} '2024-03-10'",
                f"{one}d {self._op()} {other}ts",
                f"CAST({ts} AS DATE) {self._op()} {other}d",
                f"hour({ts}) < {chance.choice((3, 5, 20))}",
                f"date_format({ts}, 'yyyy-MM-dd') = '2024-03-10'",
                f"CAST({ts} AS STRING) LIKE '2024-03-10 0%'",
                f"CAST({one}d AS TIMESTAMP) < {other}ts",
                f"{ts} BETWEEN '2024-03-09 23:00:00' AND '{text}'",
                f"date_trunc('DAY', {ts}) = DATE'2024-03-10'",
            )
        )

    def _others(self, one: str, other: str) -> str:
        found = [
            f"CASE WHEN {one}v = 1 THEN {other}k = 'x' ELSE {one}id > 0 END",
            f"size({one}l) > 0",
            f"exists({one}l, one -> one.a > 0)",
            f"{one}m['x'].a > 0",
            f"{one}s IS NULL",
            f"{one}id IN (SELECT explode(array(1, 3, 5)))" if one == "" else "true",
            f"if({one}v > 0, {other}id = 1, NULL)",
            "CAST(NULL AS BOOLEAN)",
        ]
        if self._session in ("ansi-off", "legacy-store"):
            found += [f"CAST({one}k AS INT) IS NULL", f"{one}v / 0 IS NULL", f"{one}l[5] IS NULL", f"{one}k = 1"]
        return self.chance.choice(found)

    def on(self) -> str:
        keys = ["t.id = q.id"] * 8
        keys += ["t.id <=> q.id", "t.k = q.k", "t.id = q.id AND t.k <=> q.k", "false", "t.x = q.x", "t.ts = q.ts"]
        keys += ["t.d = q.ts", "t.id = q.v", "CAST(t.ts AS DATE) = q.d", "t.id + 1 = q.id", "t.x = q.v"]
        key = self.chance.choice(keys)
        return f"{key} AND {self.condition(['t.', 'q.'], 1)}" if self.chance.random() < 0.25 else key

    def clauses(self, fresh: bool) -> tuple[Clause, ...]:
        chance = self.chance
        found: list[Clause] = []
        sides = {"matched": ["t.", "q."], "not_matched": ["q."], "not_matched_by_source": ["t."]}
        for kind, likely in (("matched", 0.8), ("not_matched", 0.7), ("not_matched_by_source", 0.35)):
            if chance.random() > likely:
                continue
            count = chance.choice((1, 1, 2))
            for number in range(count):
                is_last = number == count - 1
                condition = None if is_last and chance.random() < 0.6 else self.condition(sides[kind], 1)
                found.append(self._clause(kind, condition, fresh))
        return tuple(found) or (Clause(kind="matched", action="delete"),)

    def _clause(self, kind: str, condition: str | None, fresh: bool) -> Clause:
        chance = self.chance
        if kind == "not_matched":
            values = None
            if chance.random() < 0.5:
                values = {"id": "q.id"} | self.values("", "q.", see=["q."], nested=False)
            return Clause(kind=kind, action="insert", condition=condition, values=values)
        if chance.random() < 0.3:
            return Clause(kind=kind, action="delete", condition=condition)
        if kind == "matched" and chance.random() < 0.45:
            return Clause(kind=kind, action="update", condition=condition)
        see = ["t.", "q."] if kind == "matched" else ["t."]
        values = self.values(chance.choice(("t.", "")), "q." if kind == "matched" else "t.", see=see)
        if fresh and kind == "matched" and chance.random() < 0.3:
            values["n"] = "q.n"
        return Clause(kind=kind, action="update", condition=condition, values=values)

    def values(self, own: str, source: str, *, see: list[str] | None = None, nested: bool = True) -> dict[str, str]:
        chance = self.chance
        one = chance.choice(see or [""])
        pair = f"named_struct('b', {one}k, 'a', {one}v)"
        choices = {
            "v": [f"{one}v + 1", "NULL", "7", f"coalesce({one}s.a, -1)", f"CAST({one}id AS BIGINT)", f"{one}id * 2"],
            "k": [f"concat({one}k, '+it''s')", "'WHERE'", f"lower({one}k)", "'a\"b'", f"{one}v", f"{one}ts"],
            "x": [f"{one}v", f"-{one}x", f"{one}v * 0.5", "CAST('NaN' AS DOUBLE)"],
            "d": [f"{one}d", "DATE'2024-01-01'", f"{one}ts", f"{one}d + 1", f"to_date({one}ts)"],
            "ts": [f"{one}d", f"{one}ts", "TIMESTAMP'2024-03-10 02:30:00'", f"{one}ts + INTERVAL 1 DAY"],
            "s": [pair, f"{source}s", "NULL", f"CASE WHEN {one}v > 0 THEN {pair} END"],
            "l": [
                f"array({pair}, NULL)",
                f"{source}l",
                f"transform({one}l, one -> named_struct('b', 'q', 'a', one.a))",
            ],
            "m": [f"map('k', {pair})", f"{source}m", "NULL"],
        }
        if nested:
            choices |= {"s.a": [f"{one}v", "9"], "s.b": [f"{one}k", "'deep'"]}
        if chance.random() < self._fails:
            choices["v"] = [f"2147483647 + {one}v", "CAST('x' AS INT)", f"1 / {one}v", "3000000000", "DEFAULT"]
            choices["d"] = ["CAST('2024-13-10' AS DATE)", f"CAST({one}k AS DATE)"]
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

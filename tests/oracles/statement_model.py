"""What a statement does to rows, by a dictionary of them: Spark evaluates its expressions, and the rest is plain.

Rows have numbers. Spark is asked which numbers a condition holds for and what values are, over bare rows; who becomes
what is then a matter of dictionaries. Structs are dictionaries too, so they go by name.
"""

from __future__ import annotations

import copy
from typing import Any

from oracles.statements import DDL, Case, Clause, Row

_NESTED = ("s", "l", "m")
_NUMBER = "__number"


def expected(spark: Any, case: Case) -> list[Row] | None:
    """The rows after it; None if it must be refused, because rows of a source contradict each other."""
    _view(spark, "t_rows", case.rows, f"{DDL}, {_NUMBER} INT")
    match case.statement.kind:
        case "delete":
            gone = _chosen(spark, case.statement.where)
            return [row for number, row in enumerate(case.rows) if number not in gone]
        case "update":
            return _updated(spark, case)
        case "merge":
            return _Merge(spark, case).run()
        case kind:
            raise NotImplementedError(kind)


def _view(spark: Any, name: str, rows: list[Row], schema: Any) -> None:
    numbered = [{**row, _NUMBER: number} for number, row in enumerate(rows)]
    spark.createDataFrame(numbered, schema).createOrReplaceTempView(name)


def _chosen(spark: Any, where: str | None) -> set[int]:
    found = spark.sql(f"SELECT {_NUMBER} FROM t_rows" + ("" if where is None else f" WHERE {where}")).collect()
    return {row[0] for row in found}


def _updated(spark: Any, case: Case) -> list[Row]:
    statement = case.statement
    rows = copy.deepcopy(case.rows)
    where = "" if statement.where is None else f" WHERE {statement.where}"
    values = ", ".join(statement.values.values())
    for number, *found in spark.sql(f"SELECT {_NUMBER}, {values} FROM t_rows{where}").collect():
        for name, value in zip(statement.values, found, strict=True):
            _assign(rows[number], name, value)
    return [_whole(row, dict.fromkeys(_NESTED, ("a", "b")), []) for row in rows]


class _Merge:
    def __init__(self, spark: Any, case: Case) -> None:
        self._spark = spark
        self._case = case
        self._on = case.statement.on
        source = spark.sql(case.source)
        self._source = [row.asDict(recursive=True) for row in source.collect()]
        self._source_columns = source.columns
        self._types = {field.name: field.dataType for field in source.schema.fields}
        numbered = source.schema.add(_NUMBER, "integer")
        _view(spark, "q_rows", self._source, numbered)

    def run(self) -> list[Row] | None:
        rows: dict[int, Row | None] = dict(enumerate(copy.deepcopy(self._case.rows)))
        both = f"t_rows t JOIN q_rows q ON {self._on}"
        pairs = self._falls_under("matched", both, "t", "q")
        acts = [(t, q, clause) for t, q, clause in pairs if clause is not None]
        if len({t for t, _, _ in acts}) < len(acts) and not self._only_deletes():
            return None
        for clause in {clause for _, _, clause in acts}:
            self._act(rows, clause, {(t, q) for t, q, c in acts if c == clause}, both, "t", "q")
        seen_t, seen_q = {t for t, _, _ in pairs}, {q for _, q, _ in pairs}
        alone = [
            (t, c)
            for t, _, c in self._falls_under("not_matched_by_source", "t_rows t", "t", "t")
            if t not in seen_t and c is not None
        ]
        for clause in {clause for _, clause in alone}:
            self._act(rows, clause, {(t, t) for t, c in alone if c == clause}, "t_rows t", "t", "t")
        fresh = [
            (q, c)
            for q, _, c in self._falls_under("not_matched", "q_rows q", "q", "q")
            if q not in seen_q and c is not None
        ]
        added: dict[int, Row | None] = {q: dict.fromkeys(self._case.rows[0]) for q, _ in fresh}
        for clause in {clause for _, clause in fresh}:
            self._act(added, clause, {(q, q) for q, c in fresh if c == clause}, "q_rows q", "q", "q")
        fields, more = self._brought()
        return [_whole(row, fields, more) for row in (*rows.values(), *added.values()) if row is not None]

    def _only_deletes(self) -> bool:
        matched = [clause for clause in self._case.statement.clauses if clause.kind == "matched"]
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None

    def _falls_under(self, kind: str, rows: str, left: str, right: str) -> list[tuple[int, int, int | None]]:
        whens = [
            f"WHEN {clause.condition or 'true'} THEN {number}"
            for number, clause in enumerate(self._case.statement.clauses)
            if clause.kind == kind
        ]
        chosen = f"CASE {' '.join(whens)} END" if whens else "CAST(NULL AS INT)"
        text = f"SELECT {left}.{_NUMBER}, {right}.{_NUMBER}, {chosen} FROM {rows}"
        return [tuple(row) for row in self._spark.sql(text).collect()]

    def _act(
        self, rows: dict[int, Row | None], number: int, chosen: set[tuple[int, int]], of: str, left: str, right: str
    ) -> None:
        clause = self._case.statement.clauses[number]
        if clause.action == "delete":
            for row, _ in chosen:
                rows[row] = None
            return
        values = self._star() if clause.values is None else clause.values
        asked = ", ".join(values.values())
        for one, other, *found in self._spark.sql(
            f"SELECT {left}.{_NUMBER}, {right}.{_NUMBER}, {asked} FROM {of}"
        ).collect():
            if (one, other) in chosen:
                row = rows[one]
                assert row is not None
                for name, value in zip(values, found, strict=True):
                    self._set(row, name.removeprefix("t."), value, clause)

    def _star(self) -> dict[str, str]:
        return {name: f"q.{name}" for name in self._source_columns}

    def _set(self, row: Row, name: str, value: Any, clause: Clause) -> None:
        if clause.values is None and clause.action == "update" and name == "s":
            has = set(self._types["s"].fieldNames())
            if not {"a", "b"} <= has:
                # A star sets the fields that the source has, and leaves the others.
                new = {} if value is None else value.asDict(recursive=True)
                row["s"] = {**(row["s"] or {}), **{field: new.get(field) for field in has}}
                return
        _assign(row, name, value)

    def _brought(self) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """Fields of nested columns afterwards, and columns that are new."""
        names: set[str] = set()
        for clause in self._case.statement.clauses:
            if clause.action != "delete":
                names |= {
                    name.removeprefix("t.") for name in (self._star() if clause.values is None else clause.values)
                }
        fields = {}
        for name in _NESTED:
            kind = self._types[name]
            struct = {"s": kind, "l": getattr(kind, "elementType", None), "m": getattr(kind, "valueType", None)}[name]
            more = ["c"] if name in names and "c" in struct.fieldNames() else []
            fields[name] = ("a", "b", *more)
        return fields, ["n"] if "n" in names else []


def _assign(row: Row, name: str, value: Any) -> None:
    value = value.asDict(recursive=True) if hasattr(value, "asDict") else value
    column, _, field = name.partition(".")
    if field:
        row[column] = {**(row[column] or {"a": None, "b": None}), field: value}
    else:
        row[column] = str(value) if column == "k" and isinstance(value, int) else value


def _whole(row: Row, fields: dict[str, tuple[str, ...]], more: list[str]) -> Row:
    made = {**dict.fromkeys(more), **row}
    for name, names in fields.items():
        value = made[name]
        if value is None:
            continue
        match name:
            case "s":
                made[name] = _struct(value, names)
            case "l":
                made[name] = [_struct(one, names) for one in value]
            case _:
                made[name] = {key: _struct(one, names) for key, one in value.items()}
    return made


def _struct(value: Any, names: tuple[str, ...]) -> Row | None:
    if value is None:
        return None
    plain = value.asDict() if hasattr(value, "asDict") else value
    return {name: plain.get(name) for name in names}

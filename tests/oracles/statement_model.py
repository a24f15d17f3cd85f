"""What a statement does to rows, by a dictionary of them: Spark evaluates its expressions, and the rest is plain.

Rows have numbers. Spark is asked, in the session as it is, which numbers a condition holds for and what values are,
over bare rows; who becomes what is then a matter of dictionaries. Structs are dictionaries too, so they go by name.
"""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

from msgspec import Struct
from pyspark.errors import AnalysisException

from oracles.statement_rows import DDL, KINDS, NESTED, SCHEMA, Made, Row
from oracles.statements import Clause, Statement

_NUMBER = "__number"
_PLAIN = tuple(name for name in SCHEMA.names if name not in NESTED)


class Outcome(Struct, frozen=True, kw_only=True):
    rows: list[Row]
    counts: dict[str, int]
    """By the names of the metrics that tell them."""


class Refused(Exception):
    """The statement means nothing in this session, or rows of its source contradict each other."""


def after(spark: Any, made: Made, rows: list[Row], statement: Statement) -> Outcome:
    """The rows after it."""
    try:
        _view(spark, "t_rows", rows, f"{DDL}, {_NUMBER} INT")
        match statement.kind:
            case "delete":
                gone = _chosen(spark, statement.where)
                left = [row for number, row in enumerate(rows) if number not in gone]
                return Outcome(rows=left, counts={"numDeletedRows": len(gone)})
            case "update":
                return _updated(spark, rows, statement)
            case "merge":
                return _Merge(spark, rows, statement).run()
            case _:
                return _written(spark, made, rows, statement)
    except AnalysisException as error:
        raise Refused(str(error)) from error


def _view(spark: Any, name: str, rows: list[Row], schema: Any) -> None:
    numbered = [{**row, _NUMBER: number} for number, row in enumerate(rows)]
    spark.createDataFrame(numbered, schema).createOrReplaceTempView(name)


def _chosen(spark: Any, where: str | None, of: str = "t_rows") -> set[int]:
    found = spark.sql(f"SELECT {_NUMBER} FROM {of}" + ("" if where is None else f" WHERE {where}")).collect()
    return {row[0] for row in found}


def _stored(name: str, value: str) -> str:
    """The value as its column has it; moments as numbers, for Python's have the machine's zone."""
    column = name.removeprefix("t.")
    cast = f"CAST({value} AS {KINDS[column]})" if column in _PLAIN else value
    return f"unix_micros({cast})" if column == "ts" else cast


def _moment(micros: int | None) -> dt.datetime | None:
    return None if micros is None else dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=micros)


def _updated(spark: Any, given: list[Row], statement: Statement) -> Outcome:
    rows = copy.deepcopy(given)
    where = "" if statement.where is None else f" WHERE {statement.where}"
    values = ", ".join(_stored(name, value) for name, value in statement.values.items())
    found = spark.sql(f"SELECT {_NUMBER}, {values} FROM t_rows{where}").collect()
    for number, *new in found:
        for name, value in zip(statement.values, new, strict=True):
            _assign(rows[number], name, value)
    whole = [_whole(row, dict.fromkeys(NESTED, ("a", "b")), []) for row in rows]
    return Outcome(rows=whole, counts={"numUpdatedRows": len(found)})


def _written(spark: Any, made: Made, rows: list[Row], statement: Statement) -> Outcome:
    source = Source(spark, statement.source)
    fields = {name: ("a", "b", *(["c"] if "c" in source.fields(name) else [])) for name in NESTED}
    more = [name for name in source.columns if name not in SCHEMA.names]
    new = [_whole(row, fields, more) for row in source.rows]
    match statement.kind:
        case "append":
            kept = [_whole(row, fields, more) for row in rows]
        case "overwrite":
            kept = []
        case "dynamic":
            parts = {tuple(row[name] for name in made.partitioned) for row in new}
            kept = [row for row in rows if tuple(row[name] for name in made.partitioned) not in parts]
        case _:
            if len(_chosen(spark, statement.where, "q_rows")) < len(new):
                raise Refused("a new row does not match")
            gone = _chosen(spark, statement.where)
            kept = [row for number, row in enumerate(rows) if number not in gone]
    return Outcome(rows=[*kept, *new], counts={})


class Source:
    """Its rows, as dictionaries and as the view `q_rows`."""

    def __init__(self, spark: Any, query: str) -> None:
        frame = spark.sql(query)
        self.columns = frame.columns
        self.types = {field.name: field.dataType for field in frame.schema.fields}
        self.rows = [
            row.asDict(recursive=True) for row in frame.selectExpr("* EXCEPT (ts)", "unix_micros(ts) AS ts").collect()
        ]
        for row in self.rows:
            row["ts"] = _moment(row["ts"])
        _view(spark, "q_rows", self.rows, frame.schema.add(_NUMBER, "integer"))

    def fields(self, name: str) -> list[str]:
        kind = self.types[name]
        struct = {"s": kind, "l": getattr(kind, "elementType", None), "m": getattr(kind, "valueType", None)}[name]
        found: list[str] = struct.fieldNames()
        return found


class _Merge:
    def __init__(self, spark: Any, rows: list[Row], statement: Statement) -> None:
        self._spark = spark
        self._rows = rows
        self._statement = statement
        self._source = Source(spark, statement.source)

    def run(self) -> Outcome:
        rows: dict[int, Row | None] = dict(enumerate(copy.deepcopy(self._rows)))
        both = f"t_rows t JOIN q_rows q ON {self._statement.on}"
        pairs = self._falls_under("matched", both, "t", "q")
        acts = [(t, q, clause) for t, q, clause in pairs if clause is not None]
        if len({t for t, _, _ in acts}) < len(acts) and not self._only_deletes():
            raise Refused("several source rows change one row")
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
        added: dict[int, Row | None] = {q: dict.fromkeys(SCHEMA.names) for q, _ in fresh}
        for clause in {clause for _, clause in fresh}:
            self._act(added, clause, {(q, q) for q, c in fresh if c == clause}, "q_rows q", "q", "q")
        fields, more = self._brought()
        changed = {t: clause for t, _, clause in acts} | dict(alone)
        kinds = [self._statement.clauses[number].action for number in changed.values()]
        return Outcome(
            rows=[_whole(row, fields, more) for row in (*rows.values(), *added.values()) if row is not None],
            counts={
                "numTargetRowsUpdated": kinds.count("update"),
                "numTargetRowsDeleted": kinds.count("delete"),
                "numTargetRowsInserted": len(added),
            },
        )

    def _only_deletes(self) -> bool:
        matched = [clause for clause in self._statement.clauses if clause.kind == "matched"]
        return len(matched) == 1 and matched[0].action == "delete" and matched[0].condition is None

    def _falls_under(self, kind: str, rows: str, left: str, right: str) -> list[tuple[int, int, int | None]]:
        whens = [
            f"WHEN coalesce({clause.condition or 'true'}, false) THEN {number}"
            for number, clause in enumerate(self._statement.clauses)
            if clause.kind == kind
        ]
        if not whens and kind != "matched":
            return []
        chosen = f"CASE {' '.join(whens)} END" if whens else "CAST(NULL AS INT)"
        text = f"SELECT {left}.{_NUMBER}, {right}.{_NUMBER}, {chosen} FROM {rows}"
        return [tuple(row) for row in self._spark.sql(text).collect()]

    def _act(
        self, rows: dict[int, Row | None], number: int, chosen: set[tuple[int, int]], of: str, left: str, right: str
    ) -> None:
        clause = self._statement.clauses[number]
        if clause.action == "delete":
            for row, _ in chosen:
                rows[row] = None
            return
        values = self._star() if clause.values is None else clause.values
        asked = ", ".join(_stored(name, value) for name, value in values.items())
        for one, other, *found in self._spark.sql(
            f"SELECT {left}.{_NUMBER}, {right}.{_NUMBER}, {asked} FROM {of}"
        ).collect():
            if (one, other) in chosen:
                row = rows[one]
                assert row is not None
                for name, value in zip(values, found, strict=True):
                    self._set(row, name.removeprefix("t."), value, clause)

    def _star(self) -> dict[str, str]:
        known = [*SCHEMA.names, *(["n"] if self._statement.evolves else [])]
        return {name: f"q.{name}" for name in self._source.columns if name in known}

    def _set(self, row: Row, name: str, value: Any, clause: Clause) -> None:
        if clause.values is None and clause.action == "update" and name == "s":
            has = set(self._source.fields("s"))
            if not {"a", "b"} <= has:
                # A star sets the fields that the source has, and leaves the others.
                new = {} if value is None else value.asDict(recursive=True)
                row["s"] = {**(row["s"] or {}), **{field: new.get(field) for field in has}}
                return
        _assign(row, name, value)

    def _brought(self) -> tuple[dict[str, tuple[str, ...]], list[str]]:
        """Fields of nested columns afterwards, and columns that are new."""
        names: set[str] = set()
        for clause in self._statement.clauses if self._statement.evolves else ():
            if clause.action != "delete" and clause.kind != "not_matched_by_source":
                names |= {
                    name.removeprefix("t.") for name in (self._star() if clause.values is None else clause.values)
                }
        fields = {}
        for name in NESTED:
            more = ["c"] if name in names and "c" in self._source.fields(name) else []
            fields[name] = ("a", "b", *more)
        return fields, ["n"] if "n" in names else []


def _assign(row: Row, name: str, value: Any) -> None:
    value = value.asDict(recursive=True) if hasattr(value, "asDict") else value
    column, _, field = name.partition(".")
    if field:
        row[column] = {**(row[column] or {"a": None, "b": None}), field: value}
    else:
        row[column] = _moment(value) if column == "ts" else value


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

"""SQL that changes tables, as values: what Spark's own SQL cannot do to tables that are named by their paths.

`parse` understands MERGE, DELETE, UPDATE, OPTIMIZE, VACUUM, DESCRIBE HISTORY and RESTORE on ``delta.`path` `` or
``lakeseal.`path` ``; everything else is None, and Spark's. Pure: nothing is opened here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import sqlglot
from msgspec import Struct
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakeseal.errors import InvalidExpression
from lakeseal.write.merge_clauses import Clause

_DIALECT = "databricks"
_SCHEMAS = ("delta", "lakeseal")
_TABLE = r"(?:delta|lakeseal)\s*\.\s*`((?:[^`]|``)+)`"
_OPTIMIZE = re.compile(
    rf"OPTIMIZE\s+{_TABLE}(?:\s+WHERE\s+(.+?))?(?:\s+ZORDER\s+BY\s*\(?\s*(.+?)\s*\)?)?", re.IGNORECASE | re.DOTALL
)
_VACUUM = re.compile(rf"VACUUM\s+{_TABLE}(?:\s+RETAIN\s+([\d.]+)\s+HOURS?)?(\s+DRY\s+RUN)?", re.IGNORECASE)
_HISTORY = re.compile(rf"DESC(?:RIBE)?\s+HISTORY\s+{_TABLE}(?:\s+LIMIT\s+(\d+))?", re.IGNORECASE)
_RESTORE = re.compile(
    rf"RESTORE\s+(?:TABLE\s+)?{_TABLE}\s+TO\s+(?:VERSION\s+AS\s+OF\s+(\d+)|TIMESTAMP\s+AS\s+OF\s+'([^']+)')",
    re.IGNORECASE,
)


class Delete(Struct, frozen=True, kw_only=True):
    path: str
    where: str | None = None


class Update(Struct, frozen=True, kw_only=True):
    path: str
    values: dict[str, str]
    where: str | None = None


class Source(Struct, frozen=True, kw_only=True):
    """Of a merge: a query, the name of a table or view, or a path."""

    query: str | None = None
    name: str | None = None
    path: str | None = None


class Merge(Struct, frozen=True, kw_only=True):
    path: str
    source: Source
    on: str
    clauses: tuple[Clause, ...]
    source_alias: str | None = None
    target_alias: str | None = None


class Optimize(Struct, frozen=True, kw_only=True):
    path: str
    where: str | None = None
    zorder_by: tuple[str, ...] = ()


class Vacuum(Struct, frozen=True, kw_only=True):
    path: str
    hours: float | None = None
    dry_run: bool = False


class History(Struct, frozen=True, kw_only=True):
    path: str
    limit: int | None = None


class Restore(Struct, frozen=True, kw_only=True):
    path: str
    version: int | None = None
    timestamp: str | None = None


Statement = Delete | Update | Merge | Optimize | Vacuum | History | Restore


def parse(text: str) -> Statement | None:
    stripped = text.strip().rstrip(";").strip()
    word = stripped.split(maxsplit=1)[0].upper() if stripped else ""
    if word in ("OPTIMIZE", "VACUUM", "DESC", "DESCRIBE", "RESTORE"):
        return _upkeep(stripped)
    if word not in ("MERGE", "DELETE", "UPDATE"):
        return None
    try:
        tree = sqlglot.parse_one(stripped, read=_DIALECT)
    except SqlglotError:
        return None
    match tree:
        case exp.Delete():
            return _delete(tree)
        case exp.Update():
            return _update(tree)
        case exp.Merge():
            return _merge(tree)
        case _:
            return None


def _upkeep(text: str) -> Statement | None:
    if found := _OPTIMIZE.fullmatch(text):
        names = tuple(name.strip().strip("`") for name in found[3].split(",")) if found[3] else ()
        return Optimize(path=_unquoted(found[1]), where=found[2], zorder_by=names)
    if found := _VACUUM.fullmatch(text):
        hours = None if found[2] is None else float(found[2])
        return Vacuum(path=_unquoted(found[1]), hours=hours, dry_run=found[3] is not None)
    if found := _HISTORY.fullmatch(text):
        return History(path=_unquoted(found[1]), limit=None if found[2] is None else int(found[2]))
    if found := _RESTORE.fullmatch(text):
        version = None if found[2] is None else int(found[2])
        return Restore(path=_unquoted(found[1]), version=version, timestamp=found[3])
    return None


def _unquoted(name: str) -> str:
    return name.replace("``", "`")


def _path(table: exp.Expression | None) -> str | None:
    if not isinstance(table, exp.Table) or table.args.get("catalog") or table.db.lower() not in _SCHEMAS:
        return None
    return table.name


def _delete(tree: exp.Delete) -> Delete | None:
    path = _path(tree.this)
    if path is None or tree.args.get("using"):
        return None
    where = tree.args.get("where")
    return Delete(path=path, where=None if where is None else _sql(where.this, _without(tree.this.alias)))


def _update(tree: exp.Update) -> Update | None:
    path = _path(tree.this)
    if path is None or tree.args.get("from_") or tree.args.get("from"):
        return None
    plain = _without(tree.this.alias)
    where = tree.args.get("where")
    values = {_sql(one.this, plain): _sql(one.expression, plain) for one in tree.expressions}
    return Update(path=path, values=values, where=None if where is None else _sql(where.this, plain))


def _merge(tree: exp.Merge) -> Merge | None:
    path, using = _path(tree.this), tree.args["using"]
    if path is None or tree.args.get("on") is None:
        return None
    match using:
        case exp.Subquery():
            source = Source(query=using.this.sql(dialect="spark"))
        case exp.Table() if (named := _path(using)) is not None:
            source = Source(path=named)
        case exp.Table():
            bare = using.copy()
            bare.set("alias", None)
            source = Source(name=bare.sql(dialect="spark"))
        case _:
            return None
    source_alias = using.alias or (using.name if isinstance(using, exp.Table) and source.path is None else None)
    return Merge(
        path=path,
        source=source,
        on=_sql(tree.args["on"]),
        clauses=tuple(_clause(when) for when in tree.args["whens"].expressions),
        source_alias=source_alias or None,
        target_alias=tree.this.alias or None,
    )


def _clause(when: exp.When) -> Clause:
    condition = when.args.get("condition")
    text = None if condition is None else _sql(condition)
    then = when.args["then"]
    kind = "matched" if when.args["matched"] else "not_matched_by_source" if when.args["source"] else "not_matched"
    match then:
        case exp.Update():
            star = any(isinstance(one, exp.Star) for one in then.expressions)
            values = None if star else {_sql(one.this): _sql(one.expression) for one in then.expressions}
            return Clause(kind=kind, action="update", condition=text, values=values)  # type: ignore[arg-type]
        case exp.Insert():
            return Clause(kind="not_matched", action="insert", condition=text, values=_inserted(then))
        case _ if then.name.upper() == "DELETE":
            return Clause(kind=kind, action="delete", condition=text)  # type: ignore[arg-type]
        case _:
            raise InvalidExpression(f"A merge cannot do {then.sql(dialect='spark')}")


def _inserted(then: exp.Insert) -> dict[str, str] | None:
    if isinstance(then.this, exp.Star):
        return None
    columns, values = then.this, then.expression
    if not isinstance(columns, exp.Tuple) or not isinstance(values, exp.Tuple):
        raise InvalidExpression("An INSERT of a merge names its columns and their values, or takes all by *")
    if len(columns.expressions) != len(values.expressions):
        raise InvalidExpression(
            f"An INSERT of a merge has {len(columns.expressions)} columns and {len(values.expressions)} values"
        )
    return {_sql(c): _sql(v) for c, v in zip(columns.expressions, values.expressions, strict=True)}


def _without(alias: str) -> Callable[[exp.Expression], exp.Expression]:
    """Columns of the only table there is, without its name."""

    def plain(node: exp.Expression) -> exp.Expression:
        if alias and isinstance(node, exp.Column) and node.table.lower() == alias.lower():
            node = node.copy()
            node.set("table", None)
        return node

    return plain


def _sql(node: exp.Expression, change: Callable[[exp.Expression], exp.Expression] | None = None) -> str:
    return (node if change is None else node.transform(change)).sql(dialect="spark")

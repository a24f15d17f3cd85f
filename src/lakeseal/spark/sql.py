"""SQL that changes tables, as values: what Spark's own SQL cannot do to tables that are named by their paths.

`parse` understands MERGE, DELETE, UPDATE, OPTIMIZE, VACUUM, DESCRIBE HISTORY and RESTORE on ``delta.`path` `` or
``lakeseal.`path` ``; every other statement is None, and Spark's. Pure: nothing is opened here.

Conditions, values and queries are cut out of the text and never written anew (see `sql_cutting`). A statement on such
a table that cannot be cut for sure is an `InvalidExpression`, for Spark could only misunderstand it.
"""

from __future__ import annotations

import re
from typing import TypeVar

from msgspec import Struct

from lakeseal.commands.merge.clauses import Clause, Kind
from lakeseal.errors import InvalidExpression
from lakeseal.spark.sql_cutting import Cutter

_SCHEMAS = ("DELTA", "LAKESEAL")
_TABLE = r"(?:delta|lakeseal)\s*\.\s*`(?:[^`]|``)+`"
_FIRST_WORDS = ("MERGE", "DELETE", "UPDATE", "WITH", "OPTIMIZE", "VACUUM", "DESC", "DESCRIBE", "RESTORE")


class Delete(Struct, frozen=True, kw_only=True):
    path: str
    where: str | None = None
    alias: str | None = None


class Update(Struct, frozen=True, kw_only=True):
    path: str
    values: dict[str, str]
    where: str | None = None
    alias: str | None = None


class MergeSource(Struct, frozen=True, kw_only=True):
    """Of a merge: a query, the name of a table or view, or a path."""

    query: str | None = None
    name: str | None = None
    path: str | None = None


class Merge(Struct, frozen=True, kw_only=True):
    path: str
    source: MergeSource
    on: str
    clauses: tuple[Clause, ...]
    source_alias: str | None = None
    target_alias: str | None = None
    merge_schema: bool = False
    """WITH SCHEMA EVOLUTION."""


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


N = TypeVar("N", int, float)
Statement = Delete | Update | Merge | Optimize | Vacuum | History | Restore


def parse(text: str, *, double_quoted_names: bool = False) -> Statement | None:
    """`double_quoted_names`: the session takes what is in double quotes for a name."""
    try:
        return _Reader(text, double_quoted_names).statement()
    except InvalidExpression:
        # Spark says better what is wrong with its own statements.
        word = next(iter(text.split(maxsplit=1)), "").upper()
        may_be_ours = word in _FIRST_WORDS or word.startswith(("--", "/*"))
        if may_be_ours and re.search(_TABLE, text, re.IGNORECASE):
            raise
        return None


class _Reader(Cutter):
    """One statement, from its first token to its last."""

    def statement(self) -> Statement | None:
        for words, read in (
            (("OPTIMIZE",), self._optimize),
            (("VACUUM",), self._vacuum),
            (("DESC", "HISTORY"), self._history),
            (("DESCRIBE", "HISTORY"), self._history),
            (("RESTORE", "TABLE"), self._restore),
            (("RESTORE",), self._restore),
        ):
            if self.takes(*words):
                path = self._path()
                return None if path is None else read(path)
        return self._change()

    def _change(self) -> Statement | None:
        ctes = self._ctes() if self.sees("WITH") else None
        if self.takes("MERGE"):
            return self._merge(ctes)
        is_delete = self.sees("DELETE", "FROM")
        if not is_delete and not self.sees("UPDATE"):
            return None
        self.skip(2 if is_delete else 1)
        path = self._path()
        if path is None:
            return None
        if ctes is not None:
            self.refuse("Only a MERGE may begin with WITH", hint="Put the query into the condition's subquery")
        return self._delete(path) if is_delete else self._update(path)

    def _ctes(self) -> str | None:
        """What stands between WITH and the statement that it is for, with the WITH."""
        return self.cut_before("MERGE", "DELETE", "UPDATE", "SELECT", "INSERT", "FROM", "TABLE", "VALUES")

    def _path(self) -> str | None:
        """Of a table that is ours."""
        name = self.name_at(2)
        if self.token.keyword not in _SCHEMAS or not self.is_op(1, ".") or name is None or self.is_op(3, "."):
            return None
        if self.tokens[self.at + 2].kind == "name":
            return None
        self.skip(3)
        return name

    def _alias(self) -> str | None:
        wanted = self.takes("AS")
        if not wanted and (self.token.keyword in ("WHERE", "SET", "USING", "ON") or self.name_at(0) is None):
            return None
        name = self.name_at(0)
        if name is None:
            self.refuse("A name must follow AS")
        self.skip(1)
        if self.is_op(0, "("):
            self.refuse("Columns cannot be renamed by an alias here", hint="Rename them in a subquery")
        return name

    def _optimize(self, path: str) -> Optimize:
        where = self.cut_before("ZORDER") if self.takes("WHERE") else None
        names: list[str] = []
        if self.takes("ZORDER"):
            self.expect("BY")
            in_parentheses = self.takes_op("(")
            names.append(self._name())
            while self.takes_op(","):
                names.append(self._name())
            if in_parentheses and not self.takes_op(")"):
                self.refuse("A comma or ) was expected")
        self.expect_end()
        return Optimize(path=path, where=where, zorder_by=tuple(names))

    def _vacuum(self, path: str) -> Vacuum:
        hours, dry_run = None, False
        while self.token.kind != "end":
            if hours is None and self.takes("RETAIN"):
                hours = self._number(float)
                if not self.takes("HOURS"):
                    self.expect("HOUR")
            elif not dry_run and self.takes("DRY", "RUN"):
                dry_run = True
            else:
                self.refuse("RETAIN … HOURS or DRY RUN was expected")
        return Vacuum(path=path, hours=hours, dry_run=dry_run)

    def _history(self, path: str) -> History:
        limit = self._number(int) if self.takes("LIMIT") else None
        self.expect_end()
        return History(path=path, limit=limit)

    def _restore(self, path: str) -> Restore:
        self.expect("TO")
        by_version = self.takes("VERSION")
        if not by_version:
            self.expect("TIMESTAMP")
        self.expect("AS")
        self.expect("OF")
        version = self._number(int) if by_version else None
        timestamp = None if by_version else self._string()
        self.expect_end()
        return Restore(path=path, version=version, timestamp=timestamp)

    def _name(self) -> str:
        name = self.name_at(0)
        if name is None or self.is_op(1, "."):
            self.refuse("A column was expected")
        self.skip(1)
        return name

    def _number(self, kind: type[N]) -> N:
        try:
            number = kind(self.token.text if self.token.kind == "number" else "")
        except ValueError:
            self.refuse("A number was expected")
        self.skip(1)
        return number

    def _string(self) -> str:
        """Of a moment, in which nothing needs to be escaped."""
        text = self.token.text
        if self.token.kind != "string" or "\\" in text or text[0] not in "'\"":
            self.refuse("A moment in quotes was expected")
        self.skip(1)
        return text[1:-1]

    def _delete(self, path: str) -> Delete:
        alias = self._alias()
        where = self._rest("WHERE")
        return Delete(path=path, where=where, alias=alias)

    def _update(self, path: str) -> Update:
        alias = self._alias()
        self.expect("SET")
        values = self._assignments("WHERE")
        return Update(path=path, values=values, where=self._rest("WHERE"), alias=alias)

    def _rest(self, word: str) -> str | None:
        where = self.cut_before() if self.takes(word) else None
        self.expect_end()
        return where

    def _merge(self, ctes: str | None) -> Merge | None:
        evolves = self.takes("WITH", "SCHEMA", "EVOLUTION")
        self.expect("INTO")
        path = self._path()
        if path is None:
            return None
        target_alias = self._alias()
        self.expect("USING")
        source, source_alias = self._source(ctes)
        self.expect("ON")
        on = self.cut_before("WHEN")
        clauses = []
        while self.takes("WHEN"):
            clauses.append(self._clause())
        self.expect_end()
        if not clauses:
            self.refuse("The merge has no WHEN clause")
        return Merge(
            path=path,
            source=source,
            on=on,
            clauses=tuple(clauses),
            source_alias=source_alias,
            target_alias=target_alias,
            merge_schema=evolves,
        )

    def _source(self, ctes: str | None) -> tuple[MergeSource, str | None]:
        if self.is_op(0, "("):
            query = self.cut_parentheses()
            return MergeSource(query=query if ctes is None else _with(ctes, f"({query}\n)")), self._alias()
        path = self._path()
        if path is not None:
            return MergeSource(path=path), self._alias()
        first, name = self.at, None
        while self.name_at(0) is not None:
            name = self.name_at(0)
            self.skip(1)
            if not self.is_op(0, "."):
                break
            self.skip(1)
        if name is None or self.is_op(0, "("):
            self.refuse("The source of a merge is a table, a view or a query in parentheses")
        text = self.text_of(first, self.at)
        source = MergeSource(name=text) if ctes is None else MergeSource(query=_with(ctes, text))
        return source, self._alias() or name

    def _clause(self) -> Clause:
        is_not = self.takes("NOT")
        self.expect("MATCHED")
        kind: Kind = "not_matched" if is_not else "matched"
        if is_not and self.takes("BY", "SOURCE"):
            kind = "not_matched_by_source"
        elif is_not:
            self.takes("BY", "TARGET")
        condition = self.cut_before("THEN") if self.takes("AND") else None
        self.expect("THEN")
        if kind == "not_matched":
            self.expect("INSERT")
            return Clause(kind=kind, action="insert", condition=condition, values=self._inserted())
        if self.takes("DELETE"):
            return Clause(kind=kind, action="delete", condition=condition)
        self.expect("UPDATE")
        self.expect("SET")
        if kind == "matched" and self.takes_op("*"):
            return Clause(kind=kind, action="update", condition=condition)
        return Clause(kind=kind, action="update", condition=condition, values=self._assignments("WHEN"))

    def _assignments(self, until: str) -> dict[str, str]:
        """`column = value, …`"""
        values: dict[str, str] = {}
        while True:
            column = self._column()
            if not self.takes_op("=") and not self.takes_op("=="):
                self.refuse("A column and = must stand before a value")
            if column in values:
                self.refuse(f"The column {column} is set twice")
            values[column] = self.cut_before(until, commas=True)
            if not self.takes_op(","):
                return values

    def _column(self) -> str:
        first = self.at
        while self.name_at(0) is not None:
            self.skip(1)
            if not self.is_op(0, "."):
                return self.text_of(first, self.at)
            self.skip(1)
        self.refuse("A column was expected")

    def _inserted(self) -> dict[str, str] | None:
        if self.takes_op("*"):
            return None
        columns = self._in_parentheses(values=False)
        self.expect("VALUES")
        values = self._in_parentheses(values=True)
        if len(columns) != len(values):
            self.refuse(f"An INSERT of a merge has {len(columns)} columns and {len(values)} values")
        if len(set(columns)) < len(columns):
            self.refuse("An INSERT of a merge names a column twice")
        return dict(zip(columns, values, strict=True))

    def _in_parentheses(self, *, values: bool) -> list[str]:
        if not self.takes_op("("):
            self.refuse("An INSERT of a merge names its columns and their values, or takes all by *")
        parts = []
        while True:
            parts.append(self.cut_before(commas=True) if values else self._column())
            if self.takes_op(")"):
                return parts
            if not self.takes_op(","):
                self.refuse("A comma or ) was expected")


def _with(ctes: str, source: str) -> str:
    return f"{ctes}\nSELECT * FROM {source}"

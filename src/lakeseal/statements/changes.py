"""INSERT, DELETE, UPDATE and MERGE, cut into their parts."""

from __future__ import annotations

from lakeseal.commands.merge.clauses import Clause, Kind
from lakeseal.errors import InvalidExpression
from lakeseal.statements.cutting import Cutter
from lakeseal.statements.statement import Delete, Insert, Merge, Query, StatedName, UpdateStatement

QUERY_WORDS = ("SELECT", "WITH", "FROM", "TABLE", "VALUES", "MAP", "REDUCE")


class ChangeCutter(Cutter):
    def change(self) -> Insert | Delete | UpdateStatement | Merge | None:
        """What changes rows; None if this is something else."""
        start = self.at
        ctes = self._ctes() if self.sees("WITH") else None
        if self.takes("MERGE"):
            return self._merge(ctes)
        if self.takes("INSERT"):
            return self._insert(ctes)
        if ctes is None and self.takes("TRUNCATE", "TABLE"):
            return self._truncate()
        if not self.sees("DELETE", "FROM") and not self.sees("UPDATE"):
            self.at = start
            return None
        if ctes is not None:
            self.refuse("Only a MERGE or an INSERT may begin with WITH", hint="Put the query into a subquery")
        return self._delete() if self.takes("DELETE", "FROM") else self._update()

    def _ctes(self) -> str:
        """What stands between WITH and the statement that it is for, with the WITH."""
        first = self.at
        self.skip(1)
        self.skip_to(("MERGE", "DELETE", "UPDATE", "INSERT", *QUERY_WORDS), commas=False)
        return self.text_of(first, self.at)

    def _delete(self) -> Delete:
        table = self.table()
        alias = self.alias()
        return Delete(table=table, alias=alias, where=self._where())

    def _update(self) -> UpdateStatement:
        self.expect("UPDATE")
        table = self.table()
        alias = self.alias()
        self.expect("SET")
        values = self._assignments("WHERE")
        return UpdateStatement(table=table, values=values, where=self._where(), alias=alias)

    def _truncate(self) -> Delete:
        table = self.table()
        if self.sees("PARTITION"):
            self.refuse("TRUNCATE TABLE … PARTITION is not for such tables", hint="DELETE FROM … WHERE")
        self.expect_end()
        return Delete(table=table)

    def _where(self) -> str | None:
        where = self.cut_before() if self.takes("WHERE") else None
        self.expect_end()
        return where

    def alias(self) -> str | None:
        wanted = self.takes("AS")
        if not wanted and (self.token.keyword in ("WHERE", "SET", "USING", "ON") or self.name_at(0) is None):
            return None
        name = self.name("A name behind AS")
        if self.is_op(0, "("):
            self.refuse("The columns of the table that is changed cannot be renamed by an alias")
        return name

    def _source_alias(self) -> tuple[str | None, tuple[str, ...]]:
        """`AS s`, `AS s(a, b)`."""
        place = 1 if self.sees("AS") else 0
        if self.name_at(place) is None or self.token.keyword == "ON" or not self.is_op(place + 1, "("):
            return self.alias(), ()
        self.takes("AS")
        return self.name(), self.listed()

    def _insert(self, ctes: str | None) -> Insert:
        evolves = self.takes("WITH", "SCHEMA", "EVOLUTION")
        overwrite = self.takes("OVERWRITE")
        if not overwrite:
            self.expect("INTO")
        self.takes("TABLE")
        if self.sees("DIRECTORY") or self.sees("LOCAL", "DIRECTORY"):
            self.refuse("INSERT OVERWRITE DIRECTORY writes no table")
        table = self.table()
        partition = self._partition() if self.takes("PARTITION") else {}
        if self.sees("IF", "NOT", "EXISTS"):
            self.refuse("INSERT OVERWRITE … IF NOT EXISTS is not for such tables", hint="Look whether there are rows")
        by_name, columns = self.takes("BY", "NAME"), None
        if not by_name and self.is_op(0, "(") and not self._begins_query(1):
            columns = self.listed()
        replace_where = None
        if self.takes("REPLACE"):
            if overwrite:
                self.refuse("REPLACE WHERE goes with INSERT INTO")
            self.expect("WHERE")
            replace_where = self.cut_before("SELECT", "VALUES", "WITH", "TABLE")
        if not self._begins_query(0):
            self.refuse("A query or VALUES was expected")
        rows = self._rows()
        query = self.cut_rest()
        return Insert(
            table=table,
            query=query if ctes is None else f"{ctes}\n{query}",
            rows=rows,
            columns=columns,
            by_name=by_name,
            overwrite=overwrite,
            replace_where=replace_where,
            partition=partition,
            merge_schema=evolves,
        )

    def _begins_query(self, ahead: int) -> bool:
        while self.is_op(ahead, "("):
            ahead += 1
        place = self.at + ahead
        return place < len(self.tokens) and self.tokens[place].keyword in QUERY_WORDS

    def _partition(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        self.expect_op("(")
        while True:
            name = self.simple_name()
            if name.lower() in {other.lower() for other in found}:
                self.refuse(f"The partition column {name} is given twice")
            found[name] = self.cut_before(commas=True) if self.takes_op("=") else None
            if self.takes_op(")"):
                return found
            if not self.takes_op(","):
                self.refuse("A comma or ) was expected")

    def _rows(self) -> tuple[tuple[str, ...], ...]:
        """The rows of VALUES, if that is all that there is; stays where it is."""
        start = self.at
        try:
            return self._values() if self.takes("VALUES") else ()
        except InvalidExpression:
            return ()  # something that only a planner reads
        finally:
            self.at = start

    def _values(self) -> tuple[tuple[str, ...], ...]:
        rows = []
        while True:
            if self.takes_op("("):
                rows.append(tuple(self._cells()))
            else:
                rows.append((self.cut_before(commas=True),))
            if not self.takes_op(","):
                self.expect_end()
                return tuple(rows)

    def _cells(self) -> list[str]:
        cells = []
        while True:
            cells.append(self.cut_before(commas=True))
            if self.takes_op(")"):
                return cells
            if not self.takes_op(","):
                self.refuse("A comma or ) was expected")

    def _merge(self, ctes: str | None) -> Merge:
        evolves = self.takes("WITH", "SCHEMA", "EVOLUTION")
        self.expect("INTO")
        table = self.table()
        target_alias = self.alias()
        self.expect("USING")
        source, named = self._source(ctes)
        alias, columns = self._source_alias()
        self.expect("ON")
        on = self.cut_before("WHEN")
        clauses = []
        while self.takes("WHEN"):
            clauses.append(self._clause())
        self.expect_end()
        if not clauses:
            self.refuse("The merge has no WHEN clause")
        return Merge(
            table=table,
            source=source,
            on=on,
            clauses=tuple(clauses),
            source_alias=alias or named,
            source_columns=columns,
            target_alias=target_alias if target_alias is not None or table.path else table.parts[-1],
            merge_schema=evolves,
        )

    def _source(self, ctes: str | None) -> tuple[StatedName | Query, str | None]:
        """And the name that it has without an alias."""
        if self.is_op(0, "("):
            query = self.cut_parentheses()
            return Query(text=query if ctes is None else _with(ctes, f"({query}\n)")), None
        first = self.at
        table = self.table(travels=True)
        text = self.text_of(first, self.at)
        if self.is_op(0, "("):
            self._parentheses()
            text = self.text_of(first, self.at)
            if ctes is not None or table.parts[-1].lower() not in ("table_changes", "table_changes_by_path"):
                self.refuse("The source of a merge is a table, a view or a query in parentheses")
            return Query(text=_with("", text)), None
        name = None if table.path is not None else table.parts[-1]
        return (table if ctes is None else Query(text=_with(ctes, text))), name

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
        self.expect("UPDATE", "SET")
        if kind == "matched" and self.takes_op("*"):
            return Clause(kind=kind, action="update", condition=condition)
        return Clause(kind=kind, action="update", condition=condition, values=self._assignments("WHEN"))

    def _assignments(self, until: str) -> dict[str, str]:
        """`column = value, …`"""
        values: dict[str, str] = {}
        while True:
            column = self.dotted()
            if not self.takes_op("=") and not self.takes_op("=="):
                self.refuse("A column and = must stand before a value")
            if column in values:
                self.refuse(f"The column {column} is set twice")
            values[column] = self.cut_before(until, commas=True)
            if not self.takes_op(","):
                return values

    def _inserted(self) -> dict[str, str] | None:
        if self.takes_op("*"):
            return None
        if not self.takes_op("("):
            self.refuse("An INSERT of a merge names its columns and their values, or takes all by *")
        columns = [self.dotted()]
        while self.takes_op(","):
            columns.append(self.dotted())
        self.expect_op(")")
        self.expect("VALUES")
        self.expect_op("(")
        values = self._cells()
        if len(columns) != len(values):
            self.refuse(f"An INSERT of a merge has {len(columns)} columns and {len(values)} values")
        if len(set(columns)) < len(columns):
            self.refuse("An INSERT of a merge names a column twice")
        return dict(zip(columns, values, strict=True))


def _with(ctes: str, source: str) -> str:
    return f"{ctes}\nSELECT * FROM {source}".lstrip()

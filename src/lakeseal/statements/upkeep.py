"""OPTIMIZE, VACUUM, RESTORE, DESCRIBE and SHOW, cut into their parts."""

from __future__ import annotations

from lakeseal.statements.cutting import Cutter
from lakeseal.statements.statement import (
    Describe,
    DescribeColumn,
    Detail,
    Generate,
    History,
    Optimize,
    Purge,
    Query,
    Restore,
    ShowColumns,
    ShowCreate,
    ShowProperties,
    ShowSchemas,
    ShowTables,
    StatedName,
    Statement,
    Vacuum,
)


class UpkeepReader(Cutter):
    def upkeep(self) -> Statement | None:
        """None if this is something else."""
        start = self.at
        if self.takes("OPTIMIZE"):
            return self._optimize()
        if self.takes("VACUUM"):
            return self._vacuum()
        if self.takes("REORG", "TABLE"):
            return self._reorg()
        if self.takes("GENERATE"):
            return self._generate()
        if self.takes("RESTORE"):
            self.takes("TABLE")
            return self._restore()
        if self.takes("DESCRIBE") or self.takes("DESC"):
            found = self._describe()
        elif self.takes("SHOW"):
            found = self._show()
        else:
            found = None
        if found is None:
            self.at = start
        return found

    def _table_or_path(self) -> StatedName:
        """Some statements take a path in quotes, too."""
        is_path = self.token.kind == "string" and self.name_at(0) is None
        return StatedName.at_path(self.string()) if is_path else self.table()

    def _optimize(self) -> Optimize:
        table = self._table_or_path()
        full = self.takes("FULL")
        where = self.cut_before("ZORDER") if self.takes("WHERE") else None
        names: tuple[str, ...] = ()
        if self.takes("ZORDER"):
            self.expect("BY")
            names = self.listed()
        self.expect_end()
        return Optimize(table=table, where=where, zorder_by=names, full=full)

    def _reorg(self) -> Purge:
        table = self.table()
        where = self.cut_before("APPLY") if self.takes("WHERE") else None
        self.expect("APPLY")
        self.expect_op("(")
        if self.sees("UPGRADE"):
            self.refuse("REORG … APPLY (UPGRADE …) is not supported: there is nothing of Iceberg here")
        self.expect("PURGE")
        self.expect_op(")")
        self.expect_end()
        return Purge(table=table, where=where)

    def _generate(self) -> Generate:
        mode = self.simple_name("A mode")
        self.expect("FOR", "TABLE")
        table = self.table()
        self.expect_end()
        return Generate(table=table, mode=mode)

    def _vacuum(self) -> Vacuum:
        table, hours, dry_run, lite, kinds = self._table_or_path(), None, False, False, 0
        inventory: StatedName | Query | None = None
        while self.token.kind != "end":
            if hours is None and self.takes("RETAIN"):
                hours = self.number(float)
                if not self.takes("HOURS"):
                    self.expect("HOUR")
            elif not dry_run and self.takes("DRY", "RUN"):
                dry_run = True
            elif not kinds and (self.sees("LITE") or self.sees("FULL")):
                lite, kinds = self.sees("LITE"), 1
                self.skip(1)
            elif inventory is None and self.takes("USING", "INVENTORY"):
                inventory = Query(text=self.cut_parentheses()) if self.is_op(0, "(") else self.table(travels=True)
            else:
                self.refuse("LITE, FULL, RETAIN … HOURS or DRY RUN was expected")
        return Vacuum(table=table, hours=hours, dry_run=dry_run, lite=lite, inventory=inventory)

    def _restore(self) -> Restore:
        table = self.table()
        self.takes("TO")
        moment = self.moment()
        if moment is None:
            self.refuse("TO VERSION AS OF or TO TIMESTAMP AS OF was expected")
        self.expect_end()
        return Restore(table=table, to=moment)

    def _describe(self) -> Statement | None:
        if self.takes("HISTORY"):
            table = self._table_or_path()
            limit = self.number(int) if self.takes("LIMIT") else None
            self.expect_end()
            return History(table=table, limit=limit)
        if self.takes("DETAIL"):
            table = self._table_or_path()
            self.expect_end()
            return Detail(table=table)
        if any(self.sees(word) for word in ("QUERY", "FUNCTION", "DATABASE", "SCHEMA", "NAMESPACE", "CATALOG")):
            return None
        self.takes("TABLE")
        extended = self.takes("EXTENDED") or self.takes("FORMATTED")
        table = self.table()
        if self.name_at(0) is not None and not self.sees("AS"):
            column = self.names("A column")
            self.expect_end()
            return DescribeColumn(table=table, column=column)
        self.expect_end()
        return Describe(table=table, extended=extended)

    def _show(self) -> Statement | None:
        if self.takes("TABLES"):
            schema = self.names("A schema") if self.takes("IN") or self.takes("FROM") else ()
            self.takes("LIKE")
            like = self.string() if self.token.kind == "string" else None
            self.expect_end()
            return ShowTables(schema=schema, like=like)
        if self.takes("SCHEMAS") or self.takes("DATABASES"):
            catalog = self.simple_name("A catalog") if self.takes("IN") or self.takes("FROM") else None
            self.takes("LIKE")
            like = self.string() if self.token.kind == "string" else None
            self.expect_end()
            return ShowSchemas(catalog=catalog, like=like)
        if self.takes("COLUMNS"):
            if not self.takes("IN"):
                self.expect("FROM")
            table = self.table()
            if self.takes("IN") or self.takes("FROM"):
                table = StatedName(parts=(*self.names("A schema"), *table.parts))
            self.expect_end()
            return ShowColumns(table=table)
        if self.takes("TBLPROPERTIES"):
            table, key = self.table(), None
            if self.takes_op("("):
                key = self.string() if self.token.kind == "string" else ".".join(self.names("A property"))
                self.expect_op(")")
            self.expect_end()
            return ShowProperties(table=table, key=key)
        if self.takes("CREATE", "TABLE"):
            table = self.table()
            self.takes("AS", "SERDE")
            self.expect_end()
            return ShowCreate(table=table)
        return None

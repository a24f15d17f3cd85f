"""CREATE, REPLACE, ALTER and DROP TABLE, CLONE and CONVERT, cut into their parts."""

from __future__ import annotations

from typing import Any

from lakeseal.protocol.schema import StructField
from lakeseal.statements.columns import ColumnReader
from lakeseal.statements.statement import (
    AddColumns,
    AddConstraint,
    Alteration,
    AlterColumn,
    AlterTable,
    CloneTable,
    ClusterBy,
    ColumnDefinition,
    Convert,
    CreateLike,
    CreateSchemaStatement,
    CreateTableStatement,
    DropColumns,
    DropConstraint,
    DropFeature,
    DropSchemaStatement,
    DropTableStatement,
    RenameColumn,
    RenameTableStatement,
    SetComment,
    SetProperties,
    StatedName,
    Statement,
    SyncIdentity,
    UnsetProperties,
    View,
)


class DefinitionReader(ColumnReader):
    def definition(self) -> Statement | None:
        """None if this is something else."""
        start = self.at
        if self.takes("CREATE"):
            or_replace = self.takes("OR", "REPLACE")
            if self.takes("TABLE"):
                return self._create(or_replace=or_replace)
            if not or_replace and self._takes_schema():
                return self._create_schema()
            if self.sees("TEMP") or self.sees("TEMPORARY") or self.sees("GLOBAL"):
                return self._view(or_replace)
        elif self.takes("REPLACE", "TABLE"):
            return self._create(or_replace=True, must_exist=True)
        elif self.takes("ALTER", "TABLE"):
            return AlterTable(table=self.table(), change=self._alteration())
        elif self.takes("COMMENT", "ON", "TABLE"):
            table = self.table()
            self.expect("IS")
            comment = "" if self.takes("NULL") else self.string()
            self.expect_end()
            return AlterTable(table=table, change=SetComment(comment=comment))
        elif self.takes("COMMENT", "ON", "COLUMN"):
            return self._comment_on_column()
        elif self.takes("DROP", "TABLE"):
            if_exists = self.takes("IF", "EXISTS")
            table, purge = self.table(), self.takes("PURGE")
            self.expect_end()
            return DropTableStatement(table=table, if_exists=if_exists, purge=purge)
        elif self.sees("DROP", "SCHEMA") or self.sees("DROP", "DATABASE") or self.sees("DROP", "NAMESPACE"):
            self.skip(2)
            return self._drop_schema()
        elif self.takes("CONVERT", "TO", "DELTA"):
            return self._convert()
        self.at = start
        return None

    def _comment_on_column(self) -> AlterTable:
        first = self.at
        *parts, column = self.names("A column")
        if not 1 <= len(parts) <= 3:
            self.refuse("COMMENT ON COLUMN names a table and one of its columns")
        table = self.table_name(tuple(parts), first)
        self.expect("IS")
        comment = "" if self.takes("NULL") else self.string()
        self.expect_end()
        return AlterTable(table=table, change=AlterColumn(column=(column,), comment=comment))

    def _takes_schema(self) -> bool:
        return self.takes("SCHEMA") or self.takes("DATABASE") or self.takes("NAMESPACE")

    def _create_schema(self) -> CreateSchemaStatement:
        if_not_exists = self.takes("IF", "NOT", "EXISTS")
        name = self.names("A schema")
        self.expect_end()
        return CreateSchemaStatement(name=name, if_not_exists=if_not_exists)

    def _drop_schema(self) -> DropSchemaStatement:
        if_exists = self.takes("IF", "EXISTS")
        name = self.names("A schema")
        if self.sees("CASCADE"):
            self.refuse("DROP SCHEMA … CASCADE would drop all of its tables", hint="Drop them first, one by one")
        self.takes("RESTRICT")
        self.expect_end()
        return DropSchemaStatement(name=name, if_exists=if_exists)

    def _like(self, table: StatedName, if_not_exists: bool) -> CreateLike:
        source = self.table()
        found = self._options()
        self.expect_end()
        if set(found) - {"provider", "location", "properties"}:
            self.refuse("CREATE TABLE … LIKE may have USING, TBLPROPERTIES and LOCATION only")
        return CreateLike(table=table, source=source, if_not_exists=if_not_exists, **found)

    def _create(self, *, or_replace: bool, must_exist: bool = False) -> CreateTableStatement | CreateLike | CloneTable:
        if_not_exists = self.takes("IF", "NOT", "EXISTS")
        if or_replace and if_not_exists:
            self.refuse("OR REPLACE and IF NOT EXISTS exclude each other")
        how: dict[str, Any] = {"table": self.table(), "or_replace": or_replace, "if_not_exists": if_not_exists}
        if self.sees("SHALLOW", "CLONE") or self.sees("DEEP", "CLONE") or self.sees("CLONE"):
            return self._clone(how)
        if not or_replace and self.takes("LIKE"):
            return self._like(how["table"], if_not_exists)
        columns, constraints = self._elements() if self.is_op(0, "(") else ((), {})
        found = self._options()
        query = None
        if self.takes("AS") or self.sees("SELECT") or self.sees("WITH"):
            query = self.cut_rest()
        self.expect_end()
        if query is not None and columns:
            self.refuse(
                "A table AS a query has the query's columns", hint="Leave the columns out, or cast in the query"
            )
        return CreateTableStatement(
            **how, **found, must_exist=must_exist, columns=columns, constraints=constraints, query=query
        )

    def _elements(self) -> tuple[tuple[ColumnDefinition, ...], dict[str, str]]:
        """Columns and constraints, in parentheses."""
        columns: list[ColumnDefinition] = []
        constraints: dict[str, str] = {}
        self.expect_op("(")
        while True:
            if self.sees("CONSTRAINT") or (self.sees("CHECK") and self.is_op(1, "(")):
                name = self.simple_name("A name") if self.takes("CONSTRAINT") else f"check_{len(constraints) + 1}"
                if name.lower() in {other.lower() for other in constraints}:
                    self.refuse(f"There are two constraints {name}")
                constraints[name] = self._check()
            elif (
                self.sees("PRIMARY", "KEY")
                or self.sees("FOREIGN", "KEY")
                or (self.sees("UNIQUE") and self.is_op(1, "("))
            ):
                self.refuse("Keys are not supported: nothing would hold a table to them")
            else:
                columns.append(self.column())
            if self.takes_op(")"):
                return tuple(columns), constraints
            if not self.takes_op(","):
                self.refuse("A comma or ) was expected")

    def _check(self) -> str:
        if not self.takes("CHECK"):
            self.refuse("Only CHECK constraints are supported", hint="CONSTRAINT name CHECK (condition)")
        condition = self.cut_parentheses()
        self.takes("ENFORCED")
        return condition

    def _options(self) -> dict[str, Any]:
        """What stands behind the columns, in any order."""
        found: dict[str, Any] = {}
        key: str
        value: Any
        while True:
            if self.takes("USING"):
                key, value = "provider", ".".join(self.names("A format"))
            elif self.takes("PARTITIONED", "BY"):
                key, value = "partition_by", self.listed()
            elif self.takes("CLUSTER", "BY"):
                if self.sees("AUTO") or self.sees("NONE"):
                    self.refuse("CLUSTER BY names columns", hint="Leave it out, or name columns in parentheses")
                key, value = "cluster_by", self._cluster_columns()
            elif self.takes("TBLPROPERTIES"):
                key, value = "properties", self._properties()
            elif self.takes("LOCATION"):
                key, value = "location", self.string()
            elif self.takes("COMMENT"):
                key, value = "comment", self.string()
            elif self.sees("OPTIONS") or self.sees("CLUSTERED") or self.sees("ROW") or self.sees("STORED"):
                self.refuse(f"{self.token.keyword} is not for such tables", hint="Properties go into TBLPROPERTIES")
            else:
                return found
            if key in found:
                self.refuse(f"There are two of {key}")
            found[key] = value

    def _cluster_columns(self) -> tuple[str, ...]:
        self.expect_op("(")
        found: list[str] = []
        while not self.takes_op(")"):
            if found and not self.takes_op(","):
                self.refuse("A comma or ) was expected")
            found.append(self.dotted())
        return tuple(found)

    def _properties(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self.expect_op("(")
        while True:
            key = self._property_key()
            self.takes_op("=")
            if key in found:
                self.refuse(f"The property {key} is given twice")
            found[key] = self._property_value()
            if self.takes_op(")"):
                return found
            if not self.takes_op(","):
                self.refuse("A comma or ) was expected")

    def _property_key(self) -> str:
        return self.string() if self.token.kind == "string" else ".".join(self.names("A property"))

    def _property_value(self) -> str:
        if self.token.kind == "string":
            return self.string()
        if self.token.kind == "number" or self.token.keyword in ("TRUE", "FALSE"):
            text = self.token.text
            self.skip(1)
            return text.lower()
        self.refuse("The value of a property was expected", hint="Put it in quotes")

    def _clone(self, how: dict[str, Any]) -> CloneTable:
        deep = not self.takes("SHALLOW")
        if deep:
            self.takes("DEEP")
        self.expect("CLONE")
        source = self.table(travels=True)
        found = self._options()
        self.expect_end()
        if set(found) - {"location", "properties"}:
            self.refuse("A clone may have TBLPROPERTIES and LOCATION only")
        return CloneTable(**how, **found, source=source, deep=deep)

    def _view(self, or_replace: bool) -> View | None:
        is_global = self.takes("GLOBAL")
        if not (self.takes("TEMPORARY") or self.takes("TEMP")) or not self.takes("VIEW"):
            return None
        name = self.simple_name("A view")
        columns = self.listed() if self.is_op(0, "(") else ()
        if not self.takes("AS"):
            return None
        query = self.cut_rest()
        return View(name=name, query=query, or_replace=or_replace, columns=columns, is_global=is_global)

    def _convert(self) -> Convert:
        if self.token.keyword != "PARQUET" or not self.is_op(1, ".") or self.name_at(2) is None:
            self.refuse("CONVERT TO DELTA takes parquet.`path`")
        self.skip(2)
        path = self.name()
        self.takes("NO", "STATISTICS")  # they come from the footers, which are read anyway
        columns: tuple[StructField, ...] = ()
        if self.takes("PARTITIONED", "BY"):
            found, _ = self._elements()
            columns = tuple(column.field for column in found)
        self.expect_end()
        return Convert(path=path, partition_by=columns)

    def _alteration(self) -> Alteration:
        change = self._one_alteration()
        self.expect_end()
        return change

    def _one_alteration(self) -> Alteration:
        if self.takes("ADD", "CONSTRAINT"):
            return AddConstraint(name=self.simple_name("A name"), condition=self._check())
        if self.takes("DROP", "CONSTRAINT"):
            if_exists = self.takes("IF", "EXISTS")
            return DropConstraint(if_exists=if_exists, name=self.simple_name("A name"))
        if self.takes("ADD", "COLUMN") or self.takes("ADD", "COLUMNS"):
            return AddColumns(columns=self._new_columns())
        if self.takes("DROP", "COLUMN") or self.takes("DROP", "COLUMNS"):
            if_exists = self.takes("IF", "EXISTS")
            return DropColumns(if_exists=if_exists, columns=self._paths())
        if self.takes("RENAME", "COLUMN"):
            path = self.names("A column")
            self.expect("TO")
            return RenameColumn(column=path, new_name=self.simple_name())
        if self.takes("RENAME", "TO"):
            return RenameTableStatement(new_name=self.table())
        if (
            self.takes("ALTER", "COLUMN")
            or self.takes("CHANGE", "COLUMN")
            or self.takes("ALTER")
            or self.takes("CHANGE")
        ):
            return self._alter_column()
        if self.takes("SET", "TBLPROPERTIES"):
            return SetProperties(properties=self._properties())
        if self.takes("UNSET", "TBLPROPERTIES"):
            return self._unset()
        if self.takes("CLUSTER", "BY"):
            return ClusterBy(columns=() if self.takes("NONE") else self._cluster_columns())
        if self.takes("DROP", "FEATURE"):
            feature = self.string() if self.token.kind == "string" else self.simple_name("A feature")
            return DropFeature(feature=feature, truncate_history=self.takes("TRUNCATE", "HISTORY"))
        self.refuse("This ALTER TABLE is not known")

    def _new_columns(self) -> tuple[ColumnDefinition, ...]:
        in_parentheses = self.takes_op("(")
        found = [self.column(nested=True)]
        while self.takes_op(","):
            found.append(self.column(nested=True))
        if in_parentheses:
            self.expect_op(")")
        return tuple(found)

    def _paths(self) -> tuple[tuple[str, ...], ...]:
        in_parentheses = self.takes_op("(")
        found = [self.names("A column")]
        while self.takes_op(","):
            found.append(self.names("A column"))
        if in_parentheses:
            self.expect_op(")")
        return tuple(found)

    def _unset(self) -> UnsetProperties:
        if_exists = self.takes("IF", "EXISTS")
        self.expect_op("(")
        keys = [self._property_key()]
        while self.takes_op(","):
            keys.append(self._property_key())
        self.expect_op(")")
        return UnsetProperties(keys=tuple(keys), if_exists=if_exists)

    def _alter_column(self) -> AlterColumn | SyncIdentity:
        path = self.names("A column")
        if self.takes("SYNC", "IDENTITY"):
            if len(path) > 1:
                self.refuse("Only whole columns are identities")
            return SyncIdentity(column=path[0])
        if self.takes("TYPE"):
            return AlterColumn(column=path, type=self.column_type(path[-1]))
        if self.takes("SET", "NOT", "NULL"):
            return AlterColumn(column=path, nullable=False)
        if self.takes("DROP", "NOT", "NULL"):
            return AlterColumn(column=path, nullable=True)
        if self.takes("SET", "DEFAULT"):
            return AlterColumn(column=path, default=self.cut_rest())
        if self.takes("DROP", "DEFAULT"):
            return AlterColumn(column=path, drops_default=True)
        if self.takes("COMMENT"):
            return AlterColumn(column=path, comment=self.string())
        if self.takes("FIRST"):
            return AlterColumn(column=path, first=True)
        if self.takes("AFTER"):
            return AlterColumn(column=path, after=self.simple_name())
        if (self.name_at(0) or "").lower() == path[-1].lower():
            return self._old_style(path)
        self.refuse("TYPE, SET, DROP, COMMENT, FIRST or AFTER was expected")

    def _old_style(self, path: tuple[str, ...]) -> AlterColumn:
        """`CHANGE COLUMN name name TYPE [COMMENT 'text'] [FIRST | AFTER other]`, as Hive has it."""
        definition = self.column(nested=True)
        if not definition.field.nullable or definition.default is not None or definition.generated is not None:
            self.refuse("Only a type, a comment and a place can be said so", hint="ALTER COLUMN … SET …")
        return AlterColumn(
            column=path,
            type=definition.field,
            comment=definition.field.metadata.get("comment"),
            first=definition.first,
            after=definition.after,
        )

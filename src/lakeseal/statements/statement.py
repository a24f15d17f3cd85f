"""Statements as values. Conditions, values and queries in them are cuts of the text that somebody wrote."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from lakeseal.commands.merge.clauses import Clause
from lakeseal.protocol.schema import StructField

PATH_SCHEMAS = ("delta", "lakeseal")


class Moment(Struct, frozen=True, kw_only=True):
    """Which version of a table: by its number, or by the text of an expression that is a timestamp."""

    version: int | None = None
    timestamp: str | None = None


class StatedName(Struct, frozen=True, kw_only=True):
    """A table as a statement names it: by its path (``delta.`path` ``), or by one to three names."""

    parts: tuple[str, ...]
    path: str | None = None
    at: Moment | None = None

    @property
    def shown(self) -> str:
        return self.path if self.path is not None else ".".join(self.parts)

    @classmethod
    def at_path(cls, path: str, at: Moment | None = None) -> StatedName:
        return cls(parts=("delta", path), path=path, at=at)


class TableChanges(Struct, frozen=True, kw_only=True):
    """`table_changes('table', start[, end])`: its bounds are versions, or texts of expressions that are timestamps."""

    table: StatedName
    start: int | str
    end: int | str | None = None


class Query(Struct, frozen=True, kw_only=True):
    """Anything that gives rows, or that is not ours but reads tables of ours."""

    text: str


class View(Struct, frozen=True, kw_only=True):
    """CREATE TEMPORARY VIEW."""

    name: str
    query: str
    or_replace: bool = False
    columns: tuple[str, ...] = ()
    is_global: bool = False


class Delete(Struct, frozen=True, kw_only=True):
    table: StatedName
    where: str | None = None
    alias: str | None = None


class UpdateStatement(Struct, frozen=True, kw_only=True):
    table: StatedName
    values: dict[str, str]
    where: str | None = None
    alias: str | None = None


class Merge(Struct, frozen=True, kw_only=True):
    table: StatedName
    source: StatedName | Query
    on: str
    clauses: tuple[Clause, ...]
    source_alias: str | None = None
    source_columns: tuple[str, ...] = ()
    """New names for all of the source's columns: `AS s(a, b)`."""
    target_alias: str | None = None
    merge_schema: bool = False
    """WITH SCHEMA EVOLUTION."""


class Insert(Struct, frozen=True, kw_only=True):
    """Rows come from `query`, or from `rows`, whose cells are expressions or DEFAULT."""

    table: StatedName
    query: str | None = None
    rows: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    overwrite: bool = False
    replace_where: str | None = None
    partition: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    """PARTITION (a = 1, b): names to texts, None where the rows say it."""
    merge_schema: bool = False


class IdentityDefinition(Struct, frozen=True, kw_only=True):
    """GENERATED … AS IDENTITY."""

    start: int = 1
    step: int = 1
    by_default: bool = False


class ColumnDefinition(Struct, frozen=True, kw_only=True):
    field: StructField
    """Its name (the last one, of a nested one), type, whether it may be null, and its comment."""
    parents: tuple[str, ...] = ()
    default: str | None = None
    generated: str | None = None
    identity: IdentityDefinition | None = None
    first: bool = False
    after: str | None = None


class CreateTableStatement(Struct, frozen=True, kw_only=True):
    table: StatedName
    columns: tuple[ColumnDefinition, ...] = ()
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    constraints: Mapping[str, str] = msgspec.field(default_factory=dict)
    comment: str | None = None
    location: str | None = None
    provider: str | None = None
    query: str | None = None
    or_replace: bool = False
    """CREATE OR REPLACE, or REPLACE."""
    must_exist: bool = False
    """REPLACE TABLE."""
    if_not_exists: bool = False


class CreateLike(Struct, frozen=True, kw_only=True):
    """CREATE TABLE … LIKE: an empty table with another one's columns."""

    table: StatedName
    source: StatedName
    if_not_exists: bool = False
    location: str | None = None
    provider: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class CloneTable(Struct, frozen=True, kw_only=True):
    table: StatedName
    source: StatedName
    deep: bool = False
    or_replace: bool = False
    if_not_exists: bool = False
    location: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class Convert(Struct, frozen=True, kw_only=True):
    path: str
    partition_by: tuple[StructField, ...] = ()


class DropTableStatement(Struct, frozen=True, kw_only=True):
    table: StatedName
    if_exists: bool = False
    purge: bool = False


class AddColumns(Struct, frozen=True, kw_only=True):
    columns: tuple[ColumnDefinition, ...]


class DropColumns(Struct, frozen=True, kw_only=True):
    columns: tuple[tuple[str, ...], ...]
    if_exists: bool = False


class RenameColumn(Struct, frozen=True, kw_only=True):
    column: tuple[str, ...]
    new_name: str


class AlterColumn(Struct, frozen=True, kw_only=True):
    """What is None stays as it is."""

    column: tuple[str, ...]
    type: StructField | None = None
    """Of the new type, with what else the type says of a column."""
    nullable: bool | None = None
    comment: str | None = None
    default: str | None = None
    drops_default: bool = False
    first: bool = False
    after: str | None = None


class SyncIdentity(Struct, frozen=True, kw_only=True):
    column: str


class SetProperties(Struct, frozen=True, kw_only=True):
    properties: Mapping[str, str]


class UnsetProperties(Struct, frozen=True, kw_only=True):
    keys: tuple[str, ...]
    if_exists: bool = False


class AddConstraint(Struct, frozen=True, kw_only=True):
    name: str
    condition: str


class DropConstraint(Struct, frozen=True, kw_only=True):
    name: str
    if_exists: bool = False


class ClusterBy(Struct, frozen=True, kw_only=True):
    columns: tuple[str, ...]
    """None of them: CLUSTER BY NONE."""


class DropFeature(Struct, frozen=True, kw_only=True):
    feature: str
    truncate_history: bool = False


class RenameTableStatement(Struct, frozen=True, kw_only=True):
    new_name: StatedName


class SetComment(Struct, frozen=True, kw_only=True):
    """COMMENT ON TABLE … IS; None for NULL."""

    comment: str | None


Alteration = (
    AddColumns
    | DropColumns
    | RenameColumn
    | AlterColumn
    | SyncIdentity
    | SetProperties
    | UnsetProperties
    | AddConstraint
    | DropConstraint
    | ClusterBy
    | DropFeature
    | RenameTableStatement
    | SetComment
)


class AlterTable(Struct, frozen=True, kw_only=True):
    table: StatedName
    change: Alteration


class Optimize(Struct, frozen=True, kw_only=True):
    table: StatedName
    where: str | None = None
    zorder_by: tuple[str, ...] = ()
    full: bool = False


class Purge(Struct, frozen=True, kw_only=True):
    """REORG TABLE … APPLY (PURGE)."""

    table: StatedName
    where: str | None = None


class Generate(Struct, frozen=True, kw_only=True):
    table: StatedName
    mode: str


class Vacuum(Struct, frozen=True, kw_only=True):
    table: StatedName
    hours: float | None = None
    dry_run: bool = False
    lite: bool = False
    inventory: StatedName | Query | None = None


class Restore(Struct, frozen=True, kw_only=True):
    table: StatedName
    to: Moment


class History(Struct, frozen=True, kw_only=True):
    table: StatedName
    limit: int | None = None


class Detail(Struct, frozen=True, kw_only=True):
    table: StatedName


class Describe(Struct, frozen=True, kw_only=True):
    table: StatedName
    extended: bool = False


class DescribeColumn(Struct, frozen=True, kw_only=True):
    table: StatedName
    column: tuple[str, ...]


class CreateSchemaStatement(Struct, frozen=True, kw_only=True):
    name: tuple[str, ...]
    if_not_exists: bool = False


class DropSchemaStatement(Struct, frozen=True, kw_only=True):
    name: tuple[str, ...]
    if_exists: bool = False


class ShowSchemas(Struct, frozen=True, kw_only=True):
    catalog: str | None = None
    like: str | None = None


class ShowTables(Struct, frozen=True, kw_only=True):
    schema: tuple[str, ...] = ()
    like: str | None = None


class ShowColumns(Struct, frozen=True, kw_only=True):
    table: StatedName


class ShowProperties(Struct, frozen=True, kw_only=True):
    table: StatedName
    key: str | None = None


class ShowCreate(Struct, frozen=True, kw_only=True):
    table: StatedName


OnTable = (
    Delete
    | UpdateStatement
    | Merge
    | Insert
    | CreateTableStatement
    | CreateLike
    | CloneTable
    | DropTableStatement
    | AlterTable
    | Optimize
    | Purge
    | Generate
    | Vacuum
    | Restore
    | History
    | Detail
    | Describe
    | DescribeColumn
    | ShowColumns
    | ShowProperties
    | ShowCreate
)
Statement = Query | View | OnTable | Convert | ShowTables | CreateSchemaStatement | DropSchemaStatement | ShowSchemas

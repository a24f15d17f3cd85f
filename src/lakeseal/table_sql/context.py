"""What a statement is done with: the session, if there is one, and where tables are found."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from lakeseal import clock, expr
from lakeseal.catalog.connect import CATALOG_VARIABLE, CatalogLike
from lakeseal.catalog.place import Place
from lakeseal.catalogs import Catalog
from lakeseal.errors import InvalidArgument, InvalidExpression, NotFound, TableNotFound, UnsupportedExpression
from lakeseal.expr.lexer import tokenize
from lakeseal.expr.render import quote_name
from lakeseal.log.timestamps import Timestamp
from lakeseal.protocol.schema import DataType, StructType
from lakeseal.statements.cutting import Cutter, at_sign
from lakeseal.statements.statement import Moment, StatedName
from lakeseal.table import Owner, Table, reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakeseal.spark.predicates import Settings


class FoundTable(Struct, frozen=True, kw_only=True):
    table: Table
    at: Moment | None = None
    """The version of it that the statement names."""


def no_such_table(name: str) -> TableNotFound:
    """Neither in the catalog nor known to whoever plans the query."""
    hint = "Name it by its path, delta.`path`, or give catalog=…"
    return TableNotFound("There is no table of this name", table=name, hint=hint)


class SqlContext:
    def __init__(
        self,
        spark: SparkSession | None,
        catalog: Catalog | CatalogLike | None,
        owner: Owner | None,
        storage_options: Mapping[str, str] | None,
        text: str = "",
    ) -> None:
        self.spark = spark
        self._text = text
        self._asked = catalog
        self.owner = owner
        self.storage_options = storage_options
        self._read: dict[str, int] = {}
        """Of tables that the statement reads as they are now: which version that is."""

    @cached_property
    def catalog(self) -> Catalog | None:
        """Where names are looked up: the one that is given or configured, and without Spark the embedded one."""
        if isinstance(self._asked, Catalog):
            return self._asked
        if self._asked is None and self.spark is not None and not os.environ.get(CATALOG_VARIABLE):
            return None
        return Catalog(self._asked)

    @cached_property
    def settings(self) -> Settings | None:
        if self.spark is None:
            return None
        from lakeseal.spark.predicates import Settings  # pyspark is an extra

        return Settings.of(self.spark)

    @property
    def double_quoted_names(self) -> bool:
        return self.settings is not None and self.settings.double_quoted_names

    @property
    def case_sensitive(self) -> bool:
        return self.settings is not None and self.settings.case_sensitive

    def check_types(self, types: Iterable[DataType]) -> None:
        """Refuses types that the statement writes as TIMESTAMP where the session means by it one without a zone."""
        if self.settings is None or not self.settings.plain_timestamps:
            return
        from lakeseal.spark.predicates import has_timestamps  # pyspark is an extra

        says = any(token.keyword == "TIMESTAMP" for token in tokenize(self._text, strict=False))
        if says and any(map(has_timestamps, types)):
            raise UnsupportedExpression(
                "TIMESTAMP is a type without a zone in this session (spark.sql.timestampType)",
                hint="Write TIMESTAMP_NTZ or TIMESTAMP_LTZ",
            )

    def at_path(self, path: str) -> Table:
        # What is said to be a path is no name, whatever it looks like.
        return Table(Place(uri=path), owner=self.owner, storage_options=self.storage_options)

    def resolve(self, name: StatedName) -> FoundTable | None:
        """The table that is meant; None if it is none of ours."""
        if name.path is None:
            named = self.named(name)
            return None if named is None else FoundTable(table=named, at=name.at)
        path, at = _split(name.path)
        if at is not None and name.at is None and not self.at_path(name.path).exists():
            return FoundTable(table=self.at_path(path), at=at)
        return FoundTable(table=self.at_path(name.path), at=name.at)

    def named(self, name: StatedName) -> Table | None:
        """What the catalog has under a name, or else Spark's own; None if neither has a table of ours there."""
        found = self.in_catalog(name)
        return self._in_sparks_catalog(name) if found is None else found

    def in_catalog(self, name: StatedName) -> Table | None:
        """None if it has nothing, or the session has a view that is called so."""
        catalog = self.catalog
        if catalog is None or len(name.parts) < 2 or self._is_view(name):
            return None
        try:
            return catalog.table(self.name_in_catalog(name), self.storage_options)
        except (NotFound, InvalidArgument):
            return None

    def _in_sparks_catalog(self, name: StatedName) -> Table | None:
        if self.spark is None or not name.parts:
            return None
        from lakeseal.spark.read_options import ReadOptions  # pyspark is an extra
        from lakeseal.spark.spark_catalog import named_place

        place = named_place(self.spark, spark_name(name))
        if place is None:
            return None
        table = ReadOptions.from_options(place).table
        return Table(Place(uri=table.uri), owner=table.owner or self.owner, storage_options=self.storage_options)

    def keep_in_spark(self, name: StatedName, uri: str | None = None) -> None:
        """Spark's catalog keeps the columns of a table as they were when it got its name: it gets it anew where they
        are others now. With a URI, a table gets a name there in the first place."""
        if self.spark is None or not name.parts or (uri is None and self.in_catalog(name) is not None):
            return
        from lakeseal.spark.spark_catalog import make_name, named_place  # pyspark is an extra

        if uri is not None:
            make_name(self.spark, spark_name(name), {"path": uri})
            return
        place = named_place(self.spark, spark_name(name))
        if place is not None:
            make_name(self.spark, spark_name(name), place, anew=True)

    @staticmethod
    def name_in_catalog(name: StatedName) -> str:
        if len(name.parts) < 2:
            raise InvalidArgument("A table of a catalog is in a schema", hint=f"Write default.{name.shown}")
        return ".".join(f"`{part}`" for part in name.parts)

    def _is_view(self, name: StatedName) -> bool:
        """Global ones are called `global_temp.name`; others have one name, and no table of a catalog has that."""
        return self.spark is not None and name.parts[0].lower() == "global_temp"

    def existing(self, name: StatedName) -> Table | None:
        """A table that is to be changed; None if it is none of ours."""
        found = self.resolve(name)
        if found is None:
            return None
        if found.at is not None:
            raise InvalidArgument("A version of a table can only be read", table=name.shown, hint="RESTORE it first")
        if not found.table.exists():
            raise TableNotFound("There is no table here", table=name.shown)
        return found.table

    def moment(self, at: Moment | None) -> dict[str, Any]:
        """As arguments of what reads a table."""
        if at is None:
            return {}
        return {"version": at.version} if at.timestamp is None else {"timestamp": self.timestamp(at.timestamp)}

    def timestamp(self, sql: str) -> Timestamp:
        """The moment that an expression stands for, in the session's time zone; in UTC without one."""
        if self.spark is None:
            reader = Cutter(sql)
            if reader.token.keyword in ("TIMESTAMP", "DATE"):
                reader.skip(1)
            try:
                text = reader.string()
                reader.expect_end()
            except InvalidExpression:
                return _evaluated(sql)
            return text
        from lakeseal.spark.moments import micros_of  # pyspark is an extra

        return _moment(sql, micros_of(self.spark, sql))

    def read(self, name: StatedName) -> FoundTable | None:
        """A table that is to be read, of which there must be one. A statement reads one version of it, however often
        it names it, unless it says which."""
        found = self.resolve(name)
        if found is None:
            return None
        try:
            newest = found.table.version()
        except TableNotFound:
            raise TableNotFound("There is no table here", table=name.shown) from None
        if found.at is not None:
            return found
        return FoundTable(table=found.table, at=Moment(version=self._read.setdefault(found.table.uri, newest)))

    def changed(self, table: Table) -> Table:
        """A table for the change that the statement makes of what it has read so far. If that was the same table, the
        change builds on the version that was read."""
        version = self._read.get(table.uri)
        return table if version is None else reading(table, version)


def _evaluated(sql: str) -> datetime:
    try:
        bound = expr.bind(expr.parse(f"unix_micros(CAST(({sql}\n) AS TIMESTAMP))"), StructType(()))
    except UnsupportedExpression as error:
        raise UnsupportedExpression(
            f"What moment {sql[:100]!r} is can only be told by a session of Spark: {error.message}",
            hint="Give spark=…, or write the moment as a text in quotes",
        ) from None
    one = pa.record_batch([pa.array([0])], names=["__one"])
    micros = expr.evaluate(bound, one, now=clock.now())[0].as_py()
    return _moment(sql, micros)


def _moment(sql: str, micros: int | None) -> datetime:
    if micros is None:
        raise InvalidExpression(f"{sql[:100]!r} is no moment: it is NULL")
    return datetime.fromtimestamp(micros // 1_000_000, UTC).replace(microsecond=micros % 1_000_000)


def spark_name(name: StatedName) -> str:
    return ".".join(quote_name(part) for part in name.parts)


def _split(path: str) -> tuple[str, Moment | None]:
    """A path that ends as `@v3` or `@yyyyMMddHHmmssSSS`, without that."""
    before, sign, behind = path.rpartition("@")
    at = at_sign(behind) if sign and before else None
    return (path, None) if at is None else (before, at)

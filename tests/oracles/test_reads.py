"""Every way to read a table gives the rows that Spark finds in them.

Tables come from `tables`, the rows of their versions are also put into Spark as they are, and random queries are asked
of both: filters, projections, aggregates, joins of a version with itself and with another one, unions, subqueries,
caches, one DataFrame for all of them. Ways to read: `to_spark` by Spark's reader and by tasks, `format("lakeseal")`
with filters pushed by Spark and without, `to_arrow`; versions by number and by moment; and other engines where they
know the table's features.

A case is a table and many reads of it. All reads of one way are one query of Spark, in which every row is a digest:
that takes a small part of the time that they take one by one. Reads that differ are asked again alone, for what to say.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import duckdb_extensions
import polars as pl
import pytest
from msgspec import Struct
from pyspark.sql import DataFrame

import lakeseal
from lakeseal.errors import UnsupportedExpression
from lakeseal.spark.scan import to_spark
from oracles.bare import bare
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, some_session, with_settings
from oracles.tables import ID, AnyTable, Field, Row, Version, condition

pytestmark = pytest.mark.spark

READS = 20
SHORT, FULL = 1, 3000 // READS
PUSHING = "spark.sql.python.filterPushdown.enabled"
ASKED = ("new-york", "ansi-off", "case-sensitive", "aqe-off")
SMALL = {**INTERPRETED, "spark.sql.shuffle.partitions": "1"}
AS_EXPR = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true", "spark.sql.caseSensitive": "false"}


class Read(Struct, frozen=True, kw_only=True):
    number: int
    at: int
    other: int
    """Another version, or the same, for queries of two."""
    where: str
    names: tuple[str, ...]
    query: str
    """`@t` stands for the version, `@o` for the other one."""

    def of(self, views: str) -> str:
        return self.query.replace("@t", f"{views}_{self.at}").replace("@o", f"{views}_{self.other}")


def test_every_way_to_read_gives_the_rows_that_spark_finds_in_them(spark: Any, tmp_path: Path) -> None:
    lakeseal.register(spark)
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            made = AnyTable(chance, tmp_path / str(seed)).make()
            name, settings = some_session(chance, *ASKED)
            newest = made.table.version()
            asked = sorted({newest, chance.choice(sorted(made.versions))})
            reads = [_read(chance, made, number, asked) for number in range(READS)]
            with with_settings(spark, {**settings, **SMALL, PUSHING: "false"}):
                _check(spark, chance, made, asked, reads, f"{name}: {made.story}")
            _check_others(made)


def _check(
    spark: Any, chance: random.Random, made: AnyTable, asked: Sequence[int], reads: Sequence[Read], about: str
) -> None:
    rows = {version: bare(spark, made.versions[version].arrow()) for version in asked}
    for version, df in rows.items():
        df.createOrReplaceTempView(f"bare_{version}")
    right = _digests(spark, reads, "bare")
    cached = chance.choice(("to_spark", "tasks", "format"))
    for way, frames in _ways(spark, chance, made, asked):
        with with_settings(spark, {PUSHING: "true" if way == "pushed" else "false"}):
            for version, df in frames.items():
                df.createOrReplaceTempView(f"seen_{version}")
            # Spark asks Python about each scan anew, for many of one query at once, and starts a process for each.
            few = 5 if way in ("format", "pushed") else READS
            found: dict[int, Counter[str]] = {}
            for first in range(0, READS, few):
                found |= _digests(spark, reads[first : first + few], "seen")
            for read in reads:
                if found[read.number] != right[read.number]:
                    text, about_it = read.of("seen"), f"read {read.number} by {way} ({about})"
                    same_rows(_answer(spark.sql(text)), _answer(spark.sql(read.of("bare"))), f"{text}, {about_it}")
                    raise AssertionError(f"{text} looks the same and has other digests, {about_it}")
            if way == cached or (way, cached) == ("pushed", "format"):
                newest = asked[-1]
                _check_cache(chance, made.versions[newest], frames[newest], rows[newest], f"{way} ({about})")
    _check_arguments(spark, made, reads, rows, about)


def _digests(spark: Any, reads: Sequence[Read], views: str) -> dict[int, Counter[str]]:
    """The rows of each read, all in one query. A zero's sign does not count."""
    texts = (
        f"SELECT {read.number} AS place, md5(replace(CAST(struct(*) AS STRING), '-0.0', '0.0')) AS row "
        f"FROM ({read.of(views)})"
        for read in reads
    )
    found: dict[int, Counter[str]] = {read.number: Counter() for read in reads}
    for row in _answer(spark.sql(" UNION ALL ".join(texts)).coalesce(1)):
        found[row["place"]][row["row"]] += 1
    return found


def _ways(
    spark: Any, chance: random.Random, made: AnyTable, asked: Sequence[int]
) -> Iterator[tuple[str, dict[int, DataFrame]]]:
    """By each way a DataFrame per version, which is asked for by its number or by a moment that saw it."""
    table, newest = made.table, made.table.version()

    def travelled(version: int) -> dict[str, Any]:
        if version == newest and chance.random() < 0.7:
            return {}
        return {"timestamp": made.moment(version)} if chance.random() < 0.5 else {"version": version}

    def loaded(version: int) -> DataFrame:
        options = {f"{name}AsOf": value for name, value in travelled(version).items()}
        df: DataFrame = spark.read.format("lakeseal").options(**options).load(table.uri)
        return df

    yield "to_spark", {version: table.to_spark(spark, **travelled(version)) for version in asked}
    snapshots = {version: table.snapshot(**travelled(version)) for version in asked}
    yield "tasks", {version: to_spark(spark, one, table.spec, in_tasks=True) for version, one in snapshots.items()}
    yield chance.choice(("format", "format", "pushed")), {version: loaded(version) for version in asked}


def _read(chance: random.Random, made: AnyTable, number: int, asked: Sequence[int]) -> Read:
    at, other = chance.choice((asked[-1], *asked)), chance.choice(asked)
    fields, others = made.versions[at].fields, made.versions[other].fields
    where = condition(chance, fields)
    some = chance.sample(fields, k=chance.randint(1, len(fields)))
    query = _query(chance, fields, others, where, some)
    return Read(number=number, at=at, other=other, where=where, names=tuple(f.name for f in some), query=query)


def _query(
    chance: random.Random, fields: Sequence[Field], others: Sequence[Field], where: str, some: Sequence[Field]
) -> str:
    def also(prefix: str = "") -> str:
        return condition(chance, fields, prefix)

    def there(prefix: str = "") -> str:
        return condition(chance, others, prefix)

    one = chance.choice([field for field in fields if field.is_atomic]).sql
    names = ", ".join(field.sql for field in some)
    both = "a.id AS a, b.id AS b"
    return chance.choice(
        (
            f"SELECT {names} FROM @t WHERE {where}",
            f"SELECT {names} FROM @t WHERE {where} AND {also()}",
            f"SELECT {names}, ({also()}) AS meets FROM @t WHERE {where}",
            f"SELECT DISTINCT {one} AS g, ({also()}) AS meets FROM @t WHERE {where}",
            f"SELECT count(*) AS n, count({one}) AS c, min({one}) AS l, max({one}) AS h FROM @t WHERE {where}",
            f"SELECT count(*) AS n, count_if({also()}) AS c FROM @t",
            f"SELECT {one} AS g, count(*) AS n FROM @t WHERE {where} GROUP BY {one}",
            f"SELECT {one} AS g, count(*) AS n FROM @t GROUP BY {one} HAVING count_if({where}) > 0",
            f"SELECT id, count(*) OVER (PARTITION BY {one}) AS n FROM @t WHERE {where}",
            f"SELECT {both} FROM @t a JOIN @t b ON a.id = b.id + 1 WHERE {also('a.')} OR {also('b.')}",
            f"SELECT {both} FROM @t a LEFT JOIN (SELECT * FROM @t WHERE {where}) b ON a.id = b.id",
            f"SELECT {both} FROM @t a FULL JOIN @o b ON a.id = b.id AND {there('b.')} WHERE {also('a.')} OR a.id < 5",
            f"SELECT id FROM @t a WHERE {where} AND EXISTS (SELECT 1 FROM @o b WHERE a.id = b.id AND {there('b.')})",
            f"SELECT id FROM @t WHERE {where} UNION ALL SELECT id FROM @t WHERE {also()}",
            f"SELECT id FROM @t WHERE {where} EXCEPT SELECT id FROM @o WHERE {there()}",
            f"SELECT (SELECT count(*) FROM @t WHERE {where}) AS a, (SELECT count(*) FROM @o WHERE {there()}) AS b",
            f"SELECT id FROM @t WHERE id NOT IN (SELECT id FROM @t WHERE {where}) AND {also()}",
            f"SELECT id FROM @t WHERE {one} >= (SELECT max({one}) FROM @t WHERE {where})",
            f"SELECT {names} FROM @t WHERE {where} ORDER BY id LIMIT 3",
        )
    )


def _check_cache(chance: random.Random, version: Version, df: DataFrame, rows: DataFrame, about: str) -> None:
    first = condition(chance, version.fields)
    cached = df.where(first).cache()
    try:
        same_rows(_answer(cached), _answer(rows.where(first)), f"cached: {first}, {about}")
        same_rows(_answer(df), version.arrow().to_pylist(), f"whole by {about}")
    finally:
        cached.unpersist()


def _check_arguments(spark: Any, made: AnyTable, reads: Sequence[Read], rows: dict[int, DataFrame], about: str) -> None:
    """`where`, `columns` and the version are told to `to_arrow`, which judges in UTC and ANSI, and of some reads to
    `to_spark`, which judges by the session."""
    with with_settings(spark, AS_EXPR):
        right = _met(reads, rows)
    for read in reads:
        asked: dict[str, Any] = {"where": read.where, "columns": list(read.names), "version": read.at}
        try:
            found = made.table.to_arrow(**asked)
        except UnsupportedExpression:
            continue
        expected = _picked(made.versions[read.at], right[read.number], read.names)
        same_rows(found.to_pylist(), expected, f"read {read.number}, to_arrow({asked}) ({about})")
    right = _met(reads, rows)
    for read in reads[:1]:
        asked = {"where": read.where, "columns": list(read.names)}
        expected = _picked(made.versions[read.at], right[read.number], read.names)
        for in_tasks in (None, True):
            found = to_spark(spark, made.table.snapshot(read.at), made.table.spec, in_tasks=in_tasks, **asked)
            same_rows(_answer(found), expected, f"read {read.number}, to_spark({asked}, {in_tasks=}) ({about})")


def _met(reads: Sequence[Read], rows: dict[int, DataFrame]) -> dict[int, set[int]]:
    """Which rows meet each read's condition, in this session."""
    met: dict[int, set[int]] = {read.number: set() for read in reads}
    for version, df in rows.items():
        here = [read for read in reads if read.at == version]
        for row in _answer(df.selectExpr(ID, *(f"({read.where}) AS r{read.number}" for read in here))):
            for read in here:
                if row[f"r{read.number}"]:
                    met[read.number].add(row[ID])
    return met


def _picked(version: Version, ids: set[int], names: Sequence[str]) -> list[Row]:
    return [{name: row.get(name) for name in names} for row in version.rows if row[ID] in ids]


def _check_others(made: AnyTable) -> None:
    expected = made.arrow().to_pylist()
    path = made.table.uri.removeprefix("file://")
    if made.is_mapped and any(field.is_partition for field in made.fields):
        return  # DuckDB reads nulls for them, of tables that Delta Spark wrote too
    duckdb_extensions.import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta; SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT * FROM delta_scan('{path}')").to_arrow_table()
    same_rows(found.to_pylist(), expected, f"DuckDB ({made.story})")
    if not made.is_mapped and not made.has_vectors:
        for version, right in made.versions.items():
            rows = deltalake.DeltaTable(path, version=version).to_pyarrow_table().to_pylist()
            same_rows(rows, right.arrow().to_pylist(), f"deltalake at {version} ({made.story})")
        same_rows(pl.read_delta(path).to_arrow().to_pylist(), expected, f"polars ({made.story})")


def _answer(df: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = df.toArrow().to_pylist()
    return found

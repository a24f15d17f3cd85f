"""Whatever skips by statistics, in the log or in files, finds what it would find by looking at every row.

Five engines read the same tables: Lakeseal, Spark through `to_spark`, DuckDB, deltalake, polars. Each is asked twice
for how many rows meet a condition: as a filter, which skips, and as a column that is counted, which can't. Spark's
answer over the bare rows judges Lakeseal and Spark; the others are judged by themselves, since they order values in
their own ways. Delta Spark is asked the same in `tests/peers`.
"""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import duckdb
import duckdb_extensions
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeseal import Table, expr
from lakeseal.errors import UnsupportedExpression
from lakeseal.log.snapshot import Snapshot
from oracles.bare import bare
from oracles.extremes import Condition, Extremes, extremes
from oracles.seeds import case, cases
from oracles.sessions import INTERPRETED, some_session, with_settings
from oracles.tables import AnyTable
from oracles.tables import condition as any_condition

SHORT, FULL = 2, 300


def counted(found: Extremes, by: Callable[[Condition], tuple[int, int]]) -> list[str]:
    wrong = []
    for condition in found.conditions:
        skipping, looking = by(condition)
        if skipping != looking:
            wrong.append(f"{condition.sql()}: {skipping} rows where {looking} are right")
    return wrong


@functools.cache
def duck() -> duckdb.DuckDBPyConnection:
    """One for all tables: to load the extension takes longer than to ask."""
    duckdb_extensions.import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta; SET TimeZone = 'UTC'")
    return connection


def by_duckdb(table: Table) -> Callable[[Condition], tuple[int, int]]:
    connection = duck()
    source = f"delta_scan('{table.uri.removeprefix('file://')}')"

    def ask(condition: Condition) -> tuple[int, int]:
        text = condition.sql("duckdb")
        skipping = connection.execute(f"SELECT count(*) FROM {source} WHERE {text}").fetchone()
        looking = connection.execute(f"SELECT count(CASE WHEN {text} THEN 1 END) FROM {source}").fetchone()
        assert skipping is not None
        assert looking is not None
        return skipping[0], looking[0]

    return ask


def by_deltalake(table: Table) -> Callable[[Condition], tuple[int, int]]:
    asked = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.uri))

    def number(query: str) -> int:
        found: int = pa.table(asked.execute(query)).column(0)[0].as_py()
        return found

    def ask(condition: Condition) -> tuple[int, int]:
        text = condition.sql("datafusion")
        return number(f"SELECT count(*) FROM t WHERE {text}"), number(
            f"SELECT coalesce(sum(CASE WHEN {text} THEN 1 ELSE 0 END), 0) FROM t"
        )

    return ask


def by_polars(table: Table) -> Callable[[Condition], tuple[int, int]]:
    scan = pl.scan_delta(table.uri)
    whole = scan.collect()

    def ask(condition: Condition) -> tuple[int, int]:
        return scan.filter(condition.polars()).collect().height, whole.filter(condition.polars()).height

    return ask


@pytest.mark.parametrize("engine", [by_duckdb, by_deltalake, by_polars])
def test_other_engines_skip_no_row_of_our_tables(
    tmp_path: Path, engine: Callable[[Table], Callable[[Condition], tuple[int, int]]]
) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            found = extremes(
                chance,
                tmp_path / str(seed),
                writers=("lakeseal",),
                vectors=engine is by_duckdb,
                structs=engine is not by_polars,
            )
            assert not counted(found, engine(found.table))


def test_lakeseal_finds_the_rows_that_duckdb_finds_in_the_bare_ones(tmp_path: Path) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            found = extremes(chance, tmp_path / str(seed), conditions=60, partitions=True)
            duck().register("bare", found.rows)
            parts = ", ".join(f"count(CASE WHEN {one.sql('duckdb')} THEN 1 END)" for one in found.conditions)
            right = duck().execute(f"SELECT {parts} FROM bare").fetchone()
            assert right is not None
            ours = [found.table.to_arrow(where=one.sql(), columns=["id"]).num_rows for one in found.conditions]
            answers = zip(found.conditions, ours, right, strict=True)
            assert not [f"{one.sql()}: {mine}, not {theirs}" for one, mine, theirs in answers if mine != theirs]


def test_a_delete_takes_the_rows_that_duckdb_finds_and_no_others(tmp_path: Path) -> None:
    """Files of which all rows meet the condition, as statistics say, are never opened."""
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            found = extremes(chance, tmp_path / str(seed), conditions=4, partitions=True)
            duck().register("bare", found.rows)
            for number, one in enumerate(found.conditions):
                copy = tmp_path / f"{seed}-{number}"
                shutil.copytree(tmp_path / str(seed), copy)
                Table(copy).delete(one.sql())
                text = f"SELECT id FROM bare WHERE ({one.sql('duckdb')}) IS NOT TRUE"
                right = sorted(row[0] for row in duck().execute(text).fetchall())
                assert sorted(Table(copy).to_arrow()["id"].to_pylist()) == right, one.sql()


def test_conditions_of_every_shape_skip_no_row_and_take_no_file_for_all_of_its_rows(tmp_path: Path) -> None:
    """Lakeseal is judged by itself here, without skipping: how it evaluates conditions is judged by Spark elsewhere."""
    for seed in cases(SHORT, 400):
        with case(seed) as chance:
            made = AnyTable(chance, tmp_path / str(seed)).make()
            snapshot, whole = made.table.snapshot(), made.table.to_arrow().combine_chunks()
            told = None if made.is_mapped or made.has_vectors else _ids(tmp_path / str(seed), snapshot)
            for _ in range(80):
                where = any_condition(chance, made.fields)
                try:
                    bound = expr.bind_predicate(expr.parse(where), snapshot.schema)
                except UnsupportedExpression:
                    continue
                right = set(expr.filter_batch(bound, whole)["id"].to_pylist())
                found = made.table.to_arrow(where=where, columns=["id"])["id"].to_pylist()
                assert sorted(found) == sorted(right), f"{where} ({made.story})"
                match = snapshot.match(where)
                for path, may, every in zip(snapshot.files["path"].to_pylist(), match.may, match.all, strict=True):
                    if told is not None:
                        assert may.as_py() or not told[path] & right, f"{where}: {path} ({made.story})"
                        assert not every.as_py() or told[path] <= right, f"{where}: all of {path} ({made.story})"


def _ids(folder: Path, snapshot: Snapshot) -> dict[str, set[int]]:
    """The rows of each file, by their number."""
    paths = snapshot.files["path"].to_pylist()
    return {path: set(pq.ParquetFile(folder / unquote(path)).read(["id"])["id"].to_pylist()) for path in paths}


@pytest.mark.spark
def test_lakeseal_and_spark_find_the_rows_that_spark_finds_in_the_bare_ones(spark: Any, tmp_path: Path) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed) as chance:
            found = extremes(chance, tmp_path / str(seed), conditions=12)
            _, settings = some_session(chance, "new-york", "ansi-off", "aqe-off", "case-sensitive")
            with with_settings(spark, {**settings, **INTERPRETED}):
                _check_with_spark(spark, found)


def _check_with_spark(spark: Any, found: Extremes) -> None:
    texts = [condition.sql() for condition in found.conditions]
    judge = bare(spark, found.rows)
    right = list(judge.selectExpr(*(f"count(CASE WHEN {text} THEN 1 END)" for text in texts)).first())
    read = found.table.to_spark(spark)
    whole = read.where(texts[0]).selectExpr("count(*) AS n", "0 AS place")
    for place, text in enumerate(texts[1:], 1):
        whole = whole.union(read.where(text).selectExpr("count(*) AS n", f"{place} AS place"))
    by_spark = {row["place"]: row["n"] for row in whole.coalesce(1).collect()}
    wrong = []
    snapshot = found.table.snapshot()
    counts = _counts(snapshot)
    for place, text in enumerate(texts):
        ours = found.table.to_arrow(where=text).num_rows
        kept = sum(counts[path] for path in snapshot.files.filter(snapshot.match(text).may)["path"].to_pylist())
        if not right[place] == by_spark[place] == ours <= kept:
            wrong.append(f"{text}: to_spark {by_spark[place]}, to_arrow {ours} of {kept}, right is {right[place]}")
    assert not wrong, found.writer


def _counts(snapshot: Snapshot) -> dict[str, int]:
    """The rows of each file, as its footer says."""
    folder = snapshot.table.removeprefix("file://")
    return {path: pq.read_metadata(f"{folder}/{path}").num_rows for path in snapshot.files["path"].to_pylist()}


# Examples


@pytest.mark.spark
@pytest.mark.parametrize(
    ("values", "where", "count"),
    [
        ([math.nan, 1.5, -1.0], "f > 2", 1),
        ([math.nan, 1.5, -1.0], "f = 'NaN'", 1),
        ([math.nan, 1.5, -1.0], "NOT (f < 2)", 1),
        ([-0.0], "f = 0", 1),
        ([-0.0, -0.0, -3.0], "f >= 0", 2),
        ([0.0], "f <= -0.0D", 1),
    ],
)
@pytest.mark.parametrize("writer", ["lakeseal", "deltalake", "polars"])
@pytest.mark.parametrize("arrow", [pa.float32(), pa.float64()])
def test_nan_and_zeros_are_found_whoever_wrote_them(
    spark: Any, tmp_path: Path, writer: str, values: list[float], where: str, count: int, arrow: pa.DataType
) -> None:
    numbers = pa.array(values, arrow)
    rows = pa.table({"f": numbers, "s": pa.StructArray.from_arrays([numbers], ["f"])})
    place = tmp_path / "table"
    match writer:
        case "deltalake":
            deltalake.write_deltalake(str(place), rows)
        case "polars":
            pl.from_arrow(rows).write_delta(str(place))  # type: ignore[union-attr]
        case _:
            Table(place).write(rows)
    read = Table(place).to_spark(spark)
    assert read.where(where).count() == count
    assert read.where(where.replace("f", "s.f")).count() == count
    assert Table(place).to_arrow(where=where).num_rows == count


def test_files_say_nothing_of_floats_and_have_no_dictionary_with_a_negative_zero(tmp_path: Path) -> None:
    many = [1.5, 2.5] * 5000
    numbers = pa.table(
        {"n": range(10_000), "f": many, "z": [-0.0, 1.0] * 5000, "s": [{"f": value, "t": "x"} for value in many]}
    )
    table = Table(tmp_path / "table")
    table.write(numbers)
    footer = pq.read_metadata(tmp_path / "table" / table.files()["path"][0].as_py())
    columns = {(c := footer.row_group(0).column(n)).path_in_schema: c for n in range(footer.num_columns)}
    assert {path for path, column in columns.items() if column.is_stats_set} == {"n", "s.t"}
    assert {path for path, column in columns.items() if column.has_column_index} == {"n", "s.t"}
    assert {path for path, column in columns.items() if column.has_dictionary_page} >= {"f", "s.f"}
    assert not columns["z"].has_dictionary_page
    stats = table.snapshot().stats_struct(table.snapshot().files, [("f",), ("s", "f")])
    assert stats[0]["minValues"]["f"].as_py() == 1.5
    assert stats[0]["maxValues"]["s"]["f"].as_py() == 2.5


@pytest.mark.parametrize("writer", ["lakeseal", "deltalake", "polars"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("12345678901234567.891", pa.decimal128(38, 3)),
        ("-12345678901234567.891", pa.decimal128(38, 3)),
        ("0.1000000000000000055511151231257827", pa.decimal128(38, 34)),
        ("9007199254740993", pa.decimal128(16, 0)),
        ("9" * 38, pa.decimal128(38, 0)),
        ("-18446744073709551617", pa.decimal128(38, 0)),
    ],
)
def test_decimals_are_found_whose_bounds_a_writer_rounded_to_doubles(
    tmp_path: Path, writer: str, text: str, kind: pa.DataType
) -> None:
    rows = pa.table({"d": pa.array([text]).cast(kind)})
    place = tmp_path / "table"
    match writer:
        case "deltalake":
            deltalake.write_deltalake(str(place), rows)
        case "polars":
            pl.from_arrow(rows).write_delta(str(place))  # type: ignore[union-attr]
        case _:
            Table(place).write(rows)
    Table(place).checkpoint()
    value = f"CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))"
    for where in (f"d = {value}", f"d <= {value}", f"d >= {value}", f"d IN ({value})", f"NOT (d <> {value})"):
        assert Table(place).to_arrow(where=where).num_rows == 1, where


@pytest.mark.parametrize("writer", ["lakeseal", "deltalake", "polars"])
@pytest.mark.parametrize(
    "text", ["\U0010ffff" * 40, "a" * 32 + "\U0010ffff" * 2 + "b", "a" * 31 + "\ud7ff" * 9, "a" * 31 + "\U0010ffff" * 9]
)
def test_texts_are_found_that_go_on_with_the_greatest_character_where_bounds_are_cut(
    tmp_path: Path, writer: str, text: str
) -> None:
    place = tmp_path / "table"
    rows = pa.table({"t": [text]})
    match writer:
        case "deltalake":
            deltalake.write_deltalake(str(place), rows)
        case "polars":
            pl.from_arrow(rows).write_delta(str(place))  # type: ignore[union-attr]
        case _:
            Table(place).write(rows)
    for where in (f"t = '{text}'", f"t >= '{text}'", f"NOT (t <> '{text}')", f"t > '{text[:-1]}'"):
        assert Table(place).to_arrow(where=where).num_rows == 1, where
    assert not Table(place).snapshot().match("t < 'a'").may[0].as_py()

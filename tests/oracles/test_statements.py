"""Random statements in Arrow, with DataFrames and as SQL, against a dictionary of rows that Spark evaluates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal import errors
from oracles.rows import same_rows
from oracles.seeds import case, cases
from oracles.statement_model import expected
from oracles.statements import Case, some_case

pytestmark = pytest.mark.spark


def test_statements_do_to_a_table_what_they_do_to_a_dictionary(spark: Any, tmp_path: Path) -> None:
    for seed in cases(3, 2000):
        with case(seed) as chance:
            one = some_case(chance)
            way = chance.choice(("frames", "sql"))
            wanted = _wanted(spark, one)
            for how in ("arrow", way):
                _check(spark, one, wanted, how, tmp_path / f"{seed}-{how}")


def _wanted(spark: Any, one: Case) -> list[dict[str, Any]] | None:
    return expected(spark, one)


def _check(spark: Any, one: Case, wanted: list[dict[str, Any]] | None, way: str, place: Path) -> None:
    about = f"{way}: {one.statement.sql('x')}\nsource: {one.source}\nrows: {one.rows}"
    table = one.table(str(place))
    version = table.version()
    try:
        _run(spark, one, table, way)
    except errors.UnsupportedExpression:
        assert way == "arrow", about
        return
    except errors.AmbiguousMerge:
        assert wanted is None, about
        return
    except errors.SchemaMismatch:
        # Structs with other fields than their columns have, where the schema does not evolve.
        assert one.statement.kind == "merge", about
        assert not one.statement.evolves, about
        return
    assert wanted is not None, f"{about}\nseveral source rows change one row"
    rows = table.to_arrow().to_pylist(maps_as_pydicts="strict")
    same_rows(rows, wanted, about)
    if one.feed and table.version() > version:
        _check_feed(table, version, one, rows, about)


def _check_feed(table: Any, version: int, one: Case, rows: list[dict[str, Any]], about: str) -> None:
    """What was there, without what the feed says went, with what it says came, is what is there."""
    came, went = [], []
    for row in table.changes(version + 1).to_pylist(maps_as_pydicts="strict"):
        kind = row.pop("_change_type")
        del row["_commit_version"], row["_commit_timestamp"]
        (came if kind in ("insert", "update_postimage") else went).append(row)
    before = table.to_arrow(version=version).to_pylist(maps_as_pydicts="strict")
    if table.schema().names == list(one.rows[0]) and not one.statement.evolves:
        same_rows([*before, *came], [*rows, *went], f"feed of {about}")


def _run(spark: Any, one: Case, table: Any, way: str) -> None:
    source = spark.sql(one.source)
    if way == "sql":
        source.createOrReplaceTempView("src")
        lakeseal.sql(spark, str(one.statement.sql(table.uri)))
    elif way == "frames":
        one.statement.run(table, source, spark)
    else:
        one.statement.run(table, source.toArrow(), None)

"""Lakeseal over HTTP, DuckDB and Delta Spark commit to one table of the kind `catalog`, behind a proxy that loses a
tenth of all replies, while the service is killed: one history without gap, loss or double, the same rows for all.

Delta Spark made the table, and the catalog took it over. DuckDB refuses tables of the bridge's kind, which Delta Spark
would reach by their path alone, so all three meet at a table of the kind `catalog`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import lakeseal
from lakeseal.owner.config import OwnerConfig
from support.lossy_catalog import lossy_catalog
from support.one_history import ByDuckDB, check_one_history, write_at_once, write_by_lakeseal
from support.spark_names import made_by_spark, names_in_spark

pytestmark = pytest.mark.peers

MOST_TRIES = 50
INSERT = """
    # A write that was not answered is written again under its own number, which counts once.
    spark.conf.set("spark.databricks.delta.write.txnAppId", table)
    spark.conf.set("spark.databricks.delta.write.txnVersion", str(number))
    try:
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
    finally:
        spark.conf.unset("spark.databricks.delta.write.txnAppId")
        spark.conf.unset("spark.databricks.delta.write.txnVersion")
"""
READ = """
    result = sorted(row.id for row in spark.sql(f"SELECT id FROM {table}").collect())
"""


def one_history(folder: Path, delta_spark: Any, *, each: int, kills: int) -> None:
    with lossy_catalog(folder) as catalog, names_in_spark(delta_spark, catalog.url, catalog.token):
        direct = lakeseal.Catalog(catalog.service.url, token=catalog.token)
        name = made_by_spark(delta_spark, direct, str(folder / "orders"), "id BIGINT")
        table, in_spark = direct.table(name), name.rpartition(".")[2]
        own = lakeseal.Table(table.uri, owner=OwnerConfig(url=catalog.url, token=catalog.token))

        def insert_by_delta_spark(numbers: Sequence[int], done: list[int]) -> None:
            for number in numbers:
                for left in reversed(range(MOST_TRIES)):
                    try:
                        delta_spark.run(INSERT, table=in_spark, number=number)
                    except AssertionError:
                        if not left:
                            raise
                        time.sleep(0.2)
                    else:
                        done.append(number)
                        break

        writers = {
            "lakeseal": write_by_lakeseal(lambda: own, "lakeseal"),
            "duckdb": ByDuckDB(catalog.url, catalog.token, name).write,
            "delta spark": insert_by_delta_spark,
        }
        wanted = write_at_once(catalog, writers, each=each, kills=kills)
        check_one_history(catalog, table, folder / "orders", name, wanted=wanted, first=1)
        assert delta_spark.run(READ, table=in_spark) == wanted


@pytest.mark.timeout(3600)
def test_three_engines_make_one_history_though_replies_are_lost_and_the_service_dies(
    tmp_path: Path, delta_spark: Any
) -> None:
    one_history(tmp_path, delta_spark, each=15, kills=1)


@pytest.mark.stress
@pytest.mark.timeout(6 * 3600)
def test_200_commits_of_each_engine_make_one_history_though_the_service_dies_twice(
    tmp_path: Path, delta_spark: Any
) -> None:
    one_history(tmp_path, delta_spark, each=200, kills=2)

"""Every function that Spark and DuckDB both know is judged: by its name DuckDB is asked, or it is refused."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from lakeseal.table_sql.duckdb_calls import ARGUMENTS, CALLS
from lakeseal.table_sql.shared_functions import DIFFERENT, INSTEAD, ONLY_WINDOWS, SAME


@pytest.mark.spark
def test_every_function_that_both_know_is_judged(spark: Any) -> None:
    sparks = {row[0].lower() for row in spark.sql("SHOW FUNCTIONS").collect()}
    ducks = {row[0].lower() for row in duckdb.sql("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
    both = {name for name in sparks & ducks if name[0].isalpha()}
    assert not both - SAME - DIFFERENT
    assert not SAME & DIFFERENT


def test_no_function_has_two_judgements() -> None:
    names = {name for name, _ in CALLS} | set(ARGUMENTS)
    assert not names & DIFFERENT
    assert ONLY_WINDOWS <= SAME
    assert set(INSTEAD) <= DIFFERENT

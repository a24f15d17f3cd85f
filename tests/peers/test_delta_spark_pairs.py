"""Tables of Delta Spark with any of its features beside any others: the rows, changes and ids that it finds in them.

`LAKESEAL_HUNT=100 make peers ARGS=tests/peers/test_delta_spark_pairs.py` makes a hundred of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal

import lakeseal
from lakeseal import Table
from lakeseal.errors import InvalidArgument
from oracles.rows import same_rows
from oracles.seeds import case, cases

pytestmark = pytest.mark.peers

PAIRS = Path(__file__).with_name("feature_pairs.py")
SHORT, FULL = 1, 300


def test_tables_with_any_features_have_the_rows_changes_and_ids_that_delta_spark_finds(
    delta_spark: Any, tmp_path: Path
) -> None:
    for seed in cases(SHORT, FULL):
        with case(seed):
            place = tmp_path / str(seed)
            place.mkdir()
            code = f"{PAIRS.read_text(encoding='utf-8')}\nresult = made(spark, seed, place)"
            made = delta_spark.run(code, seed=seed, place=str(place))
            if "error" not in made:  # Delta Spark does not get along with all of its own features
                _check(place, made)


def _check(place: Path, made: dict[str, Any]) -> None:
    table = Table(place / "table")
    for version in made["versions"]:
        right = _rows(_saved(place / f"v{version}"))
        same_rows(_rows(table.to_arrow(version=version)), right, f"version {version} {made['story']}")
        asked = lakeseal.sql(f"SELECT * FROM delta.`{place}/table` VERSION AS OF {version}")
        same_rows(_rows(asked), right, f"version {version} by DuckDB {made['story']}")
    for first in made["feeds"]:
        try:
            told = table.changes(first).drop_columns(["_commit_timestamp"])
        except InvalidArgument as error:
            # A type that was narrowed again by a restore, which Delta Spark tells as far as values fit.
            assert "in the last version of the range" in str(error), made["story"]
            continue
        same_rows(_rows(told), _rows(_saved(place / f"feed{first}")), f"changes from {first} {made['story']}")
    if made["tracked"]:
        ids = table.to_arrow(row_ids=True).select(["id", "_row_id", "_row_commit_version"])
        right = _saved(place / "ids").rename_columns(ids.column_names)
        same_rows(_rows(ids), _rows(right), f"ids {made['story']}")


def _saved(folder: Path) -> pa.Table:
    files = [pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read() for file in folder.glob("*.parquet")]
    return pa.concat_tables(files, promote_options="permissive")


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    kinds = {field.name: field.type for field in table.schema}
    found = table.to_pylist(maps_as_pydicts="strict")
    return [{name: _plain(value, kinds[name]) for name, value in row.items()} for row in found]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """Variants as what they stand for."""
    if value is None or not pa.types.is_struct(kind):
        return value
    if {field.name for field in kind} == {"metadata", "value"}:
        return repr(VariantVal(value["value"], value["metadata"]).toPython())
    return {field.name: _plain(value[field.name], field.type) for field in kind}

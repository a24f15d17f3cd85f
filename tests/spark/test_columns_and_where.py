"""The options `columns` and `where` of `format("lakeseal")`: the rows are those of reading without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeseal import errors
from lakeseal.spark.batch_read import BatchReader, declared
from lakeseal.spark.read_options import ReadOptions
from lakeseal.table import Table


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path / "t")
    for part in range(3):
        rows = {
            "id": pa.array(range(part * 4, part * 4 + 4), pa.int64()),
            "name": ["a", None, "c", f"x{part}"],
            "part": [part] * 4,
            "at": pa.array([1, 2, None, 4], pa.timestamp("us", "UTC")),
        }
        table.write(pa.table(rows), partition_by="part")
    return table


def read(table: Table, **options: str) -> tuple[pa.Table, int]:
    """The rows, and how many tasks' worth of files were looked at."""
    pinned, schema = declared(ReadOptions.from_options({"path": table.uri, **options}))
    reader = BatchReader(pinned, schema)
    parts = reader.partitions()
    batches = [batch for part in parts for batch in reader.read(part)]
    names = schema.fieldNames()
    assert all(batch.schema.names == names for batch in batches)
    return (pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})), len(parts)


def sorted_rows(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=repr)


@pytest.mark.parametrize("columns", [None, "name", "part, id", '["at", "name"]'])
@pytest.mark.parametrize(
    "where", [None, "id > 5", "part = 1 AND id < 100", "name IS NULL", "id > 5 OR part = 0", "id = 99"]
)
def test_rows_are_those_of_reading_without_spark(table: Table, columns: str | None, where: str | None) -> None:
    given = {"columns": columns, "where": where}
    rows, _ = read(table, **{name: text for name, text in given.items() if text is not None})
    names = {None: None, "name": ["name"], "part, id": ["part", "id"]}.get(columns, ["at", "name"])
    assert sorted_rows(rows) == sorted_rows(table.to_arrow(columns=names, where=where))


def test_files_without_such_rows_are_not_looked_at(table: Table) -> None:
    assert read(table, where="part = 7")[1] == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": "nope"}, errors.InvalidArgument),
        ({"columns": "id,ID"}, errors.InvalidArgument),
        ({"columns": ","}, errors.InvalidArgument),
        ({"where": "nope = 1"}, errors.InvalidExpression),
        ({"where": "id"}, errors.InvalidExpression),
        ({"where": "hour(at) = 1"}, errors.UnsupportedExpression),
        ({"where": "id = '5'"}, errors.UnsupportedExpression),
        ({"where": "java_method('x') = 1"}, errors.InvalidInput),
        ({"columns": "id", "readChangeFeed": "true", "startingVersion": "0"}, errors.InvalidArgument),
    ],
)
def test_what_a_session_could_mean_otherwise_is_refused(
    table: Table, options: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read(table, **options)


def test_streams_have_neither(table: Table) -> None:
    with pytest.raises(errors.InvalidArgument, match="batches"):
        ReadOptions.from_options({"path": table.uri, "where": "id > 1"}).check_stream()

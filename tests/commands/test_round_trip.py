"""What is written is read back the same: file by file by pyarrow, and as a table by other projects."""

from __future__ import annotations

import datetime
import tempfile
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extensions
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import example, given
from hypothesis import strategies as st

from lakeseal.commands.transactional_write import WriteOptions
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.data_paths import decode_path
from lakeseal.protocol.partitions import parse_partition_values
from support.examples import examples

TableAt = Callable[..., Any]
UTC = datetime.UTC

AWKWARD = st.text(st.sampled_from("ab/?%:=#é \\'\"{}[]^*\n\t\x7f.~+&,;ß日\U0001f600"), max_size=6)
TEXTS = st.one_of(
    AWKWARD,
    st.sampled_from(
        ["", " ", "..", ".", "%3A", "%2F", "x" * 256, "é" * 200, "__HIVE_DEFAULT_PARTITION__", "null", "a=b/c=d"]
    ),
    st.text(max_size=8),
)
PARTITION_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): TEXTS,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
    pa.timestamp("us", "UTC"): st.datetimes(
        datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(UTC)
    ),
    pa.decimal128(10, 3): st.decimals(-(10**6), 10**6, places=3),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.binary(): st.binary(max_size=5),
}


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[pa.Table, list[str]]:
    types = draw(st.lists(st.sampled_from(sorted(PARTITION_VALUES, key=str)), min_size=1, max_size=3))
    count = draw(st.integers(1, 12))
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int64())}
    for n, arrow in enumerate(types):
        values = st.one_of(st.none(), PARTITION_VALUES[arrow])
        columns[f"p {n}"] = pa.array(draw(st.lists(values, min_size=count, max_size=count)), arrow)
    return pa.table(columns), [name for name in columns if name != "id"]


def expected_rows(data: pa.Table, by: list[str]) -> Counter[Any]:
    """The format has no empty partition values."""
    return Counter(
        tuple((k, None if k in by and v in ("", b"") else v) for k, v in row.items()) for row in data.to_pylist()
    )


def rows_by_pyarrow(table: Any, actions: list[Any], data: pa.Table, by: list[str]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for add in actions:
        part = pq.ParquetFile(table.root / decode_path(add.path)).read()
        for name in by:
            arrow = data.schema.field(name).type
            text = pa.array([add.partition_values[name]] * part.num_rows, pa.string())
            part = part.append_column(name, parse_partition_values(text, from_arrow(data.schema).field(name).type))  # type: ignore[union-attr]
            assert part.schema.field(name).type == arrow
        found += Counter(tuple(row.items()) for row in part.select(data.column_names).to_pylist())
    return found


@given(partitioned(), st.sampled_from([1, 10**9]))
@example((pa.table({"id": [0, 1], "p 0": ["", None]}), ["p 0"]), 1)
@example((pa.table({"id": [0, 1], "p 0": ["__HIVE_DEFAULT_PARTITION__", None]}), ["p 0"]), 1)
@examples(20, 200)
def test_partition_values_of_every_type_come_back_from_the_files_and_the_log(
    table_at: TableAt, case: tuple[pa.Table, list[str]], buffer_bytes: int
) -> None:
    data, by = case
    with tempfile.TemporaryDirectory() as root:
        table = table_at(Path(root) / "t", data.schema, by)
        actions = table.write(data, WriteOptions(buffer_bytes=buffer_bytes))
        expected = expected_rows(data, by)
        assert rows_by_pyarrow(table, actions, data, by) == expected
        partitions = {tuple(v for k, v in row if k != "id") for row in expected}
        assert len(actions) == len(partitions)
        assert table.log.update().files.num_rows == len(actions)


@given(partitioned())
@examples(10, 100)
def test_deltalake_reads_partition_values_the_same(table_at: TableAt, case: tuple[pa.Table, list[str]]) -> None:
    data, by = case
    # It reads bytes and decimals (-0.001 as "0.0-1") in partition values in a way of its own.
    odd = (pa.binary(), pa.decimal128(10, 3))
    kept = [name for name in data.column_names if data.schema.field(name).type not in odd]
    data, by = data.select(kept), [name for name in by if name in kept]
    with tempfile.TemporaryDirectory() as root:
        table = table_at(Path(root) / "t", data.schema, by)
        table.write(data)
        read = DeltaTable(str(table.root)).to_pyarrow_table().select(data.column_names)
        assert Counter(tuple(r.items()) for r in read.cast(data.schema).to_pylist()) == expected_rows(data, by)


def every_type() -> pa.Table:
    schema = pa.schema(
        {
            "i8": pa.int8(),
            "i16": pa.int16(),
            "i32": pa.int32(),
            "i64": pa.int64(),
            "f32": pa.float32(),
            "f64": pa.float64(),
            "b": pa.bool_(),
            "s": pa.string(),
            "bin": pa.binary(),
            "d": pa.date32(),
            "t": pa.timestamp("us", "UTC"),
            "d9": pa.decimal128(9, 2),
            "d18": pa.decimal128(18, 4),
            "d38": pa.decimal128(38, 10),
            "l": pa.list_(pa.int64()),
            "m": pa.map_(pa.string(), pa.float64()),
            "st": pa.struct({"x": pa.int32(), "y": pa.list_(pa.struct({"z": pa.string()}))}),
        }
    )
    full = {
        "i8": -128,
        "i16": 2**15 - 1,
        "i32": -(2**31),
        "i64": 2**63 - 1,
        "f32": 1.5,
        "f64": -1e300,
        "b": True,
        "s": "日本 é",
        "bin": b"\0\xff",
        "d": datetime.date(1969, 7, 20),
        "t": datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, UTC),
        "d9": Decimal("-1234567.89"),
        "d18": Decimal("12345678901234.5678"),
        "d38": Decimal("-1234567890123456789012345678.0123456789"),
        "l": [1, None, 3],
        "m": [("k", 1.0), ("j", None)],
        "st": {"x": 1, "y": [{"z": "a"}, None]},
    }
    empty = {**full, "s": "", "bin": b"", "l": [], "m": [], "st": {"x": None, "y": []}}
    return pa.Table.from_pylist([full, dict.fromkeys(full), empty], to_arrow(from_arrow(schema)))


def test_every_type_comes_back_from_pyarrow(table_at: TableAt, tmp_path: Path) -> None:
    data = every_type()
    table = table_at(tmp_path / "t", data.schema)
    (add,) = table.write(data)
    assert pq.read_table(table.root / add.path).cast(data.schema).equals(data)


def test_every_type_comes_back_from_deltalake(table_at: TableAt, tmp_path: Path) -> None:
    data = every_type()
    table = table_at(tmp_path / "t", data.schema)
    table.write(data)
    read = DeltaTable(str(table.root)).to_pyarrow_table()
    assert read.select(data.column_names).to_pylist() == data.to_pylist()


@pytest.fixture(scope="module")
def duck() -> Any:
    duckdb_extensions.import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


def test_every_type_and_partition_comes_back_from_duckdb(table_at: TableAt, tmp_path: Path, duck: Any) -> None:
    data = every_type().append_column("p", pa.array(["a/b", None, "é %"]))
    table = table_at(tmp_path / "t", data.schema, ["p"])
    table.write(data)
    query = f"SELECT * FROM delta_scan('{table.root}') ORDER BY p NULLS FIRST"
    read = duck.execute(query).to_arrow_table().select(data.column_names)
    expected = sorted(data.to_pylist(), key=lambda row: row["p"] or "")
    assert [str(row) for row in read.cast(data.schema).to_pylist()] == [str(row) for row in expected]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "a": st.none() | st.integers(-(2**63), 2**63 - 1),
                "l": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
                "s": st.none()
                | st.fixed_dictionaries({"x": st.none() | st.floats(width=32), "y": st.none() | st.binary(max_size=3)}),
                "m": st.none() | st.dictionaries(st.text(max_size=2), st.none() | st.booleans(), max_size=2),
            }
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 25),
    st.sampled_from([1, 200, 10**9]),
)
@examples(20, 200)
def test_nested_rows_come_back_however_they_are_cut(
    table_at: TableAt, rows: list[dict[str, Any]], max_records: int, buffer_bytes: int
) -> None:
    schema = pa.schema(
        {
            "a": pa.int64(),
            "l": pa.list_(pa.string()),
            "s": pa.struct({"x": pa.float32(), "y": pa.binary()}),
            "m": pa.map_(pa.string(), pa.bool_()),
        }
    )
    for row in rows:
        row["m"] = list(row["m"].items()) if row["m"] is not None else None
    data = pa.Table.from_pylist(rows, to_arrow(from_arrow(schema)))
    with tempfile.TemporaryDirectory() as root:
        table = table_at(Path(root) / "t", schema)
        actions = table.write(data, WriteOptions(max_records_per_file=max_records, buffer_bytes=buffer_bytes))
        parts = [pq.read_table(table.root / add.path) for add in actions]
        assert all(0 < part.num_rows <= max_records for part in parts)
        assert repr(pa.concat_tables(parts).to_pylist()) == repr(data.to_pylist())

"""Batches to files: partitions, rolling, memory, and what the files look like to readers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import SchemaMismatch, UnsupportedType
from lakeseal.files.file_schema import FileSchema
from lakeseal.files.parquet_file import Compression
from lakeseal.files.partition_split import PartitionSplit
from lakeseal.files.uploads import Uploads
from lakeseal.jobs import task_writer
from lakeseal.jobs.delayed_commit_protocol import DelayedCommitProtocol
from lakeseal.jobs.file_commit_protocol import TaskContext, WrittenFile
from lakeseal.jobs.rolling_files import Limits
from lakeseal.jobs.task_writer import TaskWriter
from lakeseal.protocol.arrow import from_arrow, to_arrow
from lakeseal.protocol.partitions import parse_partition_directory
from lakeseal.protocol.schema import (
    COLUMN_ID,
    INTEGER,
    LONG,
    NESTED_IDS,
    PHYSICAL_NAME,
    STRING,
    VOID,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from lakeseal.storage import LocalStore

TASK = TaskContext(job_id="delta", split=0)


def writer(
    root: Path,
    schema: StructType,
    partition_by: Sequence[str] = (),
    *,
    mapped: bool = False,
    cdc: bool = False,
    codec: str = "snappy",
    limits: Limits | None = None,
    **kwargs: Any,
) -> TaskWriter:
    protocol = DelayedCommitProtocol(path=str(root))
    protocol.setup_task(TASK)
    columns = [f for f in (schema.field(name) for name in partition_by) if f is not None]
    indexed = StructType(tuple(f for f in schema.fields if f.name not in partition_by))
    return TaskWriter(
        protocol=protocol,
        task=TASK,
        uploads=Uploads(LocalStore(str(root))),
        schema=FileSchema(schema, partition_by, mapped=mapped, cdc=cdc),
        split=PartitionSplit(columns, mapped=mapped, cdc=cdc),
        indexed=indexed.to_physical() if mapped else indexed,
        compression=Compression(codec),
        limits=limits or Limits(),
        **kwargs,
    )


def write(root: Path, rows: pa.Table, partition_by: Sequence[str] = (), **kwargs: Any) -> list[WrittenFile]:
    made = writer(root, from_arrow(rows.schema), partition_by, **kwargs)
    for batch in rows.to_batches(max_chunksize=1000):
        made.write(batch)
    return made.finish()


def read(root: Path, file: WrittenFile) -> pa.Table:
    return pq.ParquetFile(root / file.key).read()


def test_without_partitions_all_rows_are_in_one_file_in_their_order(tmp_path: Path) -> None:
    rows = pa.table({"id": range(5000), "s": [str(n % 7) for n in range(5000)]})
    (file,) = write(tmp_path, rows)
    assert read(tmp_path, file).equals(rows)
    assert (file.num_records, file.size) == (5000, (tmp_path / file.key).stat().st_size)
    assert re.fullmatch(r"part-00000-[0-9a-f-]{36}-c000\.snappy\.parquet", file.key)


def test_rows_that_are_written_while_others_come_keep_their_order(tmp_path: Path) -> None:
    rows = pa.table({"id": range(20_000), "s": [str(n % 7) for n in range(20_000)]})
    (file,) = write(tmp_path, rows, buffer_bytes=80_000)
    assert read(tmp_path, file).equals(rows)
    assert pq.ParquetFile(tmp_path / file.key).num_row_groups > 5


def test_what_fails_while_others_come_is_raised_and_leaves_no_file(tmp_path: Path) -> None:
    made = writer(tmp_path, from_arrow(pa.schema({"id": pa.int64()})), buffer_bytes=8000)
    with pytest.raises(pa.ArrowException):
        for column in (range(1000), range(1000), ["no number"] * 1000):
            made.write(pa.RecordBatch.from_pydict({"id": list(column)}))
        made.finish()
    made.abort()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_each_partition_gets_one_file_without_the_partition_columns(tmp_path: Path) -> None:
    rows = pa.table({"id": range(5000), "p": [n % 3 for n in range(5000)], "q": ["ab"[n % 2] for n in range(5000)]})
    files = write(tmp_path, rows, ["q", "p"])
    assert len(files) == 6
    for file in files:
        values = parse_partition_directory(file.key.rpartition("/")[0])
        assert list(values) == ["q", "p"]
        kept = pc.and_(pc.equal(rows["q"], values["q"]), pc.equal(rows["p"], int(values["p"] or "")))
        assert read(tmp_path, file).equals(rows.filter(kept).select(["id"]))


@pytest.mark.parametrize("buffer_bytes", [1, 1000, 20_000, 10**9])
@pytest.mark.parametrize("max_open", [0, 2])
def test_rows_are_the_same_however_small_the_buffer(
    tmp_path: Path, buffer_bytes: int, max_open: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_writer, "MAX_OPEN", max_open)
    monkeypatch.setattr(task_writer, "_MIN_OPEN_BYTES", 1)
    rows = pa.table({"id": range(3000), "p": [n * 7 % 11 for n in range(3000)]})
    spill = tmp_path / "spill"
    spill.mkdir()
    files = write(tmp_path, rows, ["p"], buffer_bytes=buffer_bytes, spill_directory=str(spill))
    assert len(files) == 11
    assert sorted(n for f in files for n in read(tmp_path, f)["id"].to_pylist()) == list(range(3000))
    assert list(spill.iterdir()) == []


def test_a_spilled_partition_is_written_in_large_row_groups(tmp_path: Path) -> None:
    rows = pa.table({"id": range(100_000), "p": [n % 100 for n in range(100_000)]})
    files = write(tmp_path, rows, ["p"], buffer_bytes=200_000)
    assert {pq.ParquetFile(tmp_path / f.key).num_row_groups for f in files} == {1}


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    schema = from_arrow(pa.schema({"id": pa.int64(), "p": pa.int64()}))
    made = writer(tmp_path, schema, ["p"])
    made.write(pa.RecordBatch.from_pylist([], to_arrow(schema)))
    assert made.finish() == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_rolled_at_max_records(tmp_path: Path) -> None:
    files = write(tmp_path, pa.table({"id": range(2500)}), limits=Limits(max_records=1000))
    assert [f.num_records for f in files] == [1000, 1000, 500]
    assert [f.key[-19:-15] for f in files] == ["c000", "c001", "c002"]


def test_max_records_hold_across_buffers_and_partitions(tmp_path: Path) -> None:
    rows = pa.table({"id": range(9000), "p": [n % 2 for n in range(9000)]})
    files = write(tmp_path, rows, ["p"], limits=Limits(max_records=2000), buffer_bytes=10_000)
    assert sorted(f.num_records for f in files) == [500, 500, 2000, 2000, 2000, 2000]


@pytest.mark.parametrize("target", [50_000, 300_000])
def test_files_are_rolled_near_the_target_size(tmp_path: Path, target: int) -> None:
    rows = pa.table({"id": [(n * 2654435761) % 2**62 for n in range(200_000)], "s": [f"s{n}" for n in range(200_000)]})
    files = write(tmp_path, rows, limits=Limits(target_bytes=target))
    assert sum(f.num_records for f in files) == 200_000
    assert all(0.5 * target < f.size < 1.3 * target for f in files[:-1])


def test_a_row_larger_than_the_target_has_a_file_of_its_own(tmp_path: Path) -> None:
    rows = pa.table({"s": [chr(65 + n) * 10_000 for n in range(3)]})
    files = write(tmp_path, rows, limits=Limits(target_bytes=10), codec="none")
    assert [f.num_records for f in files] == [1, 1, 1]


def test_rows_of_the_change_feed_are_put_apart(tmp_path: Path) -> None:
    schema = from_arrow(pa.schema({"id": pa.int64(), "p": pa.string()}))
    made = writer(tmp_path, schema, ["p"], cdc=True)
    made.write(
        pa.RecordBatch.from_pydict(
            {"id": [1, 2, 3, 4], "p": ["x", "y", "x", "x"], "_change_type": [None, None, "delete", "insert"]}
        )
    )
    by_directory = {f.key.rpartition("/")[0]: f for f in made.finish()}
    assert set(by_directory) == {"p=x", "p=y", "_change_data/p=x"}
    assert read(tmp_path, by_directory["p=x"]).to_pylist() == [{"id": 1}]
    changes = read(tmp_path, by_directory["_change_data/p=x"]).to_pylist()
    assert changes == [{"id": 3, "_change_type": "delete"}, {"id": 4, "_change_type": "insert"}]
    assert by_directory["_change_data/p=x"].stats is None
    assert by_directory["p=x"].stats is not None


AWKWARD = [
    "a/b",
    "a?b",
    "100%",
    "x:y",
    "k=v",
    "#",
    "é",
    " ",
    " a ",
    "a b",
    "..",
    ".",
    "%3A",
    "\\",
    "'\"",
    "\x01\x7f",
    "\0",
]


def test_partition_values_of_all_kinds_come_back_from_the_directory(tmp_path: Path) -> None:
    values = [*AWKWARD, "x" * 256, "__HIVE_DEFAULT_PARTITION__", None]
    rows = pa.table({"id": range(len(values)), "p": pa.array(values, pa.string())})
    made = writer(tmp_path, from_arrow(rows.schema), ["p"])
    made.write(rows.to_batches()[0])
    files = made.finish()
    message = made._protocol.commit_task(TASK, files)
    found = {}
    for file, entry in zip(files, message.entries, strict=True):
        (row,) = read(tmp_path, file).to_pylist()
        found[row["id"]] = entry["add"]["partitionValues"]["p"]
    assert [found[n] for n in range(len(values))] == values


def test_statistics_are_those_of_the_file(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": pa.array([3, 1, None], pa.int64()),
            "d": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(5, 2)),
            "f": [1.0, math.nan, 3.0],
            "n": pa.array([{"x": "b"}, {"x": "a"}, None]),
        }
    )
    (file,) = write(tmp_path, rows)
    assert file.stats is not None
    stats = json.loads(file.stats)
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {"id": 1, "d": -2.25, "f": 1.0, "n": {"x": "a"}}
    assert stats["maxValues"] == {"id": 3, "d": 1.5, "n": {"x": "b"}}
    assert stats["nullCount"] == {"id": 1, "d": 1, "f": 0, "n": {"x": 1}}


@pytest.mark.parametrize(
    ("codec", "name", "extension"),
    [
        ("snappy", "SNAPPY", "snappy.parquet"),
        ("zstd", "ZSTD", "zstd.parquet"),
        ("gzip", "GZIP", "gz.parquet"),
        ("lz4", "LZ4", "lz4raw.parquet"),
        ("none", "UNCOMPRESSED", "c000.parquet"),
    ],
)
def test_compression_is_what_was_asked_for(tmp_path: Path, codec: str, name: str, extension: str) -> None:
    (file,) = write(tmp_path, pa.table({"s": ["x" * 1000] * 1000}), codec=codec)
    assert pq.ParquetFile(tmp_path / file.key).metadata.row_group(0).column(0).compression == name
    assert file.key.endswith(extension)


class TestParquetForm:
    def parquet(self, root: Path, rows: pa.Table, **kwargs: Any) -> pq.ParquetFile:
        (file,) = write(root, rows, **kwargs)
        return pq.ParquetFile(root / file.key)

    def test_every_column_is_optional_and_no_arrow_schema_is_stored(self, tmp_path: Path) -> None:
        schema = pa.schema(
            [pa.field("id", pa.int64(), False), pa.field("s", pa.struct([pa.field("x", pa.int64(), False)]))]
        )
        file = self.parquet(tmp_path, pa.Table.from_pylist([{"id": 1, "s": {"x": 2}}], schema))
        assert file.metadata.metadata is None
        assert {c.max_definition_level for c in (file.schema.column(0), file.schema.column(1))} == {1, 2}

    def test_timestamps_are_microseconds_in_64_bits(self, tmp_path: Path) -> None:
        schema = pa.schema({"t": pa.timestamp("us", "UTC"), "n": pa.timestamp("us")})
        file = self.parquet(tmp_path, pa.Table.from_pylist([{"t": 1, "n": 2}], schema))
        for n, adjusted in enumerate(["true", "false"]):
            column = file.schema.column(n)
            assert column.physical_type == "INT64"
            assert f"isAdjustedToUTC={adjusted}, timeUnit=microseconds" in str(column.logical_type)

    def test_list_items_are_called_element_and_maps_key_value(self, tmp_path: Path) -> None:
        schema = pa.schema({"l": pa.list_(pa.int64()), "m": pa.map_(pa.string(), pa.int64())})
        file = self.parquet(tmp_path, pa.Table.from_pylist([{"l": [1], "m": [("a", 1)]}], to_arrow(from_arrow(schema))))
        assert [file.schema.column(n).path for n in range(3)] == [
            "l.list.element",
            "m.key_value.key",
            "m.key_value.value",
        ]

    def test_small_decimals_are_integers(self, tmp_path: Path) -> None:
        schema = pa.schema({"a": pa.decimal128(9, 2), "b": pa.decimal128(18, 2), "c": pa.decimal128(38, 2)})
        file = self.parquet(tmp_path, pa.Table.from_pylist([{n: Decimal("1.25") for n in "abc"}], schema))
        kinds = [file.schema.column(n).physical_type for n in range(3)]
        assert kinds == ["INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"]

    def test_only_values_that_repeat_get_a_dictionary(self, tmp_path: Path) -> None:
        rows = pa.table(
            {
                "few": [n % 10 for n in range(20_000)],
                "all": range(20_000),
                "text": [f"t{n % 50}" for n in range(20_000)],
            }
        )
        group = self.parquet(tmp_path, rows).metadata.row_group(0)
        assert ["RLE_DICTIONARY" in group.column(n).encodings for n in range(3)] == [True, False, True]

    def test_row_groups_are_balanced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lakeseal.files.parquet_file.ROW_GROUP_ROWS", 1000)
        file = self.parquet(tmp_path, pa.table({"id": range(2100)}))
        assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [700, 700, 700]


class TestColumnMapping:
    def schema(self) -> StructType:
        def field(name: str, data_type: Any, number: int, **more: Any) -> StructField:
            return StructField(name, data_type, True, {COLUMN_ID: number, PHYSICAL_NAME: f"col-{number}", **more})

        inner = StructType((field("x", INTEGER, 3),))
        nested = {NESTED_IDS: {"col-4.element": 6, "col-5.key": 7, "col-5.value": 8}}
        return StructType(
            (
                field("id", LONG, 1),
                field("s", inner, 2),
                field("l", ArrayType(StructType((field("y", STRING, 9),))), 4, **nested),
                field("m", MapType(STRING, LONG), 5, **nested),
                field("p", STRING, 10),
            )
        )

    def test_files_have_physical_names_and_ids_nested_ones_too(self, tmp_path: Path) -> None:
        schema = self.schema()
        made = writer(tmp_path, schema, ["p"], mapped=True)
        row = {"id": 1, "s": {"x": 2}, "l": [{"y": "a"}], "m": [("k", 3)], "p": "v"}
        made.write(pa.Table.from_pylist([row], to_arrow(schema)).to_batches()[0])
        (file,) = made.finish()
        assert file.key.startswith("col-10=v/")
        arrow = pq.read_schema(tmp_path / file.key)

        def ids(field: pa.Field) -> Any:
            number = int((field.metadata or {}).get(b"PARQUET:field_id", b"0"))
            children = [field.type.field(n) for n in range(field.type.num_fields)]
            return (field.name, number, [ids(c) for c in children]) if children else (field.name, number)

        assert [ids(f) for f in arrow] == [
            ("col-1", 1),
            ("col-2", 2, [("col-3", 3)]),
            ("col-4", 4, [("element", 6, [("col-9", 9)])]),
            ("col-5", 5, [("col-5", 0, [("key", 7), ("value", 8)])]),
        ]
        assert file.stats is not None
        assert json.loads(file.stats)["minValues"] == {"col-1": 1, "col-2": {"col-3": 2}}


class TestFileSchema:
    def test_void_columns_are_in_no_file(self, tmp_path: Path) -> None:
        schema = StructType(
            (
                StructField("id", LONG),
                StructField("v", VOID),
                StructField("s", StructType((StructField("x", LONG), StructField("w", VOID)))),
                StructField("l", ArrayType(StructType((StructField("y", LONG), StructField("w", VOID))))),
                StructField("m", MapType(STRING, StructType((StructField("z", LONG), StructField("w", VOID))))),
            )
        )
        rows = [
            {"id": 1, "s": {"x": 1}, "l": [{"y": 1}, None], "m": [("k", {"z": 1})]},
            {"id": 2, "s": None, "l": None, "m": None},
            {"id": 3, "s": {"x": None}, "l": [], "m": []},
        ]
        made = writer(tmp_path, schema)
        made.write(pa.Table.from_pylist(rows, to_arrow(schema)).slice(1).to_batches()[0])
        (file,) = made.finish()
        assert read(tmp_path, file).to_pylist() == rows[1:]

    def test_a_table_of_partition_columns_alone_is_refused(self) -> None:
        schema = StructType((StructField("a", LONG), StructField("b", LONG)))
        with pytest.raises(SchemaMismatch, match="not a partition column"):
            FileSchema(schema, ["B", "a"], mapped=False)

    @pytest.mark.parametrize(
        "data_type", [ArrayType(VOID), MapType(STRING, VOID), StructType((StructField("v", VOID),))]
    )
    def test_void_that_cannot_be_left_out_is_refused(self, data_type: Any) -> None:
        with pytest.raises(UnsupportedType):
            FileSchema(StructType((StructField("id", LONG), StructField("c", data_type))), [], mapped=False)


def test_an_aborted_writer_leaves_no_file_and_no_spill(tmp_path: Path) -> None:
    table, spill = tmp_path / "t", tmp_path / "spill"
    table.mkdir()
    spill.mkdir()
    rows = pa.table({"id": range(50_000), "p": [n % 500 for n in range(50_000)]})
    made = writer(table, from_arrow(rows.schema), ["p"], buffer_bytes=50_000, spill_directory=str(spill))
    for batch in rows.to_batches(max_chunksize=1000):
        made.write(batch)
    assert list(spill.iterdir())
    made.finish()
    made.abort()
    assert [p for p in table.rglob("*") if p.is_file()] == []
    assert list(spill.iterdir()) == []


def test_a_large_open_file_is_not_there_before_it_is_finished_and_gone_when_aborted(tmp_path: Path) -> None:
    rows = pa.table({"s": [f"{n * 7919 % 1_000_003:08d}" * 10 for n in range(150_000)]})
    made = writer(tmp_path, from_arrow(rows.schema), buffer_bytes=2_000_000, codec="none")
    for batch in rows.to_batches(max_chunksize=10_000):
        made.write(batch)
    assert list(tmp_path.rglob("*.parquet")) == []
    made.abort()
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []

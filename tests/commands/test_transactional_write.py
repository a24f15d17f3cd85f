"""Each paragraph of the design of TransactionalWrite, by its heading."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from lakeseal.commands.transactional_write import TransactionalWrite, WriteOptions, operation_metrics
from lakeseal.errors import (
    ConstraintViolation,
    InvalidArgument,
    SchemaMismatch,
    UnsupportedExpression,
    UnsupportedFeature,
)
from lakeseal.protocol.actions import AddCDCFile, AddFile, Metadata, Protocol
from lakeseal.protocol.schema import COLUMN_ID, LONG, PHYSICAL_NAME, STRING, StructField, StructType

NewTable = Callable[..., Any]
SCHEMA = pa.schema({"id": pa.int64(), "p": pa.string()})
ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "b", "a"]})


def writer(table: Any) -> tuple[Any, TransactionalWrite]:
    txn = table.begin()
    return txn, TransactionalWrite(txn, table.engine, store=table.spec)


class TestWriteFiles:
    def test_returns_the_added_files_of_the_committer(self, new_table: NewTable) -> None:
        actions = new_table(SCHEMA, ["p"]).write_files(ROWS)
        assert {type(a) for a in actions} == {AddFile}
        assert sorted((a.partition_values["p"], operation_metrics([a])["numOutputRows"]) for a in actions) == [
            ("a", 2),
            ("b", 1),
        ]

    def test_files_are_under_the_data_path_and_not_part_of_the_table_before_the_commit(
        self, new_table: NewTable
    ) -> None:
        table = new_table(SCHEMA, ["p"])
        actions = table.write_files(ROWS)
        assert table.data_files() == sorted(a.path for a in actions)
        assert table.log.update().files.num_rows == 0

    def test_turns_the_has_written_flag_on(self, new_table: NewTable) -> None:
        txn, write = writer(new_table(SCHEMA))
        assert not txn.has_written
        write.write_files(ROWS)
        assert txn.has_written

    def test_the_flag_is_on_even_if_the_write_fails(self, new_table: NewTable) -> None:
        txn, write = writer(new_table(SCHEMA))
        with pytest.raises(SchemaMismatch):
            write.write_files(pa.table({"nope": [1]}))
        assert txn.has_written

    def test_no_metadata_update_is_permitted_after_it(self, new_table: NewTable) -> None:
        txn, write = writer(new_table(SCHEMA))
        write.write_files(ROWS)
        with pytest.raises(InvalidArgument, match="metadata cannot change"):
            txn.update_metadata(txn.metadata)

    def test_is_optimize_says_that_no_data_has_changed(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA)
        assert [a.data_change for a in table.write_files(ROWS)] == [True]
        assert [a.data_change for a in table.write_files(ROWS, is_optimize=True)] == [False]
        assert [a.data_change for a in table.write_files(ROWS, WriteOptions(data_change=False))] == [False]

    def test_is_optimize_does_not_check_the_tables_own_rows_again(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, properties={"delta.constraints.few": "id < 2"})
        with pytest.raises(ConstraintViolation):
            table.write_files(ROWS)
        assert len(table.write_files(ROWS, is_optimize=True)) == 1

    def test_no_rows_make_no_files(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, ["p"])
        assert table.write_files(ROWS.slice(0, 0)) == []
        assert table.data_files() == []

    @pytest.mark.parametrize(
        "data",
        [
            ROWS,
            ROWS.to_batches()[0],
            ROWS.to_reader(),
            ds.dataset(ROWS),
            ds.dataset(ROWS).scanner(),
        ],
        ids=lambda d: type(d).__name__,
    )
    def test_takes_whatever_arrow_reads(self, new_table: NewTable, data: Any) -> None:
        (add,) = new_table(SCHEMA).write_files(data)
        assert operation_metrics([add])["numOutputRows"] == 3

    def test_refuses_what_arrow_does_not_read(self, new_table: NewTable) -> None:
        with pytest.raises(InvalidArgument, match="dict cannot be written"):
            new_table(SCHEMA).write_files({"id": [1]})

    def test_a_table_that_needs_another_client_is_not_written_to(self, new_table: NewTable) -> None:
        txn, write = writer(new_table(SCHEMA))
        txn.update_protocol(Protocol(min_reader_version=1, min_writer_version=7, writer_features=("fromTheFuture",)))
        with pytest.raises(UnsupportedFeature, match="fromTheFuture"):
            write.write_files(ROWS)

    def test_errors_name_the_table(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA)
        with pytest.raises(SchemaMismatch) as caught:
            table.write_files(pa.table({"id": [1], "x": [1]}))
        assert (caught.value.table, caught.value.column) == (table.spec.uri, "x")


class TestCommitter:
    def test_is_a_delayed_commit_protocol_with_job_id_delta_and_no_random_prefix(
        self, new_table: NewTable, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = new_table(SCHEMA, ["p"])
        with caplog.at_level(logging.DEBUG, "lakeseal.write.DelayedCommitProtocol"):
            actions = table.write_files(ROWS)
        assert f"DelayedCommitProtocol(delta, {table.spec.uri})" in caplog.text
        assert all(re.match("p=[ab]/part-00000-", a.path) for a in actions)

    def test_a_table_that_asks_for_random_prefixes_gets_them(self, new_table: NewTable) -> None:
        properties = {"delta.randomizeFilePrefixes": "true", "delta.randomPrefixLength": "5"}
        table = new_table(SCHEMA, ["p"], properties)
        assert all(re.match("[0-9A-Za-z]{5}/part-00000-", a.path) for a in table.write_files(ROWS))


class TestNormalizeData:
    def test_names_match_in_any_case_and_columns_come_in_the_tables_order(self, new_table: NewTable) -> None:
        table = new_table(pa.schema({"id": pa.int64(), "Name": pa.string()}))
        (add,) = table.write_files(pa.table({"NAME": ["x"], "ID": [1]}))
        assert pq.read_table(table.root / add.path).to_pylist() == [{"id": 1, "Name": "x"}]

    def test_values_are_cast_to_the_tables_types(self, new_table: NewTable) -> None:
        table = new_table(pa.schema({"id": pa.int64(), "d": pa.decimal128(5, 2)}))
        (add,) = table.write_files(pa.table({"id": pa.array([1], pa.int8()), "d": [1.255]}))
        assert str(pq.read_table(table.root / add.path)["d"][0]) == "1.26"

    def test_missing_columns_become_null_and_extra_columns_fail(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA)
        (add,) = table.write_files(pa.table({"id": [1]}))
        assert pq.read_table(table.root / add.path).to_pylist() == [{"id": 1, "p": None}]
        with pytest.raises(SchemaMismatch, match="merge_schema"):
            table.write_files(pa.table({"id": [1], "new": [1]}))

    def test_merge_schema_adds_extra_columns_to_the_table(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA)
        table.write(pa.table({"id": [1], "new": [1.5]}), WriteOptions(merge_schema=True))
        snapshot = table.log.update()
        assert snapshot.schema.names == ("id", "p", "new")
        table.write(pa.table({"id": [2]}), WriteOptions(merge_schema=True))
        assert table.log.update().metadata == snapshot.metadata

    def test_merge_schema_gives_ids_and_physical_names_where_columns_are_mapped(self, new_table: NewTable) -> None:
        field = StructField("id", LONG, True, {COLUMN_ID: 1, PHYSICAL_NAME: "col-x"})
        properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
        table = new_table(StructType((field,)), properties=properties)
        data = pa.table({"id": [1], "s": pa.array([{"x": 1}])})
        (add,) = table.write(data, WriteOptions(merge_schema=True))
        snapshot = table.log.update()
        added = snapshot.schema.field("s")
        assert (added.field_id, added.type.fields[0].field_id) == (2, 3)
        assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "3"
        assert pq.read_schema(table.root / add.path).names == ["col-x", added.physical_name]

    def test_output_is_made_nullable(self, new_table: NewTable) -> None:
        table = new_table(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
        (add,) = table.write_files(pa.table({"id": [1]}))
        assert pq.read_schema(table.root / add.path).field("id").nullable


class TestPartitioningColumns:
    def test_are_those_of_the_metadata_in_its_order(self, new_table: NewTable) -> None:
        table = new_table(pa.schema({"a": pa.int64(), "b": pa.int64(), "v": pa.int64()}), ["b", "a"])
        _, write = writer(table)
        assert [f.name for f in write.get_partitioning_columns()] == ["b", "a"]
        (add,) = table.write_files(pa.table({"a": [1], "b": [2], "v": [3]}))
        assert add.path.startswith("b=2/a=1/")
        assert add.partition_values == {"b": "2", "a": "1"}

    def test_all_columns_as_partition_columns_are_an_error(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA)
        txn, write = writer(table)
        txn.update_metadata(
            Metadata(id="x", schema_string=txn.metadata.schema_string, partition_columns=("id", "p"), created_time=0)
        )
        with pytest.raises(SchemaMismatch, match="not a partition column"):
            write.write_files(ROWS)

    def test_empty_strings_are_null_before_constraints(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, ["p"], {"delta.constraints.known": "p IS NOT NULL"})
        with pytest.raises(ConstraintViolation, match="known"):
            table.write_files(pa.table({"id": [1], "p": [""]}))

    def test_empty_strings_are_the_null_partition(self, new_table: NewTable) -> None:
        (add,) = new_table(SCHEMA, ["p"]).write_files(pa.table({"id": [1, 2], "p": ["", None]}))
        assert add.partition_values == {"p": None}


class TestInvariantChecker:
    def test_a_violation_names_the_constraint_and_the_row_and_nothing_is_written(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, ["p"], {"delta.constraints.positive": "id > 0"})
        with pytest.raises(ConstraintViolation) as caught:
            table.write_files(pa.table({"id": [5, 0], "p": ["a", "b"]}))
        assert "positive (id > 0)" in caught.value.message
        assert "{id: 0, p: 'b'}" in caught.value.message
        assert table.data_files() == []

    def test_what_only_spark_can_check_is_refused_without_spark(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, properties={"delta.constraints.odd": "cos(length(p)) > 0"})
        with pytest.raises(UnsupportedExpression, match="cos"):
            table.write_files(ROWS)


class TestChangeFeed:
    def test_rows_with_a_change_type_become_change_files(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, ["p"], {"delta.enableChangeDataFeed": "true"})
        data = pa.table({"id": [1, 2], "p": ["a", "a"], "_change_type": [None, "delete"]})
        add, cdc = table.write_files(data, WriteOptions(changes=True))
        assert isinstance(add, AddFile)
        assert isinstance(cdc, AddCDCFile)
        assert cdc.path.startswith("_change_data/p=a/cdc-00000-")
        assert cdc.partition_values == {"p": "a"}
        assert pq.read_table(table.root / cdc.path).to_pylist() == [{"id": 2, "_change_type": "delete"}]

    @pytest.mark.parametrize("feed", ["true", "false"])
    def test_in_data_that_has_no_changes_the_column_is_one_too_many(self, new_table: NewTable, feed: str) -> None:
        table = new_table(SCHEMA, properties={"delta.enableChangeDataFeed": feed})
        with pytest.raises(SchemaMismatch) as caught:
            table.write_files(pa.table({"id": [1], "_change_type": ["delete"]}))
        assert caught.value.column == "_change_type"


class TestOptions:
    def test_max_records_and_target_size_roll_files(self, new_table: NewTable) -> None:
        table = new_table(pa.schema({"id": pa.int64()}))
        data = pa.table({"id": range(1000)})
        assert len(table.write_files(data, WriteOptions(max_records_per_file=300))) == 4
        assert len(table.write_files(data, WriteOptions(target_file_size=1000))) > 3

    def test_the_tables_target_size_and_codec_are_used(self, new_table: NewTable) -> None:
        properties = {"delta.targetFileSize": "1kb", "delta.parquet.compression.codec": "zstd"}
        table = new_table(pa.schema({"id": pa.int64()}), properties=properties)
        actions = table.write_files(pa.table({"id": range(1000)}))
        assert len(actions) > 1
        assert all(a.path.endswith(".zstd.parquet") for a in actions)

    def test_the_tables_choice_of_columns_with_statistics_is_used(self, new_table: NewTable) -> None:
        table = new_table(SCHEMA, properties={"delta.dataSkippingStatsColumns": "p"})
        (add,) = table.write_files(ROWS)
        assert '"minValues":{"p":"a"}' in add.stats

    def test_a_table_without_indexed_columns_has_only_counts_of_rows(self, new_table: NewTable) -> None:
        (add,) = new_table(SCHEMA, properties={"delta.dataSkippingNumIndexedCols": "0"}).write_files(ROWS)
        assert '"numRecords":3,"minValues":{}' in add.stats

    @pytest.mark.parametrize("name", ["max_records_per_file", "target_file_size", "buffer_bytes"])
    def test_limits_below_one_are_refused(self, name: str) -> None:
        with pytest.raises(InvalidArgument, match=name):
            WriteOptions(**{name: 0})


def test_string_columns_need_no_partitioning_to_be_written(new_table: NewTable) -> None:
    table = new_table(StructType((StructField("s", STRING),)))
    (add,) = table.write_files(pa.table({"s": ["", None, "x"]}))
    assert pq.read_table(table.root / add.path)["s"].to_pylist() == ["", None, "x"]

from __future__ import annotations

import io
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeseal.errors import (
    BrokenDataFile,
    BrokenDeletionVector,
    DataFileMissing,
    InvalidArgument,
    InvalidMetadata,
    LakesealError,
    UnsafePath,
    UnsupportedType,
)
from lakeseal.log.data import DataFile, DataReader, ReadSpec, data_files
from lakeseal.log.read_ahead import in_order
from lakeseal.protocol import schema as delta
from lakeseal.protocol.actions import DeletionVectorDescriptor
from lakeseal.protocol.data_paths import encode_path
from lakeseal.protocol.deletion_vectors import encode, frame, inline_descriptor, relative_descriptor, relative_path
from lakeseal.protocol.partitions import partition_directory
from lakeseal.protocol.schema import ArrayType, DataType, DecimalType, MapType, StructField, StructType
from lakeseal.storage import open_store
from lakeseal.storage.base import Store


def struct(**fields: DataType) -> StructType:
    return StructType(tuple(StructField(name, data_type) for name, data_type in fields.items()))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "table")


def put(store: Store, table: pa.Table, name: str = "f.parquet", **options: Any) -> DataFile:
    content = io.BytesIO()
    pq.write_table(table, content, **options)
    store.put(name, content.getvalue())
    return DataFile(path=name)


def read(store: Store, schema: StructType, *files: DataFile, **options: Any) -> pa.Table:
    reader = DataReader(store, ReadSpec(schema=schema, **options))
    found = pa.Table.from_batches(reader.read(files), reader.schema)
    found.validate(full=True)
    return found


def one(store: Store, stored: pa.Array, data_type: DataType, **options: Any) -> list[Any]:
    """The values that a column of a file has in a table."""
    file = put(store, pa.table({"c": stored}), **options)
    return read(store, struct(c=data_type), file)["c"].to_pylist()


# Columns


def test_columns_come_in_the_tables_order_and_others_of_the_file_are_ignored(store: Store) -> None:
    file = put(store, pa.table({"z": [9], "b": ["x"], "_change_type": ["insert"], "a": [1]}))
    assert read(store, struct(a=delta.LONG, b=delta.STRING), file).to_pydict() == {"a": [1], "b": ["x"]}


def test_columns_that_are_asked_for_come_in_that_order_and_in_any_case(store: Store) -> None:
    file = put(store, pa.table({"a": [1], "b": ["x"], "c": [2.0]}))
    found = read(store, struct(a=delta.LONG, b=delta.STRING, c=delta.DOUBLE), file, columns=("C", "a"))
    assert found.to_pydict() == {"c": [2.0], "a": [1]}


def test_a_column_that_the_table_lacks_is_refused(store: Store) -> None:
    with pytest.raises(InvalidArgument, match="no column 'x'"):
        DataReader(store, ReadSpec(schema=struct(a=delta.LONG), columns=("x",)))


def test_a_column_that_the_file_lacks_is_null_even_where_the_table_forbids_nulls(store: Store) -> None:
    schema = StructType((StructField("a", delta.LONG), StructField("new", DecimalType(5, 2), nullable=False)))
    found = read(store, schema, put(store, pa.table({"a": [1, 2]})))
    assert found.to_pydict() == {"a": [1, 2], "new": [None, None]}
    assert found.schema.field("new").nullable


def test_a_void_column_is_null(store: Store) -> None:
    found = read(store, struct(a=delta.LONG, v=delta.VOID), put(store, pa.table({"a": [1]})))
    assert found.to_pydict() == {"a": [1], "v": [None]}


def test_no_columns_still_count_rows_and_deleted_ones_are_not_counted(store: Store) -> None:
    file = put(store, pa.table({"a": list(range(10))}), row_group_size=4)
    taken = msgspec.structs.replace(file, deletion_vector=vector([1, 5]))
    reader = DataReader(store, ReadSpec(schema=struct(a=delta.LONG), columns=()))
    assert sum(batch.num_rows for batch in reader.read([file, taken])) == 18


def test_names_with_dots_and_blanks_are_found(store: Store) -> None:
    table = pa.table({"s": pa.array([{"x": 1}]), "s.x": [2], "a b": [3], "": [4]})
    schema = struct(**{"s.x": delta.LONG, "a b": delta.LONG, "s": struct(x=delta.LONG)})
    assert read(store, schema, put(store, table)).to_pylist() == [{"s.x": 2, "a b": 3, "s": {"x": 1}}]


def test_a_name_is_found_in_another_case_unless_one_is_exact(store: Store) -> None:
    file = put(store, pa.table({"A": [1], "B": [2], "b": [3]}))
    assert read(store, struct(a=delta.LONG, b=delta.LONG), file).to_pylist() == [{"a": 1, "b": 3}]


def test_a_file_with_a_column_twice_is_refused_when_that_column_is_read(store: Store) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    file = put(store, twice)
    assert read(store, struct(b=delta.LONG), file).to_pydict() == {"b": [3]}
    with pytest.raises(BrokenDataFile, match="several columns"):
        read(store, struct(a=delta.LONG), file)


def test_extra_columns_come_last_and_are_null_where_the_file_has_none(store: Store) -> None:
    with_type = put(store, pa.table({"a": [1], "_change_type": ["insert"]}), "1.parquet")
    without = put(store, pa.table({"a": [2]}), "2.parquet")
    found = read(store, struct(a=delta.LONG), with_type, without, extra_columns=struct(_change_type=delta.STRING))
    assert found.to_pydict() == {"a": [1, 2], "_change_type": ["insert", None]}


# Types


INSTANT = datetime(2024, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)
LOCAL = INSTANT.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("stored", "data_type", "values"),
    [
        (pa.array([1, None, -128], pa.int8()), delta.SHORT, [1, None, -128]),
        (pa.array([1, None], pa.int8()), delta.LONG, [1, None]),
        (pa.array([2**31 - 1], pa.int32()), delta.LONG, [2**31 - 1]),
        (pa.array([5], pa.int32()), delta.BYTE, [5]),
        (pa.array([5], pa.int32()), delta.DOUBLE, [5.0]),
        (pa.array([0.5], pa.float32()), delta.DOUBLE, [0.5]),
        (pa.array([7], pa.int32()), DecimalType(12, 2), [Decimal("7.00")]),
        (pa.array([-(2**63)], pa.int64()), DecimalType(22, 2), [Decimal(-(2**63))]),
        (pa.array([Decimal("1.50")]), DecimalType(10, 4), [Decimal("1.5000")]),
        (pa.array([date(2024, 1, 1)]), delta.TIMESTAMP_NTZ, [datetime(2024, 1, 1)]),
        (pa.array([b"text"]), delta.STRING, ["text"]),
        (pa.array(["text"]), delta.BINARY, [b"text"]),
        (pa.array([b"abcd"], pa.binary(4)), delta.BINARY, [b"abcd"]),
        (pa.array(["a", None, "a"]).dictionary_encode(), delta.STRING, ["a", None, "a"]),
        (pa.array(["a"], pa.large_string()), delta.STRING, ["a"]),
        (pa.array([LOCAL], pa.timestamp("us")), delta.TIMESTAMP, [INSTANT]),
        (pa.array([INSTANT], pa.timestamp("us", "UTC")), delta.TIMESTAMP_NTZ, [LOCAL]),
        (pa.array([INSTANT], pa.timestamp("us", "Asia/Tokyo")), delta.TIMESTAMP, [INSTANT]),
        (pa.array([LOCAL], pa.timestamp("ns")), delta.TIMESTAMP_NTZ, [LOCAL]),
        (pa.array([-1], pa.timestamp("ns")), delta.TIMESTAMP_NTZ, [datetime(1969, 12, 31, 23, 59, 59, 999999)]),
        (pa.array([5000], pa.timestamp("ms", "UTC")), delta.TIMESTAMP, [datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]),
        (pa.nulls(2), DecimalType(5, 2), [None, None]),
        (pa.nulls(1), ArrayType(delta.LONG), [None]),
    ],
    ids=str,
)  # fmt: skip
def test_values_become_the_tables_type(store: Store, stored: pa.Array, data_type: DataType, values: list[Any]) -> None:
    assert one(store, stored, data_type) == values


def test_int96_timestamps_are_read_over_their_whole_range(store: Store) -> None:
    stored = pa.array([LOCAL, datetime(1700, 1, 1), None], pa.timestamp("ns"))
    options = {"use_deprecated_int96_timestamps": True}
    assert one(store, stored, delta.TIMESTAMP_NTZ, **options) == [LOCAL, datetime(1700, 1, 1), None]
    assert one(store, stored, delta.TIMESTAMP, **options)[0] == INSTANT


@pytest.mark.parametrize(
    ("stored", "data_type"),
    [
        (pa.array(["x"]), delta.LONG),
        (pa.array([1.5]), delta.LONG),
        (pa.array([1.5]), delta.FLOAT),
        (pa.array([1]), delta.STRING),
        (pa.array([1]), delta.BOOLEAN),
        (pa.array([1]), delta.DOUBLE),
        (pa.array([INSTANT]), delta.DATE),
        (pa.array([1]), struct(x=delta.LONG)),
        (pa.array([{"x": 1}]), delta.LONG),
        (pa.array([[1]]), delta.LONG),
        (pa.array([1]), ArrayType(delta.LONG)),
        (pa.array([[1]]), MapType(delta.LONG, delta.LONG)),
        (pa.array([b"x"]), delta.VARIANT),
        (pa.array([300], pa.int32()), delta.BYTE),
        (pa.array([Decimal("1.55")]), DecimalType(5, 1)),
        (pa.array([b"\xff"]), delta.STRING),
    ],
    ids=str,
)
def test_what_cannot_become_the_tables_type_names_column_and_file(
    store: Store, stored: pa.Array, data_type: DataType
) -> None:
    with pytest.raises(BrokenDataFile) as caught:
        one(store, stored, data_type)
    assert (caught.value.column, caught.value.file, caught.value.table) == ("c", "f.parquet", store.uri)


def test_a_mismatch_deep_inside_is_named_by_its_path(store: Store) -> None:
    file = put(store, pa.table({"a": pa.array([[{"m": [("k", "v")]}]], NESTED)}))
    schema = struct(a=ArrayType(struct(m=MapType(delta.STRING, delta.LONG))))
    with pytest.raises(BrokenDataFile) as caught:
        read(store, schema, file)
    assert caught.value.column == "a.element.m.value"


NESTED = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.string()))]))


def test_structs_are_put_together_anew_at_every_depth(store: Store) -> None:
    stored = pa.array(
        [
            {"b": 1, "old": 5, "inner": {"y": 2}, "list": [{"q": 1}, None], "map": [("k", {"w": 1})]},
            None,
            {"b": None, "old": 6, "inner": None, "list": None, "map": None},
            {"b": 3, "old": 6, "inner": {"y": None}, "list": [], "map": []},
        ],
        pa.struct(
            [
                ("b", pa.int32()),
                ("old", pa.int32()),
                ("inner", pa.struct([("y", pa.int8())])),
                ("list", pa.list_(pa.struct([("q", pa.int8())]))),
                ("map", pa.map_(pa.string(), pa.struct([("w", pa.int16())]))),
            ]
        ),
    )
    schema = struct(
        inner=struct(x=delta.STRING, y=delta.LONG),
        b=delta.LONG,
        list=ArrayType(struct(p=delta.DATE, q=delta.INTEGER)),
        map=MapType(delta.STRING, struct(w=delta.LONG, v=delta.LONG)),
    )
    assert one(store, stored, schema, row_group_size=3) == [
        {
            "inner": {"x": None, "y": 2},
            "b": 1,
            "list": [{"p": None, "q": 1}, None],
            "map": [("k", {"w": 1, "v": None})],
        },
        None,
        {"inner": None, "b": None, "list": None, "map": None},
        {"inner": {"x": None, "y": None}, "b": 3, "list": [], "map": []},
    ]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, lambda t: pa.list_(t, 2)], ids=["list", "large", "fixed"])
def test_lists_of_every_kind_are_lists(store: Store, kind: Callable[[pa.DataType], pa.DataType]) -> None:
    stored = pa.array([[1, None], None, [3, 4]], kind(pa.int16()))
    assert one(store, stored, ArrayType(delta.LONG)) == [[1, None], None, [3, 4]]


def test_long_nested_columns_are_read_in_many_batches(store: Store) -> None:
    rows = [None if n % 7 == 0 else [{"k": n}] * (n % 5) for n in range(1000)]
    file = put(store, pa.table({"c": pa.array(rows, pa.list_(pa.struct([("k", pa.int32())])))}), row_group_size=400)
    schema = struct(c=ArrayType(struct(k=delta.LONG, new=delta.LONG)))
    reader = DataReader(store, ReadSpec(schema=schema, batch_rows=64))
    batches = list(reader.read_file(file))
    assert max(batch.num_rows for batch in batches) <= 64
    found = pa.Table.from_batches(batches)["c"].to_pylist()
    assert [None if r is None else [x["k"] for x in r] for r in found] == [
        None if r is None else [x["k"] for x in r] for r in rows
    ]


def test_a_variant_is_its_two_binaries_in_one_order(store: Store) -> None:
    stored = pa.array([{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}, None])
    assert one(store, stored, delta.VARIANT) == [{"metadata": b"\x01\x00\x00", "value": b"\x0c\x01"}, None]


def test_a_variant_shredded_as_none_can_be_is_refused_by_name_and_the_rest_can_be_read(store: Store) -> None:
    parts = {"metadata": pa.binary(), "value": pa.binary(), "typed_value": pa.uint8()}
    shredded = pa.array([{"metadata": b"\x01", "value": None, "typed_value": 1}], pa.struct(list(parts.items())))
    file = put(store, pa.table({"id": [1], "s": pa.array([{"v": 1}]), "v": shredded}))
    with pytest.raises(UnsupportedType, match="shredded") as caught:
        read(store, struct(id=delta.LONG, v=delta.VARIANT), file)
    assert (caught.value.column, caught.value.file) == ("v", "f.parquet")
    assert read(store, struct(id=delta.LONG, v=delta.VARIANT), file, columns=("id",)).to_pydict() == {"id": [1]}


# Column mapping


def mapped(name: str, data_type: DataType, physical: str, number: int) -> StructField:
    return StructField(
        name, data_type, True, {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    )


MAPPED = StructType(
    (
        mapped("a", delta.LONG, "col-1", 1),
        mapped("s", StructType((mapped("x", delta.LONG, "col-3", 3),)), "col-2", 2),
        mapped("l", ArrayType(StructType((mapped("y", delta.LONG, "col-5", 5),))), "col-4", 4),
    )
)


def with_ids(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({"PARQUET:field_id": str(number)})


def physical_table(names: Sequence[str]) -> pa.Table:
    x, y = with_ids(pa.field(names[2], pa.int64()), 3), with_ids(pa.field(names[4], pa.int64()), 5)
    schema = pa.schema(
        [
            with_ids(pa.field(names[3], pa.list_(pa.struct([y]))), 4),
            with_ids(pa.field(names[1], pa.struct([x])), 2),
            with_ids(pa.field(names[0], pa.int64()), 1),
        ]
    )
    return pa.table([[[{names[4]: 3}]], [{names[2]: 2}], [1]], schema=schema)


def test_physical_names_are_looked_up_at_every_depth(store: Store) -> None:
    file = put(store, physical_table(["col-1", "col-2", "col-3", "col-4", "col-5"]))
    assert read(store, MAPPED, file, mapping="name").to_pylist() == [{"a": 1, "s": {"x": 2}, "l": [{"y": 3}]}]


def test_field_ids_are_looked_up_at_every_depth_whatever_the_names(store: Store) -> None:
    file = put(store, physical_table(["s", "a", "y", "x", "col-3"]))
    assert read(store, MAPPED, file, mapping="id").to_pylist() == [{"a": 1, "s": {"x": 2}, "l": [{"y": 3}]}]


def test_without_mapping_names_count_whatever_the_metadata_says(store: Store) -> None:
    file = put(store, pa.table({"a": [7], "col-1": [8]}))
    assert read(store, MAPPED, file)["a"].to_pylist() == [7]


def test_a_file_without_field_ids_is_refused_where_ids_count(store: Store) -> None:
    with pytest.raises(BrokenDataFile, match="no field ids"):
        read(store, MAPPED, put(store, pa.table({"a": [7]})), mapping="id")


# Partitions


def test_partition_values_come_from_the_log_in_the_columns_place(store: Store) -> None:
    schema = struct(p=delta.DATE, a=delta.LONG, q=delta.STRING)
    file = put(store, pa.table({"a": [1, 2], "p": ["never", "read"]}))
    file = msgspec.structs.replace(file, partition_values={"p": "2024-01-01", "Q": ""})
    found = read(store, schema, file, partition_columns=("p", "q"))
    assert found.to_pydict() == {"p": [date(2024, 1, 1)] * 2, "a": [1, 2], "q": [None, None]}


def test_partition_values_of_mapped_columns_go_by_physical_name(store: Store) -> None:
    file = put(store, physical_table(["x", "col-2", "col-3", "col-4", "col-5"]))
    file = msgspec.structs.replace(file, partition_values={"col-1": "5"})
    assert read(store, MAPPED, file, mapping="name", partition_columns=("a",))["a"].to_pylist() == [5]


def test_only_partition_columns_need_no_column_of_the_file(store: Store) -> None:
    file = msgspec.structs.replace(put(store, pa.table({"a": [1, 2, 3]})), partition_values={"p": "x"})
    found = read(store, struct(a=delta.LONG, p=delta.STRING), file, partition_columns=("p",), columns=("p",))
    assert found.to_pydict() == {"p": ["x", "x", "x"]}


def test_a_bad_partition_value_names_table_file_and_column(store: Store) -> None:
    file = msgspec.structs.replace(put(store, pa.table({"a": [1]})), partition_values={"p": "x"})
    with pytest.raises(InvalidMetadata, match="'x'") as caught:
        read(store, struct(a=delta.LONG, p=delta.LONG), file, partition_columns=("p",))
    assert (caught.value.table, caught.value.file, caught.value.column) == (store.uri, "f.parquet", "p")


# Deletion vectors


def vector(rows: Sequence[int]) -> DeletionVectorDescriptor:
    return inline_descriptor(encode(rows), len(rows))


def stored_vector(store: Store, rows: Sequence[int], uuid: Any) -> DeletionVectorDescriptor:
    data = encode(rows)
    content, offsets = frame([encode([0]), data])
    found = relative_descriptor(uuid, prefix="ab", offset=offsets[1], size=len(data), cardinality=len(rows))
    store.put(relative_path(found), content)
    return found


@pytest.fixture
def numbers(store: Store) -> DataFile:
    return put(store, pa.table({"a": list(range(100))}), row_group_size=30)


def test_deleted_rows_are_gone_by_their_position_in_the_file(store: Store, numbers: DataFile) -> None:
    gone = [0, 29, 30, 31, 65, 99, *range(70, 80)]
    taken = msgspec.structs.replace(numbers, deletion_vector=vector(gone))
    for rows in (1, 7, 30, 1000):
        found = read(store, struct(a=delta.LONG), taken, batch_rows=rows)
        assert found["a"].to_pylist() == [n for n in range(100) if n not in gone]


def test_positions_hold_when_row_groups_are_left_out(store: Store, numbers: DataFile) -> None:
    taken = msgspec.structs.replace(numbers, deletion_vector=vector([5, 61, 95]))
    reader = DataReader(store, ReadSpec(schema=struct(a=delta.LONG), position_column="at", batch_rows=8))
    batches = list(reader.read([taken], row_groups=lambda footer: [0, 2]))
    expected = [n for n in [*range(30), *range(60, 90)] if n not in (5, 61)]
    assert pa.Table.from_batches(batches).to_pydict() == {"a": expected, "at": expected}


def test_a_vector_in_a_file_is_found_by_its_uuid_prefix_and_offset(store: Store, numbers: DataFile) -> None:
    taken = msgspec.structs.replace(numbers, deletion_vector=stored_vector(store, range(1, 100), uuid.uuid4()))
    assert read(store, struct(a=delta.LONG), taken)["a"].to_pylist() == [0]


def test_a_vector_at_an_absolute_path_in_the_table_is_read(store: Store, numbers: DataFile) -> None:
    data = encode([1])
    content, offsets = frame([data])
    store.put("v.bin", content)
    absolute = DeletionVectorDescriptor(
        storage_type="p",
        path_or_inline_dv=f"{store.uri}/v.bin",
        offset=offsets[0],
        size_in_bytes=len(data),
        cardinality=1,
    )
    taken = msgspec.structs.replace(numbers, deletion_vector=absolute)
    assert read(store, struct(a=delta.LONG), taken).num_rows == 99
    elsewhere = msgspec.structs.replace(absolute, path_or_inline_dv="file:///elsewhere/v.bin")
    with pytest.raises(UnsafePath):
        read(store, struct(a=delta.LONG), msgspec.structs.replace(numbers, deletion_vector=elsewhere))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cardinality": 3}, BrokenDeletionVector),
        ({"size_in_bytes": 5}, BrokenDeletionVector),
        ({"offset": 2}, BrokenDeletionVector),
        ({"offset": 10_000}, BrokenDeletionVector),
        ({"storage_type": "x"}, BrokenDeletionVector),
        ({"path_or_inline_dv": "!" * 5}, BrokenDeletionVector),
        ({"path_or_inline_dv": "0" * 20}, DataFileMissing),
        ({"path_or_inline_dv": "../.." + "0" * 20}, UnsafePath),
    ],
)
def test_a_vector_that_is_not_as_described_is_an_error(
    store: Store, numbers: DataFile, change: dict[str, Any], error: type[LakesealError]
) -> None:
    described = msgspec.structs.replace(stored_vector(store, [1, 2], uuid.uuid4()), **change)
    with pytest.raises(error) as caught:
        read(store, struct(a=delta.LONG), msgspec.structs.replace(numbers, deletion_vector=described))
    assert caught.value.table == store.uri
    assert caught.value.file


def test_a_vector_of_another_file_is_refused(store: Store, numbers: DataFile) -> None:
    with pytest.raises(BrokenDeletionVector, match="beyond the end"):
        read(store, struct(a=delta.LONG), msgspec.structs.replace(numbers, deletion_vector=vector([100])))


# Files


def test_rows_of_a_table_of_actions_are_files(store: Store) -> None:
    put(store, pa.table({"a": [1, 2]}), "x=1/a b.parquet")
    put(store, pa.table({"a": [3]}), "c.parquet")
    descriptor = msgspec.to_builtins(vector([0]))
    actions = pa.table(
        {
            "path": ["x=1/a%20b.parquet", "c.parquet"],
            "partitionValues": pa.array([[("x", "1")], []], pa.map_(pa.string(), pa.string())),
            "size": [10, None],
            "deletionVector": [descriptor, None],
            "stats": ["{}", None],
        }
    )
    files = list(data_files(actions))
    assert files[0].deletion_vector == vector([0])
    assert msgspec.json.decode(msgspec.json.encode(files), type=list[DataFile]) == files
    reader = DataReader(store, ReadSpec(schema=struct(x=delta.LONG, a=delta.LONG), partition_columns=("x",)))
    assert pa.Table.from_batches(reader.read(actions)).to_pydict() == {"x": [1, None], "a": [2, 3]}


def test_a_missing_file_names_table_and_file(store: Store) -> None:
    with pytest.raises(DataFileMissing) as caught:
        read(store, struct(a=delta.LONG), DataFile(path="gone%20away.parquet"))
    assert (caught.value.table, caught.value.file) == (store.uri, "gone%20away.parquet")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_a_file_that_is_not_parquet_is_broken(store: Store, content: bytes) -> None:
    store.put("f.parquet", content)
    with pytest.raises(BrokenDataFile) as caught:
        read(store, struct(a=delta.LONG), DataFile(path="f.parquet"))
    assert (caught.value.table, caught.value.file) == (store.uri, "f.parquet")


@pytest.mark.parametrize("nested", [False, True])
def test_text_that_is_not_utf8_is_a_broken_file(store: Store, nested: bool) -> None:
    text = pa.array([b"fine", b"\xb1\xff"], pa.binary()).view(pa.string())
    values = pa.StructArray.from_arrays([text], ["t"]) if nested else text
    file = put(store, pa.table({"c": values}), store_schema=False, use_dictionary=False)
    kind = delta.STRING if not nested else struct(t=delta.STRING)
    with pytest.raises(BrokenDataFile, match="UTF8") as caught:
        read(store, struct(c=kind), file)
    assert caught.value.file == "f.parquet"


def test_a_changed_value_is_noticed_by_the_checksum_of_its_page(store: Store) -> None:
    numbers = pa.table({"c": pa.array([1, 0x1122334455, 3], pa.int64())})
    plain = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    for checksums in (False, True):
        file = put(store, numbers, write_page_checksum=checksums, **plain)
        content = store.get(file.path)
        store.put(file.path, content.replace(b"\x55\x44\x33\x22\x11", b"\x56\x44\x33\x22\x11"))
        if checksums:
            with pytest.raises(BrokenDataFile, match=r"(?i)crc|checksum"):
                read(store, struct(c=delta.LONG), file)
        else:
            assert read(store, struct(c=delta.LONG), file)["c"].to_pylist() == [1, 0x1122334456, 3]


def test_damaged_files_give_rows_or_a_typed_error(store: Store) -> None:
    rng = random.Random(7)
    content = io.BytesIO()
    table = pa.table({"a": list(range(200)), "s": [f"v{n % 9}" for n in range(200)], "l": [[n] for n in range(200)]})
    pq.write_table(table, content, row_group_size=50, compression="none")
    schema = struct(a=delta.LONG, s=delta.STRING, l=ArrayType(delta.LONG))
    broken = 0
    for _ in range(300):
        data = bytearray(content.getvalue())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        store.put("f.parquet", bytes(data))
        try:
            for _ in DataReader(store, ReadSpec(schema=schema)).read_file(DataFile(path="f.parquet")):
                pass
        except LakesealError:
            broken += 1
    assert broken > 30


def test_an_absolute_path_into_the_table_is_read_and_one_beyond_it_only_when_allowed(
    store: Store, tmp_path: Path
) -> None:
    put(store, pa.table({"a": [1]}), "in.parquet")
    put(open_store(tmp_path / "table2"), pa.table({"a": [2]}), "out file.parquet")
    inside = DataFile(path=f"{store.uri}/in.parquet")
    outside = DataFile(path=f"{open_store(tmp_path / 'table2').uri}/out%20file.parquet")
    assert read(store, struct(a=delta.LONG), inside)["a"].to_pylist() == [1]
    with pytest.raises(UnsafePath):
        read(store, struct(a=delta.LONG), outside)
    allowed = ReadSpec(schema=struct(a=delta.LONG), places=(open_store(tmp_path / "table2").uri,))
    reader = DataReader(store, allowed, outside=open_store)
    assert pa.Table.from_batches(reader.read([inside, outside]))["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize("uri", ["{tmp}/odd names %20", "memory://odd-names/table"])
def test_files_in_directories_with_odd_names_are_found_by_their_encoded_paths(uri: str, tmp_path: Path) -> None:
    store = open_store(uri.format(tmp=tmp_path))
    values = ["A/A", "a?", "é", "%3A", "10:00", "a b+c&d", "#=%", "..", "\t", "日本", None]
    files = []
    for n, value in enumerate(values):
        key = f"{partition_directory('p q', value)}/part {n}.parquet"
        put(store, pa.table({"a": [n]}), key)
        files.append(DataFile(path=encode_path(key), partition_values={"p q": value}))
    schema = struct(**{"a": delta.LONG, "p q": delta.STRING})
    found = read(store, schema, *files, partition_columns=("p q",))
    assert found.to_pydict() == {"a": list(range(len(values))), "p q": values}


def test_stores_that_are_not_local_are_read_alike() -> None:
    store = open_store("memory://data-reader/table")
    file = put(store, pa.table({"a": list(range(100)), "b": ["x"] * 100}), row_group_size=10)
    assert read(store, struct(a=delta.LONG), file)["a"].to_pylist() == list(range(100))
    with pytest.raises(DataFileMissing):
        read(store, struct(a=delta.LONG), DataFile(path="gone"))


# Side by side


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_rows_keep_the_order_of_their_files(store: Store, workers: int) -> None:
    files = [put(store, pa.table({"a": [n] * (50 - n)}), f"{n}.parquet", row_group_size=7) for n in range(50)]
    reader = DataReader(store, ReadSpec(schema=struct(a=delta.LONG), batch_rows=3))
    found = pa.Table.from_batches(reader.read(files, workers=workers))["a"].to_pylist()
    assert found == [n for n in range(50) for _ in range(50 - n)]


def test_rows_before_a_broken_file_come_before_its_error(store: Store) -> None:
    files = [put(store, pa.table({"a": [n]}), f"{n}.parquet") for n in range(5)]
    files[3] = DataFile(path="gone.parquet")
    batches = DataReader(store, ReadSpec(schema=struct(a=delta.LONG))).read(files, workers=4)
    assert [next(batches)["a"].to_pylist() for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(DataFileMissing):
        next(batches)


def test_a_transform_sees_every_batch_and_what_it_empties_is_left_out(store: Store) -> None:
    files = [put(store, pa.table({"a": [n, n + 10]}), f"{n}.parquet") for n in range(10)]
    reader = DataReader(store, ReadSpec(schema=struct(a=delta.LONG)))
    batches = list(reader.read(files, transform=lambda b: b.filter(pc.greater(b["a"], 17))))
    assert [b["a"].to_pylist() for b in batches] == [[18], [19]]


def test_an_error_of_a_transform_is_its_own(store: Store) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("mine")

    file = put(store, pa.table({"a": [1]}))
    with pytest.raises(ValueError, match="mine"):
        list(DataReader(store, ReadSpec(schema=struct(a=delta.LONG))).read([file], transform=fail))


def test_leaving_early_stops_the_work_and_closes_what_was_open() -> None:
    closed = []

    def produce(item: int) -> Iterator[int]:
        try:
            while True:
                yield item
        finally:
            closed.append(item)

    results = in_order(range(1000), produce, workers=3)
    assert [next(results) for _ in range(10)] == [0] * 10
    results.close()  # type: ignore[attr-defined]
    assert sorted(closed) == [0, 1, 2]
    assert not [t for t in threading.enumerate() if t.name.startswith("lakeseal-read")]


def test_no_more_results_are_made_ahead_than_allowed() -> None:
    made = []

    def produce(item: int) -> Iterator[int]:
        for n in range(100):
            made.append(n)
            yield n

    results = in_order(range(4), produce, workers=2, buffered=2)
    next(results)
    threading.Event().wait(0.1)
    assert len(made) <= 1 + 2 * 3
    assert len(list(results)) == 399


def test_nothing_to_read_gives_nothing(store: Store) -> None:
    reader = DataReader(store, ReadSpec(schema=struct(a=delta.LONG)))
    assert list(reader.read([])) == []
    empty = put(store, pa.table({"a": pa.array([], pa.int64())}))
    assert list(reader.read([empty])) == []


def test_large_positions_do_not_overflow(store: Store) -> None:
    file = put(store, pa.table({"a": np.arange(200_000)}), row_group_size=70_000)
    gone = list(range(0, 200_000, 3))
    taken = msgspec.structs.replace(file, deletion_vector=vector(gone))
    found = read(store, struct(a=delta.LONG), taken)["a"].to_numpy()
    assert (found == np.setdiff1d(np.arange(200_000), gone)).all()
